//! Damage to blocks with a place of their own.

use std::sync::Arc;

use onefold_block::BlockNo;
use onefold_pool::format::BlockBytes;
use onefold_pool::format::header::{self, BlockKind};
use onefold_pool::format::superblock::tag_of;
use onefold_testing::device::MemoryImage;

use super::{fields, values};
use crate::Choices;
use crate::samples::{KINDS, Sample};

/// Maximum number of changes to one pool.
const CHANGES_MAX: u64 = 6;

/// Returns the sample's device with up to [`CHANGES_MAX`] changes of its metadata blocks.
pub fn damage_blocks(choices: &mut Choices<'_>, sample: &Sample) -> MemoryImage {
    let mut image = sample.image.clone();
    for _ in 0..=choices.below(CHANGES_MAX) {
        let kind_at = choices.index(KINDS.len());
        let places = &sample.places[kind_at];
        if !places.is_empty() {
            let at = *choices.one_of(places);
            damage_one(choices, sample, &mut image, KINDS[kind_at], at);
        }
    }
    if choices.below(16) == 1 {
        image.resize(sample.geometry.total_blocks - choices.below(sample.geometry.total_blocks));
    }
    image
}

fn damage_one(choices: &mut Choices<'_>, sample: &Sample, image: &mut MemoryImage, kind: BlockKind, at: BlockNo) {
    let Some(old) = image.get(at) else { return };
    let mut bytes = **old;
    match choices.below(8) {
        0 => copy_field(choices, kind, &mut bytes),
        1 => {
            // The content of another block, as if it had been written here.
            let other = values::pointer(choices, sample);
            if let Some(content) = image.get(other) {
                bytes = **content;
            }
            header::stamp(&mut bytes, sample.pool_tag, kind, at);
        }
        2 => {
            let from = 16 + choices.index(4080);
            let to = (from + choices.index(400)).min(bytes.len());
            bytes[from..to].fill(*choices.one_of(&[0, 0xff, 1]));
        }
        3 => {
            let byte = choices.index(bytes.len());
            bytes[byte] ^= 1 << choices.below(8);
        }
        _ => change_field(choices, sample, kind, &mut bytes),
    }
    // Now and then the checksum is wrong, as after damage by a disk.
    if choices.below(16) != 15 {
        if kind == BlockKind::Superblock {
            let tag = tag_of(&bytes);
            header::stamp(&mut bytes, tag, kind, at);
        }
        header::seal(&mut bytes);
    }
    image.set(at, Arc::new(bytes));
}

/// Sets a field to a harmful number.
pub(super) fn change_field(choices: &mut Choices<'_>, sample: &Sample, kind: BlockKind, bytes: &mut BlockBytes) {
    let range = fields::pick(choices, kind, bytes);
    let mut wide = [0; 8];
    wide[..range.len()].copy_from_slice(&bytes[range.clone()]);
    // The parts of a key of the names tree are big-endian.
    let is_big = kind == BlockKind::TreePage && range.len() == 8 && choices.below(2) == 0;
    let old = if is_big { u64::from_be_bytes(wide) } else { u64::from_le_bytes(wide) };
    let new = values::number(choices, old, sample);
    let wide = if is_big { new.to_be_bytes() } else { new.to_le_bytes() };
    bytes[range.clone()].copy_from_slice(&wide[..range.len()]);
}

/// Copies another field of the block into a field, so that two entries name the same thing.
fn copy_field(choices: &mut Choices<'_>, kind: BlockKind, bytes: &mut BlockBytes) {
    let from = fields::pick(choices, kind, bytes);
    let to = fields::pick(choices, kind, bytes);
    let length = from.len().min(to.len());
    bytes.copy_within(from.start..from.start + length, to.start);
}
