//! The formats of images, and their recognition by the bytes that each format begins with.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// The bytes of the disk, one to one.
    Raw,
    /// QEMU's format, with its chain of backing files.
    Qcow2,
    /// VMware's format.
    Vmdk,
    /// VirtualBox's format.
    Vdi,
    /// Hyper-V's format.
    Vhdx,
    /// Virtual PC's format.
    Vpc,
}

impl ImageFormat {
    /// Returns the format's name in QEMU's tools, which results use as well.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ImageFormat::Raw => "raw",
            ImageFormat::Qcow2 => "qcow2",
            ImageFormat::Vmdk => "vmdk",
            ImageFormat::Vdi => "vdi",
            ImageFormat::Vhdx => "vhdx",
            ImageFormat::Vpc => "vpc",
        }
    }

    /// Returns whether an image of this format is read through a temporary raw copy, which `qemu-img` makes.
    #[must_use]
    pub fn is_converted(self) -> bool {
        match self {
            ImageFormat::Raw | ImageFormat::Qcow2 => false,
            ImageFormat::Vmdk | ImageFormat::Vdi | ImageFormat::Vhdx | ImageFormat::Vpc => true,
        }
    }

    /// Returns the format indicated by the first 512 bytes of a file. A file without a known signature is raw.
    #[must_use]
    pub fn of_head(head: &[u8]) -> ImageFormat {
        by_signature(head)
    }
}

/// Number of bytes examined at the start of a file; all signatures lie in them.
const HEAD_BYTES: usize = 512;

/// Returns the format of `file`; a file without a known signature is raw.
pub(crate) fn detect(file: &File) -> io::Result<ImageFormat> {
    head(file).map(|head| by_signature(&head))
}

/// Returns the first bytes of a file, fewer if it is shorter.
pub(crate) fn head(file: &File) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD_BYTES];
    let mut filled = 0;
    while filled < HEAD_BYTES {
        match file.read_at(&mut head[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    head.truncate(filled);
    Ok(head)
}

fn by_signature(head: &[u8]) -> ImageFormat {
    let signatures: [(usize, &[u8], ImageFormat); 6] = [
        (0, b"QFI\xfb", ImageFormat::Qcow2),
        (0, b"KDMV", ImageFormat::Vmdk),
        (0, b"# Disk DescriptorFile", ImageFormat::Vmdk),
        (0, b"vhdxfile", ImageFormat::Vhdx),
        (0, b"conectix", ImageFormat::Vpc),
        (64, b"\x7f\x10\xda\xbe", ImageFormat::Vdi),
    ];
    let bears = |&(offset, signature, _): &(usize, &[u8], ImageFormat)| {
        head.get(offset..).is_some_and(|bytes| bytes.starts_with(signature))
    };
    signatures.iter().find(|entry| bears(entry)).map_or(ImageFormat::Raw, |entry| entry.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_signatures() {
        assert_eq!(by_signature(b"QFI\xfb\0\0\0\x03"), ImageFormat::Qcow2);
        assert_eq!(by_signature(b"KDMV\x01\0\0\0"), ImageFormat::Vmdk);
        assert_eq!(by_signature(b"# Disk DescriptorFile\nversion=1"), ImageFormat::Vmdk);
        assert_eq!(by_signature(b"vhdxfile"), ImageFormat::Vhdx);
        let mut vdi = [0; 512];
        vdi[64..68].copy_from_slice(&0xbeda_107f_u32.to_le_bytes());
        assert_eq!(by_signature(&vdi), ImageFormat::Vdi);
    }

    #[test]
    fn all_else_is_raw_however_short() {
        assert_eq!(by_signature(b""), ImageFormat::Raw);
        assert_eq!(by_signature(b"QFI"), ImageFormat::Raw);
        assert_eq!(by_signature(&[0; 512]), ImageFormat::Raw);
    }
}
