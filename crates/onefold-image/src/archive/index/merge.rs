//! Merges runs of memory and of files into one in a file.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use super::memory::{MemoryRuns, SourcedPack};
use super::run::{IndexRun, RunError, RunReader};
use super::run_writer::RunWriter;
use crate::format::segment::IndexEntry;
use crate::{ArchiveId, ObjectId};

/// Why runs cannot be merged.
#[derive(Debug)]
pub(super) enum MergeError {
    /// One of them is damaged or cannot be read.
    Source,
    /// The new one cannot be written.
    Target(io::Error),
}

/// Entries in order, and the numbers that their packs get: none, if they are left out.
struct Source<'s> {
    entries: EntrySource<'s>,
    numbers: Vec<Option<u32>>,
}

enum EntrySource<'s> {
    Memory(std::slice::Iter<'s, IndexEntry>),
    File(Box<RunReader<'s>>),
}

impl Source<'_> {
    /// Returns the next entry that is not left out.
    fn next(&mut self) -> Result<Option<IndexEntry>, RunError> {
        loop {
            let entry = match &mut self.entries {
                EntrySource::Memory(entries) => entries.next().copied(),
                EntrySource::File(reader) => reader.next().transpose()?,
            };
            let Some(entry) = entry else {
                return Ok(None);
            };
            if let Some(pack) = self.numbers[entry.pack as usize] {
                return Ok(Some(IndexEntry { pack, ..entry }));
            }
        }
    }
}

/// Merges the used entries of `runs` and all of `memory` into a new run in an empty file. All its packs are used.
pub(super) fn merge(
    file: std::fs::File,
    archive: ArchiveId,
    runs: &[IndexRun],
    memory: &MemoryRuns,
) -> Result<IndexRun, MergeError> {
    let mut packs: Vec<SourcedPack> = Vec::new();
    let mut number = |pack: SourcedPack| {
        packs.push(pack);
        u32::try_from(packs.len() - 1).expect("fewer packs than units")
    };
    let mut sources = Vec::new();
    for run in runs {
        let number = |pack: &super::run::RunPack| {
            pack.is_used.then(|| number(SourcedPack { id: pack.id, segment: pack.segment }))
        };
        let numbers = run.packs().iter().map(number).collect();
        sources.push(Source { entries: EntrySource::File(Box::new(run.read())), numbers });
    }
    let numbers: Vec<Option<u32>> = memory.packs().iter().map(|pack| Some(number(*pack))).collect();
    for run in memory.runs() {
        sources.push(Source { entries: EntrySource::Memory(run.iter()), numbers: numbers.clone() });
    }
    let units = runs.iter().map(IndexRun::used).sum::<usize>() + memory.units();
    let mut writer = RunWriter::new(file, archive, units as u64, packs.len());
    write(sources, &mut writer)?;
    let packs: Vec<(ObjectId, Option<ObjectId>)> = packs.iter().map(|pack| (pack.id, pack.segment)).collect();
    let mut run = writer.finish(&packs).map_err(|error| MergeError::Target(target(error)))?;
    run.packs_mut().iter_mut().for_each(|pack| pack.is_used = true);
    Ok(run)
}

/// Writes the entries of all sources in the order of prefixes.
fn write(mut sources: Vec<Source<'_>>, writer: &mut RunWriter) -> Result<(), MergeError> {
    let mut next: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut entries: Vec<Option<IndexEntry>> = Vec::new();
    for (number, source) in sources.iter_mut().enumerate() {
        let entry = source.next().map_err(|_| MergeError::Source)?;
        next.extend(entry.map(|entry| Reverse((entry.prefix, number))));
        entries.push(entry);
    }
    let mut last = 0;
    while let Some(mut first) = next.peek_mut() {
        let number = first.0.1;
        let Some(entry) = entries[number].take() else {
            break;
        };
        // A run with right checksums may still be out of order, if not this program wrote it.
        if entry.prefix < last {
            return Err(MergeError::Source);
        }
        last = entry.prefix;
        writer.push(entry).map_err(MergeError::Target)?;
        match sources[number].next().map_err(|_| MergeError::Source)? {
            Some(entry) => {
                entries[number] = Some(entry);
                first.0.0 = entry.prefix;
            }
            None => {
                std::collections::binary_heap::PeekMut::pop(first);
            }
        }
    }
    Ok(())
}

/// Returns the error of writing a run.
pub(super) fn target(error: RunError) -> io::Error {
    match error {
        RunError::Io(error) => error,
        RunError::Damaged => io::Error::other(error),
    }
}
