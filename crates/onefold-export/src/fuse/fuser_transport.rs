//! Connecting to the kernel through the `fuser` crate: mounting, agreeing on abilities, receiving with several threads.

use std::io;
use std::path::Path;
use std::sync::Arc;

use fuser::{Config, INodeNo, InitFlags, KernelConfig, MountOption, Notifier, Session, SessionACL};
use onefold_pool::Ino;

use super::filesystem::PoolFilesystem;
use super::fuser_adapter::FuserAdapter;
use super::transport::{Invalidate, Transport};
use crate::options::{Access, AccessTimes, MountOptions};

/// Largest request: 256 blocks that are hashed side by side. It is what the kernel allows without a sysctl.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Readahead and asynchronous direct requests that the kernel keeps under way; its own default is 12. A guest's disk
/// queue alone is 32 to 128 deep.
const BACKGROUND_REQUESTS_MAX: u16 = 128;

/// Abilities that are used where the kernel has them, beside those that `fuser` asks for by itself (asynchronous reads,
/// writes of more than a page, requests of more than 32 pages).
///
/// Never to be added: `FUSE_POSIX_LOCKS` and `FUSE_FLOCK_LOCKS`, because locks that the kernel keeps itself are released
/// as QEMU expects; `FUSE_PASSTHROUGH`, because all data must be seen; `FUSE_OVER_IO_URING`, which `fuser` can't serve.
const ABILITIES: [InitFlags; 11] = [
    // The kernel checks permissions with ACLs, and the pool applies the umask where no default ACL stands in for it.
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_DONT_MASK,
    // Spares a question for `security.capability` before every buffered write; see `privileges`.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    // Look-ups of `.` and `..` by number, for NFS.
    InitFlags::FUSE_EXPORT_SUPPORT,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    // Cached pages stay when an answer carries a new size: only this mount changes files.
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_CACHE_SYMLINKS,
];

/// Mounts `filesystem` at `mountpoint` and agrees with the kernel on abilities.
///
/// # Errors
/// When the kernel (or `fusermount3`, for other users than root) refuses.
pub(crate) fn connect(
    filesystem: PoolFilesystem,
    mountpoint: &Path,
    options: &MountOptions,
) -> io::Result<Box<dyn Transport>> {
    let adapter = FuserAdapter::new(filesystem, options);
    let session = Session::new(adapter, mountpoint, &config(options))?;
    let invalidator = Arc::new(FuserInvalidator { notifier: session.notifier() });
    Ok(Box::new(FuserTransport { session, invalidator }))
}

/// Sets what the kernel and the pool will do for each other.
pub(super) fn negotiate(config: &mut KernelConfig, writeback_cache: bool) {
    config.set_max_write(REQUEST_BYTES_MAX).expect("fuser's buffers hold 16 MiB");
    // The kernel offers what its block layer's default is; `backing_device` raises the limit once mounted.
    let _ = config.set_max_readahead(REQUEST_BYTES_MAX);
    config.set_max_background(BACKGROUND_REQUESTS_MAX).expect("not zero");
    let wanted = ABILITIES.into_iter().chain(writeback_cache.then_some(InitFlags::FUSE_WRITEBACK_CACHE));
    for ability in wanted {
        // An older kernel does without.
        let _ = config.add_capabilities(ability);
    }
}

fn config(options: &MountOptions) -> Config {
    let threads = options.threads.get().min(MountOptions::THREADS_MAX);
    let mut mount_options = vec![
        MountOption::FSName(source_name(options)),
        // Not `MountOption::Subtype`: fuser passes that to `fusermount3` only, this one to the kernel as well.
        MountOption::CUSTOM("subtype=onefold".into()),
        MountOption::DefaultPermissions,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    if options.access_times == AccessTimes::Never {
        mount_options.push(MountOption::NoAtime);
    }
    let mut config = Config::default();
    config.mount_options = mount_options;
    config.acl = match options.access {
        Access::Everyone => SessionACL::All,
        Access::Owner => SessionACL::Owner,
    };
    config.n_threads = Some(threads);
    config.clone_fd = threads > 1;
    config
}

/// Returns the source name so that it arrives as it is: `fusermount3` takes its options as one list with commas.
fn source_name(options: &MountOptions) -> String {
    if rustix::process::geteuid().is_root() {
        options.source_name.clone()
    } else {
        options.source_name.replace('\\', "\\\\").replace(',', "\\,")
    }
}

struct FuserTransport {
    session: Session<FuserAdapter>,
    invalidator: Arc<FuserInvalidator>,
}

impl Transport for FuserTransport {
    fn serve(self: Box<Self>) -> io::Result<()> {
        self.session.run()
    }

    fn invalidator(&self) -> Arc<dyn Invalidate> {
        self.invalidator.clone()
    }
}

struct FuserInvalidator {
    notifier: Notifier,
}

impl Invalidate for FuserInvalidator {
    fn invalidate(&self, ino: Ino) -> io::Result<()> {
        // From the first byte, to the end.
        self.notifier.inval_inode(INodeNo(ino.0), 0, 0)
    }
}
