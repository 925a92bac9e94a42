//! Superblock: facts that do not change while the pool is used. `grow` and the upgrade from version 1 rewrite it.
//!
//! It has two copies at fixed places ([`super::geometry`]), written one at a time with a flush between. Of two valid
//! copies the higher generation wins. After the header:
//!
//! | bytes    | field          | notes                                                                    |
//! |----------|----------------|--------------------------------------------------------------------------|
//! | 16..24   | magic          | `ONEFOLDP`                                                               |
//! | 24..28   | version        | 2, or 1 (below); another one is refused                                  |
//! | 28       | store placement | 0 in groups, 1 at the end                                               |
//! | 29       | dedup          | of new files: 0 on, 1 off                                                |
//! | 30       | metadata tag   | derives from: 0 the UUID, 1 the key; always 0 in version 1               |
//! | 31       |                | 0                                                                        |
//! | 32..40   | generation     | 1 at creation, one more at each rewrite                                  |
//! | 40..48   | compatible     | features that an older Onefold may ignore                                |
//! | 48..56   | read-only compatible | features that an older Onefold may only read past                  |
//! | 56..64   | incompatible   | features without which the pool can't be understood                      |
//! | 64..80   | UUID           |                                                                          |
//! | 80..112  | key            | secret of the pool: fingerprint keys and name hashes derive from it      |
//! | 112..120 | total blocks   |                                                                          |
//! | 120..128 | journal first  |                                                                          |
//! | 128..136 | journal blocks |                                                                          |
//! | 136..148 | created        | seconds i64, nanoseconds u32                                             |
//! | 148      | label length   |                                                                          |
//! | 149..213 | label          | UTF-8                                                                    |
//!
//! | version | what is different |
//! |---------|-------------------|
//! | 2       | a pool knows its transactions by its key, and if it was created so also its metadata ([`Marking`]) |
//! | 1       | it knows both by its UUID. Becomes version 2 when it is opened, with an empty journal |

use onefold_block::{BLOCK_BYTES, BlockNo, Timestamp};

use super::geometry::Geometry;
use super::header::{self, BlockKind, HeaderError};
use super::journal::TransactionIdentity;
use super::{BlockBytes, GENERATION_MAX, get_u32, get_u64, put_u32, put_u64};
use crate::{Dedup, StorePlacement};

const MAGIC: [u8; 8] = *b"ONEFOLDP";

/// Returns whether the first block of a file or partition names itself the beginning of a pool, of any version. Nothing
/// else of it is checked.
#[must_use]
pub fn begins_pool(block: &[u8]) -> bool {
    block.get(16..24) == Some(&MAGIC[..])
}
/// The newest version of the format.
pub const VERSION: u32 = 2;
/// The previous version, in which users could know the marks of a pool's transactions.
const VERSION_PUBLIC: u32 = 1;
/// Context for deriving the tag of metadata blocks from a pool's key.
const TAG_CONTEXT: &str = "onefold 2026 metadata tag";
/// Maximum length of a label, in bytes.
pub const LABEL_BYTES_MAX: usize = 64;

/// How a pool's own blocks are marked, so that bytes of users are not mistaken for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marking {
    /// By the UUID, which users may know: version 1 of the format.
    Public,
    /// Transactions by the key, metadata blocks by the UUID: a pool that was created with version 1.
    SecretTransactions,
    /// By the key, which no user can know.
    Secret,
}

/// The decoded facts.
#[derive(Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Of two valid copies, the one with the higher generation counts.
    pub generation: u64,
    /// Identity of the pool.
    pub uuid: [u8; 16],
    /// Secret from which keys derive.
    pub key: [u8; 32],
    /// How the pool's own blocks are marked.
    pub marking: Marking,
    /// Name for people.
    pub label: String,
    /// Whether new files share blocks.
    pub dedup: Dedup,
    /// The layout.
    pub geometry: Geometry,
    /// When the pool was created.
    pub created: Timestamp,
}

impl std::fmt::Debug for Superblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key is kept out of logs.
        f.debug_struct("Superblock")
            .field("generation", &self.generation)
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}

/// Why a block is no usable superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SuperblockError {
    /// No magic: other data, or none.
    NotAPool,
    /// A version or feature that this Onefold does not know.
    Newer(String),
    /// It was a superblock, but is damaged.
    Damaged(String),
}

/// Returns the tag that a superblock with these bytes must have, whether or not they are valid.
///
/// # Panics
/// Never: all fields lie within the block.
#[must_use]
pub fn tag_of(bytes: &BlockBytes) -> u32 {
    let is_secret = get_u32(bytes, 24) == VERSION && bytes[30] == 1;
    let marking = if is_secret { Marking::Secret } else { Marking::Public };
    tag(marking, &bytes[64..80], bytes[80..112].try_into().expect("thirty-two bytes"))
}

fn tag(marking: Marking, uuid: &[u8], key: &[u8; 32]) -> u32 {
    match marking {
        Marking::Public | Marking::SecretTransactions => crc32c::crc32c(uuid),
        Marking::Secret => get_u32(&blake3::derive_key(TAG_CONTEXT, key), 0),
    }
}

impl Superblock {
    /// Returns the tag of all metadata blocks of the pool.
    #[must_use]
    pub fn pool_tag(&self) -> u32 {
        tag(self.marking, &self.uuid, &self.key)
    }

    /// Returns the identity at the start of all transactions of the pool.
    #[must_use]
    pub fn transaction_identity(&self) -> TransactionIdentity {
        match self.marking {
            Marking::Public => TransactionIdentity::public(self.pool_tag()),
            Marking::SecretTransactions | Marking::Secret => TransactionIdentity::secret(&self.key),
        }
    }

    /// Returns whether `self` is the older copy that an interrupted growth or upgrade leaves beside `newer`: the same
    /// pool, one generation earlier, and smaller or of version 1.
    #[must_use]
    pub fn was_replaced_by(&self, newer: &Superblock) -> bool {
        let grown = Superblock { generation: newer.generation, geometry: newer.geometry, ..self.clone() };
        let upgraded = Superblock { generation: newer.generation, marking: newer.marking, ..self.clone() };
        let has_grown = grown == *newer && self.geometry.total_blocks < newer.geometry.total_blocks;
        let is_upgraded =
            upgraded == *newer && (self.marking, newer.marking) == (Marking::Public, Marking::SecretTransactions);
        self.generation + 1 == newer.generation && (has_grown || is_upgraded)
    }

    /// Returns the sealed block for the copy at `at`.
    #[must_use]
    pub fn encode(&self, at: BlockNo) -> Box<BlockBytes> {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        header::stamp(&mut bytes, self.pool_tag(), BlockKind::Superblock, at);
        bytes[16..24].copy_from_slice(&MAGIC);
        put_u32(&mut *bytes, 24, if self.marking == Marking::Public { VERSION_PUBLIC } else { VERSION });
        bytes[28] = u8::from(self.geometry.placement == StorePlacement::AtEnd);
        bytes[29] = u8::from(self.dedup == Dedup::Off);
        bytes[30] = u8::from(self.marking == Marking::Secret);
        put_u64(&mut *bytes, 32, self.generation);
        bytes[64..80].copy_from_slice(&self.uuid);
        bytes[80..112].copy_from_slice(&self.key);
        put_u64(&mut *bytes, 112, self.geometry.total_blocks);
        put_u64(&mut *bytes, 120, self.geometry.journal_first.0);
        put_u64(&mut *bytes, 128, self.geometry.journal_blocks);
        bytes[136..144].copy_from_slice(&self.created.seconds.to_le_bytes());
        put_u32(&mut *bytes, 144, self.created.nanoseconds);
        let label = self.label.as_bytes();
        bytes[148] = u8::try_from(label.len()).expect("a label has at most 64 bytes");
        bytes[149..149 + label.len()].copy_from_slice(label);
        header::seal(&mut bytes);
        bytes
    }

    /// Decodes the copy at `at`.
    ///
    /// # Errors
    /// When it is unusable. Magic and version are checked before any field that another version might change.
    pub fn decode(bytes: &BlockBytes, at: BlockNo) -> Result<Superblock, SuperblockError> {
        let damaged = |what: &str| SuperblockError::Damaged(what.to_owned());
        if bytes[16..24] != MAGIC {
            return Err(SuperblockError::NotAPool);
        }
        let uuid: [u8; 16] = bytes[64..80].try_into().expect("sixteen bytes");
        let (found, expected) = (header::checksum(bytes), get_u32(bytes, 0));
        if found != expected {
            return Err(SuperblockError::Damaged(HeaderError::Checksum { found, expected }.to_string()));
        }
        let version = get_u32(bytes, 24);
        let marking = match (version, bytes[30]) {
            (VERSION_PUBLIC, 0) => Marking::Public,
            (VERSION, 0) => Marking::SecretTransactions,
            (VERSION, 1) => Marking::Secret,
            (VERSION_PUBLIC | VERSION, _) => return Err(damaged("unknown kind of metadata tag")),
            _ => return Err(SuperblockError::Newer(format!("format version {version}, this one knows {VERSION}"))),
        };
        // Only after the version check: another version may have another tag.
        header::verify(bytes, tag_of(bytes), BlockKind::Superblock, at)
            .map_err(|error| SuperblockError::Damaged(error.to_string()))?;
        let incompatible = get_u64(bytes, 56);
        let read_only = get_u64(bytes, 48);
        if incompatible != 0 || read_only != 0 {
            return Err(SuperblockError::Newer(format!("unknown features {incompatible:#x} and {read_only:#x}")));
        }
        let placement = match bytes[28] {
            0 => StorePlacement::InGroups,
            1 => StorePlacement::AtEnd,
            _ => return Err(damaged("unknown store placement")),
        };
        let dedup = match bytes[29] {
            0 => Dedup::On,
            1 => Dedup::Off,
            _ => return Err(damaged("unknown dedup setting")),
        };
        let geometry = Geometry::new(get_u64(bytes, 112), BlockNo(get_u64(bytes, 120)), get_u64(bytes, 128), placement)
            .ok_or_else(|| damaged("sizes that make no sense"))?;
        if get_u64(bytes, 32) > GENERATION_MAX {
            return Err(damaged("a generation that no pool reaches"));
        }
        let label_bytes = usize::from(bytes[148]);
        if label_bytes > LABEL_BYTES_MAX {
            return Err(damaged("label too long"));
        }
        let label = std::str::from_utf8(&bytes[149..149 + label_bytes]).map_err(|_| damaged("label is not UTF-8"))?;
        let created = Timestamp {
            seconds: i64::from_le_bytes(bytes[136..144].try_into().expect("eight bytes")),
            nanoseconds: get_u32(bytes, 144).min(999_999_999),
        };
        Ok(Superblock {
            generation: get_u64(bytes, 32),
            uuid,
            key: bytes[80..112].try_into().expect("thirty-two bytes"),
            marking,
            label: label.to_owned(),
            dedup,
            geometry,
            created,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            generation: 3,
            uuid: [9; 16],
            key: [8; 32],
            marking: Marking::Secret,
            label: "lab images".to_owned(),
            dedup: Dedup::On,
            geometry: Geometry::plan(100_000, None, StorePlacement::InGroups).unwrap(),
            created: Timestamp { seconds: 1, nanoseconds: 2 },
        }
    }

    #[test]
    fn a_superblock_survives_its_encoding() {
        let bytes = sample().encode(BlockNo(4095));
        assert_eq!(Superblock::decode(&bytes, BlockNo(4095)), Ok(sample()));
        assert!(matches!(Superblock::decode(&bytes, BlockNo(0)), Err(SuperblockError::Damaged(_))));
    }

    #[test]
    fn each_marking_survives_its_encoding_and_has_its_tags() {
        for marking in [Marking::Public, Marking::SecretTransactions, Marking::Secret] {
            let superblock = Superblock { marking, ..sample() };
            let bytes = superblock.encode(BlockNo(0));
            assert_eq!(Superblock::decode(&bytes, BlockNo(0)), Ok(superblock.clone()));
            assert_eq!(tag_of(&bytes), superblock.pool_tag());
        }
        let of = |marking| Superblock { marking, ..sample() };
        let public = of(Marking::Public);
        assert_eq!(public.pool_tag(), crc32c::crc32c(&[9; 16]));
        assert_eq!(public.transaction_identity(), TransactionIdentity::public(public.pool_tag()));
        let upgraded = of(Marking::SecretTransactions);
        assert_eq!(upgraded.pool_tag(), public.pool_tag(), "its blocks stay as they are");
        assert_eq!(upgraded.transaction_identity(), TransactionIdentity::secret(&[8; 32]));
        assert_eq!(of(Marking::Secret).pool_tag(), 0xdfce_191e);
    }

    #[test]
    fn a_copy_that_an_upgrade_or_a_growth_left_behind_is_known() {
        let newer = Superblock { marking: Marking::SecretTransactions, ..sample() };
        let older = Superblock { generation: 2, marking: Marking::Public, ..sample() };
        assert!(older.was_replaced_by(&newer));
        assert!(!newer.was_replaced_by(&older));
        assert!(!Superblock { generation: 1, ..older.clone() }.was_replaced_by(&newer));
        assert!(!Superblock { label: "other".to_owned(), ..older.clone() }.was_replaced_by(&newer));
        assert!(!older.was_replaced_by(&sample()), "its metadata would have other tags");
        let smaller = Geometry::plan(90_000, None, StorePlacement::InGroups).unwrap();
        let smaller = Superblock { generation: 2, geometry: smaller, ..sample() };
        assert!(smaller.was_replaced_by(&sample()) && !sample().was_replaced_by(&smaller));
    }

    #[test]
    fn other_things_and_newer_versions_are_told_apart() {
        assert_eq!(Superblock::decode(&[0; BLOCK_BYTES], BlockNo(0)), Err(SuperblockError::NotAPool));
        let mut newer = sample().encode(BlockNo(0));
        put_u32(&mut *newer, 24, VERSION + 1);
        header::seal(&mut newer);
        assert!(matches!(Superblock::decode(&newer, BlockNo(0)), Err(SuperblockError::Newer(_))));
        let mut feature = sample().encode(BlockNo(0));
        put_u64(&mut *feature, 56, 1);
        header::seal(&mut feature);
        assert!(matches!(Superblock::decode(&feature, BlockNo(0)), Err(SuperblockError::Newer(_))));
    }

    #[test]
    fn mutated_superblocks_give_a_value_or_an_error() {
        let random = onefold_block::random::SeededRandom::new(4);
        for _ in 0..5000 {
            let mut bytes = sample().encode(BlockNo(0));
            for _ in 0..=random.below(4) {
                let at = usize::try_from(24 + random.below(200)).unwrap();
                bytes[at] = random.next_u64().to_le_bytes()[0];
            }
            // Sealed again, so that the mutation is believed.
            let tag = tag_of(&bytes);
            header::stamp(&mut bytes, tag, BlockKind::Superblock, BlockNo(0));
            header::seal(&mut bytes);
            let _ = Superblock::decode(&bytes, BlockNo(0));
        }
    }
}
