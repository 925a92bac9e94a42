//! The work of one thread: reads the units of a batch, names them, and compresses those that the archive does not have.

use std::collections::HashMap;
use std::ops::Range;

use onefold_block::zero::is_zero;
use onefold_disk::{Disk, DiskError};

use super::plan::{PlanItem, PlannedUnit};
use super::policy::bytes_of;
use crate::archive::StoredUnit;
use crate::format::chunk_header::PlacedUnit;
use crate::format::pack::UnitHeader;
use crate::{SECTOR_BYTES, SectorRun, UnitKey, UnitName};

/// Maximum gap between two runs that one read covers, in sectors. A larger gap is skipped by a second read.
const GAP_SECTORS: u64 = 32;
/// Maximum length of one read in sectors.
const READ_SECTORS_MAX: u64 = 2048;

/// Result of the next units of a plan, in the order of the plan.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The units and zeros.
    pub(super) items: Vec<Item>,
    /// The stored bytes of new units.
    pub(super) stored: Vec<u8>,
}

/// Result of one unit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Sectors that must read as zero.
    Zeros(Vec<SectorRun>),
    /// A unit that the archive had before this batch.
    Known {
        /// The unit.
        unit: PlacedUnit,
        /// Where the thread has found it.
        seen: KnownUnit,
    },
    /// A unit that the archive did not have, as far as this thread knew.
    New {
        /// The unit.
        unit: PlacedUnit,
        /// Its header in a pack.
        header: UnitHeader,
        /// Its place in [`Outcome::stored`].
        stored: Range<usize>,
    },
}

/// Where a thread has found a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownUnit {
    /// This capture has added it.
    Own,
    /// The table of a pack confirms it.
    Stored(StoredUnit),
}

/// The archive's operations that a thread needs.
pub(super) trait Units {
    /// Why an operation fails.
    type Error: From<DiskError>;

    /// Returns where the archive has a unit; `None` if it has not.
    fn find(&mut self, name: &UnitName) -> Result<Option<KnownUnit>, Self::Error>;

    /// Compresses plain bytes, and appends the stored form to `into`.
    fn compress(&mut self, plain: &[u8], into: &mut Vec<u8>) -> Result<UnitHeader, Self::Error>;
}

/// A thread's buffers.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The plain bytes of the units of a batch, one after the other.
    plain: Vec<u8>,
    /// Buffer for reads that cover gaps.
    scratch: Vec<u8>,
    /// The runs of a batch.
    parts: Vec<Part>,
}

/// A run, and the place of its bytes among the plain ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    sectors: SectorRun,
    to: usize,
}

impl Reader {
    /// Reads the units of a batch, names them and compresses the new ones.
    pub(super) fn run<U: Units>(
        &mut self,
        disk: &dyn Disk,
        key: &UnitKey,
        units: &mut U,
        batch: Vec<PlanItem>,
    ) -> Result<Outcome, U::Error> {
        self.read(disk, &batch)?;
        let mut outcome = Outcome::default();
        let mut naming =
            UnitNamer { size_bytes: disk.size_bytes(), key, units, met: HashMap::new(), outcome: &mut outcome };
        let mut at = 0;
        for planned in batch {
            match planned {
                PlanItem::Hole(hole) => naming.outcome.items.push(Item::Zeros(vec![hole])),
                PlanItem::Unit(unit) => {
                    let end = at + length(&unit.runs);
                    naming.unit(unit, &self.plain[at..end])?;
                    at = end;
                }
            }
        }
        Ok(outcome)
    }

    /// Reads the plain bytes of all units of a batch.
    fn read(&mut self, disk: &dyn Disk, batch: &[PlanItem]) -> Result<(), DiskError> {
        self.parts.clear();
        let mut to = 0;
        for planned in batch {
            let PlanItem::Unit(unit) = planned else { continue };
            for run in &unit.runs {
                self.parts.push(Part { sectors: *run, to });
                to += length(&[*run]);
            }
        }
        self.plain.resize(to, 0);
        self.parts.sort_unstable();
        let mut rest = self.parts.as_slice();
        while let Some(count) = together(rest) {
            let (parts, others) = rest.split_at(count);
            read_parts(disk, parts, &mut self.plain, &mut self.scratch)?;
            rest = others;
        }
        Ok(())
    }
}

/// Returns how many of the first parts one read covers; `None` if there are no parts.
fn together(parts: &[Part]) -> Option<usize> {
    let first = parts.first()?.sectors;
    let mut end = first.end();
    let more = parts.iter().skip(1).take_while(|part| {
        let is_near = part.sectors.start <= end + GAP_SECTORS && part.sectors.end() - first.start <= READ_SECTORS_MAX;
        end = part.sectors.end();
        is_near
    });
    Some(1 + more.count())
}

/// Reads parts of a disk that lie close together.
fn read_parts(disk: &dyn Disk, parts: &[Part], plain: &mut [u8], scratch: &mut Vec<u8>) -> Result<(), DiskError> {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Ok(()) };
    let start_bytes = first.sectors.start_bytes();
    let is_one = parts
        .windows(2)
        .all(|two| two[0].sectors.end() == two[1].sectors.start && two[0].to + length(&[two[0].sectors]) == two[1].to);
    let all = SectorRun { start: first.sectors.start, count: last.sectors.end() - first.sectors.start };
    if is_one {
        return disk.read(start_bytes, &mut plain[first.to..first.to + length(&[all])]);
    }
    scratch.resize(length(&[all]), 0);
    if disk.read(start_bytes, scratch).is_err() {
        // A bad sector in a gap concerns nobody. Other errors come again.
        let place = |part: &Part| part.to..part.to + length(&[part.sectors]);
        return parts.iter().try_for_each(|part| disk.read(part.sectors.start_bytes(), &mut plain[place(part)]));
    }
    for part in parts {
        let from = length(&[SectorRun { start: all.start, count: part.sectors.start - all.start }]);
        let bytes = length(&[part.sectors]);
        plain[part.to..part.to + bytes].copy_from_slice(&scratch[from..from + bytes]);
    }
    Ok(())
}

/// Returns the length of runs in bytes as they are read: a truncated last sector counts as a whole one. Units are
/// small.
fn length(runs: &[SectorRun]) -> usize {
    let sectors: u64 = runs.iter().map(|run| run.count).sum();
    usize::try_from(sectors * SECTOR_BYTES).expect("at most some units")
}

/// Names the units of one batch.
struct UnitNamer<'n, U> {
    size_bytes: u64,
    key: &'n UnitKey,
    units: &'n mut U,
    /// The new units of the batch, each with its index among the items.
    met: HashMap<UnitName, usize>,
    outcome: &'n mut Outcome,
}

impl<U: Units> UnitNamer<'_, U> {
    /// Adds a unit, whose bytes are those of its runs. If the sectors behind the end of its file are not all zero, the
    /// unit becomes two.
    fn unit(&mut self, unit: PlannedUnit, read: &[u8]) -> Result<(), U::Error> {
        let PlannedUnit { runs, slack } = unit;
        let slack_bytes = usize::try_from(slack * SECTOR_BYTES).unwrap_or(usize::MAX);
        match read.len().checked_sub(slack_bytes) {
            Some(content) if content > 0 && slack > 0 && !is_zero(&read[content..]) => {
                let (of_file, behind) = split(runs, (content as u64) / SECTOR_BYTES);
                self.named(of_file, &read[..content])?;
                self.named(behind, &read[content..])
            }
            _ => self.named(runs, read),
        }
    }

    fn named(&mut self, runs: Vec<SectorRun>, read: &[u8]) -> Result<(), U::Error> {
        if is_zero(read) {
            self.outcome.items.push(Item::Zeros(runs));
            return Ok(());
        }
        // Only the last sector of the disk may be truncated, and it is the last one of its unit.
        let cut = runs.last().map_or(0, |run| run.length_bytes() - bytes_of(*run, self.size_bytes));
        let plain = &read[..read.len() - usize::try_from(cut).unwrap_or(0).min(read.len())];
        let name = self.key.name(plain);
        let unit = PlacedUnit { name, plain_bytes: u32::try_from(plain.len()).expect("at most a unit"), runs };
        let item = if let Some(first) = self.met.get(&name).and_then(|at| self.outcome.items.get(*at)) {
            match first {
                Item::New { header, stored, .. } => Item::New { unit, header: *header, stored: stored.clone() },
                _ => unreachable!("only new units are noted"),
            }
        } else if let Some(seen) = self.units.find(&name)? {
            Item::Known { unit, seen }
        } else {
            let start = self.outcome.stored.len();
            let header = self.units.compress(plain, &mut self.outcome.stored)?;
            self.met.insert(name, self.outcome.items.len());
            Item::New { unit, header, stored: start..self.outcome.stored.len() }
        };
        self.outcome.items.push(item);
        Ok(())
    }
}

/// Returns the runs of the first sectors, and the others.
fn split(runs: Vec<SectorRun>, mut sectors: u64) -> (Vec<SectorRun>, Vec<SectorRun>) {
    let (mut before, mut behind) = (Vec::with_capacity(runs.len()), Vec::new());
    for run in runs {
        let count = run.count.min(sectors);
        sectors -= count;
        if count > 0 {
            before.push(SectorRun { count, ..run });
        }
        if count < run.count {
            behind.push(SectorRun { start: run.start + count, count: run.count - count });
        }
    }
    (before, behind)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use onefold_block::random::SeededRandom;

    use super::*;
    use crate::format::pack::Codec;
    use crate::testing::MemoryDisk;

    const KEY: UnitKey = UnitKey([9; 32]);

    /// Units whose names are known. Others are stored uncompressed.
    #[derive(Default)]
    struct KnownUnits(BTreeSet<UnitName>);

    impl Units for KnownUnits {
        type Error = DiskError;

        fn find(&mut self, name: &UnitName) -> Result<Option<KnownUnit>, DiskError> {
            Ok(self.0.contains(name).then_some(KnownUnit::Own))
        }

        fn compress(&mut self, plain: &[u8], into: &mut Vec<u8>) -> Result<UnitHeader, DiskError> {
            into.extend_from_slice(plain);
            let bytes = u32::try_from(plain.len()).unwrap();
            Ok(UnitHeader { codec: Codec::Plain, stored_bytes: bytes, plain_bytes: bytes })
        }
    }

    fn runs(runs: &[(u64, u64)]) -> Vec<SectorRun> {
        runs.iter().map(|&(start, count)| SectorRun { start, count }).collect()
    }

    fn planned(of: &[(u64, u64)], slack: u64) -> PlanItem {
        PlanItem::Unit(PlannedUnit { runs: runs(of), slack })
    }

    fn noise(bytes: usize) -> MemoryDisk {
        MemoryDisk::noise(bytes, &SeededRandom::new(3))
    }

    /// Returns the content of consecutive runs of a disk.
    fn content(disk: &MemoryDisk, of: &[(u64, u64)]) -> Vec<u8> {
        let ranges = runs(of).into_iter().map(|run| {
            let start = usize::try_from(run.start_bytes()).unwrap();
            start..(start + length(&[run])).min(disk.bytes.len())
        });
        ranges.flat_map(|range| disk.bytes[range].to_vec()).collect()
    }

    fn placed(disk: &MemoryDisk, of: &[(u64, u64)]) -> PlacedUnit {
        let plain = content(disk, of);
        PlacedUnit { name: KEY.name(&plain), plain_bytes: u32::try_from(plain.len()).unwrap(), runs: runs(of) }
    }

    fn run(disk: &MemoryDisk, units: &mut KnownUnits, batch: &[PlanItem]) -> Outcome {
        Reader::default().run(disk, &KEY, units, batch.to_vec()).unwrap()
    }

    #[test]
    fn units_are_read_from_all_their_places_and_named() {
        // The last sector has 100 bytes.
        let disk = noise(3000 * 512 + 100);
        let units: [&[(u64, u64)]; 6] = [
            &[(0, 8)],
            &[(8, 2), (40, 6), (20, 1)],
            &[(10, 5), (2900, 100)],
            &[(15, 5)],
            &[(500, 2000)],
            &[(21, 3), (2999 + 1, 1)],
        ];
        let batch: Vec<PlanItem> = units.iter().map(|runs| planned(runs, 0)).collect();
        let outcome = run(&disk, &mut KnownUnits::default(), &batch);
        assert_eq!(outcome.items.len(), 6);
        for (item, of) in outcome.items.iter().zip(units) {
            let Item::New { unit, header, stored } = item else { panic!("{item:?}") };
            assert_eq!(*unit, placed(&disk, of));
            assert_eq!(outcome.stored[stored.clone()], content(&disk, of));
            assert_eq!(header.plain_bytes, unit.plain_bytes);
        }
    }

    /// A disk that cannot read one of its sectors.
    struct BadSector(MemoryDisk, u64);

    impl Disk for BadSector {
        fn size_bytes(&self) -> u64 {
            self.0.size_bytes()
        }

        fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
            self.0.next_data(offset)
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
            let bad = self.1 * SECTOR_BYTES..(self.1 + 1) * SECTOR_BYTES;
            if offset < bad.end && bad.start < offset + into.len() as u64 {
                return Err(DiskError::Other("a bad sector".into()));
            }
            self.0.read(offset, into)
        }
    }

    /// Regression: one read covers the free sectors between two runs, and its error ended the capture.
    #[test]
    fn a_bad_sector_that_is_free_is_not_read() {
        let disk = noise(100 * 512);
        let batch = [planned(&[(0, 4), (9, 3)], 0), planned(&[(20, 8)], 0)];
        for bad in 0..100 {
            let outcome =
                Reader::default().run(&BadSector(disk.clone(), bad), &KEY, &mut KnownUnits::default(), batch.to_vec());
            let is_taken = [0..4, 9..12, 20..28].iter().any(|run| run.contains(&bad));
            assert_eq!(outcome.is_err(), is_taken, "{bad}");
            if let Ok(Outcome { items, .. }) = outcome {
                for (item, of) in items.iter().zip([&[(0, 4), (9, 3)][..], &[(20, 8)]]) {
                    assert!(matches!(item, Item::New { unit, .. } if *unit == placed(&disk, of)), "{bad}");
                }
            }
        }
    }

    #[test]
    fn known_units_zeros_and_units_met_twice_are_not_stored_again() {
        let mut disk = noise(100 * 512);
        disk.bytes.copy_within(0..8 * 512, 8 * 512);
        disk.bytes[16 * 512..24 * 512].fill(0);
        let mut known = KnownUnits::default();
        known.0.insert(placed(&disk, &[(24, 8)]).name);
        let hole = SectorRun { start: 90, count: 5 };
        let batch = [&[(0, 8)], &[(8, 8)], &[(16, 8)], &[(24, 8)]].map(|runs| planned(runs, 0));
        let batch: Vec<PlanItem> = batch.into_iter().chain([PlanItem::Hole(hole)]).collect();
        let outcome = run(&disk, &mut known, &batch);
        assert_eq!(outcome.stored, content(&disk, &[(0, 8)]));
        let header = UnitHeader { codec: Codec::Plain, stored_bytes: 4096, plain_bytes: 4096 };
        let stored = 0..4096;
        let expected = [
            Item::New { unit: placed(&disk, &[(0, 8)]), header, stored: stored.clone() },
            Item::New { unit: placed(&disk, &[(8, 8)]), header, stored },
            Item::Zeros(runs(&[(16, 8)])),
            Item::Known { unit: placed(&disk, &[(24, 8)]), seen: KnownUnit::Own },
            Item::Zeros(vec![hole]),
        ];
        assert_eq!(outcome.items, expected);
    }

    #[test]
    fn what_lies_behind_the_end_of_a_file_is_a_unit_of_its_own_only_where_it_is_not_zero() {
        let mut disk = noise(100 * 512);
        let of = |item: &Item| match item {
            Item::New { unit, .. } => unit.clone(),
            other => panic!("{other:?}"),
        };
        let unit = [(10, 6), (30, 2)];
        let outcome = run(&disk, &mut KnownUnits::default(), &[planned(&unit, 3)]);
        let parts = [placed(&disk, &[(10, 5)]), placed(&disk, &[(15, 1), (30, 2)])];
        assert_eq!(outcome.items.iter().map(of).collect::<Vec<_>>(), parts);
        disk.bytes[15 * 512..16 * 512].fill(0);
        disk.bytes[30 * 512..32 * 512].fill(0);
        let outcome = run(&disk, &mut KnownUnits::default(), &[planned(&unit, 3)]);
        assert_eq!(outcome.items.iter().map(of).collect::<Vec<_>>(), [placed(&disk, &unit)]);
        // All sectors are slack.
        let outcome = run(&disk, &mut KnownUnits::default(), &[planned(&[(50, 3)], 3)]);
        assert_eq!(outcome.items.iter().map(of).collect::<Vec<_>>(), [placed(&disk, &[(50, 3)])]);
    }
}
