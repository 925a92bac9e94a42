//! The kernel's list of mounts (`mountinfo`): the device and the options of each mount.
//!
//! Other users choose the names in the list and its length. So it is read line by line, and lines are bounded.

use std::io::{self, BufRead, BufReader, Read};

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, StatxFlags};

/// The list, as this thread sees it.
const LIST: &str = "/proc/thread-self/mountinfo";
/// Maximum length of a line: paths of 4096 bytes, each byte written as up to four, and options of a page.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// A mount in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedMount {
    /// The device of the file system: major and minor number.
    pub(super) device: (u32, u32),
    /// Options of the mount and of its file system.
    pub(super) options: Vec<String>,
}

/// Returns the mount that an open file or folder is on.
///
/// # Errors
/// `NotFound` if the list lacks the mount; `Unsupported` if the kernel does not report mount numbers (before Linux
/// 5.8).
pub(super) fn mount_of(file: impl AsFd) -> io::Result<ListedMount> {
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if !StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    find(std::fs::File::open(LIST)?, stat.stx_mnt_id)?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Finds a mount in a list by its number.
fn find(list: impl Read, number: u64) -> io::Result<Option<ListedMount>> {
    let mut list = BufReader::new(list);
    let mut line = Vec::new();
    loop {
        line.clear();
        let count = list.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if count == 0 {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') && count as u64 == LINE_BYTES_MAX {
            skip_line(&mut list)?;
        }
        if let Some(mount) = mount_in(&line, number) {
            return Ok(Some(mount));
        }
    }
}

fn skip_line(list: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = list.fill_buf()?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (count, is_over) = (end.map_or(bytes.len(), |end| end + 1), end.is_some() || bytes.is_empty());
        list.consume(count);
        if is_over {
            return Ok(());
        }
    }
}

/// Returns the mount of a line, if it has this number. Fields: number, parent, device, root, place, options, any number
/// of other fields, a dash, kind, source, options of the file system. White space in a field is written in octal.
fn mount_in(line: &[u8], number: u64) -> Option<ListedMount> {
    let mut fields = line.trim_ascii_end().split(|byte| *byte == b' ').map(String::from_utf8_lossy);
    if fields.next()?.parse() != Ok(number) {
        return None;
    }
    let device = fields.nth(1)?;
    let (major, minor) = device.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let own = fields.nth(2)?;
    let of_file_system = fields.skip_while(|field| field != "-").nth(3).unwrap_or_default();
    let options = own.split(',').chain(of_file_system.split(',')).filter(|option| !option.is_empty());
    Some(ListedMount { device, options: options.map(str::to_owned).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "22 1 0:20 / /sys rw,nosuid - sysfs sysfs rw\n\
        36 22 98:7 /sub /mnt rw,noatime shared:1 master:2 - btrfs /dev/x rw,subvol=/localflocks\n\
        40 22 8:16 / /srv/a\\040-\\040b rw,relatime shared:3 - ocfs2 /dev/sdb rw,_netdev,heartbeat=local,localflocks\n\
        41 22 8:17 / /srv/b rw - ocfs2 /dev/localflocks rw,heartbeat=local,coherency=full\n";

    fn found(list: &str, number: u64) -> Option<ListedMount> {
        find(list.as_bytes(), number).unwrap()
    }

    #[test]
    fn mounts_are_found_with_their_device_and_their_options() {
        let mount = found(LIST, 36).unwrap();
        assert_eq!(mount.device, (98, 7));
        assert_eq!(mount.options, ["rw", "noatime", "rw", "subvol=/localflocks"]);
        let options = found(LIST, 40).unwrap().options;
        assert_eq!(options, ["rw", "relatime", "rw", "_netdev", "heartbeat=local", "localflocks"]);
        assert_eq!(found(LIST, 41).unwrap().options, ["rw", "rw", "heartbeat=local", "coherency=full"]);
        assert_eq!(found(LIST, 3), None);
        // A truncated list ends without a newline.
        assert_eq!(found(LIST.trim_end(), 41).unwrap().device, (8, 17));
    }

    #[test]
    fn odd_lists_are_read_to_their_end_and_no_further() {
        for odd in ["", "\n", "36\n", "36 x\n", "36 1 8 / / rw - a b c\n", "36 1 8:x / / rw - a b c\n", "36 1 8:1 /\n"]
        {
            assert_eq!(found(odd, 36), None, "{odd}");
        }
        // Without a dash there are no options of a file system.
        assert_eq!(found("36 1 8:1 / / rw,localflocks shared:1\n", 36).unwrap().options, ["rw", "localflocks"]);
        let long = format!("7 1 8:1 / /{} rw - a b c\n{LIST}", "x".repeat(1 << 20));
        assert_eq!(found(&long, 36), found(LIST, 36), "a long line is passed over");
        // The part of a line beyond the maximum must not count as a line of its own.
        let forged = format!("7 1 8:1 / /{}40 22 8:16 / / rw - a b c\n{LIST}", "x".repeat(64 << 10));
        assert_eq!(found(&forged, 40), found(LIST, 40));
        assert!(find(&b"40 22 8:16 / /\xff rw - ocfs2 /dev/x rw,localflocks\n"[..], 40).unwrap().is_some());
    }
}
