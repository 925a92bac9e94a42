//! Damage to the objects of an archive of images, and the digests that make readers believe it.

use crate::Choices;

/// Length of a frame, and of the digest at the end, in bytes.
const FRAME_BYTES: usize = 64;
const DIGEST_BYTES: usize = 32;
/// Length of the fields between the table of a pack and its digest, in bytes.
const FOOTER_BYTES: usize = 16;
/// Offset of an object's length in its frame.
const LENGTH_AT: usize = 56;

/// Numbers at the limits of fields or formats.
const EDGES: [u64; 20] = [
    0,
    1,
    2,
    63,
    64,
    127,
    128,
    0x7fff,
    0xffff,
    1 << 20,
    (1 << 20) + 1,
    32 << 20,
    64 << 20,
    1 << 31,
    u32::MAX as u64,
    1 << 53,
    (1 << 53) + 1,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// How an object ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// With a digest of everything before it.
    Digest,
    /// As a pack: the digest leaves out the units.
    Pack,
    /// Without a digest.
    Nothing,
}

/// Damages a part of `bytes`, from `start` on, in one way.
pub(super) fn damage(choices: &mut Choices<'_>, bytes: &mut Vec<u8>, start: usize) {
    if bytes.len() <= start {
        return;
    }
    let at = start + choices.index(bytes.len() - start);
    match choices.below(9) {
        0 => bytes[at] = choices.byte(),
        1 => bytes[at] ^= 1 << choices.below(8),
        2 => bytes.truncate(at),
        3 => {
            let end = (at + 1 + choices.index(40)).min(bytes.len());
            bytes.drain(at..end);
        }
        4 => {
            let end = (at + 1 + choices.index(40)).min(bytes.len());
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
        5 => {
            let free = choices.take(8).to_vec();
            bytes.splice(at..at, free);
        }
        _ => {
            let length = *choices.one_of(&[1, 2, 4, 4, 8]);
            let end = (at + length).min(bytes.len());
            let mut old = [0; 8];
            old[..end - at].copy_from_slice(&bytes[at..end]);
            let new = hurtful_number(choices, u64::from_le_bytes(old)).to_le_bytes();
            bytes[at..end].copy_from_slice(&new[..end - at]);
        }
    }
}

fn hurtful_number(choices: &mut Choices<'_>, old: u64) -> u64 {
    match choices.below(6) {
        0..=2 => *choices.one_of(&EDGES),
        3 => old.wrapping_add(1),
        4 => old.wrapping_sub(1),
        _ => choices.number(),
    }
}

/// Puts the length in the frame and the digest right.
pub(super) fn seal(ending: Ending, object: &mut [u8]) {
    if object.len() < FRAME_BYTES + FOOTER_BYTES + DIGEST_BYTES {
        return;
    }
    let length = object.len() as u64;
    let content = object.len() - DIGEST_BYTES;
    match ending {
        Ending::Nothing => {}
        Ending::Digest => {
            object[LENGTH_AT..FRAME_BYTES].copy_from_slice(&length.to_le_bytes());
            let digest = blake3::hash(&object[..content]);
            object[content..].copy_from_slice(digest.as_bytes());
        }
        Ending::Pack => {
            object[LENGTH_AT..FRAME_BYTES].copy_from_slice(&length.to_le_bytes());
            let footer = content - FOOTER_BYTES;
            let field = |at: usize| {
                let bytes = object[at..at + 4].try_into().expect("four bytes");
                usize::try_from(u32::from_le_bytes(bytes)).expect("32 bits fit")
            };
            let (table_bytes, table_at) = (field(footer), field(footer + 4));
            let Some(start) = footer.checked_sub(table_bytes).filter(|start| *start >= FRAME_BYTES) else { return };
            if (FRAME_BYTES..=start).contains(&table_at) {
                let checksum = crc32c::crc32c(&object[FRAME_BYTES..table_at]);
                object[footer + 8..footer + 12].copy_from_slice(&checksum.to_le_bytes());
            }
            let mut hasher = blake3::Hasher::new();
            hasher.update(&object[..FRAME_BYTES]).update(&object[start..content]);
            object[content..].copy_from_slice(hasher.finalize().as_bytes());
        }
    }
}
