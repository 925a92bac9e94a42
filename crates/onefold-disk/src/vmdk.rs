//! VMDK descriptors: the text that names the files (extents) of a VMDK disk.
//!
//! `qemu-img` opens extents by the names in a descriptor, and no option overrides that. So it never gets the image's
//! own descriptor, but a stand-in that names open files. A file with a sparse header can hold a descriptor, too; if
//! `qemu-img` would obey it, the file is refused ([`VmdkHead::Inner`]).

use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use onefold_block::Show;

/// Maximum length of a descriptor, in bytes: the same limit as in `qemu-img`.
const DESCRIPTOR_BYTES_MAX: usize = 1 << 20;
/// Maximum number of extents: 1 TiB in pieces of 2 GiB. Each is an open file.
const EXTENTS_MAX: usize = 512;
/// The kinds of extents that `qemu-img` reads.
const KINDS: [&str; 5] = ["FLAT", "SPARSE", "VMFS", "VMFSSPARSE", "SESPARSE"];

/// The beginning of a file with VMDK content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VmdkHead {
    /// A sparse extent: its header says where its data lies in the same file.
    Sparse,
    /// A sparse header without capacity, which refers to a descriptor in the same file.
    Inner,
    /// Neither of these; a descriptor, if it is VMDK.
    Other,
}

impl VmdkHead {
    /// Reads the first bytes of `file`.
    pub(crate) fn read(file: &File) -> io::Result<VmdkHead> {
        let mut bytes = [0; 36];
        let length = read_at_most(file, &mut bytes)?;
        Ok(VmdkHead::of(&bytes[..length]))
    }

    fn of(bytes: &[u8]) -> VmdkHead {
        match bytes {
            // Capacity at 12, offset of the descriptor at 28. The missing part of a truncated header reads as zeros.
            [b'K', b'D', b'M', b'V', header @ ..] => match header.get(8..16) {
                Some(capacity) if capacity.iter().any(|&byte| byte != 0) => VmdkHead::Sparse,
                _ => VmdkHead::Inner,
            },
            [b'C', b'O', b'W', b'D', ..] => VmdkHead::Sparse,
            _ => VmdkHead::Other,
        }
    }
}

/// Why a descriptor is not followed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DescriptorError {
    /// It is too long for a descriptor.
    #[error("it has neither a sparse header nor a descriptor of at most {DESCRIPTOR_BYTES_MAX} bytes")]
    TooLong,
    /// It has more extents than can be open at once.
    #[error("it has more than {EXTENTS_MAX} extents")]
    TooManyExtents,
    /// It has no extents.
    #[error("it names no extent")]
    NoExtent,
    /// It has an extent of a kind or form that `qemu-img` would skip; the value is the extent's line.
    #[error("its descriptor has an extent that cannot be read: {}", .0.shown())]
    Extent(String),
    /// A field is missing or has an impossible value; the value is the field's name.
    #[error("its descriptor lacks {0}, or has a strange one")]
    Field(&'static str),
}

/// A descriptor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    create_type: String,
    content_id: String,
    parent_content_id: String,
    /// Name of the parent, which supplies the content where the extents have none.
    pub(crate) parent: Option<String>,
    pub(crate) extents: Vec<VmdkExtent>,
}

/// A piece of the disk, in its own file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VmdkExtent {
    sectors: u64,
    kind: &'static str,
    pub(crate) name: String,
    /// First sector within the file; only flat extents have it.
    offset: Option<u64>,
}

impl VmdkExtent {
    /// Returns whether `qemu-img` expects a header in the file.
    pub(crate) fn has_header(&self) -> bool {
        self.kind != "FLAT" && self.kind != "VMFS"
    }
}

impl Descriptor {
    /// Reads the descriptor from `file`, which consists of it.
    pub(crate) fn read(file: &File) -> io::Result<Result<Descriptor, DescriptorError>> {
        let mut bytes = vec![0; DESCRIPTOR_BYTES_MAX + 1];
        let length = read_at_most(file, &mut bytes)?;
        if length > DESCRIPTOR_BYTES_MAX {
            return Ok(Err(DescriptorError::TooLong));
        }
        Ok(Descriptor::decode(&String::from_utf8_lossy(&bytes[..length])))
    }

    fn decode(text: &str) -> Result<Descriptor, DescriptorError> {
        let field = |key: &str| {
            let value = |line: &str| Some(line.strip_prefix(key)?.trim_start().strip_prefix('=')?.trim().to_owned());
            text.lines().map(str::trim).find_map(value).map(|value| value.trim_matches('"').to_owned())
        };
        let plain = |key: &'static str| {
            let is_plain = |value: &String| {
                (1..=40).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_alphanumeric())
            };
            field(key).filter(is_plain).ok_or(DescriptorError::Field(key))
        };
        let mut extents = Vec::new();
        for line in text.lines().map(str::trim) {
            let is_extent = ["RW", "RDONLY", "NOACCESS"].contains(&line.split_whitespace().next().unwrap_or(""));
            if !is_extent {
                continue;
            }
            if extents.len() == EXTENTS_MAX {
                return Err(DescriptorError::TooManyExtents);
            }
            let shown = || DescriptorError::Extent(line.chars().take(200).collect());
            extents.push(VmdkExtent::decode(line).ok_or_else(shown)?);
        }
        if extents.is_empty() {
            return Err(DescriptorError::NoExtent);
        }
        let parent = field("parentFileNameHint").filter(|name| !name.is_empty());
        let parent_content_id = plain("parentCID")?;
        if parent.is_none() && !parent_content_id.eq_ignore_ascii_case("ffffffff") {
            return Err(DescriptorError::Field("parentFileNameHint"));
        }
        let (create_type, content_id) = (plain("createType")?, plain("CID")?);
        Ok(Descriptor { create_type, content_id, parent_content_id, parent, extents })
    }

    /// Returns the text of the stand-in, with the paths of the extents' open files in order.
    pub(crate) fn stand_in(&self, paths: &[String]) -> String {
        let mut text = format!(
            "# Disk DescriptorFile\nversion=1\nCID={}\nparentCID={}\ncreateType=\"{}\"\n",
            self.content_id, self.parent_content_id, self.create_type
        );
        for (extent, path) in self.extents.iter().zip(paths) {
            // Writing to a string does not fail.
            let _ = write!(text, "RW {} {} \"{}\"", extent.sectors, extent.kind, path);
            if let Some(offset) = extent.offset {
                let _ = write!(text, " {offset}");
            }
            text.push('\n');
        }
        text
    }
}

impl VmdkExtent {
    /// Reads `RW SECTORS KIND "NAME" [OFFSET]`. `qemu-img` would skip any other line and read a wrong disk.
    fn decode(line: &str) -> Option<VmdkExtent> {
        let (before, rest) = line.split_once('"')?;
        let (name, after) = rest.split_once('"')?;
        let mut words = before.split_whitespace();
        let (access, sectors, kind) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        let kind = KINDS.into_iter().find(|known| *known == kind)?;
        let offset = match after.trim() {
            "" => None,
            number => Some(number.split_whitespace().next()?.parse().ok()?),
        };
        let is_sound = access == "RW" && words.next().is_none() && sectors > 0 && (kind == "FLAT") == offset.is_some();
        is_sound.then(|| VmdkExtent { sectors, kind, name: name.to_owned(), offset })
    }
}

/// Fills `into` from the start of `file`, up to the file's end; returns the number of bytes.
fn read_at_most(file: &File, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# Disk DescriptorFile\nversion=1\nencoding=\"UTF-8\"\nCID=8c4da5d6\nparentCID=ffffffff\n\
        createType=\"twoGbMaxExtentFlat\"\n\n# Extent description\n";

    fn decode(extents: &str) -> Result<Descriptor, DescriptorError> {
        Descriptor::decode(&format!("{HEAD}{extents}\nddb.adapterType = \"ide\"\n"))
    }

    #[test]
    fn the_stand_in_names_open_files_only() {
        let found = decode("RW 4192256 FLAT \"a b-f001.vmdk\" 0\r\nRW 128 FLAT \"/etc/shadow\" 8").unwrap();
        let names: Vec<&str> = found.extents.iter().map(|extent| extent.name.as_str()).collect();
        assert_eq!(names, ["a b-f001.vmdk", "/etc/shadow"]);
        let text = found.stand_in(&["/proc/self/fd/7".into(), "/proc/self/fd/8".into()]);
        assert_eq!(
            text,
            "# Disk DescriptorFile\nversion=1\nCID=8c4da5d6\nparentCID=ffffffff\ncreateType=\"twoGbMaxExtentFlat\"\n\
             RW 4192256 FLAT \"/proc/self/fd/7\" 0\nRW 128 FLAT \"/proc/self/fd/8\" 8\n"
        );
        // Decoding the result once more gives the same.
        assert_eq!(
            Descriptor::decode(&text).unwrap().stand_in(&["/proc/self/fd/7".into(), "/proc/self/fd/8".into()]),
            text
        );
    }

    #[test]
    fn fields_cannot_smuggle_lines_into_the_stand_in() {
        for bad in ["createType=\"a\\\"b\"", "createType=\"\"", "createType=\"a b\"", "CID=1\u{b}2"] {
            let text = format!("{bad}\n{HEAD}RW 1 FLAT \"x\" 0\n");
            assert!(matches!(Descriptor::decode(&text), Err(DescriptorError::Field(_))), "{bad}");
        }
    }

    #[test]
    fn extents_that_would_be_passed_over_are_refused() {
        for line in [
            "RDONLY 1 FLAT \"x\" 0",
            "NOACCESS 1 ZERO",
            "RW 1 ZERO",
            "RW 0 FLAT \"x\" 0",
            "RW 1 FLAT \"x\"",
            "RW 1 FLAT \"x\" -1",
            "RW 1 SPARSE \"x\" 1",
            "RW x FLAT \"x\" 0",
            "RW 1 FLAT x 0",
            "RW 1 FLAT \"x",
            "RW",
        ] {
            assert!(matches!(decode(line), Err(DescriptorError::Extent(_))), "{line}");
        }
        assert_eq!(decode(""), Err(DescriptorError::NoExtent));
        let many = "RW 1 FLAT \"x\" 0\n".repeat(EXTENTS_MAX + 1);
        assert_eq!(decode(&many), Err(DescriptorError::TooManyExtents));
    }

    #[test]
    fn a_child_without_a_parents_name_is_refused() {
        let child = HEAD.replace("parentCID=ffffffff", "parentCID=12345678");
        let text = format!("{child}RW 1 SPARSE \"x\"\n");
        assert_eq!(Descriptor::decode(&text), Err(DescriptorError::Field("parentFileNameHint")));
        let named = format!("{text}parentFileNameHint=\"base.vmdk\"\n");
        assert_eq!(Descriptor::decode(&named).unwrap().parent.as_deref(), Some("base.vmdk"));
    }

    #[test]
    fn heads_are_told_apart() {
        let mut header = [0; 36];
        header[..4].copy_from_slice(b"KDMV");
        assert_eq!(VmdkHead::of(&header), VmdkHead::Inner, "no capacity: what counts is the descriptor inside");
        header[12] = 1;
        assert_eq!(VmdkHead::of(&header), VmdkHead::Sparse);
        assert_eq!(VmdkHead::of(&header[..13]), VmdkHead::Inner);
        assert_eq!(VmdkHead::of(b"COWD"), VmdkHead::Sparse);
        assert_eq!(VmdkHead::of(b"# Disk DescriptorFile"), VmdkHead::Other);
        assert_eq!(VmdkHead::of(b""), VmdkHead::Other);
    }

    #[test]
    fn arbitrary_text_is_a_descriptor_or_an_error() {
        let mut state = 1_u64;
        let words = [
            "RW",
            "RDONLY",
            "1",
            "99999999999999999999",
            "FLAT",
            "SPARSE",
            "\"",
            "x",
            "\n",
            "=",
            "CID",
            "createType",
            " ",
        ];
        for _ in 0..20_000 {
            let mut text = String::from(HEAD);
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(words[usize::try_from(state >> 33).unwrap() % words.len()]);
            }
            if let Ok(found) = Descriptor::decode(&text) {
                let paths = vec!["/proc/self/fd/3".to_owned(); found.extents.len()];
                let again =
                    Descriptor::decode(&found.stand_in(&paths)).unwrap_or_else(|error| panic!("{error}: {text}"));
                assert!(again.extents.iter().all(|extent| extent.name == "/proc/self/fd/3"), "{text}");
            }
        }
    }
}
