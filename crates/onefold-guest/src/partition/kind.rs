//! Purpose of a partition according to its table.

use std::fmt;

/// Purpose of a partition according to its table. Its content may be something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PartitionKind {
    /// The type byte of an MBR.
    Mbr(u8),
    /// The type of a GPT.
    Gpt(Guid),
}

/// A GUID in its form on a disk: its first three numbers are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub [u8; 16]);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, h, i, rest @ ..] = self.0;
        write!(f, "{:08X}-", u32::from_le_bytes([a, b, c, d]))?;
        write!(f, "{:04X}-{:04X}-", u16::from_le_bytes([e, g]), u16::from_le_bytes([h, i]))?;
        for (at, byte) in rest.iter().enumerate() {
            write!(f, "{}{byte:02X}", if at == 2 { "-" } else { "" })?;
        }
        Ok(())
    }
}

impl Guid {
    /// Returns the GUID whose text form has these digits, without dashes.
    const fn of(digits: u128) -> Guid {
        let [a, b, c, d, e, f, g, h, rest @ ..] = digits.to_be_bytes();
        let [i, j, k, l, m, n, o, p] = rest;
        Guid([d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p])
    }
}

/// Types of an MBR, with the names of `fdisk`.
const MBR_NAMES: [(u8, &str); 24] = [
    (0x01, "FAT12"),
    (0x04, "FAT16 <32M"),
    (0x06, "FAT16"),
    (0x07, "HPFS/NTFS/exFAT"),
    (0x0b, "W95 FAT32"),
    (0x0c, "W95 FAT32 (LBA)"),
    (0x0e, "W95 FAT16 (LBA)"),
    (0x11, "Hidden FAT12"),
    (0x14, "Hidden FAT16 <32M"),
    (0x16, "Hidden FAT16"),
    (0x17, "Hidden HPFS/NTFS"),
    (0x1b, "Hidden W95 FAT32"),
    (0x1c, "Hidden W95 FAT32 (LBA)"),
    (0x27, "Hidden NTFS WinRE"),
    (0x42, "SFS"),
    (0x82, "Linux swap / Solaris"),
    (0x83, "Linux"),
    (0x8e, "Linux LVM"),
    (0xa5, "FreeBSD"),
    (0xa6, "OpenBSD"),
    (0xa9, "NetBSD"),
    (0xaf, "HFS / HFS+"),
    (0xef, "EFI (FAT-12/16/32)"),
    (0xfd, "Linux raid autodetect"),
];

/// The type byte of dynamic disks of Windows.
const MBR_LDM: u8 = 0x42;
/// The type bytes of partitions that Linux looks into for a table of their own: UnixWare, Minix, FreeBSD, OpenBSD,
/// NetBSD, Solaris.
const MBR_WITH_SLICES: [u8; 6] = [0x63, 0x81, 0xa5, 0xa6, 0xa9, 0xbf];
const GPT_LDM_METADATA: Guid = Guid::of(0x5808c8aa_7e8f_42e0_85d2_e1e90434cfb3);
const GPT_LDM_DATA: Guid = Guid::of(0xaf9b60a0_1431_4f62_bc68_3311714a69ad);
const GPT_STORAGE_SPACES: Guid = Guid::of(0xe75caf8f_f680_4cee_afa3_b001e56efc2d);
const GPT_PLAIN_CRYPT: Guid = Guid::of(0x7ffec5c9_2d00_49b7_8941_3ea10a5586b7);

/// Types of a GPT, with the names of `fdisk`.
const GPT_NAMES: [(Guid, &str); 28] = [
    (Guid::of(0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b), "EFI System"),
    (Guid::of(0x21686148_6449_6e6f_744e_656564454649), "BIOS boot"),
    (Guid::of(0x024dee41_33e7_11d3_9d69_0008c781f39f), "MBR partition scheme"),
    (Guid::of(0xe3c9e316_0b5c_4db8_817d_f92df00215ae), "Microsoft reserved"),
    (Guid::of(0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7), "Microsoft basic data"),
    (GPT_LDM_METADATA, "Microsoft LDM metadata"),
    (GPT_LDM_DATA, "Microsoft LDM data"),
    (Guid::of(0xde94bba4_06d1_4d40_a16a_bfd50179d6ac), "Windows recovery environment"),
    (GPT_STORAGE_SPACES, "Microsoft Storage Spaces"),
    (Guid::of(0x0fc63daf_8483_4772_8e79_3d69d8477de4), "Linux filesystem"),
    (Guid::of(0x0657fd6d_a4ab_43c4_84e5_0933c84b4f4f), "Linux swap"),
    (Guid::of(0xe6d6d379_f507_44c2_a23c_238f2a3df928), "Linux LVM"),
    (Guid::of(0xa19d880f_05fc_4d3b_a006_743f0f84911e), "Linux RAID"),
    (Guid::of(0x933ac7e1_2eb4_4f13_b844_0e14e2aef915), "Linux home"),
    (Guid::of(0x3b8f8425_20e0_4f3b_907f_1a25a76f98e8), "Linux server data"),
    (Guid::of(0x44479540_f297_41b2_9af7_d131d5f0458a), "Linux root (x86)"),
    (Guid::of(0x4f68bce3_e8cd_4db1_96e7_fbcaf984b709), "Linux root (x86-64)"),
    (Guid::of(0xb921b045_1df0_41c3_af44_4c6f280d3fae), "Linux root (ARM-64)"),
    (Guid::of(0xbc13c2ff_59e6_4262_a352_b275fd6f7172), "Linux extended boot"),
    (Guid::of(0xca7d7ccb_63ed_4c53_861c_1742536059cc), "Linux LUKS"),
    (GPT_PLAIN_CRYPT, "Linux plain dm-crypt"),
    (Guid::of(0x48465300_0000_11aa_aa11_00306543ecac), "Apple HFS/HFS+"),
    (Guid::of(0x7c3457ef_0000_11aa_aa11_00306543ecac), "Apple APFS"),
    (Guid::of(0x516e7cb5_6ecf_11d6_8ff8_00022d09712b), "FreeBSD swap"),
    (Guid::of(0x516e7cb6_6ecf_11d6_8ff8_00022d09712b), "FreeBSD UFS"),
    (Guid::of(0x516e7cba_6ecf_11d6_8ff8_00022d09712b), "FreeBSD ZFS"),
    (Guid::of(0x6a898cc3_1dd2_11b2_99a6_080020736631), "Solaris /usr & Apple ZFS"),
    (Guid::of(0x9e1a2d38_c612_4316_aa26_8b49521e5a8b), "PowerPC PReP boot"),
];

impl PartitionKind {
    /// Returns the name of the type in `fdisk`; `None` for a rare type.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            PartitionKind::Mbr(kind) => MBR_NAMES.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name),
            PartitionKind::Gpt(kind) => GPT_NAMES.iter().find(|(known, _)| *known == kind).map(|(_, name)| *name),
        }
    }

    /// Returns whether the partition belongs to Windows' Logical Disk Manager, which stores the map of its volumes
    /// elsewhere on the disk.
    #[must_use]
    pub fn is_windows_dynamic(self) -> bool {
        match self {
            PartitionKind::Mbr(kind) => kind == MBR_LDM,
            PartitionKind::Gpt(kind) => kind == GPT_LDM_METADATA || kind == GPT_LDM_DATA,
        }
    }

    /// Returns whether the partition is a member of a Storage Spaces pool of Windows, which stores its map in the
    /// partition.
    #[must_use]
    pub fn is_storage_spaces(self) -> bool {
        self == PartitionKind::Gpt(GPT_STORAGE_SPACES)
    }

    /// Returns whether the partition may have a table of partitions of its own.
    #[must_use]
    pub fn may_have_slices(self) -> bool {
        matches!(self, PartitionKind::Mbr(kind) if MBR_WITH_SLICES.contains(&kind))
    }

    /// Returns whether the partition is encrypted without a header, so that only its type reveals it.
    #[must_use]
    pub fn is_plain_crypt(self) -> bool {
        self == PartitionKind::Gpt(GPT_PLAIN_CRYPT)
    }
}

impl fmt::Display for PartitionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self) {
            (Some(name), _) => f.write_str(name),
            (None, PartitionKind::Mbr(kind)) => write!(f, "type {kind:#04x}"),
            (None, PartitionKind::Gpt(kind)) => write!(f, "type {kind}"),
        }
    }
}
