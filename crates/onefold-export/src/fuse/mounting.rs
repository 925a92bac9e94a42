//! Mounts: by system call if this process may, otherwise through `fusermount3`, which is set-user-id root.

use std::ffi::CString;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::device::FuseDevice;
use super::refusal::MountRefusal;
use crate::options::{AccessTimes, KernelOption, MountAccess, MountOptions};

const HELPER: &str = "fusermount3";
/// Longer than any message of the helper.
const HELPER_OUTPUT_BYTES_MAX: u64 = 64 << 10;

/// Makes `/proc/mounts` show `fuse.onefold` as the type.
const SUBTYPE: &str = "subtype=onefold";

/// A mount. Dropping it unmounts, unless the mount has already ended.
#[derive(Debug)]
pub(super) struct FuseMount {
    path: PathBuf,
    pub(super) device: Arc<FuseDevice>,
}

impl FuseMount {
    /// Mounts at `path`. No thread answers requests there yet.
    ///
    /// # Errors
    /// See [`MountRefusal`].
    pub(super) fn new(path: &Path, options: &MountOptions) -> Result<FuseMount, MountRefusal> {
        let device = match mount_directly(path, options) {
            Err(MountRefusal::Kernel(error)) if error.raw_os_error() == Some(libc::EPERM) => {
                mount_by_helper(path, options)?
            }
            device => device?,
        };
        Ok(FuseMount { path: path.to_owned(), device: Arc::new(device) })
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        // A mount that appears there after the connection has ended belongs to another file system.
        if !self.device.is_connected() {
            return;
        }
        // Forced, because the daemon no longer answers and processes with open files would wait for ever. Nothing can
        // be done about an error here.
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        if rustix::mount::unmount(&self.path, flags) == Err(Errno::PERM) {
            let _ = Command::new(HELPER).args(["-u", "-q", "-z", "--"]).arg(&self.path).stdin(Stdio::null()).output();
        }
    }
}

fn mount_directly(path: &Path, options: &MountOptions) -> Result<FuseDevice, MountRefusal> {
    let device = FuseDevice::open().map_err(MountRefusal::Device)?;
    let mut words = vec![
        format!("fd={}", device.as_fd().as_raw_fd()),
        format!("rootmode={:o}", path.metadata()?.mode()),
        format!("user_id={}", rustix::process::getuid().as_raw()),
        format!("group_id={}", rustix::process::getgid().as_raw()),
        SUBTYPE.to_owned(),
    ];
    words.extend(common_words(options));
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOATIME, options.access_times == AccessTimes::Never);
    flags.set(MountFlags::STRICTATIME, options.access_times == AccessTimes::Strict);
    options.kernel_options.iter().for_each(|option| flags.insert(kernel_option(*option).0));
    let data = CString::new(words.join(",")).expect("words without zero bytes");
    rustix::mount::mount(&options.source_name, path, "fuse", flags, &*data).map_err(io::Error::from)?;
    Ok(device)
}

/// Returns the options that the kernel and the helper spell alike.
fn common_words(options: &MountOptions) -> Vec<String> {
    let mut words = vec!["default_permissions".to_owned()];
    if options.access == MountAccess::Everyone {
        words.push("allow_other".to_owned());
    }
    words
}

/// Mounts through the helper. The helper sends the connection back through a socket, whose number it finds in its
/// environment. The socket is its standard input, so it needs no other inherited descriptor.
fn mount_by_helper(path: &Path, options: &MountOptions) -> Result<FuseDevice, MountRefusal> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut helper = Command::new(HELPER)
        .arg("-o")
        .arg(helper_words(options).join(","))
        .arg("--")
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(MountRefusal::NoHelper)?;
    // Only the helper may have the other end; otherwise its death would go unnoticed.
    let received = receive_device(&ours);
    drop(ours);
    let mut said = Vec::new();
    if let Some(stderr) = helper.stderr.take() {
        let _ = stderr.take(HELPER_OUTPUT_BYTES_MAX).read_to_end(&mut said);
    }
    helper.wait()?;
    received?.ok_or_else(|| MountRefusal::of_helper(&said))
}

fn helper_words(options: &MountOptions) -> Vec<String> {
    // The helper takes its options as one comma-separated list.
    let source = options.source_name.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = vec![format!("fsname={source}"), SUBTYPE.to_owned()];
    words.extend(common_words(options));
    words.push(if options.read_only { "ro" } else { "rw" }.to_owned());
    // Old helpers do not know `strictatime`. The kernel needs it for the table of mounts only.
    if options.access_times == AccessTimes::Never {
        words.push("noatime".to_owned());
    }
    words.extend(options.kernel_options.iter().map(|option| kernel_option(*option).1.to_owned()));
    words
}

/// Returns an option in the form of the system call, and of the helper if the helper knows it.
fn kernel_option(option: KernelOption) -> (MountFlags, &'static str) {
    match option {
        KernelOption::Sync => (MountFlags::SYNCHRONOUS, "sync"),
        KernelOption::Dirsync => (MountFlags::DIRSYNC, "dirsync"),
        KernelOption::Lazytime => (MountFlags::LAZYTIME, "lazytime"),
        KernelOption::Nosymfollow => (MountFlags::NOSYMFOLLOW, "nosymfollow"),
    }
}

/// Receives the connection; `None` if the helper ends without sending one.
fn receive_device(socket: &UnixStream) -> io::Result<Option<FuseDevice>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptors.map(FuseDevice::from).next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helpers_list_is_not_split_within_a_name() {
        let mut options = MountOptions::new("a,b\\c");
        options.access = MountAccess::Owner;
        options.access_times = AccessTimes::Never;
        options.kernel_options = vec![KernelOption::Dirsync];
        assert_eq!(
            helper_words(&options),
            ["fsname=a\\,b\\\\c", "subtype=onefold", "default_permissions", "rw", "noatime", "dirsync"]
        );
    }

    #[test]
    fn a_helper_that_ends_without_a_connection_is_noticed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(receive_device(&ours).unwrap().is_none());
    }
}
