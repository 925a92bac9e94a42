//! Single blocks kept for metadata, if no long run is left for it.
//!
//! They were written when they were put in stock, many at once, as metadata may only take blocks that were written
//! before. They stay free in their bitmaps. Data does not take them until it finds no others.

use onefold_block::BlockNo;

/// Maximum number of blocks in stock; more become ordinary free blocks.
const BLOCKS_MAX: usize = 4096;

/// The blocks in stock, ascending.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    blocks: Vec<BlockNo>,
}

impl Stock {
    /// Puts blocks in stock. Returns those that are released in exchange.
    pub(crate) fn add(&mut self, blocks: impl IntoIterator<Item = BlockNo>) -> Vec<BlockNo> {
        let given_up = if self.blocks.len() >= BLOCKS_MAX { self.give_up() } else { Vec::new() };
        self.blocks.extend(blocks);
        self.blocks.sort_unstable();
        self.blocks.dedup();
        given_up
    }

    /// Takes the first block; `None` if the stock is empty.
    pub(crate) fn take(&mut self) -> Option<BlockNo> {
        (!self.blocks.is_empty()).then(|| self.blocks.remove(0))
    }

    /// Releases all blocks. Returns them, ascending.
    pub(crate) fn give_up(&mut self) -> Vec<BlockNo> {
        std::mem::take(&mut self.blocks)
    }

    /// Returns those from `first` to before `end`, ascending.
    pub(crate) fn among(&self, first: BlockNo, end: BlockNo) -> &[BlockNo] {
        let place = |bound: BlockNo| self.blocks.partition_point(|block| *block < bound);
        &self.blocks[place(first)..place(end)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_leave_the_stock_once_in_their_order() {
        let mut stock = Stock::default();
        assert!(stock.add([BlockNo(9), BlockNo(4)]).is_empty());
        assert!(stock.add([BlockNo(6), BlockNo(9)]).is_empty());
        assert_eq!(stock.among(BlockNo(5), BlockNo(9)), [BlockNo(6)]);
        assert_eq!(stock.take(), Some(BlockNo(4)));
        assert_eq!(stock.give_up(), [BlockNo(6), BlockNo(9)]);
        assert_eq!(stock.take(), None);
    }

    #[test]
    fn a_stock_that_nobody_takes_from_is_given_up() {
        let mut stock = Stock::default();
        assert!(stock.add((0..5000).map(BlockNo)).is_empty());
        assert_eq!(stock.add([BlockNo(7000)]).len(), 5000);
        assert_eq!(stock.take(), Some(BlockNo(7000)));
    }
}
