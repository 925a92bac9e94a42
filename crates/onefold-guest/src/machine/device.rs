//! Linux' names for a volume in `/etc/fstab` and on the kernel's command line.
//!
//! | name | is |
//! |---|---|
//! | `UUID=...`, `/dev/disk/by-uuid/...` | the UUID of the file system |
//! | `LABEL=...`, `/dev/disk/by-label/...` | its label |
//! | `PARTUUID=...`, `PARTLABEL=...`, and their folders | UUID and name of the partition |
//! | `/dev/GROUP/NAME`, `/dev/mapper/GROUP-NAME` | a logical volume; a hyphen of a name is doubled in the second form |
//! | `/dev/sda1`, `/dev/nvme0n1p1` | a partition of a disk; `/dev/sda` is a disk without a table |
//!
//! The kernel assigns letters to disks, so the image does not reveal its own letter. If the root is named by a disk,
//! that disk is assumed to be this one; otherwise the first of each kind.

use super::MachineVolume;
use crate::volume::VolumeOrigin;

/// A name of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeName {
    /// The UUID or serial number of the file system.
    Uuid(Vec<u8>),
    /// The label of the file system.
    Label(Vec<u8>),
    /// The UUID of the partition.
    PartitionUuid(Vec<u8>),
    /// The name of the partition.
    PartitionLabel(Vec<u8>),
    /// A logical volume.
    Logical {
        /// Its group.
        group: Vec<u8>,
        /// Its name.
        name: Vec<u8>,
    },
    /// A partition of a disk, or the disk itself.
    Device {
        /// The name of the disk, such as `sda`.
        disk: Vec<u8>,
        /// The number of the partition; `None` for the whole disk.
        partition: Option<u32>,
    },
    /// Something else: a network file system, a folder, a file system of the kernel.
    Other(Vec<u8>),
}

/// The assumed disks of a system that names a disk: the first of each kind.
const FIRST_DISKS: [&[u8]; 6] = [b"sda", b"vda", b"xvda", b"hda", b"nvme0n1", b"mmcblk0"];

impl VolumeName {
    /// Parses the first field of a line of `/etc/fstab`.
    #[must_use]
    pub fn parse(text: &[u8]) -> VolumeName {
        for (tag, folder, make) in TAGS {
            if let Some(value) = strip_tag(text, tag) {
                return make(unquoted(value).to_vec());
            }
            if let Some(value) = text.strip_prefix(b"/dev/disk/").and_then(|rest| rest.strip_prefix(folder)) {
                return make(without_udev_escapes(value));
            }
        }
        text.strip_prefix(b"/dev/").and_then(parse_device).unwrap_or_else(|| VolumeName::Other(text.to_vec()))
    }

    /// Returns whether a volume has this name; `disk` is the name of the disk.
    #[must_use]
    pub fn is_of(&self, volume: &MachineVolume<'_>, disk: Option<&[u8]>) -> bool {
        let facts = volume.system.facts();
        match self {
            VolumeName::Uuid(uuid) => !uuid.is_empty() && facts.uuid.as_bytes().eq_ignore_ascii_case(uuid),
            VolumeName::Label(label) => !label.is_empty() && facts.label == *label,
            VolumeName::PartitionUuid(uuid) => {
                volume.partition_uuid.as_ref().is_some_and(|known| known.as_bytes().eq_ignore_ascii_case(uuid))
            }
            VolumeName::PartitionLabel(label) => volume.partition_label.as_ref() == Some(label),
            VolumeName::Logical { group, name } => match &volume.origin {
                VolumeOrigin::Logical { group: in_group, name: named } => {
                    in_group.as_bytes() == group && named.as_bytes() == name
                }
                VolumeOrigin::WholeDisk | VolumeOrigin::Partition { .. } => false,
            },
            VolumeName::Device { disk: named, partition } => {
                let is_here = disk.map_or_else(|| FIRST_DISKS.contains(&named.as_slice()), |disk| disk == named);
                is_here
                    && match volume.origin {
                        VolumeOrigin::WholeDisk => partition.is_none(),
                        VolumeOrigin::Partition { number } => *partition == Some(number),
                        VolumeOrigin::Logical { .. } => false,
                    }
            }
            VolumeName::Other(_) => false,
        }
    }

    /// Returns the name of the disk, if this name refers to one.
    #[must_use]
    pub fn disk(&self) -> Option<&[u8]> {
        match self {
            VolumeName::Device { disk, .. } => Some(disk),
            _ => None,
        }
    }
}

type NameConstructor = fn(Vec<u8>) -> VolumeName;

/// Tag, udev folder, and kind of name.
const TAGS: [(&[u8], &[u8], NameConstructor); 4] = [
    (b"UUID=", b"by-uuid/", VolumeName::Uuid),
    (b"LABEL=", b"by-label/", VolumeName::Label),
    (b"PARTUUID=", b"by-partuuid/", VolumeName::PartitionUuid),
    (b"PARTLABEL=", b"by-partlabel/", VolumeName::PartitionLabel),
];

fn strip_tag<'t>(text: &'t [u8], tag: &[u8]) -> Option<&'t [u8]> {
    let (begin, value) = text.split_at_checked(tag.len())?;
    begin.eq_ignore_ascii_case(tag).then_some(value)
}

fn unquoted(text: &[u8]) -> &[u8] {
    for quote in [b"\"", b"'"] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)) {
            return inner;
        }
    }
    text
}

/// Decodes the escapes in the name of a udev link: `\x20` stands for a blank.
fn without_udev_escapes(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let escaped = rest
            .strip_prefix(b"\\x")
            .and_then(|digits| std::str::from_utf8(digits.get(..2)?).ok())
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        plain.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { rest.get(4..).unwrap_or_default() } else { after };
    }
    plain
}

/// Parses a name in `/dev`.
fn parse_device(name: &[u8]) -> Option<VolumeName> {
    if let Some(mapped) = name.strip_prefix(b"mapper/") {
        return parse_mapped(mapped);
    }
    if let Some(slash) = name.iter().position(|byte| *byte == b'/') {
        let (group, volume) = (name.get(..slash)?, name.get(slash + 1..)?);
        let is_name = !group.is_empty() && !volume.is_empty() && !volume.contains(&b'/');
        return is_name.then(|| VolumeName::Logical { group: group.to_vec(), name: volume.to_vec() });
    }
    let is_letters = |prefix: &[u8]| {
        let letters = name.strip_prefix(prefix)?;
        let end = letters.iter().position(|byte| !byte.is_ascii_lowercase()).unwrap_or(letters.len());
        (end > 0).then_some(prefix.len() + end)
    };
    if let Some(end) = [&b"sd"[..], b"vd", b"hd", b"xvd"].into_iter().find_map(is_letters) {
        let (disk, partition) = name.split_at_checked(end)?;
        let partition = if partition.is_empty() { None } else { Some(number(partition)?) };
        return Some(VolumeName::Device { disk: disk.to_vec(), partition });
    }
    if !(name.starts_with(b"nvme") || name.starts_with(b"mmcblk")) {
        return None;
    }
    let last = name.iter().rposition(|byte| *byte == b'p');
    let (disk, partition) = match last.and_then(|at| Some((name.get(..at)?, number(name.get(at + 1..)?)?))) {
        Some((disk, partition)) => (disk, Some(partition)),
        None => (name, None),
    };
    Some(VolumeName::Device { disk: disk.to_vec(), partition })
}

/// Returns the logical volume of a device mapper name: a single hyphen separates group and volume, a doubled one is
/// part of a name.
fn parse_mapped(mapped: &[u8]) -> Option<VolumeName> {
    let mut parts = [Vec::new(), Vec::new()];
    let mut part = 0;
    let mut bytes = mapped.iter().peekable();
    while let Some(byte) = bytes.next() {
        if *byte == b'-' && bytes.next_if(|next| **next == b'-').is_none() {
            part += 1;
            continue;
        }
        parts.get_mut(part)?.push(*byte);
    }
    let [group, name] = parts;
    (part == 1 && !group.is_empty() && !name.is_empty()).then_some(VolumeName::Logical { group, name })
}

fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryFileSystem;

    fn logical(group: &str, name: &str) -> VolumeName {
        VolumeName::Logical { group: group.into(), name: name.into() }
    }

    fn device(disk: &str, partition: impl Into<Option<u32>>) -> VolumeName {
        VolumeName::Device { disk: disk.into(), partition: partition.into() }
    }

    #[test]
    fn names_are_understood_as_linux_understands_them() {
        for (text, expected) in [
            ("UUID=12-AB", VolumeName::Uuid("12-AB".into())),
            ("uuid=\"12\"", VolumeName::Uuid("12".into())),
            ("/dev/disk/by-uuid/12", VolumeName::Uuid("12".into())),
            ("LABEL=my disk", VolumeName::Label("my disk".into())),
            ("LABEL='x'", VolumeName::Label("x".into())),
            ("/dev/disk/by-label/my\\x20disk\\x2", VolumeName::Label("my disk\\x2".into())),
            ("PARTUUID=1-2", VolumeName::PartitionUuid("1-2".into())),
            ("/dev/disk/by-partlabel/EFI", VolumeName::PartitionLabel("EFI".into())),
            ("/dev/mapper/debian--12--vg-root", logical("debian-12-vg", "root")),
            ("/dev/vg/lv-1", logical("vg", "lv-1")),
            ("/dev/mapper/luks--x", VolumeName::Other("/dev/mapper/luks--x".into())),
            ("/dev/mapper/a-b-c", VolumeName::Other("/dev/mapper/a-b-c".into())),
            ("/dev/sda", device("sda", None)),
            ("/dev/sdaa15", device("sdaa", 15)),
            ("/dev/xvda1", device("xvda", 1)),
            ("/dev/nvme0n1p2", device("nvme0n1", 2)),
            ("/dev/nvme0n1", device("nvme0n1", None)),
            ("/dev/mmcblk0p1", device("mmcblk0", 1)),
            ("/dev/sda99999999999", VolumeName::Other("/dev/sda99999999999".into())),
            ("/dev/sr0", VolumeName::Other("/dev/sr0".into())),
            ("tmpfs", VolumeName::Other("tmpfs".into())),
            ("server:/export", VolumeName::Other("server:/export".into())),
        ] {
            assert_eq!(VolumeName::parse(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_volume_has_its_names_and_no_others() {
        let system = MemoryFileSystem::new("aB-12", b"data");
        let volume = MachineVolume {
            origin: VolumeOrigin::Partition { number: 2 },
            system: &system,
            partition_uuid: Some("ff-ee".to_owned()),
            partition_label: Some(b"home".to_vec()),
        };
        let is_of =
            |text: &str, disk: Option<&str>| VolumeName::parse(text.as_bytes()).is_of(&volume, disk.map(str::as_bytes));
        for text in ["UUID=AB-12", "LABEL=data", "PARTUUID=FF-EE", "PARTLABEL=home", "/dev/sda2", "/dev/vda2"] {
            assert!(is_of(text, None), "{text}");
        }
        for text in
            ["UUID=", "LABEL=", "UUID=ab", "LABEL=DATA", "/dev/sdb2", "/dev/sda1", "/dev/sda", "/dev/vg/lv", "x"]
        {
            assert!(!is_of(text, None), "{text}");
        }
        assert!(is_of("/dev/sdc2", Some("sdc")) && !is_of("/dev/sda2", Some("sdc")));
        let logical = MachineVolume {
            origin: VolumeOrigin::Logical { group: "a-b".to_owned(), name: "c".to_owned() },
            ..volume.clone()
        };
        assert!(VolumeName::parse(b"/dev/mapper/a--b-c").is_of(&logical, None));
        assert!(VolumeName::parse(b"/dev/a-b/c").is_of(&logical, None));
        let whole = MachineVolume { origin: VolumeOrigin::WholeDisk, ..volume };
        assert!(VolumeName::parse(b"/dev/vda").is_of(&whole, None));
    }
}
