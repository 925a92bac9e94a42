//! Failures of archives, installations and targets, as users see them. The one place that decides their words.

use std::io::ErrorKind;

use onefold_guest::guest::OrderError;
use onefold_image::archive::ArchiveError;
use onefold_image::capture::{CaptureError, PlanError};
use onefold_image::install::{InstallError, TargetError};
use onefold_image::store::{Refusal, StoreError};
use onefold_image::{FileUser, HeaderError};
use onefold_net::NetError;
use rustix::io::Errno;

use super::{Exit, Failure};

const CHECK: &str = "`onefold archive check` lists what is damaged and which images that hits";
const NEWER: &str = "use the version of Onefold that wrote the archive, or a newer one";

/// State of a target after an installation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetRemains {
    /// Nothing: the target was a new file, which had no name yet.
    Nothing,
    /// A target that was not written to.
    Untouched,
    /// A target that was overwritten in part.
    Incomplete,
    /// A target whose ends are written and cannot be wiped again.
    Bootable,
}

impl Failure {
    /// Returns the failure that an error of an archive is; `error` names what could not be done.
    pub(crate) fn of_archive(error: impl Into<String>, cause: &ArchiveError) -> Failure {
        let (exit, hint) = explain(cause);
        let failure = Failure { exit, ..Failure::new(error) }.because(cause);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }

    /// Returns the failure of an object store that cannot be used.
    pub(crate) fn of_net(error: impl Into<String>, cause: &NetError) -> Failure {
        let (exit, hint) = match cause {
            NetError::Place { .. } => (Exit::Usage, "a place is `s3://BUCKET` or `s3://BUCKET/PREFIX`"),
            NetError::Endpoint { .. } => (Exit::Usage, "give an address such as `https://s3.example.com`"),
            NetError::PlainHttp { .. } => {
                (Exit::Usage, "use `https://`; --allow-http sends the content of disks so that others may read it")
            }
            NetError::NoCredentials | NetError::HalfCredentials { .. } => {
                (Exit::Failed, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write them into ~/.aws/credentials")
            }
            NetError::File { .. } | NetError::Content { .. } => (Exit::Failed, "check the file, or name another one"),
            NetError::Open { .. } => (
                Exit::Failed,
                "let only its owner and readers of its group use it, as with `chmod go-w,o-rwx`; if it was open to others for \
                 long, make a new secret",
            ),
            NetError::Foreign { .. } => {
                (Exit::Failed, "run the command as that user, or have `chown` give it to the user who runs the command")
            }
            NetError::PlainTokens => (Exit::Usage, "serve without --plain, or at an address of this machine only"),
            NetError::PlainToken { .. } => {
                (Exit::Usage, "use `https://`; a plain connection shows the token to others")
            }
            NetError::Make { .. } => (Exit::Failed, "name another folder with --state"),
            NetError::Listen { .. } => {
                (Exit::Failed, "name a free address of this machine with --listen, and its interface with --interface")
            }
            NetError::Multicast { .. } => (
                Exit::Failed,
                "name an interface that has an IPv4 address with --interface, and a free group, such as 239.192.3.7, \
                 with --multicast",
            ),
            NetError::Chunks(cause) => return Failure::of_archive(error, cause),
            NetError::Client(_) => (Exit::Failed, "check --ca, and that the system has certificates"),
        };
        Failure { exit, ..Failure::new(error) }.because(cause).hint(hint)
    }

    /// Returns the failure that a header of a chunk is that makes no sense.
    pub(crate) fn of_header(error: impl Into<String>, cause: &HeaderError) -> Failure {
        Failure { exit: Exit::Damage, ..Failure::new(error) }.because(cause).hint(CHECK)
    }

    /// Returns the failure that an error of an installation is. `left` is what it leaves behind.
    pub(crate) fn of_install(error: impl Into<String>, cause: &InstallError, left: TargetRemains) -> Failure {
        let (state, again) = match left {
            TargetRemains::Nothing => ("no file is left behind", "run the command again"),
            TargetRemains::Untouched => ("nothing was written to the target", "run the command again"),
            TargetRemains::Incomplete => ("the target is incomplete and does not boot", "install again with --force"),
            TargetRemains::Bootable => {
                ("the target may boot: its first sectors cannot be wiped again", "install again with --force")
            }
        };
        match cause {
            InstallError::TooSmall { needed_bytes, .. } => Failure::new(error)
                .because(cause)
                .hint(format!("give a target of at least {needed_bytes} bytes; nothing was written")),
            InstallError::Archive(archive) => Failure::of_archive(error, archive).because_of(state),
            InstallError::Header(header) => Failure::of_header(error, header).because_of(state),
            InstallError::Target { action, source, .. } => {
                let hint = match source.kind() {
                    ErrorKind::StorageFull => {
                        format!("make room on the file system that holds the target, then {again}")
                    }
                    // Only the kernel knows the place. The target still tells what it lacks.
                    _ if *action == "flush" && left == TargetRemains::Incomplete => {
                        "the kernel's log (`dmesg`) may name the sectors; `--dry-run` compares the target with the \
                         image, and names files that differ"
                            .to_owned()
                    }
                    _ => "the kernel's log (`dmesg`) may tell more about the target".to_owned(),
                };
                Failure::new(error).because(cause).because_of(state).hint(hint)
            }
            InstallError::Fit(_) => Failure::new(error)
                .because(cause)
                .because_of(state)
                .hint("install without --fit, and move the partition table with another program"),
            InstallError::ReadBack { .. } => Failure { exit: Exit::Damage, ..Failure::new(error) }
                .because(cause)
                .because_of(state)
                .hint("do not use the target: its disk, its cable or the memory of this machine loses data"),
            InstallError::Untouched(first) => {
                let left = if left == TargetRemains::Nothing { left } else { TargetRemains::Untouched };
                Failure::of_install(error, first, left)
            }
            InstallError::Unwiped { cause: first, source } => {
                // A new file vanishes, with its ends.
                let left = if left == TargetRemains::Nothing { left } else { TargetRemains::Bootable };
                let failure = Failure::of_install(error, first, left);
                let failure = failure.because_of(format!("its ends cannot be wiped again: {source}"));
                match left {
                    TargetRemains::Bootable => {
                        failure.hint("wipe the target before a machine starts from it: `wipefs --all`")
                    }
                    _ => failure,
                }
            }
            InstallError::Stopped => {
                Failure { exit: Exit::Interrupted, ..Failure::new(error) }.because(cause).because_of(state).hint(again)
            }
        }
    }

    /// Returns the failure that an error of a capture is.
    pub(crate) fn of_capture(error: impl Into<String>, cause: &CaptureError) -> Failure {
        let failure = Failure::new(error).because(cause);
        match cause {
            CaptureError::Disk(disk) => Failure::of_disk(disk).wrap(failure.error),
            CaptureError::Guest(guest) => Failure::of_guest(failure.error, guest),
            CaptureError::Archive(archive) => Failure::of_archive(failure.error, archive),
            CaptureError::Plan(PlanError::Disk(disk)) => Failure::of_disk(disk).wrap(failure.error),
            CaptureError::Plan(PlanError::Order(OrderError::Guest(guest))) => Failure::of_guest(failure.error, guest),
            CaptureError::Plan(PlanError::Temporary(_) | PlanError::Order(OrderError::Temporary(_))) => {
                failure.hint("set TMPDIR to a directory with more room")
            }
            CaptureError::Changed | CaptureError::Restless => failure.hint("run the command again"),
            CaptureError::Stopped => Failure { exit: Exit::Interrupted, ..failure }
                .hint("no image was added; the next capture on this host uses what this one stored"),
            CaptureError::Plan(PlanError::Order(OrderError::TooFar(_)))
            | CaptureError::Chunk(_)
            | CaptureError::TooLarge { .. }
            | CaptureError::State(_)
            | CaptureError::Compress(_) => failure,
        }
    }

    /// Returns the failure of a target that cannot become a disk.
    pub(crate) fn of_target(error: impl Into<String>, cause: &TargetError) -> Failure {
        match cause {
            TargetError::Open(source) => Failure::of_io(error, source),
            TargetError::Lock(_) => Failure::new(error)
                .because(cause)
                .hint("put the target on a file system that has locks, or give a new file"),
            TargetError::Kind => Failure::usage(error).because(cause).hint("give a disk, a partition or a file"),
            TargetError::InUse(holder) => Failure::new(error).because(cause).hint(match holder {
                FileUser::Mounted(_) => "unmount it first",
                FileUser::Swap => "switch that off first, with `swapoff`",
                FileUser::Held(_) => "detach the device that lies on it first",
                FileUser::Locked => "stop the machine, or wait for the other program",
                FileUser::Unclear(_) => "run the command as root, where loop devices can be read",
                FileUser::Unknown => "`lsblk` and `fuser` may tell who",
            }),
            TargetError::Read(source) => Failure::of_io(error, source),
            TargetError::NotBlank => Failure::new(error)
                .because(cause)
                .hint("look at it with `onefold guest info` or `lsblk -f`; --force destroys what it holds"),
        }
    }
}

/// Tells how a command ends on an archive's error, and what the user may do next.
fn explain(error: &ArchiveError) -> (Exit, Option<&'static str>) {
    match error {
        ArchiveError::Store(error) => explain_store(error),
        ArchiveError::Doubtful(_) => (Exit::Failed, Some("`onefold image list` shows whether the change was made")),
        ArchiveError::Newer { .. } => (Exit::Failed, Some(NEWER)),
        ArchiveError::Damaged { .. }
        | ArchiveError::Ledger { .. }
        | ArchiveError::Lost { .. }
        | ArchiveError::DamagedUnit { .. } => (Exit::Damage, Some(CHECK)),
        ArchiveError::Unknown { source, .. } => match explain(source) {
            (Exit::Damage, _) => {
                (Exit::Damage, Some("repair or remove the image first; what nothing needs for certain was collected"))
            }
            other => other,
        },
        ArchiveError::NoArchive => (Exit::Failed, Some("check the path; `onefold archive create` makes a new archive")),
        ArchiveError::Ambiguous => (
            Exit::Damage,
            Some("put the right descriptor back from a copy of the archive, in place of both; nothing was changed"),
        ),
        ArchiveError::Cut { .. } => (
            Exit::Failed,
            Some(
                "continue the copy with all its commands; or use it as it is: `onefold archive repair --accept-cut` removes \
                 these snapshots, and the copy cannot be continued any more",
            ),
        ),
        ArchiveError::NotEmpty { .. } => (Exit::Failed, Some("give an empty folder, or one that is not there yet")),
        ArchiveError::Unfit { .. } => (
            Exit::Failed,
            Some(
                "put the archive on another file system or server; --one-writer allows a server that creates objects \
                 twice, if you promise that there is one writer at a time",
            ),
        ),
        ArchiveError::NoImage { .. } | ArchiveError::Removed { .. } => {
            (Exit::Failed, Some("`onefold image list` shows what is there"))
        }
        ArchiveError::Retired(_) | ArchiveError::GivenUp { .. } => {
            (Exit::Failed, Some("run the command again; it uses what this one stored, unless that was given up"))
        }
        ArchiveError::BadSignature { .. } => {
            (Exit::Damage, Some("delete the object of the signature, and sign the image again"))
        }
        ArchiveError::LongChunk { .. } => (Exit::Damage, Some(CHECK)),
        ArchiveError::WrongUnit { .. } => (
            Exit::Damage,
            Some("run `onefold archive check` on the server; do not use a server that others may change"),
        ),
        ArchiveError::TooLarge { .. } => (Exit::Failed, Some("begin another archive")),
        ArchiveError::TooManyNew { .. } => {
            (Exit::Failed, Some("capture the partitions one by one, with --partition, before the whole disk"))
        }
        ArchiveError::Unstorable(_) | ArchiveError::System { .. } => (Exit::Failed, None),
    }
}

fn explain_store(error: &StoreError) -> (Exit, Option<&'static str>) {
    match error {
        StoreError::Missing(_) | StoreError::Foreign { .. } => (Exit::Damage, Some(CHECK)),
        StoreError::Io { source, .. } | StoreError::NotMade { source, .. } => match source.kind() {
            ErrorKind::Unsupported => (Exit::Failed, Some("put the archive on another file system")),
            ErrorKind::PermissionDenied => (Exit::Failed, Some("run the command as the user who owns the archive")),
            ErrorKind::StorageFull => (
                Exit::Failed,
                Some("make room on the archive's file system, and run the command again: it uses what this one stored"),
            ),
            // The disk below has failed: other errors are not the kernel's to explain.
            _ if is_of_disk(source) => (Exit::Failed, Some("the kernel's log (`dmesg`) may tell more about the disk")),
            _ => (Exit::Failed, None),
        },
        StoreError::Unavailable { .. } | StoreError::GaveUp { .. } => (
            Exit::Failed,
            Some("check the address of the server and the network; --patience waits longer for a server"),
        ),
        StoreError::Stopped { .. } => (Exit::Interrupted, None),
        StoreError::Refused { why, action, .. } => (Exit::Failed, Some(explain_refusal(*why, action))),
    }
}

/// Returns whether an error is one that a failing disk, or a server of files that does not answer, causes.
fn is_of_disk(error: &std::io::Error) -> bool {
    let of_disk = [Errno::IO, Errno::NXIO, Errno::TIMEDOUT, Errno::STALE, Errno::REMOTEIO];
    error.raw_os_error().is_some_and(|code| of_disk.iter().any(|errno| errno.raw_os_error() == code))
}

fn explain_refusal(why: Refusal, action: &str) -> &'static str {
    match why {
        Refusal::Clock => "set the clock of this machine, as with `timedatectl set-ntp true`",
        Refusal::Credentials => {
            "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile in ~/.aws/credentials"
        }
        Refusal::Expired => "get new credentials and run the command again",
        Refusal::Denied if action == "list" => "give the user the right to list the bucket (`s3:ListBucket`)",
        Refusal::Denied if action == "read" => {
            "give the user the right to read objects (`s3:GetObject`), and to list them"
        }
        Refusal::Denied if action == "remove" => "give the user the right to delete objects (`s3:DeleteObject`)",
        Refusal::Denied => "give the user the right to write objects (`s3:PutObject`)",
        Refusal::NoBucket => "make the bucket first, or check its name and --endpoint",
        Refusal::Elsewhere => "give the bucket's own region with --region, and its server with --endpoint",
        Refusal::Condition => {
            "use a server that supports `If-None-Match`; or promise one writer at a time with --one-writer"
        }
        Refusal::Certificate => "give the certificate of its authority with --ca",
        Refusal::ImageServerCertificate => {
            "pin the certificate with --pin, and the fingerprint that the server prints when it starts; or give the \
             certificate of its authority with --ca"
        }
        Refusal::Token => "give a file with a token of the server with --token-file",
        Refusal::Pin => {
            "compare --pin with the fingerprint that the server prints when it starts; if they are equal, another \
             machine answers at this address"
        }
        Refusal::NoTls => "if it serves with --plain, give its address as `http://HOST:PORT`",
        Refusal::ImageServer => "check the address, and what `onefold image serve` says there",
        Refusal::Other => "check the address of the server with --endpoint",
    }
}

#[cfg(test)]
mod tests {
    use onefold_disk::DiskError;
    use onefold_guest::error::GuestError;
    use onefold_image::format::FormatError;

    use super::*;

    #[test]
    fn damage_of_an_archive_has_its_own_code_and_names_the_object() {
        let source = FormatError::Digest { structure: "manifest" };
        let damaged = ArchiveError::Damaged { name: "manifests/00/11".to_owned(), source };
        let failure =
            Failure::of_install("cannot install `web@1`", &InstallError::Archive(damaged), TargetRemains::Incomplete);
        assert_eq!(failure.exit, Exit::Damage);
        assert!(failure.causes[0].contains("`manifests/00/11`"), "{failure}");
        assert!(failure.hint.is_some_and(|hint| hint.contains("archive check")));
    }

    #[test]
    fn only_errors_of_a_disk_point_to_the_log_of_the_kernel() {
        let hint = |errno: Errno| {
            let source = std::io::Error::from(errno);
            explain_store(&StoreError::Io { action: "open", name: "packs/00".to_owned(), source }).1
        };
        assert!(hint(Errno::IO).is_some_and(|hint| hint.contains("dmesg")));
        assert_eq!([Errno::NOENT, Errno::NOTDIR, Errno::MFILE].map(hint), [None; 3]);
    }

    #[test]
    fn a_newer_archive_is_no_damage() {
        let source = FormatError::Newer { structure: "descriptor", version: 9, features: 0 };
        let newer = ArchiveError::Newer { name: "descriptor".to_owned(), source };
        let failure = Failure::of_archive("cannot open", &newer);
        assert_eq!((failure.exit, failure.hint.as_deref()), (Exit::Failed, Some(NEWER)));
    }

    #[test]
    fn damage_that_is_found_before_anything_is_written_leaves_the_target_as_it_was() {
        let causes = |left| {
            let lost = InstallError::Archive(ArchiveError::Lost { unit: onefold_image::UnitName([7; 32]) });
            let failure = Failure::of_install("cannot install", &InstallError::Untouched(Box::new(lost)), left);
            assert_eq!(failure.exit, Exit::Damage);
            failure.causes.concat()
        };
        assert!(
            causes(TargetRemains::Incomplete).contains("nothing was written"),
            "{}",
            causes(TargetRemains::Incomplete)
        );
        assert!(causes(TargetRemains::Nothing).contains("no file is left"), "{}", causes(TargetRemains::Nothing));
        let stopped = InstallError::Untouched(Box::new(InstallError::Stopped));
        let failure = Failure::of_install("cannot install", &stopped, TargetRemains::Incomplete);
        assert_eq!((failure.exit, failure.hint.as_deref()), (Exit::Interrupted, Some("run the command again")));
    }

    #[test]
    fn an_interrupted_installation_has_its_own_code() {
        let failure = Failure::of_install("cannot install", &InstallError::Stopped, TargetRemains::Incomplete);
        assert_eq!(failure.exit, Exit::Interrupted);
        assert!(failure.hint.is_some_and(|hint| hint.contains("--force")));
    }

    #[test]
    fn a_target_that_returns_other_bytes_is_told_to_boot_or_not() {
        let told = |error: InstallError| {
            let failure = Failure::of_install("cannot install", &error, TargetRemains::Incomplete);
            assert_eq!(failure.exit, Exit::Damage);
            failure.causes.concat()
        };
        let damaged = told(InstallError::ReadBack { offset: 5 });
        assert!(damaged.contains("at byte 5") && damaged.contains("does not boot"), "{damaged}");
        let cause = Box::new(InstallError::ReadBack { offset: 5 });
        let unwiped = InstallError::Unwiped { cause, source: std::io::Error::other("the cable is loose") };
        let of_file = Failure::of_install("cannot install", &unwiped, TargetRemains::Nothing).causes.concat();
        assert!(of_file.contains("no file is left") && !of_file.contains("may boot"), "{of_file}");
        let unwiped = told(unwiped);
        assert!(unwiped.contains("at byte 5") && unwiped.contains("may boot"), "{unwiped}");
        assert!(unwiped.contains("the cable is loose"), "{unwiped}");
    }

    #[test]
    fn a_failed_flush_leads_to_the_kernel_and_to_a_comparison() {
        let hint = |action, left| {
            let source = std::io::Error::other("input/output error");
            let error = InstallError::Target { action, offset: None, source };
            Failure::of_install("cannot install", &error, left).hint.unwrap()
        };
        let flushed = hint("flush", TargetRemains::Incomplete);
        assert!(flushed.contains("dmesg") && flushed.contains("--dry-run"), "{flushed}");
        for other in [hint("write", TargetRemains::Incomplete), hint("flush", TargetRemains::Nothing)] {
            assert!(other.contains("dmesg") && !other.contains("--dry-run"), "{other}");
        }
    }

    #[test]
    fn only_temporary_files_want_more_room() {
        let full = || std::io::Error::from(ErrorKind::StorageFull);
        let hints = [
            (PlanError::Temporary(full()), true),
            (PlanError::Order(OrderError::Temporary(full())), true),
            (PlanError::Order(OrderError::TooFar(1)), false),
            (PlanError::Order(OrderError::Guest(GuestError::NotFound)), false),
            (PlanError::Disk(DiskError::Other("bad sector".into())), false),
        ];
        for (error, expected) in hints {
            let failure = Failure::of_capture("cannot capture", &CaptureError::Plan(error));
            let has_hint = failure.hint.as_ref().is_some_and(|hint| hint.contains("TMPDIR"));
            assert_eq!((failure.exit, has_hint), (Exit::Failed, expected), "{failure}");
        }
        assert_eq!(Failure::of_capture("cannot capture", &CaptureError::Stopped).exit, Exit::Interrupted);
    }

    #[test]
    fn each_refused_target_says_what_to_do() {
        for error in [
            TargetError::Kind,
            TargetError::InUse(FileUser::Mounted("/mnt".into())),
            TargetError::InUse(FileUser::Swap),
            TargetError::InUse(FileUser::Held("/dev/dm-0".into())),
            TargetError::InUse(FileUser::Unknown),
            TargetError::InUse(FileUser::Locked),
            TargetError::InUse(FileUser::Unclear("/dev/loop0".into())),
            TargetError::NotBlank,
        ] {
            let failure = Failure::of_target("cannot install", &error);
            assert!(failure.hint.is_some() && failure.causes.len() == 1, "{failure}");
        }
    }
}
