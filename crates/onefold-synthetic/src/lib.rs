//! Pools that describe very many distinct blocks without holding their data, for developers.
//!
//! The cost of a pool at a given size (a mount, the filter, a removal) depends on its metadata. A *described* block has
//! all of it: a bit in its group's bitmap, an entry with its own fingerprint in the fingerprint store, a place in a
//! fully mapped file. Its data was never written: on a sparse file it reads as zeros, and takes no room. So a pool of 1
//! TiB is made in seconds. `check` finds it clean; `check --data` and `scrub` correctly report every described block as
//! damaged.
//!
//! The pool itself makes the pool, its files and their names. While it is closed, this crate then adds file maps,
//! bitmaps and stores, and updates inodes and counters. It knows the layout only from the modules of the format. No
//! part of the product uses this crate.
//!
//! Besides pools: [`index`] makes a sharing index of equally many blocks, [`calls`] makes only the kernel's sharing
//! calls, [`guest`] runs the library on an image without printing, and [`hashing`] hashes the same bytes in several
//! ways.

pub mod calls;
mod groups;
pub mod guest;
pub mod hashing;
pub mod index;
mod map;
mod names;
mod places;

use std::sync::Arc;

use onefold_block::block::BLOCK_BYTES_U64;
use onefold_block::device::DeviceError;
use onefold_block::{AlignedBuffer, BlockDevice, BlockNo, Fingerprint};
use onefold_pool::format::BlockBytes;
use onefold_pool::format::geometry::{
    BITMAP_BLOCKS, GROUP_BLOCKS, JOURNAL_BLOCKS_MAX, STATE, STORE_PAGES_PER_GROUP, SUPERBLOCK,
};
use onefold_pool::format::header::{self, BlockKind};
use onefold_pool::format::map_node::FAN_OUT;
use onefold_pool::format::state::Field;
use onefold_pool::format::store_page::{BlockUse, StoreEntry};
use onefold_pool::format::superblock::Superblock;
use onefold_pool::tree::TreeError;
use onefold_pool::{
    CreateOptions, Environment, FileKind, Ino, Journaling, NewFile, OpenOptions, Pool, PoolError, SetAttr,
};

use groups::Groups;
use map::MapBuilder;
use places::Places;

/// Usable blocks of a group beside its own structures.
const GROUP_BLOCKS_USABLE: u64 = GROUP_BLOCKS - BITMAP_BLOCKS - STORE_PAGES_PER_GROUP;
/// Room for the journal, the names tree and the unused end of a run of map nodes.
const SPARE_BLOCKS: u64 = JOURNAL_BLOCKS_MAX + 4 * 4096;

/// The plan of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Number of distinct blocks in all files together.
    pub blocks: u64,
    /// Number of fully mapped files that share these blocks out among them, named `described-0` and so on.
    pub files: u64,
    /// Minimum number of blocks that stay free.
    pub free_blocks: u64,
}

/// Summary of a new pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSummary {
    /// Number of data blocks described.
    pub data_blocks: u64,
    /// Number of map nodes written.
    pub map_nodes: u64,
    /// Number of block groups in use.
    pub groups: u64,
}

/// Why a pool could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SyntheticError {
    /// The plan is invalid, or does not fit the device.
    #[error("{0}")]
    Plan(&'static str),
    /// The device could not be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The initial pool could not be made.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The new pool is not as expected.
    #[error("the new pool's {what} at block {block} is unusable: {why}")]
    Unexpected {
        /// The structure.
        what: &'static str,
        /// Its block.
        block: BlockNo,
        /// The problem.
        why: String,
    },
    /// The names tree could not be changed.
    #[error("the names tree: {0}")]
    Tree(#[from] TreeError),
    /// The device failed.
    #[error("cannot {action} block {block}")]
    Io {
        /// The failed action.
        action: &'static str,
        /// The block.
        block: BlockNo,
        /// The device's error.
        #[source]
        source: std::io::Error,
    },
}

impl Plan {
    /// Returns the number of blocks that a device needs for this plan.
    #[must_use]
    pub fn device_blocks(&self) -> u64 {
        let node_blocks = self.blocks.div_ceil(FAN_OUT - 1) + 8 * self.files;
        let usable = self.blocks + node_blocks + self.free_blocks + SPARE_BLOCKS;
        usable.div_ceil(GROUP_BLOCKS_USABLE) * GROUP_BLOCKS
    }

    fn ensure_possible(&self) -> Result<(), SyntheticError> {
        if self.files == 0 || self.files > self.blocks {
            return Err(SyntheticError::Plan("there must be a file, and a block for each"));
        }
        if self.blocks.div_ceil(self.files) > onefold_pool::FILE_BYTES_MAX / BLOCK_BYTES_U64 {
            return Err(SyntheticError::Plan("a file has at most 16 TiB: ask for more files"));
        }
        Ok(())
    }

    /// Returns the blocks of file `number`.
    fn file_blocks(&self, number: u64) -> u64 {
        self.blocks / self.files + u64::from(number < self.blocks % self.files)
    }
}

/// Makes a pool on a device that is large enough, and sparse if the pool should take little room. Earlier content is
/// lost. The pool is left as by a clean unmount, without a saved filter.
///
/// # Errors
/// An impossible plan; a device too small; device errors.
pub fn describe(
    device: &Arc<dyn BlockDevice>,
    plan: &Plan,
    environment: &Environment,
) -> Result<PoolSummary, SyntheticError> {
    plan.ensure_possible()?;
    let inos = make_files(device, plan, environment)?;
    let superblock = read_superblock(&**device)?;
    let (geometry, pool_tag) = (superblock.geometry, superblock.pool_tag());
    let mut state = read_one(&**device, STATE)?;
    let pages = names::TreePages::new(&**device, pool_tag);
    let mut tree = names::Names::new(pages, BlockNo(Field::TreeRoot.get(&state)));

    let groups = Groups::new(&**device, geometry, pool_tag);
    let mut places = Places::new(groups, Field::GroupsReady.get(&state));
    for (number, ino) in (0..).zip(inos) {
        let blocks = plan.file_blocks(number);
        let mut map = MapBuilder::new(pool_tag);
        for _ in 0..blocks {
            let block = places.take_block()?;
            places.set_entry(block, &data_entry(block));
            map.add(block, &mut places)?;
        }
        tree.set_map(ino, map.finish(&mut places)?, blocks)?;
    }
    let map_nodes = places.nodes_taken();
    let groups_in_use = places.finish()?;
    tree.write()?;

    let mut raise = |field: Field, by: u64| {
        let sum = field.get(&state) + by;
        state[field.range()].copy_from_slice(&sum.to_le_bytes());
    };
    raise(Field::GroupsReady, groups_in_use - Field::GroupsReady.get(&read_one(&**device, STATE)?));
    for field in [Field::LogicalBlocks, Field::References, Field::DataBlocks] {
        raise(field, plan.blocks);
    }
    raise(Field::MetadataBlocks, map_nodes);
    header::seal(&mut state);
    write_one(&**device, STATE, &state)?;
    device.sync().map_err(|source| SyntheticError::Io { action: "flush", block: STATE, source })?;
    Ok(PoolSummary { data_blocks: plan.blocks, map_nodes, groups: groups_in_use })
}

/// Opens a described pool and closes it again, so that it gets a saved filter.
///
/// # Errors
/// See [`Pool::open`] and [`Pool::close`].
pub fn save_filter(device: Arc<dyn BlockDevice>, memory_bytes: u64, environment: Environment) -> Result<(), PoolError> {
    let options = OpenOptions { background: false, memory_bytes, ..OpenOptions::default() };
    Pool::open(device, options, environment)?.close()
}

/// Makes a pool with its files, which have their final length but are still empty.
fn make_files(
    device: &Arc<dyn BlockDevice>,
    plan: &Plan,
    environment: &Environment,
) -> Result<Vec<Ino>, SyntheticError> {
    let found = device.block_count().map_err(|source| SyntheticError::Io {
        action: "measure the device, beginning with",
        block: SUPERBLOCK,
        source,
    })?;
    if found < plan.device_blocks() {
        return Err(SyntheticError::Plan("the device is too small for these blocks"));
    }
    Pool::create(device, &CreateOptions { label: "synthetic".to_owned(), ..CreateOptions::default() }, environment)?;
    // Without a journal no filter is saved, whose blocks would not stay free.
    let options = OpenOptions { background: false, journaling: Journaling::Off, ..OpenOptions::default() };
    let pool = Pool::open(Arc::clone(device), options, environment.clone())?;
    let new = NewFile { kind: FileKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let mut inos = Vec::new();
    for number in 0..plan.files {
        let ino = pool.create_file(Ino::ROOT, format!("described-{number}").as_bytes(), &new)?.ino;
        let length = plan.file_blocks(number) * BLOCK_BYTES_U64;
        pool.set_attr(ino, &SetAttr { size_bytes: Some(length), ..SetAttr::default() })?;
        pool.release(ino, 1);
        inos.push(ino);
    }
    pool.close()?;
    Ok(inos)
}

fn data_entry(block: BlockNo) -> StoreEntry {
    StoreEntry { fingerprint: fingerprint(block), count: 1, domain: 0, usage: BlockUse::Data, private: false }
}

/// Returns a fingerprint that looks like a keyed hash and differs from that of every other block: both halves are
/// permutations of the block's number.
fn fingerprint(block: BlockNo) -> Fingerprint {
    let mix = |number: u64| {
        let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mix(block.0 + 1).to_be_bytes());
    bytes[8..].copy_from_slice(&mix(!block.0).to_be_bytes());
    Fingerprint(bytes)
}

fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock, SyntheticError> {
    let bytes = read_one(device, SUPERBLOCK)?;
    Superblock::decode(&bytes, SUPERBLOCK).map_err(|error| SyntheticError::Unexpected {
        what: "superblock",
        block: SUPERBLOCK,
        why: format!("{error:?}"),
    })
}

fn read_one(device: &dyn BlockDevice, at: BlockNo) -> Result<BlockBytes, SyntheticError> {
    let mut buffer = AlignedBuffer::zeroed(1);
    device.read(at, &mut buffer).map_err(|source| SyntheticError::Io { action: "read", block: at, source })?;
    Ok(*buffer.block(0).expect("one block was read"))
}

fn write_one(device: &dyn BlockDevice, at: BlockNo, bytes: &BlockBytes) -> Result<(), SyntheticError> {
    device.write(at, &AlignedBuffer::copy_of(bytes)).map_err(|source| SyntheticError::Io {
        action: "write",
        block: at,
        source,
    })
}

/// Checks a block that was read from the new pool.
fn ensure_sound(bytes: &BlockBytes, pool_tag: u32, kind: BlockKind, at: BlockNo) -> Result<(), SyntheticError> {
    header::verify(bytes, pool_tag, kind, at).map_err(|error| SyntheticError::Unexpected {
        what: kind.name(),
        block: at,
        why: error.to_string(),
    })
}
