//! Kinds that are recognised by a few bytes at a fixed place. The readers are tried first; a file system that its
//! reader rejects gets its name here.
//!
//! | kind | from |
//! |---|---|
//! | Btrfs | Btrfs wiki, "On-disk Format", superblock |
//! | exFAT | Microsoft, "exFAT file system specification", section 3.1 |
//! | ReFS | libfsrefs, "Resilient File System (ReFS)", volume header |
//! | HFS+, HFS | Apple, Technical Note TN1150, volume header |
//! | APFS | Apple, "Apple File System Reference", `nx_superblock_t` |
//! | F2FS, bcachefs, OCFS2, EROFS, squashfs, NILFS2, ReiserFS, Reiser4, GFS2, JFS, UFS, bcache | their headers in Linux |
//! | VMFS | libvmfs, volume information |
//! | ISO 9660, UDF | ECMA-119 section 8, ECMA-167 part 2 |

use super::{NotRead, head, joined, text};
use crate::bytes::{Bytes, uuid_text};
use crate::error::GuestError;
use crate::filesystem::FileSystemKind;
use crate::volume::VolumeReader;

/// Signature of a kind.
struct Signature {
    name: &'static str,
    /// First byte of its header in the volume.
    header: u64,
    /// Place of its magic number in the header.
    at: usize,
    magic: &'static [u8],
    /// Returns more about it, from its header.
    detail: fn(Bytes<'_>) -> Option<String>,
}

/// Number of bytes of a header that are read.
const HEADER_BYTES: usize = 2048;
/// Place of the superblock of ext, and of some other headers.
const EXT_SUPERBLOCK: u64 = 1024;

const fn known(
    name: &'static str,
    header: u64,
    at: usize,
    magic: &'static [u8],
    detail: fn(Bytes<'_>) -> Option<String>,
) -> Signature {
    Signature { name, header, at, magic, detail }
}

/// The recognised kinds, most certain ones first: long magic numbers.
const SIGNATURES: [Signature; 36] = [
    known("Btrfs", 64 << 10, 64, b"_BHRfS_M", btrfs),
    known("bcachefs", 4096, 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", bcachefs),
    known("bcache", 4096, 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", nothing),
    known("exFAT", 0, 3, b"EXFAT   ", exfat),
    known("ReFS", 0, 3, b"ReFS\0\0\0\0", refs),
    known("XFS", 0, 0, b"XFSB", nothing),
    known("LVM2 physical volume", 0, 24, b"LVM2 001", nothing),
    known("LVM2 physical volume", 512, 24, b"LVM2 001", nothing),
    known("LVM2 physical volume", 1024, 24, b"LVM2 001", nothing),
    known("LVM2 physical volume", 1536, 24, b"LVM2 001", nothing),
    known("OCFS2", 1024, 0, b"OCFSV2", nothing),
    known("OCFS2", 2048, 0, b"OCFSV2", nothing),
    known("OCFS2", 4096, 0, b"OCFSV2", nothing),
    known("OCFS2", 8192, 0, b"OCFSV2", nothing),
    known("ReiserFS", 64 << 10, 52, b"ReIsEr", nothing),
    known("Reiser4", 64 << 10, 0, b"ReIsEr4", nothing),
    known("ReiserFS", 8192, 52, b"ReIsEr", nothing),
    known("GFS2", 64 << 10, 0, b"\x01\x16\x19\x70", nothing),
    known("JFS", 32 << 10, 0, b"JFS1", nothing),
    known("APFS", 0, 32, b"NXSB", apfs),
    known("squashfs", 0, 0, b"hsqs", squashfs),
    known("squashfs", 0, 0, b"sqsh", nothing),
    known("F2FS", 1024, 0, b"\x10\x20\xf5\xf2", f2fs),
    known("EROFS", 1024, 0, b"\xe2\xe1\xf5\xe0", erofs),
    known("ISO 9660", 32 << 10, 0, b"\x01CD001\x01", iso9660),
    known("UDF", 32 << 10, 1, b"BEA01", nothing),
    known("HFS+", 1024, 0, b"H+\0\x04", hfs_plus),
    known("HFS+", 1024, 0, b"HX\0\x05", hfs_plus),
    known("NILFS2", 1024, 6, b"\x34\x34", nothing),
    known("ext", 1024, 56, b"\x53\xef", nothing),
    known("VMFS", 1 << 20, 0, b"\x0d\xd0\x01\xc0", nothing),
    known("UFS", 64 << 10, 1372, b"\x19\x01\x54\x19", nothing),
    known("UFS", 64 << 10, 1372, b"\x19\x54\x01\x19", nothing),
    known("UFS", 8192, 1372, b"\x54\x19\x01\0", nothing),
    known("UFS", 8192, 1372, b"\0\x01\x19\x54", nothing),
    known("HFS", 1024, 0, b"BD", nothing),
];

pub(super) fn recognise(reader: &VolumeReader<'_>) -> Result<Option<NotRead>, GuestError> {
    recognise_of(reader, |_| true)
}

/// Recognises content without a reader in a volume in which a reader opens a file system of `kind`. Skips the kind
/// itself, and ext, whose reader comes first. In a volume of ext, also skips all headers in the place of its
/// superblock, where a counter may look like a magic number.
pub(super) fn beside(reader: &VolumeReader<'_>, kind: FileSystemKind) -> Result<Option<NotRead>, GuestError> {
    let is_ext = matches!(kind, FileSystemKind::Ext2 | FileSystemKind::Ext3 | FileSystemKind::Ext4);
    let own = if kind == FileSystemKind::Xfs { "XFS" } else { "ext" };
    recognise_of(reader, |signature| {
        let is_own = [own, "ext"].contains(&signature.name) || is_ext && signature.header == EXT_SUPERBLOCK;
        !is_own
    })
}

/// Recognises one of the kinds that `is_asked` accepts.
fn recognise_of(
    reader: &VolumeReader<'_>,
    is_asked: impl Fn(&Signature) -> bool,
) -> Result<Option<NotRead>, GuestError> {
    let (mut at, mut header) = (u64::MAX, Vec::new());
    for signature in SIGNATURES.iter().filter(|signature| is_asked(signature)) {
        if at != signature.header {
            (at, header) = (signature.header, head(reader, signature.header, HEADER_BYTES)?);
        }
        if header.get(signature.at..).is_some_and(|rest| rest.starts_with(signature.magic)) {
            let detail = (signature.detail)(Bytes(&header)).unwrap_or_default();
            return Ok(Some(NotRead::new(signature.name, detail)));
        }
    }
    Ok(None)
}

fn nothing(_: Bytes<'_>) -> Option<String> {
    None
}

fn label(text: String) -> String {
    if text.is_empty() { text } else { format!("label {text}") }
}

fn btrfs(header: Bytes<'_>) -> Option<String> {
    let (uuid, devices) = (uuid_text(header.array(32)?), header.le64(136)?);
    let devices = if devices == 1 { String::new() } else { format!("{devices} devices") };
    Some(joined(&[label(text(header.part(299, 256)?.0)), format!("UUID {uuid}"), devices]))
}

fn bcachefs(header: Bytes<'_>) -> Option<String> {
    let (version, uuid) = (header.le16(16)?, uuid_text(header.array(56)?));
    Some(joined(&[format!("version {version}"), label(text(header.part(72, 32)?.0)), format!("UUID {uuid}")]))
}

fn exfat(header: Bytes<'_>) -> Option<String> {
    let serial = header.le32(100)?;
    Some(format!("serial number {:04X}-{:04X}", serial >> 16, serial & 0xffff))
}

fn refs(header: Bytes<'_>) -> Option<String> {
    Some(format!("version {}.{}", header.u8(40)?, header.u8(41)?))
}

fn apfs(header: Bytes<'_>) -> Option<String> {
    Some(format!("UUID {}", uuid_text(header.array(72)?)))
}

fn squashfs(header: Bytes<'_>) -> Option<String> {
    let compression = match header.le16(20)? {
        1 => "gzip",
        2 => "lzma",
        3 => "lzo",
        4 => "xz",
        5 => "lz4",
        6 => "zstd",
        _ => "unknown",
    };
    Some(format!("version {}.{}, {compression} compression", header.le16(28)?, header.le16(30)?))
}

fn f2fs(header: Bytes<'_>) -> Option<String> {
    let name = header.part(124, 512)?.0.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit));
    let name = char::decode_utf16(name.take_while(|unit| *unit != 0)).map(|unit| unit.unwrap_or('\u{fffd}')).collect();
    Some(joined(&[label(name), format!("UUID {}", uuid_text(header.array(108)?))]))
}

fn erofs(header: Bytes<'_>) -> Option<String> {
    Some(joined(&[label(text(header.part(64, 16)?.0)), format!("UUID {}", uuid_text(header.array(48)?))]))
}

fn iso9660(header: Bytes<'_>) -> Option<String> {
    Some(label(text(header.part(40, 32)?.0)))
}

fn hfs_plus(header: Bytes<'_>) -> Option<String> {
    let bytes = u64::from(header.be32(40)?) * u64::from(header.be32(44)?);
    Some(format!("{bytes} bytes"))
}
