//! Makes a new pool on a device.

use std::sync::Arc;

use onefold_block::{AlignedBuffer, BlockDevice, BlockNo};

use super::Engine;
use super::group_init::{blank_group, write_blocks};
use crate::error::{PoolError, Result};
use crate::format::geometry::{self, DEVICE_BLOCKS_MIN, Geometry, STATE, SUPERBLOCK, SUPERBLOCK_COPY};
use crate::format::header::{self, BlockKind};
use crate::format::journal::{HEADER_SLOTS, JournalHeader};
use crate::format::state::Field;
use crate::format::superblock::{LABEL_BYTES_MAX, Marking, Superblock};
use crate::journal::log;
use crate::meta::Privilege;
use crate::options::{CreateOptions, Environment, OpenOptions};
use crate::tree;

/// Number of blocks of zeros written at once.
const ZERO_BLOCKS: usize = 256;

/// Makes a pool and destroys all earlier content of the device. The superblock is written last, so an interrupted
/// creation leaves no pool.
///
/// # Errors
/// A device that is too small; a journal that is too small for it; an impossible option; device errors.
pub(crate) fn create(device: &Arc<dyn BlockDevice>, options: &CreateOptions, environment: &Environment) -> Result<()> {
    let found =
        device.block_count().map_err(|source| PoolError::Io { action: "measure", block: BlockNo(0), source })?;
    if found < DEVICE_BLOCKS_MIN {
        return Err(PoolError::DeviceTooSmall { found, needed: DEVICE_BLOCKS_MIN });
    }
    if options.label.len() > LABEL_BYTES_MAX {
        return Err(PoolError::Invalid("a label has at most 64 bytes"));
    }
    let journal_blocks = options.journal_bytes.map(|bytes| bytes / onefold_block::block::BLOCK_BYTES_U64);
    let geometry = Geometry::plan(found, journal_blocks, options.store_placement)
        .ok_or(PoolError::Invalid("a journal has 1 to 64 MiB, and the device must be large enough for it"))?;
    if !options.any_journal {
        geometry.ensure_journal_suffices()?;
    }
    let (mut uuid, mut key) = ([0; 16], [0; 32]);
    let fill = |into: &mut [u8]| {
        environment.random.fill(into).map_err(|source| PoolError::Io {
            action: "find randomness for",
            block: SUPERBLOCK,
            source,
        })
    };
    fill(&mut uuid)?;
    fill(&mut key)?;
    let superblock = Superblock {
        generation: 1,
        uuid,
        key,
        marking: Marking::Secret,
        label: options.label.clone(),
        dedup: options.dedup,
        geometry,
        created: environment.clock.now(),
    };
    // So that no opening finds an old, half overwritten pool.
    for at in [SUPERBLOCK, SUPERBLOCK_COPY] {
        write_zeros(&**device, at, 1)?;
    }
    log::sync(&**device, SUPERBLOCK)?;
    // Written once now, so that a sparse backing file already has its blocks when a commit needs them.
    write_zeros(&**device, geometry.journal_first, geometry.journal_blocks)?;
    let header =
        JournalHeader { generation: 0, tail_sequence: 1, tail_position: 0, tail_chain: 0, clean: true, run: 0 };
    for slot in 0..HEADER_SLOTS {
        let at = geometry.journal_first.plus(slot);
        write_one(&**device, at, &header.encode(superblock.pool_tag(), at))?;
    }
    write_blocks(&**device, &blank_group(&geometry, superblock.pool_tag(), 0))?;
    write_zeros(&**device, geometry::HEARTBEAT, 1)?;
    write_state(&**device, &superblock)?;
    log::sync(&**device, STATE)?;
    make_root(device, &superblock, options, environment)?;
    for at in [SUPERBLOCK_COPY, SUPERBLOCK] {
        write_one(&**device, at, &superblock.encode(at)[..])?;
        log::sync(&**device, at)?;
    }
    Ok(())
}

fn write_one(device: &dyn BlockDevice, at: BlockNo, bytes: &[u8]) -> Result<()> {
    device.write(at, &AlignedBuffer::copy_of(bytes)).map_err(|source| PoolError::of_write(at, source))
}

fn write_zeros(device: &dyn BlockDevice, first: BlockNo, count: u64) -> Result<()> {
    let zeros = AlignedBuffer::zeroed(ZERO_BLOCKS);
    let mut done = 0;
    while done < count {
        let piece = (count - done).min(ZERO_BLOCKS as u64);
        let bytes = &zeros[..usize::try_from(piece).expect("at most 256") * onefold_block::BLOCK_BYTES];
        let at = first.plus(done);
        device.write(at, bytes).map_err(|source| PoolError::of_write(at, source))?;
        done += piece;
    }
    Ok(())
}

fn write_state(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    let mut state = header::blank(superblock.pool_tag(), BlockKind::State, STATE);
    let mut set = |field: Field, value: u64| state[field.range()].copy_from_slice(&value.to_le_bytes());
    set(Field::NextIno, crate::Ino::ROOT.0 + 1);
    set(Field::GroupsReady, 1);
    set(Field::NextReclaim, 1);
    header::seal(&mut state);
    write_one(device, STATE, &state)
}

/// Makes the names tree and the root directory, through the journal like every other change.
fn make_root(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    options: &CreateOptions,
    environment: &Environment,
) -> Result<()> {
    let open = OpenOptions { background: false, ..OpenOptions::default() };
    let engine = Engine::assemble(Arc::clone(device), superblock.clone(), open, environment.clone(), None)?;
    let now = environment.clock.now();
    engine.run(Privilege::Freeing, |op| {
        let root = tree::create(op)?;
        op.set_state(Field::TreeRoot, root.0)?;
        op.new_root(options.root_uid, options.root_gid, options.dedup, now)
    })?;
    // There is nothing to index yet. The close then saves a complete filter.
    while engine.index_some()? {}
    engine.save_and_close()?.map_or(Ok(()), Err)
}
