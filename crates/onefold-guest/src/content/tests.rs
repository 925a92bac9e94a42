//! Headers that no tool here makes. They are written from published descriptions.

use std::ops::{ControlFlow, Range};

use onefold_disk::{Disk, DiskError, FileAction};

use super::*;
use crate::partition::{Guid, PartitionProblem, PartitionScheme, PartitionTable};
use crate::volume::{DiskRange, Volume, VolumeOrigin};

const MIB: usize = 1 << 20;

struct Memory(Vec<u8>);

impl Disk for Memory {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        Ok((offset < self.size_bytes()).then_some(offset..self.size_bytes()))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let offset = usize::try_from(offset).unwrap();
        into.copy_from_slice(&self.0[offset..offset + into.len()]);
        Ok(())
    }
}

impl Memory {
    /// Returns a disk of 2 MiB with `pieces` at their places.
    fn with(pieces: &[(usize, &[u8])]) -> Memory {
        let mut disk = vec![0; 2 * MIB];
        for (at, bytes) in pieces {
            disk[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        Memory(disk)
    }

    fn reader(&self) -> VolumeReader<'_> {
        let ranges = vec![DiskRange { start_bytes: 0, length_bytes: self.size_bytes() }];
        VolumeReader::new(self, &Volume { origin: VolumeOrigin::WholeDisk, ranges })
    }

    /// Returns the name and the detail of the recognised content, and whether it is encrypted.
    fn named(&self, kind: Option<PartitionKind>) -> (&'static str, String, bool) {
        let reader = self.reader();
        let content = open(&reader, kind);
        let runs = content.allocation(self.size_bytes()).unwrap();
        assert_eq!((runs.len(), runs[0].class), (1, AllocationClass::Doubtful), "it is counted whole");
        assert!(content.whole_because().is_some());
        match content {
            VolumeContent::NotRead(found) => (found.name, found.detail, found.is_encrypted),
            other => panic!("{other:?}"),
        }
    }
}

fn expect(pieces: &[(usize, &[u8])], name: &str, detail: &str) {
    assert_eq!(Memory::with(pieces).named(None), (name, detail.to_owned(), false));
}

#[test]
fn encrypted_volumes_are_named_with_their_cipher() {
    let one: [(usize, &[u8]); 4] =
        [(0, b"LUKS\xba\xbe\0\x01"), (8, b"aes"), (40, b"xts-plain64"), (108, &64_u32.to_be_bytes())];
    let detail = "version 1, cipher aes-xts-plain64, key of 512 bits";
    assert_eq!(Memory::with(&one).named(None), ("LUKS", detail.to_owned(), true));

    let json = br#"{"keyslots":{"0":{"area":{"encryption":"other"}}},"segments":{"0":{"type":"crypt","encryption":"serpent-xts"}}}"#;
    let two = [(0, &b"LUKS\xba\xbe\0\x02"[..]), (8, &16384_u64.to_be_bytes()), (24, b"safe"), (4096, json)];
    let detail = "version 2, cipher serpent-xts, label safe";
    assert_eq!(Memory::with(&two).named(None), ("LUKS", detail.to_owned(), true));
    for length in [0, 4096, u64::MAX] {
        let broken = [(0, &b"LUKS\xba\xbe\0\x02"[..]), (8, &length.to_be_bytes()), (4096, b"{\"segments\":[[[[")];
        assert_eq!(Memory::with(&broken).named(None), ("LUKS", "version 2".to_owned(), true));
    }

    let metadata = MIB as u64;
    let fixed = [
        (3, &b"-FVE-FS-"[..]),
        (176, &metadata.to_le_bytes()),
        (MIB, b"-FVE-FS-"),
        (MIB + 100, &0x8005_u32.to_le_bytes()),
    ];
    let expected = ("BitLocker", "cipher AES-XTS, 256 bits".to_owned(), true);
    assert_eq!(Memory::with(&fixed).named(None), expected);
    let identifier = b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01";
    let [_, _, header, method] = fixed;
    let removable = [(3, &b"MSWIN4.1"[..]), (424, identifier), (440, &metadata.to_le_bytes()), header, method];
    assert_eq!(Memory::with(&removable).named(None), expected);
    let outside = [(3, &b"-FVE-FS-"[..]), (176, &u64::MAX.to_le_bytes())];
    assert_eq!(Memory::with(&outside).named(None), ("BitLocker", String::new(), true));
}

#[test]
fn members_of_arrays_are_no_file_systems() {
    let magic = 0xa92b_4efc_u32.to_le_bytes();
    for (version, at) in [("1.1", 0), ("1.2", 4096), ("1.0", 2 * MIB - (8 << 10))] {
        let sector = (at as u64 / 512).to_le_bytes();
        let block: [(usize, &[u8]); 7] = [
            (at, &magic),
            (at + 4, &[1]),
            (at + 32, b"host:0"),
            (at + 72, &[5]),
            (at + 92, &[3]),
            (at + 144, &sector),
            (1024, b"BD"),
        ];
        expect(&block, "Linux RAID", &format!("version {version}, level 5, 3 disks, name host:0"));
        let elsewhere = [&block[..5], &[(at + 144, &[9][..]), (1024, b"BD")]].concat();
        expect(&elsewhere, "HFS", "");
    }
    let at = 2 * MIB - (64 << 10);
    expect(&[(at, &magic), (at + 28, &[1]), (at + 40, &[2])], "Linux RAID", "version 0.90, level 1, 2 disks");
    let level = (-1_i32).to_be_bytes();
    let big = [(at, &0xa92b_4efc_u32.to_be_bytes()[..]), (at + 28, &level), (at + 43, &[2])];
    expect(&big, "Linux RAID", "version 0.90, linear, 2 disks");
}

#[test]
fn dynamic_disks_are_known_by_their_header_or_their_partition() {
    let header = [(3072, &b"PRIVHEAD"[..]), (3084, &[0, 2, 0, 12]), (3312, b"Machine-Dg0")];
    expect(&header, "Windows dynamic disk", "version 2.12, group Machine-Dg0");
    let last = [(2 * MIB - 512, &b"PRIVHEAD"[..])];
    expect(&last, "Windows dynamic disk", "version 0.0");
    let ntfs = Memory::with(&[(3, b"NTFS    ")]);
    assert_eq!(ntfs.named(Some(PartitionKind::Mbr(0x42))).0, "Windows dynamic disk");
    let data = Guid([0xa0, 0x60, 0x9b, 0xaf, 0x31, 0x14, 0x62, 0x4f, 0xbc, 0x68, 0x33, 0x11, 0x71, 0x4a, 0x69, 0xad]);
    assert_eq!(PartitionKind::Gpt(data).name(), Some("Microsoft LDM data"));
    assert_eq!(ntfs.named(Some(PartitionKind::Gpt(data))).0, "Windows dynamic disk");
}

/// Both may leave the header of a former file system in place.
#[test]
fn storage_spaces_and_plain_encryption_are_known_by_their_partition() {
    let former = Memory::with(&[(3, b"NTFS    "), (1024, b"\x10\x20\xf5\xf2")]);
    let pool = [0x8f, 0xaf, 0x5c, 0xe7, 0x80, 0xf6, 0xee, 0x4c, 0xaf, 0xa3, 0xb0, 0x01, 0xe5, 0x6e, 0xfc, 0x2d];
    let crypt = [0xc9, 0xc5, 0xfe, 0x7f, 0x00, 0x2d, 0xb7, 0x49, 0x89, 0x41, 0x3e, 0xa1, 0x0a, 0x55, 0x86, 0xb7];
    for (kind, name, is_encrypted) in [(pool, "Windows Storage Spaces", false), (crypt, "plain dm-crypt", true)] {
        let kind = PartitionKind::Gpt(Guid(kind));
        assert!(kind.name().is_some(), "{name}");
        assert_eq!(former.named(Some(kind)), (name, String::new(), is_encrypted));
    }
    assert_eq!(former.named(None).0, "F2FS");
}

#[test]
fn other_kinds_are_named_by_their_magic() {
    let uuid: Vec<u8> = (0..16).map(|at| at * 17).collect();
    let text = "UUID 00112233-4455-6677-8899-aabbccddeeff";
    let bcachefs = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
    expect(&[(3, b"ReFS\0\0\0\0"), (40, &[3, 4])], "ReFS", "version 3.4");
    expect(&[(32, b"NXSB"), (72, &uuid)], "APFS", text);
    expect(
        &[(4096 + 24, bcachefs), (4112, &[13]), (4152, &uuid), (4168, b"big")],
        "bcachefs",
        &format!("version 13, label big, {text}"),
    );
    expect(&[(1024, b"H+\0\x04"), (1064, &[0, 0, 16, 0, 0, 0, 1, 0])], "HFS+", "1048576 bytes");
    expect(&[(1024, b"HX\0\x05")], "HFS+", "0 bytes");
    expect(&[(MIB / 4 - 1024, b"\x0c\xb1\xba\0\0\0\0\0\x88\x13")], "ZFS", "version 5000");
    let zfs_big = [(MIB / 2 - 2048, &b"\0\0\0\0\0\xba\xb1\x0c\0\0\0\0\0\0\0\x1c"[..])];
    expect(&zfs_big, "ZFS", "version 28");
    expect(&[(3, b"EXFAT   "), (100, &[0x78, 0x56, 0x34, 0x12])], "exFAT", "serial number 1234-5678");
}

#[test]
fn kinds_without_details_are_named_by_their_magic() {
    let bcache: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
    for (name, at, magic) in [
        ("bcache", 4096 + 24, bcache),
        ("GFS2", 65536, b"\x01\x16\x19\x70"),
        ("HFS", 1024, b"BD"),
        ("JFS", 32768, b"JFS1"),
        ("NILFS2", 1024 + 6, b"\x34\x34"),
        ("OCFS2", 8192, b"OCFSV2"),
        ("ReiserFS", 65536 + 52, b"ReIsEr2Fs"),
        ("ReiserFS", 8192 + 52, b"ReIsErFs"),
        ("Reiser4", 65536, b"ReIsEr4"),
        ("UFS", 65536 + 1372, b"\x19\x54\x01\x19"),
        ("UFS", 8192 + 1372, b"\x54\x19\x01\0"),
        ("UFS", 8192 + 1372, b"\0\x01\x19\x54"),
        ("Solaris disk label", 524, b"\xee\xde\x0d\x60"),
        ("DASD disk label", 512, b"\xd3\xd5\xe7\xf1"),
        ("DASD disk label", 8192, b"\xe5\xd6\xd3\xf1\xe5\xd6\xd3\xf1"),
        ("UDF", 32768 + 1, b"BEA01"),
        ("UFS", 65536 + 1372, b"\x19\x01\x54\x19"),
        ("VMFS", MIB, b"\x0d\xd0\x01\xc0"),
    ] {
        expect(&[(at, magic)], name, "");
    }
}

/// Their magic alone is short, or common, so that each needs what is around it.
/// Bytes with their places on a disk.
type PlacedBytes<'a> = &'a [(usize, &'a [u8])];

#[test]
fn disk_labels_are_named_if_they_are_whole() {
    let magic = 0x8256_4557_u32;
    let (le, be) = (magic.to_le_bytes(), magic.to_be_bytes());
    let negative = |number: u32| number.wrapping_neg().to_be_bytes();
    let rdsk = u32::from_be_bytes(*b"RDSK");
    let sgi = 0x0be5_a941_u32;
    let cases: [(&str, PlacedBytes<'_>); 8] = [
        ("Sun disk label", &[(100, b"ab"), (508, b"\xda\xbe"), (510, &[b'a' ^ 0xda, b'b' ^ 0xbe])]),
        ("SGI disk label", &[(0, &sgi.to_be_bytes()), (504, &negative(sgi))]),
        ("BSD disk label", &[(512, &le), (512 + 132, &le)]),
        ("BSD disk label", &[(64, &be), (64 + 132, &be)]),
        ("Apple partition map", &[(0, b"ER\x02\0"), (512, b"PM")]),
        ("Apple partition map", &[(0, b"ER\x08\0"), (2048, b"PM")]),
        ("Amiga disk label", &[(512 * 15, b"RDSK\0\0\0\x40"), (512 * 15 + 8, &negative(rdsk + 0x40))]),
        ("Atari disk label", &[(454, b"\x01GEM\0\0\0\x02\0\0\x01\0")]),
    ];
    for (name, pieces) in cases {
        expect(pieces, name, "");
        let cut = Memory::with(&pieces[..pieces.len() - 1]);
        assert!(matches!(open(&cut.reader(), None), VolumeContent::Unknown), "{name} without its end");
    }
    let outside = Memory::with(&[(454, b"\x01GEM\0\0\0\x02\x10\0\0\0")]);
    assert!(matches!(open(&outside.reader(), None), VolumeContent::Unknown));
}

#[test]
fn a_disk_with_tables_that_contradict_each_other_is_in_doubt() {
    let disk = Memory::with(&[]);
    let table =
        |problems| PartitionTable { scheme: PartitionScheme::Mbr, sector_bytes: 512, entries: Vec::new(), problems };
    assert_eq!(over_disk(&disk.reader(), &table(vec![PartitionProblem::BrokenChain])), None);
    let doubt = over_disk(&disk.reader(), &table(vec![PartitionProblem::OtherTable]));
    assert!(matches!(doubt, Some(DiskRole::Doubt(_))), "{doubt:?}");
}

/// The slices of such a partition may have any of its bytes, and its first sector keeps a former header.
#[test]
fn a_partition_that_may_have_slices_is_counted_whole() {
    let swap = Memory::with(&[(1024, &1_u32.to_le_bytes()), (1028, &511_u32.to_le_bytes()), (4086, b"SWAPSPACE2")]);
    let is_whole = |kind| {
        let runs = open(&swap.reader(), Some(kind)).allocation(swap.size_bytes()).unwrap();
        runs.iter().all(|run| run.class != AllocationClass::Free)
    };
    assert!(!is_whole(PartitionKind::Mbr(0x82)));
    for kind in [0x63, 0x81, 0xa5, 0xa6, 0xa9, 0xbf] {
        assert!(is_whole(PartitionKind::Mbr(kind)), "{kind:#x}");
    }
}

#[test]
fn a_volume_with_nothing_known_is_unknown_and_counted_whole() {
    for disk in [vec![0; 1], vec![0; 513], vec![0; MIB], b"hello\n".to_vec(), vec![0xff; 70_000]] {
        let disk = Memory(disk);
        let content = open(&disk.reader(), None);
        assert!(matches!(content, VolumeContent::Unknown), "{content:?}");
        let runs = content.allocation(disk.size_bytes()).unwrap();
        assert_eq!(
            runs.iter().map(|run| (run.length_bytes, run.class)).collect::<Vec<_>>(),
            [(disk.size_bytes(), AllocationClass::Doubtful)]
        );
    }
}

#[test]
fn a_former_swap_area_with_something_else_has_no_free_page() {
    let pieces: [(usize, &[u8]); 3] = [(4086, b"SWAPSPACE2"), (1024, &[1]), (1028, &[99])];
    let disk = Memory::with(&pieces);
    assert!(matches!(open(&disk.reader(), None), VolumeContent::Swap(_)));
    let other = [&pieces[..], &[(65536 + 64, b"_BHRfS_M")]].concat();
    assert_eq!(Memory::with(&other).named(None).0, "Btrfs");
}

/// A FAT12 of 2 MiB: 4096 sectors, 4 of a cluster, two tables of 3 sectors, 112 entries in the root.
const FAT12: [(usize, &[u8]); 4] = [
    (0, &[0xeb, 0x3c, 0x90]),
    (11, &[0, 2, 4, 1, 0, 2, 112, 0, 0, 16, 0xf8, 3, 0]),
    (510, &[0x55, 0xaa, 0xf8, 0xff, 0xff]),
    (2048, &[0xf8, 0xff, 0xff]),
];

#[test]
fn what_was_made_over_a_file_system_is_named_and_counted_whole() {
    let fat = FAT12;
    let disk = Memory::with(&fat);
    let content = open(&disk.reader(), None);
    assert!(matches!(content, VolumeContent::FileSystem(_)), "{content:?}");
    let zfs: (usize, &[u8]) = (MIB / 4 - 1024, b"\x0c\xb1\xba\0\0\0\0\0\x88\x13");
    let btrfs: (usize, &[u8]) = (65536 + 64, b"_BHRfS_M");
    for (piece, name) in [(zfs, "ZFS"), (btrfs, "Btrfs")] {
        assert_eq!(Memory::with(&[&fat[..], &[piece]].concat()).named(None).0, name);
    }
}

#[test]
fn a_former_swap_area_with_an_ntfs_has_no_free_page() {
    let swap: [(usize, &[u8]); 3] = [(65526, b"SWAPSPACE2"), (1024, &[1]), (1028, &[30])];
    let disk = Memory::with(&swap);
    assert!(matches!(open(&disk.reader(), None), VolumeContent::Swap(_)));
    let disk = Memory::with(&[&swap[..], &[(3, b"NTFS    ")]].concat());
    let content = open(&disk.reader(), None);
    assert!(!matches!(content, VolumeContent::Swap(_)), "{content:?}");
    let runs = content.allocation(disk.size_bytes()).unwrap();
    assert!(runs.iter().all(|run| run.class == AllocationClass::Doubtful), "{runs:?}");
}

#[test]
fn a_disk_that_fails_is_a_failed_volume() {
    struct FailingDisk;
    impl Disk for FailingDisk {
        fn size_bytes(&self) -> u64 {
            1 << 30
        }

        fn next_data(&self, _: u64) -> Result<Option<Range<u64>>, DiskError> {
            Ok(None)
        }

        fn read(&self, _: u64, _: &mut [u8]) -> Result<(), DiskError> {
            Err(DiskError::Other("the disk is gone".into()))
        }
    }
    let ranges = vec![DiskRange { start_bytes: 0, length_bytes: 1 << 30 }];
    let content = open(&VolumeReader::new(&FailingDisk, &Volume { origin: VolumeOrigin::WholeDisk, ranges }), None);
    assert_eq!(content.whole_because().unwrap(), "the disk is gone");
    assert_eq!(content.allocation(1 << 30).unwrap()[0].class, AllocationClass::Doubtful);
}

/// A disk of which the medium cannot read a part.
struct FaultyDisk {
    disk: Memory,
    bad: Range<u64>,
}

impl Disk for FaultyDisk {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        self.disk.next_data(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        if offset < self.bad.end && self.bad.start < offset + into.len() as u64 {
            let source = rustix::io::Errno::IO.into();
            return Err(DiskError::File { action: FileAction::Read, path: "disk".into(), source });
        }
        self.disk.read(offset, into)
    }
}

/// Calls `then` with the content of a disk of which a part cannot be read.
fn with_faulty<T>(pieces: &[(usize, &[u8])], bad: Range<usize>, then: impl FnOnce(VolumeContent<'_>) -> T) -> T {
    let disk = FaultyDisk { disk: Memory::with(pieces), bad: bad.start as u64..bad.end as u64 };
    let ranges = vec![DiskRange { start_bytes: 0, length_bytes: disk.size_bytes() }];
    let content = open(&VolumeReader::new(&disk, &Volume { origin: VolumeOrigin::WholeDisk, ranges }), None);
    let runs = content.allocation(disk.size_bytes()).unwrap();
    assert!(runs.iter().all(|run| run.class == AllocationClass::Doubtful), "{bad:?}: {runs:?}");
    then(content)
}

/// Regression: one bad sector where another kind of volume has its header, and no file was listed.
#[test]
fn a_file_system_is_read_where_headers_of_other_kinds_cannot_be() {
    let whole = Memory::with(&FAT12);
    assert_eq!(open(&whole.reader(), None).whole_because(), None);
    // An array's superblock, a firmware array's signature, a label of ZFS, a magic of Btrfs.
    for bad in [2 * MIB - (64 << 10), 2 * MIB - 512, 128 << 10, 64 << 10] {
        with_faulty(&FAT12, bad..bad + 512, |content| {
            let VolumeContent::FileSystem(system) = &content else { panic!("{bad}: {content:?}") };
            assert_eq!(*system.state(), State::Unsure(vec![Doubt::HeadersUnreadable]), "{bad}");
            system.each_entry(system.root(), &mut |_| ControlFlow::Continue(())).unwrap();
            assert!(content.whole_because().unwrap().contains("the disk cannot read"), "{bad}");
        });
    }
}

/// Bytes that cannot be read may belong to what was made over the rest.
#[test]
fn a_volume_with_unreadable_headers_is_neither_unknown_nor_swap() {
    let swap: [(usize, &[u8]); 3] = [(4086, b"SWAPSPACE2"), (1024, &[1]), (1028, &[99])];
    for pieces in [&[][..], &swap] {
        with_faulty(pieces, 2 * MIB - 512..2 * MIB, |content| {
            assert!(matches!(content, VolumeContent::Failed(GuestError::Damaged(_))), "{content:?}");
        });
    }
    // The boot sector itself.
    with_faulty(&FAT12, 0..512, |content| assert!(matches!(content, VolumeContent::Failed(_)), "{content:?}"));
}
