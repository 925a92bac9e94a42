//! A kept file of a guest: the claim about it, and its places.
//!
//! | field | notes |
//! |---|---|
//! | package | its index in the list of packages, plus one; 0 for a file of no package |
//! | claim | one byte: 1 or 4 an MD5 digest, 16 bytes, 4 if its content may enter a common volume; 2 a path, 8 bytes; 3 a path and probes, 8 bytes each |
//! | tree, system, file | its tree, the file system in it, and its number there |
//! | generation, size | of its inode |
//! | modified, changed | each as seconds, zigzag, and nanoseconds |
//! | created | one byte, whether it is recorded; then as the others |
//! | phases | one byte, a bit for each phase that has pieces |
//! | pieces | for each such phase: how many, then for each the distance of its content from the end of the previous piece, zigzag; the same for its block; and its length in blocks |
//!
//! Fields without a length in bytes are numbers of `number`.

use onefold_guest::filesystem::Timestamp;

use super::super::FileBlock;
use super::super::number::{push_number, take_number, unzigzag, zigzag};

/// Number of units of a phase in a block.
pub const PHASES: usize = 8;
/// Maximum number of blocks of a candidate file: 4 TiB.
pub(crate) const CONTENT_BLOCKS_MAX: u64 = 1 << 30;

/// Maximum number of pieces of one file in one phase. Only a hostile guest has more in a file.
pub const PIECES_MAX: usize = 1 << 16;

/// Consecutive blocks of a content that are consecutive blocks of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The first block, as a block of the content.
    pub content: u64,
    /// The first block, as a block of the image.
    pub block: u64,
    /// The number of blocks.
    pub count: u64,
}

/// The pieces of one file, by phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhasedPieces(pub [Vec<Piece>; PHASES]);

impl PhasedPieces {
    /// Removes all pieces.
    pub(crate) fn clear(&mut self) {
        self.0.iter_mut().for_each(Vec::clear);
    }

    /// Returns each phase that has pieces, with its pieces.
    pub fn phases(&self) -> impl Iterator<Item = (u64, &[Piece])> {
        let all = (0..).zip(&self.0).map(|(phase, pieces)| (phase, pieces.as_slice()));
        all.filter(|(_, pieces)| !pieces.is_empty())
    }
}

/// The claim about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptClaim {
    /// A package database records this MD5 digest.
    Digest([u8; 16]),
    /// The same, for a file of an installed package that is not a configuration file: its content may enter a common
    /// volume.
    Content([u8; 16]),
    /// It belongs to no package.
    Path {
        /// The number of its path.
        path: u64,
        /// The number of its first, middle and last block, if these were read.
        probes: Option<u64>,
    },
}

/// A file of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFile {
    /// Its package, by its index in the list of the image.
    pub package: Option<u32>,
    /// The claim about it.
    pub claim: KeptClaim,
    /// Its tree: the index among all systems of the guest.
    pub tree: u32,
    /// Its file system, by its index in the tree.
    pub system: u32,
    /// Its number in that file system.
    pub file: u64,
    /// Distinguishes it from an earlier file with that number.
    pub generation: u64,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// When its content last changed.
    pub modified: Timestamp,
    /// When its record last changed.
    pub changed: Timestamp,
    /// When it was created, if this is recorded.
    pub created: Option<Timestamp>,
}

impl KeptFile {
    /// Appends the bytes of a file and its pieces.
    pub(super) fn encode(&self, pieces: &PhasedPieces, into: &mut Vec<u8>) {
        push_number(self.package.map_or(0, |package| u64::from(package) + 1), into);
        match self.claim {
            KeptClaim::Digest(digest) => {
                into.push(1);
                into.extend_from_slice(&digest);
            }
            KeptClaim::Content(digest) => {
                into.push(4);
                into.extend_from_slice(&digest);
            }
            KeptClaim::Path { path, probes } => {
                into.push(if probes.is_some() { 3 } else { 2 });
                into.extend_from_slice(&path.to_le_bytes());
                into.extend(probes.iter().flat_map(|probes| probes.to_le_bytes()));
            }
        }
        for number in [u64::from(self.tree), u64::from(self.system), self.file, self.generation, self.size_bytes] {
            push_number(number, into);
        }
        push_time(self.modified, into);
        push_time(self.changed, into);
        into.push(u8::from(self.created.is_some()));
        self.created.into_iter().for_each(|created| push_time(created, into));
        into.push(pieces.phases().fold(0, |bits, (phase, _)| bits | 1 << phase));
        for (_, pieces) in pieces.phases() {
            push_number(pieces.len() as u64, into);
            let (mut content, mut block) = (0_u64, 0_u64);
            for piece in pieces {
                push_number(zigzag(piece.content.wrapping_sub(content)), into);
                push_number(zigzag(piece.block.wrapping_sub(block)), into);
                push_number(piece.count, into);
                content = piece.content.wrapping_add(piece.count);
                block = piece.block.wrapping_add(piece.count);
            }
        }
    }

    /// Takes a file, and replaces the given pieces by its own; `None` if the bytes are no file.
    pub(super) fn decode(from: &mut &[u8], pieces: &mut PhasedPieces) -> Option<KeptFile> {
        let package = match take_number(from)? {
            0 => None,
            number => Some(u32::try_from(number - 1).ok()?),
        };
        let claim = match take(from)? {
            [1] => KeptClaim::Digest(take(from)?),
            [4] => KeptClaim::Content(take(from)?),
            [2] => KeptClaim::Path { path: u64::from_le_bytes(take(from)?), probes: None },
            [3] => {
                KeptClaim::Path { path: u64::from_le_bytes(take(from)?), probes: Some(u64::from_le_bytes(take(from)?)) }
            }
            _ => return None,
        };
        let [tree, system] = [take_number(from)?, take_number(from)?].map(u32::try_from);
        let [file, generation, size_bytes] = [take_number(from)?, take_number(from)?, take_number(from)?];
        let (modified, changed) = (take_time(from)?, take_time(from)?);
        let created = match take(from)? {
            [0] => None,
            [1] => Some(take_time(from)?),
            _ => return None,
        };
        pieces.clear();
        let [phases] = take(from)?;
        for (phase, pieces) in pieces.0.iter_mut().enumerate() {
            if phases & 1 << phase != 0 {
                take_pieces(from, pieces)?;
            }
        }
        let (tree, system) = (tree.ok()?, system.ok()?);
        Some(KeptFile { package, claim, tree, system, file, generation, size_bytes, modified, changed, created })
    }
}

/// Takes the pieces of a phase, of which there is at least one.
fn take_pieces(from: &mut &[u8], pieces: &mut Vec<Piece>) -> Option<()> {
    let (mut content, mut block) = (0_u64, 0_u64);
    let left = take_number(from).filter(|left| (1..=PIECES_MAX as u64).contains(left))?;
    for _ in 0..left {
        let piece = Piece {
            content: content.wrapping_add(unzigzag(take_number(from)?)),
            block: block.wrapping_add(unzigzag(take_number(from)?)),
            count: take_number(from).filter(|count| *count > 0)?,
        };
        content = piece.content.checked_add(piece.count).filter(|end| *end <= CONTENT_BLOCKS_MAX)?;
        block = piece.block.checked_add(piece.count).filter(|end| *end <= FileBlock::LIMIT)?;
        pieces.push(piece);
    }
    Some(())
}

/// Takes `COUNT` bytes.
pub(super) fn take<const COUNT: usize>(from: &mut &[u8]) -> Option<[u8; COUNT]> {
    let (bytes, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*bytes)
}

fn push_time(time: Timestamp, into: &mut Vec<u8>) {
    push_number(zigzag(time.seconds.cast_unsigned()), into);
    push_number(u64::from(time.nanoseconds), into);
}

fn take_time(from: &mut &[u8]) -> Option<Timestamp> {
    let seconds = unzigzag(take_number(from)?).cast_signed();
    let nanoseconds = u32::try_from(take_number(from)?).ok()?;
    Some(Timestamp { seconds, nanoseconds })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn packaged() -> (KeptFile, PhasedPieces) {
        let file = KeptFile {
            package: Some(1),
            claim: KeptClaim::Digest([9; 16]),
            tree: 0,
            system: 2,
            file: 300,
            generation: 1,
            size_bytes: 5000,
            modified: Timestamp { seconds: -1, nanoseconds: 0 },
            changed: Timestamp { seconds: 64, nanoseconds: 128 },
            created: None,
        };
        let mut pieces = PhasedPieces::default();
        pieces.0[0] = vec![Piece { content: 0, block: 10, count: 1 }, Piece { content: 1, block: 3, count: 1 }];
        (file, pieces)
    }

    fn of_content() -> (KeptFile, PhasedPieces) {
        let (packaged, pieces) = packaged();
        (KeptFile { claim: KeptClaim::Content([9; 16]), ..packaged }, pieces)
    }

    pub(in super::super) fn of_no_package() -> (KeptFile, PhasedPieces) {
        let (packaged, mut pieces) = packaged();
        let claim = KeptClaim::Path { path: 7, probes: Some(8) };
        pieces.0[7] = vec![Piece { content: CONTENT_BLOCKS_MAX - 1, block: FileBlock::LIMIT - 1, count: 1 }];
        (KeptFile { package: None, claim, created: Some(Timestamp::default()), ..packaged }, pieces)
    }

    /// These bytes are on disk: they never change.
    #[test]
    fn files_match_their_stored_vectors() {
        let encoded = |(file, pieces): (KeptFile, PhasedPieces)| {
            let mut bytes = Vec::new();
            file.encode(&pieces, &mut bytes);
            bytes
        };
        let inode: &[u8] = &[0, 2, 0xac, 2, 1, 0x88, 0x27, 1, 0, 0x80, 1, 0x80, 1];
        let pieces: &[u8] = &[2, 0, 20, 1, 0, 15, 1];
        let expected = [&[2, 1][..], &[9; 16], inode, &[0, 1], pieces].concat();
        assert_eq!(encoded(packaged()), expected);
        let expected = [&[2, 4][..], &[9; 16], inode, &[0, 1], pieces].concat();
        assert_eq!(encoded(of_content()), expected);
        let claim = [0, 3, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
        let last = [1, 0xfe, 0xff, 0xff, 0xff, 7, 0xfe, 0xff, 0xff, 0xff, 0xff, 0x1f, 1];
        assert_eq!(encoded(of_no_package()), [&claim[..], inode, &[1, 0, 0, 0x81], pieces, &last].concat());
    }

    #[test]
    fn files_survive_their_encoding_and_parts_of_them_are_refused() {
        for (file, pieces) in [packaged(), of_content(), of_no_package()] {
            let mut bytes = Vec::new();
            file.encode(&pieces, &mut bytes);
            let (mut rest, mut found) = (&bytes[..], PhasedPieces::default());
            assert_eq!(KeptFile::decode(&mut rest, &mut found), Some(file));
            assert!(rest.is_empty() && found == pieces);
            for length in 0..bytes.len() {
                assert_eq!(KeptFile::decode(&mut &bytes[..length], &mut found), None, "{length}");
            }
        }
    }

    #[test]
    fn pieces_that_cannot_be_are_refused() {
        let found = |bytes: &[u8]| take_pieces(&mut &bytes[..], &mut Vec::new());
        assert!(found(&[1, 0, 0, 1]).is_some());
        for odd in [
            &[0][..],
            &[1, 0, 0, 0],
            &[1, 1, 0, 1],
            &[1, 0, 1, 1],
            &[1, 0x80, 0x80, 0x80, 0x80, 8, 0, 1],
            &[1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            &[2, 0, 0, 1],
            &[0x81, 0x80, 4, 0, 0, 1],
        ] {
            assert_eq!(found(odd), None, "{odd:?}");
        }
    }
}
