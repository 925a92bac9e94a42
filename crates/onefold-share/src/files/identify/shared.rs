//! The blocks of an image that already share with others on the host.
//!
//! A file that shares is a better source than one that does not: its equals join it, and all files that share with it
//! stay as they are. Otherwise a new image would take some of them away from the others, and the block would be there
//! twice.

use std::ops::Range;

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{MappedExtent, Substrate};

use super::IdentifyError;
use crate::format::guest::Piece;
use crate::kept_map::LOOK_BYTES;
use crate::pace::ReadPace;
use crate::state::StateError;

/// Maximum number of ranges of an image that are looked at. Blocks behind them count as the image's own.
const RANGES_MAX: usize = 1 << 20;

/// Blocks of an image that share with others.
#[derive(Debug, Default)]
pub(super) struct SharedBlocks {
    /// Ranges of blocks, disjoint and in order.
    ranges: Vec<Range<u64>>,
}

impl SharedBlocks {
    /// Asks the file system for the map of an image, within the limit on reads. A map is a hint: without one, no block
    /// shares.
    ///
    /// # Errors
    /// Errors of `go_on`, which is asked between two parts of the map, and `Stopped` if the work is to end.
    pub(super) fn load<S: Substrate>(
        substrate: &S,
        file: &S::File,
        pace: ReadPace<'_>,
        go_on: &dyn Fn() -> Result<(), IdentifyError>,
    ) -> Result<SharedBlocks, IdentifyError> {
        let (mut shared, mut at) = (SharedBlocks::default(), 0);
        while shared.ranges.len() < RANGES_MAX {
            go_on()?;
            let Ok(more) = substrate.extents(file, at) else { break };
            let looked = pace.read((more.len() as u64).saturating_mul(LOOK_BYTES));
            looked.map_err(|stopped| IdentifyError::Stopped(StateError::from(stopped)))?;
            let Some(end) = more.last().map(MappedExtent::end).filter(|end| *end > at) else { break };
            for extent in more.iter().filter(|extent| extent.is_shared && !extent.is_unwritten) {
                shared.push(extent.offset.div_ceil(BLOCK_BYTES_U64)..extent.end() / BLOCK_BYTES_U64);
            }
            at = end;
        }
        Ok(shared)
    }

    fn push(&mut self, range: Range<u64>) {
        match self.ranges.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ if range.is_empty() => {}
            _ => self.ranges.push(range),
        }
    }

    /// Returns whether at least half of the blocks of a file share with others.
    pub(super) fn have_most_of(&self, pieces: &[Piece]) -> bool {
        let all = pieces.iter().map(|piece| piece.count).fold(0, u64::saturating_add);
        let shared = pieces.iter().map(|piece| self.count(piece)).fold(0, u64::saturating_add);
        shared > 0 && shared >= all / 2
    }

    /// Returns how many blocks of a piece share with others.
    fn count(&self, piece: &Piece) -> u64 {
        let end = piece.block.saturating_add(piece.count);
        let first = self.ranges.partition_point(|range| range.end <= piece.block);
        let within = self.ranges.get(first..).unwrap_or_default().iter().take_while(|range| range.start < end);
        within.map(|range| range.end.min(end) - range.start.max(piece.block)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::path::Path;
    use std::time::Duration;

    use onefold_block::Clock;
    use onefold_block::clock::ManualClock;
    use onefold_substrate::{CpuTime, Files};
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

    use super::*;
    use crate::pace::{Limits, Pace, Wish};

    /// Processor time that nobody counts.
    struct NoCpu;

    impl CpuTime for NoCpu {
        fn used(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// Regression: the maps of all images were read at once, whatever the limit, also in each turn of a watch.
    #[test]
    fn maps_are_read_within_the_limit_on_reads() {
        const EXTENTS: u64 = 4000;
        let options = SimulationOptions { images: 0, total_blocks: 1 << 14, ..SimulationOptions::default() };
        let file_system = SimulatedFileSystem::new(&options);
        let substrate = file_system.observe().substrate;
        let file = substrate.create(Path::new("image")).unwrap();
        for block in 0..EXTENTS {
            substrate.write_at(&file, 2 * block * BLOCK_BYTES_U64, &[7]).unwrap();
        }
        let clock = ManualClock::starting_at(1000);
        let rate = NonZeroU64::new(EXTENTS * LOOK_BYTES / 20);
        let limits = Limits { read_bytes_per_second: rate, ..Limits::default() };
        let pace = Pace::new(limits, &clock, &NoCpu, &|| Wish::GoOn);
        let began = clock.monotonic();
        SharedBlocks::load(&substrate, &file, pace.reading(), &|| Ok(())).unwrap();
        // The next read waits until the last part of the map is paid for.
        pace.reading().read(1).unwrap();
        let took = clock.monotonic() - began;
        assert!(took > Duration::from_secs(15) && took < Duration::from_secs(25), "{took:?}");
        let ended = pace.stopped_by(&|| true);
        let loaded = SharedBlocks::load(&substrate, &file, ended.reading(), &|| Ok(()));
        assert!(matches!(loaded, Err(IdentifyError::Stopped(StateError::Interrupted))), "{loaded:?}");
    }

    #[test]
    fn a_file_shares_where_a_half_of_its_blocks_do() {
        let mut shared = SharedBlocks::default();
        for range in [10..20, 20..25, 24..30, 40..40, 50..60] {
            shared.push(range);
        }
        assert_eq!(shared.ranges, [10..30, 50..60]);
        let piece = |block, count| Piece { content: 0, block, count };
        for (pieces, expected) in [
            (vec![piece(10, 20)], true),
            (vec![piece(29, 3)], true),
            (vec![piece(29, 4)], false),
            (vec![piece(0, 10)], false),
            (vec![piece(30, 20)], false),
            (vec![piece(0, 100)], false),
            (vec![piece(5, 60)], true),
            (vec![piece(0, 4), piece(55, 4)], true),
            (vec![piece(u64::MAX, 4)], false),
            (vec![], false),
        ] {
            assert_eq!(shared.have_most_of(&pieces), expected, "{pieces:?}");
        }
    }
}
