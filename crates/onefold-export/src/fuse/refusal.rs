//! Why a mount was refused: by the kernel, or by `fusermount3`.

use std::io;

use onefold_block::shown::ShownOutput;

/// Why the kernel or `fusermount3` did not mount.
#[derive(Debug, thiserror::Error)]
pub enum MountRefusal {
    /// The device of FUSE cannot be opened.
    #[error("cannot open /dev/fuse")]
    Device(#[source] io::Error),
    /// Only root may mount by a system call, and `fusermount3` cannot be run.
    #[error("only root may mount by itself, and fusermount3 cannot be run")]
    NoHelper(#[source] io::Error),
    /// `fusermount3` refused.
    #[error("fusermount3: {said}")]
    Helper {
        /// The reason, as far as its message is known.
        reason: HelperReason,
        /// Its message.
        said: String,
    },
    /// The kernel refused, or could not agree on a protocol.
    #[error(transparent)]
    Kernel(#[from] io::Error),
}

/// Why `fusermount3` refused a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperReason {
    /// `allow_other` needs `user_allow_other` in `/etc/fuse.conf`.
    OthersNotAllowed,
    /// The user may not write to the mount point, or does not own it in a sticky directory.
    MountpointOfOthers,
    /// The file system of the mount point is of a kind on which users must not mount.
    FileSystem,
    /// Users have as many mounts as `mount_max` in `/etc/fuse.conf` allows.
    TooMany,
    /// The device of FUSE is missing or cannot be opened.
    Device,
    /// It runs without root's rights: it is not set-user-id, or `no_new_privs` holds.
    NoRights,
    /// It does not know an option.
    UnknownOption,
    /// Any other message.
    Other,
}

impl MountRefusal {
    /// Returns the refusal for what the helper wrote to its standard error.
    pub(super) fn of_helper(output: &[u8]) -> MountRefusal {
        let text = String::from_utf8_lossy(output);
        let said = text.trim().trim_start_matches("fusermount3:").trim_start();
        let said = if said.is_empty() { "it ended without a message" } else { said };
        MountRefusal::Helper { reason: reason_of(said), said: ShownOutput(said.as_bytes()).to_string() }
    }
}

/// Recognises the messages of libfuse 3 (`util/fusermount.c`), which are not translated.
fn reason_of(said: &str) -> HelperReason {
    const KNOWN: [(&str, HelperReason); 9] = [
        ("only allowed if 'user_allow_other' is set", HelperReason::OthersNotAllowed),
        ("no write access to mountpoint", HelperReason::MountpointOfOthers),
        ("not owned by user", HelperReason::MountpointOfOthers),
        ("mounting over filesystem type", HelperReason::FileSystem),
        ("too many FUSE filesystems mounted", HelperReason::TooMany),
        ("fuse device not found", HelperReason::Device),
        ("failed to open /dev/fuse", HelperReason::Device),
        ("mount failed: Operation not permitted", HelperReason::NoRights),
        ("unknown option", HelperReason::UnknownOption),
    ];
    KNOWN.iter().find(|(text, _)| said.contains(text)).map_or(HelperReason::Other, |&(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_helper_are_recognised_and_kept() {
        for (output, expected) in [
            (
                "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf\n",
                HelperReason::OthersNotAllowed,
            ),
            ("fusermount3: user has no write access to mountpoint /mnt\n", HelperReason::MountpointOfOthers),
            ("fusermount3: mountpoint /tmp not owned by user\n", HelperReason::MountpointOfOthers),
            ("fusermount3: mounting over filesystem type 0x65735546 is forbidden\n", HelperReason::FileSystem),
            (
                "fusermount3: too many FUSE filesystems mounted; mount_max=N can be set in /etc/fuse.conf\n",
                HelperReason::TooMany,
            ),
            ("fusermount3: fuse device not found, try 'modprobe fuse' first\n", HelperReason::Device),
            ("fusermount3: failed to open /dev/fuse: Permission denied\n", HelperReason::Device),
            ("fusermount3: mount failed: Operation not permitted\n", HelperReason::NoRights),
            ("fusermount3: unknown option 'lazytime'\n", HelperReason::UnknownOption),
            ("fusermount3: reading /etc/fuse.conf: read failed\n", HelperReason::Other),
        ] {
            let MountRefusal::Helper { reason, said } = MountRefusal::of_helper(output.as_bytes()) else { panic!() };
            assert_eq!(reason, expected, "{output}");
            assert_eq!(format!("fusermount3: {said}\n"), output);
        }
        assert_eq!(MountRefusal::of_helper(b"").to_string(), "fusermount3: it ended without a message");
    }
}
