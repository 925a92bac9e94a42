//! A view of an image that shows only the regions of a sample, and records facts about the image.

use std::collections::HashMap;
use std::ops::Range;

use onefold_block::BLOCK_BYTES;
use onefold_block::zero::is_zero;
use onefold_disk::{Disk, DiskError};
use parking_lot::Mutex;

use super::cover::{note_mapped, region_at};
use super::{Cover, REGION_BYTES, Sample};
use crate::map_nodes::MapNodes;

/// A disk that appears empty outside of a sample's regions.
///
/// It supports one forward pass that reads each region as a whole, like `scan`.
pub(crate) struct SampledDisk<'a> {
    disk: &'a dyn Disk,
    sample: &'a Sample,
    walk: Mutex<Walk>,
    blocks: Mutex<RegionCounter>,
}

/// Blocks of the regions read so far.
#[derive(Default)]
struct RegionCounter {
    blocks: Blocks,
    /// Regions that are about to be read, and how many of their blocks may hold data.
    pending: HashMap<u64, f64>,
}

/// Progress of the search for the disk's own data.
#[derive(Default)]
struct Walk {
    /// Data that was found but not yet processed.
    ahead: Range<u64>,
    cover: Cover,
    nodes: MapNodes,
}

/// The data that an image may hold, and approximately how much of it is not zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SampleExtent {
    pub(crate) cover: Cover,
    /// Maximum number of nodes of its map, which it has if none of its data is zero.
    pub(crate) map_nodes_max: u64,
    pub(crate) blocks: Blocks,
}

/// Sums over the regions of one image that were read, for a ratio and its variance: `data` is how many blocks of a
/// region may hold data, `full` how many do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Blocks {
    pub(crate) regions: f64,
    pub(crate) data: f64,
    pub(crate) full: f64,
    pub(crate) data_data: f64,
    pub(crate) data_full: f64,
    pub(crate) full_full: f64,
}

impl<'a> SampledDisk<'a> {
    pub(crate) fn new(disk: &'a dyn Disk, sample: &'a Sample) -> SampledDisk<'a> {
        SampledDisk { disk, sample, walk: Mutex::default(), blocks: Mutex::default() }
    }

    /// Returns the result of the pass after its end.
    pub(crate) fn into_extent(self) -> SampleExtent {
        let walk = self.walk.into_inner();
        SampleExtent { cover: walk.cover, map_nodes_max: walk.nodes.count(), blocks: self.blocks.into_inner().blocks }
    }
}

impl Walk {
    /// Returns the next data and its region. If none is known, searches the disk from `offset` on.
    fn peek(&mut self, disk: &dyn Disk, offset: u64) -> Result<Option<(u64, Range<u64>)>, DiskError> {
        if self.ahead.is_empty() {
            let Some(data) = disk.next_data(offset.max(self.ahead.end))? else { return Ok(None) };
            note_mapped(&mut self.nodes, &data);
            self.ahead = data;
        }
        let region = region_at(self.ahead.start);
        let end = self.ahead.end.min((region + 1).saturating_mul(REGION_BYTES));
        Ok(Some((region, self.ahead.start..end)))
    }

    /// Marks data that `peek` returned as processed.
    fn pass(&mut self, region: u64, data: &Range<u64>, is_sampled: bool) {
        self.cover.note(region, data, is_sampled);
        self.ahead.start = data.end;
    }
}

impl Disk for SampledDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        let mut walk = self.walk.lock();
        while let Some((region, first)) = walk.peek(self.disk, offset)? {
            let is_sampled = self.sample.has(region);
            walk.pass(region, &first, is_sampled);
            if !is_sampled {
                continue;
            }
            // The whole region is read now, so all data that it may hold is counted now.
            let mut data_bytes = first.end - first.start;
            while let Some((_, more)) = walk.peek(self.disk, offset)?.filter(|(next, _)| *next == region) {
                walk.pass(region, &more, true);
                data_bytes += more.end - more.start;
            }
            self.blocks.lock().pending.insert(region, data_bytes.div_ceil(BLOCK_BYTES as u64) as f64);
            return Ok(Some(first));
        }
        Ok(None)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.disk.read(offset, into)?;
        let full = into.chunks(BLOCK_BYTES).filter(|block| !is_zero(block)).count() as f64;
        self.blocks.lock().add(region_at(offset), full);
        Ok(())
    }
}

impl RegionCounter {
    fn add(&mut self, region: u64, full: f64) {
        // A file that changes during the read may have filled a former hole.
        let data = self.pending.remove(&region).unwrap_or_default().max(full);
        self.blocks.regions += 1.0;
        self.blocks.data += data;
        self.blocks.full += full;
        self.blocks.data_data += data * data;
        self.blocks.data_full += data * full;
        self.blocks.full_full += full * full;
    }
}
