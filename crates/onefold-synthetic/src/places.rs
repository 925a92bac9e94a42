//! Allocates blocks: data in sequence, map nodes from runs of their own, as the pool itself does.

use std::collections::VecDeque;

use onefold_block::device::writes_of;
use onefold_block::{AlignedBuffer, BlockNo};
use onefold_pool::format::BlockBytes;
use onefold_pool::format::geometry::GROUP_BLOCKS;
use onefold_pool::format::header;
use onefold_pool::format::store_page::{BlockUse, StoreEntry};

use crate::SyntheticError;
use crate::groups::Groups;

/// Length of a run for map nodes.
const NODE_RUN_BLOCKS: usize = 256;

/// The next free blocks.
pub(crate) struct Places<'d> {
    groups: Groups<'d>,
    /// Groups that the pool has initialised.
    ready: u64,
    next: BlockNo,
    /// Blocks reserved for nodes, not yet used.
    node_run: VecDeque<BlockNo>,
    /// Nodes not yet written, in ascending order.
    nodes: Vec<(BlockNo, BlockBytes)>,
    nodes_taken: u64,
}

impl<'d> Places<'d> {
    pub(crate) fn new(groups: Groups<'d>, ready: u64) -> Places<'d> {
        Places { groups, ready, next: BlockNo(0), node_run: VecDeque::new(), nodes: Vec::new(), nodes_taken: 0 }
    }

    /// Returns the next free block; its group is open.
    pub(crate) fn take_block(&mut self) -> Result<BlockNo, SyntheticError> {
        loop {
            let (block, group) = (self.next, self.next.0 / GROUP_BLOCKS);
            if group >= self.groups.geometry.group_count() {
                return Err(SyntheticError::Plan("the device is too small for these blocks"));
            }
            if block.0 % GROUP_BLOCKS == 0 {
                let oldest = self.node_run.front().map_or(group, |node| node.0 / GROUP_BLOCKS);
                self.groups.write_before(oldest)?;
                self.groups.open(group, group < self.ready)?;
            }
            self.next = block.plus(1);
            if block.0 % GROUP_BLOCKS >= self.groups.geometry.group_blocks(group) {
                self.next = BlockNo((group + 1) * GROUP_BLOCKS);
            } else if self.groups.is_free(block) {
                return Ok(block);
            }
        }
    }

    /// Sets the entry of an allocated block.
    pub(crate) fn set_entry(&mut self, block: BlockNo, entry: &StoreEntry) {
        self.groups.take(block, entry);
    }

    /// Allocates a block for a map node. `fill` gets its place and returns its content, which is sealed here.
    pub(crate) fn take_node(&mut self, fill: impl FnOnce(BlockNo) -> BlockBytes) -> Result<BlockNo, SyntheticError> {
        if self.node_run.is_empty() {
            self.write_nodes()?;
            for _ in 0..NODE_RUN_BLOCKS {
                let block = self.take_block()?;
                self.node_run.push_back(block);
            }
        }
        let at = self.node_run.pop_front().expect("filled above");
        self.groups.take(at, &StoreEntry::metadata(BlockUse::MapNode));
        let mut bytes = fill(at);
        header::seal(&mut bytes);
        self.nodes.push((at, bytes));
        self.nodes_taken += 1;
        Ok(at)
    }

    /// Returns the number of allocated map nodes.
    pub(crate) fn nodes_taken(&self) -> u64 {
        self.nodes_taken
    }

    fn write_nodes(&mut self) -> Result<(), SyntheticError> {
        let Some(&(first, _)) = self.nodes.first() else { return Ok(()) };
        let places: Vec<BlockNo> = self.nodes.iter().map(|(at, _)| *at).collect();
        let mut buffer = AlignedBuffer::zeroed(places.len());
        for (place, (_, bytes)) in buffer.blocks_mut().zip(&self.nodes) {
            *place = *bytes;
        }
        let written = self.groups.device.write_batch(&writes_of(&places, &buffer));
        written.map_err(|source| SyntheticError::Io { action: "write", block: first, source })?;
        self.nodes.clear();
        Ok(())
    }

    /// Writes everything that is left. Returns the number of groups in use.
    pub(crate) fn finish(mut self) -> Result<u64, SyntheticError> {
        self.write_nodes()?;
        self.groups.write_before(u64::MAX)?;
        Ok(self.next.0.div_ceil(GROUP_BLOCKS).max(self.ready))
    }
}
