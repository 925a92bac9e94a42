//! The map of a disk as a list of runs. The map is read from the guest once; a long list is kept in a file.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use onefold_guest::error::GuestError;
use onefold_guest::guest::{DiskRun, DiskUse, Guest};
use onefold_guest::volume::DiskRange;
use onefold_sort::{OrderedRows, OrderedWriter};

use super::error::MapError;

/// The map of a disk.
#[derive(Debug)]
pub(super) struct DiskMap {
    /// All uses, in the order of their first occurrence on the disk.
    pub(super) uses: Vec<DiskUse>,
    /// First byte, length in bytes, and index of the use in `uses`.
    runs: OrderedRows,
}

impl DiskMap {
    /// Reads the map of a disk. Runs beyond `memory_bytes` go to an unnamed file in `folder`.
    ///
    /// # Errors
    /// Those of the disk and of temporary files.
    pub(super) fn read(guest: &Guest<'_>, folder: &Path, memory_bytes: usize) -> Result<DiskMap, MapError> {
        let mut writer = MapWriter::new(folder, memory_bytes);
        let mut failed = None;
        let outcome = guest.each_run(&mut |run| {
            writer.push(run).map_err(|error| {
                failed = Some(error);
                GuestError::Unsupported("a map that cannot be written down")
            })
        });
        failed.map_or(Ok(()), Err)?;
        outcome?;
        Ok(writer.finish()?)
    }

    /// Returns the runs in the order of the disk, each with the index of its use in `uses`.
    pub(super) fn into_runs(self) -> impl Iterator<Item = io::Result<(DiskRange, usize)>> {
        self.runs.map(|row| {
            let [start_bytes, length_bytes, at] = row?;
            Ok((DiskRange { start_bytes, length_bytes }, usize::try_from(at).unwrap_or(usize::MAX)))
        })
    }
}

/// Collects the runs of a map.
struct MapWriter<'a> {
    uses: Vec<DiskUse>,
    places: BTreeMap<DiskUse, u64>,
    runs: OrderedWriter<'a>,
}

impl<'a> MapWriter<'a> {
    fn new(folder: &'a Path, memory_bytes: usize) -> MapWriter<'a> {
        MapWriter { uses: Vec::new(), places: BTreeMap::new(), runs: OrderedWriter::new(folder, memory_bytes) }
    }

    fn push(&mut self, run: DiskRun) -> io::Result<()> {
        let at = *self.places.entry(run.use_).or_insert_with(|| {
            self.uses.push(run.use_);
            self.uses.len() as u64 - 1
        });
        self.runs.push([run.range.start_bytes, run.range.length_bytes, at])
    }

    fn finish(self) -> io::Result<DiskMap> {
        Ok(DiskMap { uses: self.uses, runs: self.runs.finish()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_guest::filesystem::AllocationClass;

    #[test]
    fn a_map_that_is_longer_than_its_memory_comes_back_as_it_was() {
        let folder = std::env::temp_dir();
        let uses = [DiskUse::Gap, DiskUse::Volume(0, AllocationClass::Data), DiskUse::Volume(7, AllocationClass::Free)];
        let run = |at: usize| {
            let range = DiskRange { start_bytes: at as u64 * 4096, length_bytes: 4096 };
            DiskRun { range, use_: uses[at % 3] }
        };
        let runs: Vec<DiskRun> = (0..10_000).map(run).collect();
        let mut writer = MapWriter::new(&folder, 240);
        runs.iter().for_each(|run| writer.push(*run).unwrap());
        let map = writer.finish().unwrap();
        assert_eq!(map.uses, uses);
        let known = map.uses.clone();
        let read = map.into_runs().map(|run| {
            let (range, at) = run.unwrap();
            DiskRun { range, use_: known[at] }
        });
        assert!(read.eq(runs));
    }
}
