//! Tells files that are clearly no disk images, such as packed ones: copied as they are, no machine could use them.

/// The user's next step about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    Unpack,
    Name,
}

/// Signatures of files that are no disks: offset, bytes, kind, and remedy. A boot sector begins with none of them.
const SIGNATURES: [(usize, &[u8], &str, Remedy); 17] = [
    (0, b"\x1f\x8b\x08", "a file packed by gzip", Remedy::Unpack),
    (0, b"\xfd7zXZ\0", "a file packed by xz", Remedy::Unpack),
    (0, b"\x28\xb5\x2f\xfd", "a file packed by zstd", Remedy::Unpack),
    (0, b"\x04\x22\x4d\x18", "a file packed by lz4", Remedy::Unpack),
    (0, b"BZh", "a file packed by bzip2", Remedy::Unpack),
    (0, b"PK\x03\x04", "a zip archive", Remedy::Unpack),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", Remedy::Unpack),
    (257, b"ustar", "a tar archive (an OVA is one)", Remedy::Unpack),
    (0, b"!<arch>\n", "a Debian package or a library", Remedy::Name),
    (0, b"\xed\xab\xee\xdb", "an RPM package", Remedy::Name),
    (0, b"\x7fELF", "a program", Remedy::Name),
    (0, b"#!", "a script", Remedy::Name),
    (0, b"<?xml", "an XML document", Remedy::Name),
    (0, b"%PDF", "a PDF document", Remedy::Name),
    (0, b"\x89PNG", "a picture", Remedy::Name),
    (0, b"\xff\xd8\xff", "a picture", Remedy::Name),
    (0, b"-----BEGIN ", "a key or a certificate", Remedy::Name),
];

/// Why a file is no disk image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoImage {
    /// The reason, as in "it is a zip archive".
    pub(super) why: String,
    pub(super) hint: &'static str,
}

const NAME_HINT: &str = "name disk images only, or give --format raw to store the file as it is";

/// Returns why a file without the signature of an image format is no raw disk image. `head` are its first bytes.
/// A file with `has_ending`, the ending of a disk image, may have any length: some programs cut the last sector.
pub(super) fn why_no_image(head: &[u8], length: u64, has_ending: bool) -> Option<NoImage> {
    /// Disks have whole sectors.
    const SECTOR_BYTES: u64 = 512;
    let bears = |(offset, signature): (usize, &[u8])| head.get(offset..).is_some_and(|at| at.starts_with(signature));
    if let Some((_, _, kind, remedy)) = SIGNATURES.iter().find(|&&(offset, signature, ..)| bears((offset, signature))) {
        let hint = match remedy {
            Remedy::Unpack => "unpack it first, or give --format raw to store the file as it is",
            Remedy::Name => NAME_HINT,
        };
        return Some(NoImage { why: format!("it is {kind}"), hint });
    }
    let why = match length {
        0 => "it is empty".to_owned(),
        _ if !length.is_multiple_of(SECTOR_BYTES) && !has_ending => {
            format!("its length, {length} bytes, is not that of whole sectors of {SECTOR_BYTES} bytes")
        }
        _ => return None,
    };
    Some(NoImage { why, hint: NAME_HINT })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(head: &[u8], length: u64, has_ending: bool) -> Option<String> {
        why_no_image(head, length, has_ending).map(|found| found.why)
    }

    #[test]
    fn packed_files_and_documents_are_no_images_whatever_they_are_called() {
        let mut tar = [0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        assert_eq!(why(&tar, 10240, false).as_deref(), Some("it is a tar archive (an OVA is one)"));
        assert_eq!(why(b"\x1f\x8b\x08\0", 4096, true).as_deref(), Some("it is a file packed by gzip"));
        assert_eq!(why(b"#!/bin/sh\n", 512, true).as_deref(), Some("it is a script"));
        assert!(why_no_image(b"PK\x03\x04", 4096, true).unwrap().hint.starts_with("unpack"));
    }

    #[test]
    fn disks_have_whole_sectors_or_the_ending_of_an_image() {
        assert_eq!(why(&[0; 512], 1 << 20, false), None);
        assert_eq!(why(b"XFSB", 1 << 20, false), None);
        assert_eq!(why(&[0xeb, 0x63, 0x90], 1001, true), None);
        assert!(why(b"notes", 1001, false).unwrap().contains("1001 bytes"));
        assert_eq!(why(b"", 0, true).as_deref(), Some("it is empty"));
    }
}
