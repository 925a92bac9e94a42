//! The manual page `mount.fuse.onefold(8)`.

use std::fmt::Write;

use crate::mount_helper::BY_KERNEL;
use crate::mount_options;

/// Name of the page's file.
pub(super) const FILE: &str = "mount.fuse.onefold.8";

/// Returns the page in the language of man(7).
pub(super) fn page() -> String {
    let mut page = format!(
        ".TH mount.fuse.onefold 8 \"\" \"onefold {}\"\n\
         .SH NAME\n\
         mount.fuse.onefold \\- mount a pool of Onefold by mount(8) or /etc/fstab\n\
         .SH SYNOPSIS\n\
         .B mount \\-t fuse.onefold\n[\\fB\\-o\\fR \\fIOPTION\\fR[,\\fIOPTION\\fR...]] \\fIPOOL DIRECTORY\\fR\n\
         .SH DESCRIPTION\n",
        env!("CARGO_PKG_VERSION")
    );
    page.push_str(&escaped(
        "Mounts the pool in the file or partition POOL, as `onefold pool mount` does, and returns when the mount is \
         ready. mount(8) calls this helper for the type fuse.onefold; users do not call it themselves.",
    ));
    page.push_str("\n.SH OPTIONS\n");
    for option in mount_options::all() {
        let default = option.default.as_ref().map(|default| format!(" (default: {default})")).unwrap_or_default();
        let _ =
            write!(page, ".TP\n.B {}\n{}.\n", escaped(&option.synopsis()), escaped(&(option.help.clone() + &default)));
    }
    let others = [
        (BY_KERNEL.join(", "), "As for any file system (mount(8)); the kernel implements them."),
        (
            "defaults, rw, nofail, noauto, user, _netdev, x-*".to_owned(),
            "For mount(8) and systemd; they do not change the mount itself.",
        ),
        (
            "uhelper=fuse.onefold".to_owned(),
            "Makes umount(8) return only when everything is on disk and the pool's file is free.",
        ),
        (
            "remount".to_owned(),
            "Changes what the kernel implements: ro, rw, noatime, relatime, sync, nosymfollow and the like. It does not \
             support the options above that the daemon implements: they keep the values of the running mount, and a note \
             says so. Unmount and mount the pool to change them.",
        ),
    ];
    for (name, help) in others {
        let _ = write!(page, ".TP\n.B {}\n{}\n", escaped(&name), escaped(help));
    }
    page.push_str(REST);
    page
}

/// The sections that do not depend on the options.
const REST: &str = ".SH EXIT STATUS
0 mounted, 1 failed, 2 wrong usage, for example an unknown option.
.SH FILES
.TP
.I /etc/fstab
lines that mount pools at boot
.TP
.I /run/onefold
control sockets of the daemons of root's mounts
.SH EXAMPLES
.nf
mount \\-t fuse.onefold \\-o memory=2G,uhelper=fuse.onefold /data/images.pool /mnt/images
.fi
.PP
As a line of /etc/fstab:
.PP
.nf
/data/images.pool  /mnt/images  fuse.onefold  memory=2G,nofail,uhelper=fuse.onefold  0  0
.fi
.SH SEE ALSO
.BR onefold\\-pool\\-mount (1),
.BR onefold\\-pool\\-umount (1),
.BR mount (8),
.BR fstab (5)
";

/// Returns a text of one line in the language of man(7).
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_option() {
        let page = page();
        for option in mount_options::all() {
            assert!(page.contains(&format!(".TP\n.B {}\n", escaped(&option.synopsis()))), "{option:?}");
        }
        assert!(page.lines().all(|line| !line.starts_with('\'')), "{page}");
    }
}
