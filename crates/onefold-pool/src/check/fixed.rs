//! Checks the structures that exist once in a pool, at fixed places: superblock copies, journal header slots, pool
//! state.

use onefold_block::{AlignedBuffer, BlockDevice, BlockNo};

use super::findings::CheckFindings;
use super::reader::MetadataReader;
use crate::engine::open::COUNTER_MAX;
use crate::error::{PoolError, Result};
use crate::format::BlockBytes;
use crate::format::geometry::{Geometry, STATE, SUPERBLOCK, SUPERBLOCK_COPY};
use crate::format::header::{BlockKind, HEADER_BYTES};
use crate::format::journal::{HEADER_SLOTS, JournalHeader};
use crate::format::state::{FIELD_COUNT, Field};
use crate::format::superblock::{Superblock, SuperblockError};
use crate::journal::log::log_blocks;

fn read(device: &dyn BlockDevice, at: BlockNo) -> Result<AlignedBuffer> {
    let mut buffer = AlignedBuffer::zeroed(1);
    device.read(at, &mut buffer).map_err(|source| PoolError::Io { action: "read", block: at, source })?;
    Ok(buffer)
}

/// Checks that both superblock copies are whole and equal, except for differences that a crash may leave during growth
/// or an upgrade.
pub(super) fn check_superblocks(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    findings: &mut CheckFindings,
) -> Result<()> {
    for (at, name) in [(SUPERBLOCK, "the superblock"), (SUPERBLOCK_COPY, "the superblock's copy")] {
        let buffer = match read(device, at) {
            Ok(buffer) => buffer,
            Err(error) => {
                findings.tell("superblock", Some(at), format!("{name} is unusable: {error}"));
                continue;
            }
        };
        match Superblock::decode(buffer.block(0).expect("one block was read"), at) {
            Ok(found) if found == *superblock => {}
            // The next opening updates it.
            Ok(found) if found.was_replaced_by(superblock) => {}
            Ok(_) => findings.tell("superblock", Some(at), format!("{name} is out of date, the other one is newer")),
            Err(SuperblockError::Damaged(what)) => {
                findings.tell("superblock", Some(at), format!("{name} is unusable: {what}"));
            }
            Err(SuperblockError::NotAPool) => {
                findings.tell("superblock", Some(at), format!("{name} has been overwritten"))
            }
            Err(SuperblockError::Newer(what)) => return Err(PoolError::NewerFormat(what)),
        }
    }
    Ok(())
}

/// Checks both header slots of the journal. All fields of a slot lie in its first sector, so no crash tears it.
pub(super) fn check_journal_headers(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    findings: &mut CheckFindings,
) -> Result<()> {
    let geometry = &superblock.geometry;
    for slot in 0..HEADER_SLOTS {
        let at = geometry.journal_first.plus(slot);
        let decoded = match read(device, at) {
            Ok(buffer) => {
                let bytes = buffer.block(0).expect("one block was read");
                JournalHeader::decode(bytes, superblock.pool_tag(), at, log_blocks(geometry)).map(|_| ())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(what) = decoded {
            findings.tell("journal", Some(at), format!("header slot {slot} is unusable: {what}"));
        }
    }
    Ok(())
}

/// Returns the pool state if a check can continue with it, or why it cannot.
pub(super) fn usable_state(
    reader: &mut MetadataReader<'_>,
    geometry: &Geometry,
) -> std::result::Result<Box<BlockBytes>, String> {
    let state = Box::new(*reader.block(STATE, BlockKind::State)?);
    let ready = Field::GroupsReady.get(&state);
    if ready == 0 || ready > geometry.group_count() {
        return Err(format!("{ready} block groups are recorded as in use, the pool has {}", geometry.group_count()));
    }
    for (field, name) in [(Field::NextIno, "inode number"), (Field::NextReclaim, "number in the reclaim list")] {
        let next = field.get(&state);
        if next > COUNTER_MAX {
            return Err(format!("the next {name} is recorded as {next}, more than any pool has assigned"));
        }
    }
    Ok(state)
}

/// Checks that the pool state contains only its fields.
pub(super) fn check_state(state: &BlockBytes, findings: &mut CheckFindings) {
    if state[HEADER_BYTES + FIELD_COUNT * 8..].iter().any(|byte| *byte != 0) {
        findings.tell("pool state", Some(STATE), "bytes that no field has are not zero");
    }
}
