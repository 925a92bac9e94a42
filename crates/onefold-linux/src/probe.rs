//! Probes what the file system beneath a folder can do.

use std::io;
use std::path::{Path, PathBuf};

use onefold_block::random::{Random, SeededRandom};
use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64, Show};
use onefold_substrate::{Abilities, At, ComparisonResult, Refusal, ShareError, SubstrateKind};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

use crate::file::{DescriptorAccess, LinuxFile};
use crate::names::RootFolder;
use crate::share::{self, SHARE_BYTES_MAX};
use crate::{map, mounts};

/// Why a folder's file system can't be used for sharing. A failed probe leaves nothing behind.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The root can't be opened as a folder.
    #[error("cannot open {} as a folder; give one of the file system whose files are to share blocks", path.shown())]
    Root {
        /// The given path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The kind of file system cannot share.
    #[error(
        "the file system at {} is {kind}, which cannot share blocks",
        path.shown()
    )]
    Kind {
        /// The root.
        path: PathBuf,
        /// Name of the kind, or its number.
        kind: String,
    },
    /// The kind of file system can share, but this one was made without reflinks.
    #[error(
        "the {kind} file system at {} was made without reflinks; {}",
        path.shown(), with_reflinks(*kind)
    )]
    NoReflinks {
        /// The root.
        path: PathBuf,
        /// The kind of file system.
        kind: SubstrateKind,
    },
    /// Its block size is not Onefold's.
    #[error(
        "the blocks of the file system at {} have {bytes} bytes, and those of images {BLOCK_BYTES}, which could not \
         be shared singly; move the files to a file system that was made with {}",
        path.shown(), block_option(*kind)
    )]
    BlockBytes {
        /// The root.
        path: PathBuf,
        /// The kind of file system.
        kind: SubstrateKind,
        /// Size of its blocks, in bytes.
        bytes: u64,
    },
    /// OCFS2 allocates space in clusters of more than a block.
    #[error(
        "the clusters of the file system at {} have {bytes} bytes, and OCFS2 shares whole clusters after comparing \
         only what was asked for, so that bytes that differ could be replaced; move the files to a file system that \
         was made with mkfs.ocfs2 -C 4096",
        path.shown()
    )]
    ClusterBytes {
        /// The root.
        path: PathBuf,
        /// Size of its clusters, in bytes.
        bytes: u64,
    },
    /// OCFS2 is mounted with file locks that keep out programs of the same host only.
    #[error(
        "the file system at {} is mounted with `localflocks`, so that hosts do not see each other's locks and would \
         share in the same image; unmount it and mount it without that option, on every host",
        path.shown()
    )]
    LocalLocks {
        /// The root.
        path: PathBuf,
    },
    /// The file system is mounted read-only.
    #[error(
        "the file system at {} can only be read; mount it for writing (mount -o remount,rw)",
        path.shown()
    )]
    ReadOnly {
        /// The root, or the scratch folder.
        path: PathBuf,
    },
    /// The kernel lacks a call that is needed.
    #[error(
        "sharing blocks at {} needs {call}, which the kernel lacks or this process may not use; Linux {since} has it, \
         and a sandbox may have to be told to allow it",
        path.shown()
    )]
    KernelTooOld {
        /// The root.
        path: PathBuf,
        /// Name of the call.
        call: &'static str,
        /// The first kernel version that has it.
        since: &'static str,
    },
    /// The kernel said that it shared two equal blocks, and the map of extents shows that it did not.
    #[error(
        "the {kind} file system at {} takes the call for sharing and then does not share; another kernel may, please \
         report this one",
        path.shown()
    )]
    NotShared {
        /// The root.
        path: PathBuf,
        /// The kind of file system.
        kind: SubstrateKind,
    },
    /// A step of the trial failed for another reason.
    #[error("cannot {op} to try sharing in {}", path.shown())]
    Io {
        /// The step that failed.
        op: &'static str,
        /// The scratch folder.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

fn with_reflinks(kind: SubstrateKind) -> &'static str {
    match kind {
        SubstrateKind::Xfs => {
            "they cannot be added later, so move the files to one that was made with mkfs.xfs -m reflink=1"
        }
        SubstrateKind::Ocfs2 => "unmount it everywhere and run tunefs.ocfs2 --fs-features=refcount on its device",
        SubstrateKind::Btrfs | SubstrateKind::Pool | SubstrateKind::Simulated => "move the files to another one",
    }
}

fn block_option(kind: SubstrateKind) -> &'static str {
    match kind {
        SubstrateKind::Xfs => "mkfs.xfs -b size=4096",
        SubstrateKind::Btrfs => "mkfs.btrfs --sectorsize 4096",
        SubstrateKind::Ocfs2 => "mkfs.ocfs2 -b 4096",
        SubstrateKind::Pool | SubstrateKind::Simulated => "blocks of that size",
    }
}

/// Kinds by the number that `statfs(2)` returns; for kinds that cannot share, their name.
const KINDS: [(u32, Result<SubstrateKind, &str>); 22] = [
    (0x5846_5342, Ok(SubstrateKind::Xfs)),
    (0x9123_683e, Ok(SubstrateKind::Btrfs)),
    (0x7461_636f, Ok(SubstrateKind::Ocfs2)),
    (0xef53, Err("ext2, ext3 or ext4")),
    (0x0102_1994, Err("tmpfs")),
    (0x8584_58f6, Err("ramfs")),
    (0x794c_7630, Err("overlayfs")),
    (0x6969, Err("NFS")),
    (0xff53_4d42, Err("CIFS")),
    (0xfe53_4d42, Err("SMB")),
    (0x6573_5546, Err("FUSE")),
    (0xf2f5_2010, Err("F2FS")),
    (0x2fc1_2fc1, Err("ZFS")),
    (0xca45_1a4e, Err("bcachefs")),
    (0x0116_1970, Err("GFS2")),
    (0x00c3_6400, Err("Ceph")),
    (0x0102_1997, Err("9p")),
    (0x4d44, Err("FAT")),
    (0x2011_bab0, Err("exFAT")),
    (0x7366_746e, Err("NTFS")),
    (0x7371_7368, Err("squashfs")),
    (0x3153_464a, Err("JFS")),
];

/// Probes what the file system of `root` can do, by sharing two equal blocks of an unnamed file in its folder
/// `scratch`. `path` is for messages.
pub(super) fn probe(root: &RootFolder, path: &Path, scratch: &Path) -> Result<Abilities, ProbeError> {
    let folder = root.folder();
    let io = |op| move |source: io::Error| ProbeError::Io { op, path: path.join(scratch), source };
    let host = rustix::fs::fstatvfs(folder).map_err(|errno| io("ask for its mount flags")(errno.into()))?;
    let kind = stated_kind(folder, path)?;
    if host.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Err(ProbeError::ReadOnly { path: path.to_owned() });
    }
    check_locks(kind, path, || mounts::mount_of(folder).map(|mount| mount.options))?;
    let scratch_folder = root.open_folder(scratch).map_err(|error| match raw(&error) {
        // Some sandboxes report a forbidden call as PERM; a folder never does.
        Some(Errno::NOSYS | Errno::PERM) => {
            ProbeError::KernelTooOld { path: path.to_owned(), call: "openat2(2)", since: "5.6" }
        }
        _ => io("open the folder")(error),
    })?;
    let file = scratch_file(&scratch_folder).map_err(|error| match raw(&error) {
        Some(Errno::ROFS) => ProbeError::ReadOnly { path: path.join(scratch) },
        _ => io("create a file")(error),
    })?;
    match try_to_share(&file) {
        Ok(true) => Ok(abilities(kind)),
        Ok(false) => Err(ProbeError::NotShared { path: path.to_owned(), kind }),
        Err(ShareError::Refused(Refusal::Apart)) => Err(ProbeError::NoReflinks { path: path.to_owned(), kind }),
        Err(ShareError::Io(error)) if raw(&error) == Some(Errno::NOTTY) => {
            Err(ProbeError::KernelTooOld { path: path.to_owned(), call: "ioctl FIDEDUPERANGE", since: "4.5" })
        }
        Err(ShareError::Io(error)) => Err(io("share two blocks")(error)),
        Err(error @ (ShareError::Refused(_) | ShareError::Full | ShareError::Busy)) => {
            Err(io("share two blocks")(io::Error::other(error)))
        }
    }
}

/// Returns the abilities of a file system of this kind, without trying them: nothing is written, so this also works on
/// one that is full or read-only. That its blocks can really be shared is not proved. `path` is for messages.
pub(super) fn look(root: &RootFolder, path: &Path) -> Result<Abilities, ProbeError> {
    stated_kind(root.folder(), path).map(abilities)
}

/// Returns the kind of a file system whose blocks can be shared, by what it states about itself.
fn stated_kind(folder: &OwnedFd, path: &Path) -> Result<SubstrateKind, ProbeError> {
    let io = |op| move |errno: Errno| ProbeError::Io { op, path: path.to_owned(), source: errno.into() };
    let kind = kind(folder).map_err(io("ask for the kind of file system"))?;
    let kind = kind.map_err(|kind| ProbeError::Kind { path: path.to_owned(), kind })?;
    let host = rustix::fs::fstatvfs(folder).map_err(io("ask for the block size"))?;
    if host.f_bsize != BLOCK_BYTES_U64 {
        return Err(ProbeError::BlockBytes { path: path.to_owned(), kind, bytes: host.f_bsize });
    }
    check_clusters(folder, kind, path)?;
    Ok(kind)
}

fn kind(folder: &OwnedFd) -> Result<Result<SubstrateKind, String>, Errno> {
    let number = rustix::fs::fstatfs(folder)?.f_type;
    // The field is signed on some machines; 32 bits of it matter on all.
    let number = u32::try_from(number & 0xffff_ffff).unwrap_or(u32::MAX);
    let known = KINDS.iter().find(|(known, _)| *known == number);
    Ok(known.map_or_else(|| Err(format!("a file system of type {number:#x}")), |(_, kind)| kind.map_err(str::to_owned)))
}

/// Checks the cluster size of OCFS2, which it reports as the preferred size for reads and writes.
fn check_clusters(folder: &OwnedFd, kind: SubstrateKind, path: &Path) -> Result<(), ProbeError> {
    if kind != SubstrateKind::Ocfs2 {
        return Ok(());
    }
    let io =
        |errno: Errno| ProbeError::Io { op: "ask for the cluster size", path: path.to_owned(), source: errno.into() };
    let bytes = u64::try_from(rustix::fs::fstat(folder).map_err(io)?.st_blksize).unwrap_or(u64::MAX);
    if bytes == BLOCK_BYTES_U64 { Ok(()) } else { Err(ProbeError::ClusterBytes { path: path.to_owned(), bytes }) }
}

/// Checks that hosts see each other's file locks. On OCFS2 a mount option decides this.
fn check_locks(
    kind: SubstrateKind,
    path: &Path,
    options: impl FnOnce() -> io::Result<Vec<String>>,
) -> Result<(), ProbeError> {
    if kind != SubstrateKind::Ocfs2 {
        return Ok(());
    }
    match options() {
        Ok(options) if options.iter().any(|option| option == "localflocks") => {
            Err(ProbeError::LocalLocks { path: path.to_owned() })
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Err(ProbeError::KernelTooOld {
            path: path.to_owned(),
            call: "statx(2) with the number of a mount",
            since: "5.8",
        }),
        Err(source) => Err(ProbeError::Io { op: "read the options of the mount", path: path.to_owned(), source }),
    }
}

/// Creates an unnamed file.
fn scratch_file(folder: &OwnedFd) -> io::Result<LinuxFile> {
    match rustix::fs::openat(folder, c".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(LinuxFile::new(file, DescriptorAccess::ReadWrite)),
        // OCFS2 lacks unnamed files (`O_TMPFILE`).
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => removed_scratch_file(folder),
        Err(errno) => Err(errno.into()),
    }
}

/// Number of names to try: on a file system of many hosts, another process may have the same number.
const NAMES_TRIED: u32 = 100;

/// Creates a file and removes its name.
fn removed_scratch_file(folder: &OwnedFd) -> io::Result<LinuxFile> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let process = std::process::id();
    for attempt in 0..NAMES_TRIED {
        let name = format!(".onefold-probe.{process}.{attempt}");
        match rustix::fs::openat(folder, &name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                rustix::fs::unlinkat(folder, &name, AtFlags::empty())?;
                return Ok(LinuxFile::new(file, DescriptorAccess::ReadWrite));
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// Shares two equal blocks and returns whether they are shared. The blocks are incompressible, and apart, so that
/// compression is not tried on both at once: compressed blocks have no place of their own.
fn try_to_share(file: &LinuxFile) -> Result<bool, ShareError> {
    const SECOND: u64 = 2 * BLOCK_BYTES_U64;
    let mut block = [0; BLOCK_BYTES];
    SeededRandom::new(1).fill(&mut block)?;
    for offset in [0, SECOND] {
        file.write_at(offset, &block)?;
    }
    let compared = share::share(At { file, offset: 0 }, At { file, offset: SECOND }, BLOCK_BYTES_U64)?;
    let place = |offset| -> io::Result<Option<u64>> {
        let extents = map::extents(file, offset, u64::MAX)?;
        Ok(extents.first().filter(|extent| extent.offset == offset && extent.is_shared).and_then(|extent| extent.place))
    };
    let places = (place(0)?, place(SECOND)?);
    Ok(compared == ComparisonResult::Shared && places.0.is_some() && places.0 == places.1)
}

fn abilities(kind: SubstrateKind) -> Abilities {
    Abilities {
        kind,
        block_bytes: u32::try_from(BLOCK_BYTES).expect("a block is small"),
        share_bytes_max: SHARE_BYTES_MAX,
        // Btrfs flags an extent if any part of it is referred to elsewhere; OCFS2 may keep the flag forever.
        tells_last_reference: kind == SubstrateKind::Xfs,
        frees_whole_extents: kind == SubstrateKind::Btrfs,
        is_clustered: kind == SubstrateKind::Ocfs2,
        shares_in_two_steps: kind == SubstrateKind::Ocfs2,
        has_own_domains: false,
    }
}

fn raw(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_every_file_has_a_name_it_is_removed_at_once() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let taken = folder.path().join(format!(".onefold-probe.{}.0", std::process::id()));
        std::fs::write(&taken, "of another host").unwrap();
        let opened = std::fs::File::open(folder.path()).unwrap().into();
        let file = removed_scratch_file(&opened).unwrap();
        file.write_at(0, b"scratch").unwrap();
        assert_eq!(file.length().unwrap(), 7);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read(&taken).unwrap(), b"of another host");
    }

    /// Hosts of such a mount would see each other's held locks as free.
    #[test]
    fn locks_that_other_hosts_do_not_see_are_refused() {
        let path = Path::new("/images");
        let check = |kind, options: &[&str]| {
            check_locks(kind, path, || Ok(options.iter().map(|option| (*option).to_owned()).collect()))
        };
        let ocfs2 = SubstrateKind::Ocfs2;
        assert!(matches!(check(ocfs2, &["rw", "localflocks", "rw"]), Err(ProbeError::LocalLocks { .. })));
        check(ocfs2, &["rw", "subvol=/localflocks", "nolocalflocks"]).unwrap();
        check(SubstrateKind::Xfs, &["localflocks"]).unwrap();
        // If the options are unknown, sound locks are not assumed.
        let failing = |kind: io::ErrorKind| check_locks(ocfs2, path, || Err(kind.into()));
        assert!(matches!(failing(io::ErrorKind::NotFound), Err(ProbeError::Io { .. })));
        assert!(matches!(failing(io::ErrorKind::Unsupported), Err(ProbeError::KernelTooOld { .. })));
        check_locks(SubstrateKind::Btrfs, path, || panic!("it is not asked")).unwrap();
    }

    #[test]
    fn the_options_of_a_real_mount_are_found() {
        let folder = std::fs::File::open("/proc").unwrap();
        let mount = mounts::mount_of(&folder).unwrap();
        assert!(mount.options.iter().any(|option| option == "rw" || option == "ro"), "{mount:?}");
    }

    #[test]
    fn every_refusal_names_the_thing_the_cause_and_the_next_step() {
        let path = || PathBuf::from("/images");
        let ocfs2 = SubstrateKind::Ocfs2;
        let messages = [
            (ProbeError::ClusterBytes { path: path(), bytes: 1 << 20 }, "1048576", "mkfs.ocfs2 -C 4096"),
            (ProbeError::LocalLocks { path: path() }, "localflocks", "mount it without"),
            (ProbeError::NoReflinks { path: path(), kind: ocfs2 }, "without reflinks", "tunefs.ocfs2"),
            (ProbeError::BlockBytes { path: path(), kind: ocfs2, bytes: 1024 }, "1024 bytes", "mkfs.ocfs2 -b 4096"),
            (ProbeError::KernelTooOld { path: path(), call: "openat2(2)", since: "5.6" }, "openat2(2)", "Linux 5.6"),
            (ProbeError::NotShared { path: path(), kind: ocfs2 }, "OCFS2", "another kernel"),
        ];
        for (error, cause, step) in messages {
            let message = error.to_string();
            assert!(["/images", cause, step].iter().all(|part| message.contains(part)), "{message}");
            assert!(!message.contains("  "), "{message}");
        }
    }
}
