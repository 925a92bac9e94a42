//! Failures of mounts.

use onefold_export::control::SocketError;
use onefold_export::{HelperReason, MountError, MountRefusal};

use super::Failure;

impl Failure {
    /// Returns the failure for an error of a mount. No other function decides this.
    pub(crate) fn of_mount(cannot: String, error: &MountError) -> Failure {
        match error {
            MountError::Pool(cause) => Failure::of_pool(cannot, cause),
            MountError::Mountpoint { source, .. } => Failure::of_io(cannot, source),
            MountError::Twice => Failure::new(cannot).because(error),
            MountError::Fuse { source, .. } => of_refusal(cannot, source),
            MountError::Control(socket) => {
                let failure = Failure::new(cannot).because(error);
                match socket {
                    SocketError::NotTrusted { .. } => {
                        failure.hint("remove that directory, or have XDG_RUNTIME_DIR name one that is yours alone")
                    }
                    SocketError::OfAnotherUser { .. } => failure
                        .hint("have root remove that directory, or have XDG_RUNTIME_DIR name one that is yours alone"),
                    SocketError::Io { .. } => failure.hint("have XDG_RUNTIME_DIR name a directory that is yours alone"),
                }
            }
        }
    }
}

fn of_refusal(cannot: String, refusal: &MountRefusal) -> Failure {
    let failure = Failure::new(cannot).because(refusal);
    match refusal {
        MountRefusal::Device(error) => match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                failure.hint("`chmod 666 /dev/fuse` as root admits all users, as udev does by itself")
            }
            _ => failure.hint("the kernel needs FUSE: `modprobe fuse` makes /dev/fuse"),
        },
        MountRefusal::NoHelper(_) => failure.hint("mount as root, or install `fuse3`"),
        MountRefusal::Helper { reason, .. } => match hint_for(*reason) {
            Some(hint) => failure.hint(hint),
            None => failure,
        },
        MountRefusal::Kernel(error) => match error.kind() {
            std::io::ErrorKind::PermissionDenied => failure.hint("mount as root"),
            std::io::ErrorKind::NotFound => failure.hint("the kernel needs FUSE: `modprobe fuse` makes /dev/fuse"),
            _ => failure,
        },
    }
}

fn hint_for(reason: HelperReason) -> Option<&'static str> {
    match reason {
        HelperReason::OthersNotAllowed => {
            Some("mount without --allow-other, or have root add the line `user_allow_other` to /etc/fuse.conf")
        }
        HelperReason::MountpointOfOthers => Some("mount on a directory of your own: `mkdir ~/images` makes one"),
        HelperReason::FileSystem => Some("mount on a directory of another file system, for example in your home"),
        HelperReason::TooMany => Some("unmount another file system first, or have root raise `mount_max`"),
        HelperReason::Device => Some("the kernel needs FUSE: as root, `modprobe fuse` makes /dev/fuse"),
        HelperReason::NoRights => Some(
            "fusermount3 has to be set-user-id root (`chmod u+s`), and needs a process without `no_new_privs` \
             (NoNewPrivileges= of a unit, a container)",
        ),
        HelperReason::UnknownOption => Some("mount without that option, or as root"),
        HelperReason::Other => None,
    }
}
