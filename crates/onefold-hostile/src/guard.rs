//! A device that checks its writes: a pool must write each block where it belongs.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use onefold_block::{BLOCK_BYTES, BlockDevice, BlockNo};
use onefold_pool::format::BlockBytes;
use onefold_pool::format::geometry::{
    BITMAP_BLOCKS, Geometry, HEARTBEAT, STATE, STORE_PAGES_PER_GROUP, SUPERBLOCK, SUPERBLOCK_COPY,
};
use onefold_pool::format::header::{self, BlockKind};
use onefold_pool::format::journal::HEADER_SLOTS;
use onefold_pool::format::superblock::Superblock;
use onefold_testing::device::{MemoryDevice, MemoryImage};
use parking_lot::Mutex;

/// Maximum number of blocks that one input may read or write; more counts as a hang.
const BLOCKS_MAX: u64 = 4_000_000;

/// A device in memory that panics when
/// 1. a write or discard reaches past its end (it refuses such reads, as a real device does);
/// 2. a block with a fixed place gets anything but a sound block of the kind that belongs there;
/// 3. anything is written although no usable superblock could have said where;
/// 4. so much is read and written that it looks like a loop.
///
/// The fixed places are those of the superblock on the device at the time of a write: a hostile one may move them.
#[derive(Debug)]
pub struct GuardedDevice {
    inner: MemoryDevice,
    geometry: Mutex<Option<Geometry>>,
    blocks_moved: AtomicU64,
}

impl From<MemoryImage> for GuardedDevice {
    fn from(image: MemoryImage) -> GuardedDevice {
        let geometry = Mutex::new(geometry_of(&image));
        GuardedDevice { inner: MemoryDevice::from(image), geometry, blocks_moved: AtomicU64::new(0) }
    }
}

impl GuardedDevice {
    /// Changes the number of blocks, as growing a partition does.
    pub fn resize(&self, block_count: u64) {
        self.inner.resize(block_count);
    }

    /// Returns the present content.
    #[must_use]
    pub fn image(&self) -> MemoryImage {
        self.inner.image()
    }

    fn note(&self, bytes: usize) {
        let blocks = (bytes / BLOCK_BYTES) as u64;
        let moved = self.blocks_moved.fetch_add(blocks, Ordering::Relaxed) + blocks;
        assert!(moved <= BLOCKS_MAX, "{moved} blocks were read and written: this does not end");
    }

    fn assert_on_device(&self, first: BlockNo, count: u64) {
        let end = self.inner.image().block_count();
        let fits = first.0.checked_add(count).is_some_and(|after| after <= end);
        assert!(fits, "{count} blocks from {first} are changed, the device has {end}");
    }
}

impl BlockDevice for GuardedDevice {
    fn block_count(&self) -> io::Result<u64> {
        self.inner.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.note(into.len());
        self.inner.read(first, into)
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        self.note(from.len());
        self.assert_on_device(first, (from.len() / BLOCK_BYTES) as u64);
        let mut geometry = self.geometry.lock();
        let known = geometry.expect("nothing is written to a device without a usable superblock");
        for (number, bytes) in (first.0..).zip(from.as_chunks().0) {
            assert_belongs(&known, BlockNo(number), bytes);
        }
        self.inner.write(first, from)?;
        if first == SUPERBLOCK || first == SUPERBLOCK_COPY {
            *geometry = geometry_of(&self.inner.image());
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn has_room_for_all_blocks(&self) -> bool {
        self.inner.has_room_for_all_blocks()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.assert_on_device(first, count);
        let geometry = self.geometry.lock().expect("nothing is discarded on a device without a usable superblock");
        for number in first.0..first.0 + count {
            assert!(geometry.is_allocatable(BlockNo(number)), "block {number} has a fixed use and is discarded");
        }
        self.inner.discard(first, count)
    }
}

/// Returns the layout of the newer usable superblock.
fn geometry_of(image: &MemoryImage) -> Option<Geometry> {
    [SUPERBLOCK, SUPERBLOCK_COPY]
        .into_iter()
        .filter_map(|at| Superblock::decode(image.get(at)?, at).ok())
        .reduce(|first, second| if second.generation > first.generation { second } else { first })
        .map(|superblock| superblock.geometry)
}

/// Panics unless `bytes` may be at `at`.
fn assert_belongs(geometry: &Geometry, at: BlockNo, bytes: &BlockBytes) {
    if at == SUPERBLOCK || at == SUPERBLOCK_COPY {
        assert!(Superblock::decode(bytes, at).is_ok(), "a superblock is overwritten with something else");
        return;
    }
    let Some(kind) = fixed_kind(geometry, at) else { return };
    assert!(
        header::kind(bytes) == Some(kind)
            && header::address(bytes) == at
            && header::checksum(bytes).to_le_bytes() == bytes[..4],
        "block {at} is the place of a {}, and gets {:?}",
        kind.name(),
        &bytes[..16]
    );
}

/// Returns the only kind of block that may be at `at`, if that is fixed. The journal's log takes any bytes.
fn fixed_kind(geometry: &Geometry, at: BlockNo) -> Option<BlockKind> {
    if at.0 >= geometry.total_blocks {
        return None;
    }
    let slots = geometry.journal_first.0..geometry.journal_first.0 + HEADER_SLOTS;
    match at {
        HEARTBEAT => Some(BlockKind::Heartbeat),
        STATE => Some(BlockKind::State),
        _ if slots.contains(&at.0) => Some(BlockKind::JournalHeader),
        _ => {
            let group = geometry.group_of(at).min(geometry.group_count() - 1);
            let bitmaps = (0..BITMAP_BLOCKS).map(|index| geometry.bitmap_block(group, index));
            let store_group = geometry.group_of_store_page(at);
            let mut pages = store_group
                .into_iter()
                .flat_map(|group| (0..STORE_PAGES_PER_GROUP).map(move |index| geometry.store_page(group, index)));
            if bitmaps.into_iter().any(|bitmap| bitmap == at) {
                Some(BlockKind::Bitmap)
            } else {
                pages.any(|page| page == at).then_some(BlockKind::StorePage)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::samples;

    fn guarded() -> GuardedDevice {
        GuardedDevice::from(samples()[0].image.clone())
    }

    #[test]
    #[should_panic(expected = "a superblock is overwritten")]
    fn a_superblock_overwritten_with_data_is_noticed() {
        let _ = guarded().write(SUPERBLOCK_COPY, &[7; BLOCK_BYTES]);
    }

    #[test]
    #[should_panic(expected = "is the place of a fingerprint store")]
    fn a_store_page_overwritten_with_data_is_noticed() {
        let _ = guarded().write(BlockNo(9), &[7; BLOCK_BYTES]);
    }

    #[test]
    #[should_panic(expected = "are changed, the device has")]
    fn a_write_past_the_end_is_noticed() {
        let device = guarded();
        let end = device.block_count().unwrap();
        let _ = device.write(BlockNo(end), &[7; BLOCK_BYTES]);
    }
}
