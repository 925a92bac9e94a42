//! The fate of one unsynced event when the power fails.

use std::fmt;
use std::sync::Arc;

use crate::device::SharedBlock;
use onefold_block::BLOCK_BYTES;
use onefold_block::device::SECTOR_BYTES;
use onefold_block::random::{Random, SeededRandom};

pub(super) const SECTORS_PER_BLOCK: usize = BLOCK_BYTES / SECTOR_BYTES;

/// Maximum length of a write that is torn sector by sector: each torn block takes memory of its own.
const SCATTERED_SECTORS_MAX: usize = 64;

/// The part of an event that reached the disk. A discard is complete or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventFate {
    Whole,
    Lost,
    /// Only this many first sectors are new.
    FirstSectors(usize),
    /// Only this many last sectors are new.
    LastSectors(usize),
    /// This sector is old, all others are new.
    WithoutSector(usize),
    /// Only this sector is new.
    OneSector(usize),
    /// Each block is new or old, as the seed decides.
    SomeBlocks(u64),
    /// Each sector is new or old, as the seed decides.
    SomeSectors(u64),
}

impl EventFate {
    /// Returns torn fate number `index` of a write of `sectors` sectors, with the extremes first.
    pub(super) fn torn(index: u32, sectors: usize, seed: u64) -> EventFate {
        match index {
            0 => EventFate::FirstSectors(1),
            1 => EventFate::LastSectors(1),
            2 => EventFate::FirstSectors(sectors - 1),
            3 => EventFate::LastSectors(sectors - 1),
            _ => {
                let random = SeededRandom::new(seed);
                let count = 1 + usize::try_from(random.below(sectors as u64 - 1)).expect("fewer than the sectors");
                if index.is_multiple_of(2) { EventFate::FirstSectors(count) } else { EventFate::LastSectors(count) }
            }
        }
    }

    /// Returns a random fate for a write of `sectors` sectors: half are complete, a quarter lost, a quarter torn
    /// somehow.
    pub(super) fn random(random: &SeededRandom, sectors: usize) -> EventFate {
        match random.below(16) {
            0..8 => EventFate::Whole,
            8..12 => EventFate::Lost,
            12 => EventFate::torn(4, sectors, random.next_u64()),
            13 => EventFate::torn(5, sectors, random.next_u64()),
            14 if sectors <= SCATTERED_SECTORS_MAX => EventFate::SomeSectors(random.next_u64()),
            _ => EventFate::SomeBlocks(random.next_u64()),
        }
    }

    /// Returns complete or lost, for an event that cannot be torn.
    pub(super) fn random_whole(seed: u64) -> EventFate {
        if mix(seed, 0) & 1 == 1 { EventFate::Whole } else { EventFate::Lost }
    }

    /// Returns whether sector `sector` of an event of `sectors` sectors is new.
    fn is_new(self, sector: usize, sectors: usize) -> bool {
        match self {
            EventFate::Whole => true,
            EventFate::Lost => false,
            EventFate::FirstSectors(count) => sector < count,
            EventFate::LastSectors(count) => sector >= sectors.saturating_sub(count),
            EventFate::WithoutSector(lost) => sector != lost,
            EventFate::OneSector(alone) => sector == alone,
            EventFate::SomeBlocks(seed) => mix(seed, sector / SECTORS_PER_BLOCK) & 1 == 1,
            EventFate::SomeSectors(seed) => mix(seed, sector) & 1 == 1,
        }
    }

    /// Returns the content of block `index` of a write of `blocks` over its old content (`None` is zeros).
    pub(super) fn block(self, index: usize, blocks: &[SharedBlock], old: Option<SharedBlock>) -> Option<SharedBlock> {
        let sectors = blocks.len() * SECTORS_PER_BLOCK;
        let first = index * SECTORS_PER_BLOCK;
        let new_count = (first..first + SECTORS_PER_BLOCK).filter(|sector| self.is_new(*sector, sectors)).count();
        match new_count {
            0 => old,
            SECTORS_PER_BLOCK => Some(Arc::clone(&blocks[index])),
            _ => {
                let mut mixed = old.map_or([0; BLOCK_BYTES], |old| *old);
                for sector in (0..SECTORS_PER_BLOCK).filter(|sector| self.is_new(first + sector, sectors)) {
                    let bytes = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                    mixed[bytes.clone()].copy_from_slice(&blocks[index][bytes]);
                }
                Some(Arc::new(mixed))
            }
        }
    }
}

impl fmt::Display for EventFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventFate::Whole => f.write_str("whole"),
            EventFate::Lost => f.write_str("lost"),
            EventFate::FirstSectors(count) => write!(f, "torn after {count} sectors"),
            EventFate::LastSectors(count) => write!(f, "torn before the last {count} sectors"),
            EventFate::WithoutSector(lost) => write!(f, "without its sector {lost}"),
            EventFate::OneSector(alone) => write!(f, "with nothing but its sector {alone}"),
            EventFate::SomeBlocks(seed) => write!(f, "blocks torn by seed {seed:#x}"),
            EventFate::SomeSectors(seed) => write!(f, "sectors torn by seed {seed:#x}"),
        }
    }
}

/// The content that a discarded block reads as: the disk may choose any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DiscardedContent {
    Old,
    Zero,
    Garbage,
}

impl DiscardedContent {
    /// Returns the content of block `index` of the discard that is event `event`.
    pub(super) fn of(seed: u64, event: usize, index: u64) -> DiscardedContent {
        match SeededRandom::new(seed ^ mix(event as u64, 0) ^ index.rotate_left(32)).below(3) {
            0 => DiscardedContent::Old,
            1 => DiscardedContent::Zero,
            _ => DiscardedContent::Garbage,
        }
    }

    /// Returns bytes that were never written.
    pub(super) fn garbage(seed: u64, event: usize) -> SharedBlock {
        let mut bytes = [0; BLOCK_BYTES];
        SeededRandom::new(mix(seed, event)).fill(&mut bytes).expect("seeded randomness never runs out");
        Arc::new(bytes)
    }
}

/// Returns 64 bits that `seed` and `index` determine.
pub(super) fn mix(seed: u64, index: usize) -> u64 {
    SeededRandom::new(seed ^ (index as u64).wrapping_mul(0xd134_2543_de82_ef95)).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sectors of a three-block write that are new under `fate`. Checks that each sector is new or old.
    fn new_sectors(fate: EventFate) -> Vec<usize> {
        let blocks: Vec<SharedBlock> = (0..3).map(|_| Arc::new([1; BLOCK_BYTES])).collect();
        let old = Arc::new([2; BLOCK_BYTES]);
        let content = |index| fate.block(index, &blocks, Some(Arc::clone(&old))).unwrap();
        let bytes: Vec<u8> = (0..3).flat_map(|index| *content(index)).collect();
        let sectors = bytes.chunks(SECTOR_BYTES).enumerate();
        let is_new = |sector: &[u8]| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is never torn");
            sector[0] == 1
        };
        sectors.filter(|(_, sector)| is_new(sector)).map(|(index, _)| index).collect()
    }

    #[test]
    fn a_fate_decides_which_sectors_are_new() {
        assert_eq!(new_sectors(EventFate::Whole), (0..24).collect::<Vec<_>>());
        assert_eq!(new_sectors(EventFate::Lost), []);
        assert_eq!(new_sectors(EventFate::FirstSectors(9)), (0..9).collect::<Vec<_>>());
        assert_eq!(new_sectors(EventFate::LastSectors(1)), [23]);
        assert_eq!(new_sectors(EventFate::LastSectors(17)), (7..24).collect::<Vec<_>>());
        assert_eq!(new_sectors(EventFate::OneSector(9)), [9]);
        assert_eq!(new_sectors(EventFate::WithoutSector(9)), (0..9).chain(10..24).collect::<Vec<_>>());
    }

    #[test]
    fn seeded_fates_are_repeatable_and_of_their_granularity() {
        let mut counts = Vec::new();
        for seed in 0..50 {
            let blocks = new_sectors(EventFate::SomeBlocks(seed));
            assert!(blocks.chunks(8).all(|block| block[0] % 8 == 0 && block.len() == 8));
            let sectors = new_sectors(EventFate::SomeSectors(seed));
            assert_eq!(sectors, new_sectors(EventFate::SomeSectors(seed)));
            counts.push(sectors.len());
        }
        assert!(counts.iter().any(|count| *count < 10) && counts.iter().any(|count| *count > 14));
    }

    #[test]
    fn what_is_torn_over_nothing_is_torn_over_zeros() {
        let blocks: [SharedBlock; 1] = [Arc::new([1; BLOCK_BYTES])];
        let content = EventFate::FirstSectors(1).block(0, &blocks, None).unwrap();
        assert!(content[..SECTOR_BYTES].iter().all(|byte| *byte == 1));
        assert!(content[SECTOR_BYTES..].iter().all(|byte| *byte == 0));
        assert_eq!(EventFate::Lost.block(0, &blocks, None), None);
    }

    #[test]
    fn torn_fates_leave_something_new_and_something_old() {
        for sectors in [8, 16, 2048] {
            for index in 0..40 {
                let fate = EventFate::torn(index, sectors, u64::from(index));
                let new = (0..sectors).filter(|sector| fate.is_new(*sector, sectors)).count();
                assert!(0 < new && new < sectors, "{fate}");
            }
        }
    }

    #[test]
    fn discarded_blocks_come_in_all_three_kinds() {
        for kind in [DiscardedContent::Old, DiscardedContent::Zero, DiscardedContent::Garbage] {
            assert!((0..30).any(|index| DiscardedContent::of(1, 4, index) == kind));
        }
        assert_ne!(DiscardedContent::garbage(1, 4), DiscardedContent::garbage(1, 5));
    }
}
