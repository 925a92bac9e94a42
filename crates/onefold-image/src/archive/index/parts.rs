//! Reads the parts of the index from the store: segments, or the tables of packs if a segment is of no use.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use super::memory::SourcedPack;
use super::merge::target;
use super::run::IndexRun;
use super::run_writer::RunWriter;
use super::{Index, IndexSource, no_room};
use crate::archive::ArchiveError;
use crate::archive::objects::{Folder, damaged, read_whole};
use crate::archive::state::{Part, State};
use crate::archive::tables::{Tables, is_broken, is_unread};
use crate::format::FormatError;
use crate::format::pack::TableEntry;
use crate::format::segment::{IndexEntry, SEGMENT_BYTES_MAX, Segment, SegmentDecoder};
use crate::store::{ByteRange, Store, StoreError};
use crate::{ArchiveId, ObjectId};

/// Length of the pieces in which a segment is read.
const PIECE_BYTES: u64 = 4 << 20;

/// A segment that was read.
enum SegmentRead {
    Short(Vec<IndexEntry>),
    Long(Box<IndexRun>),
}

/// Why a segment cannot be read.
enum PieceError {
    /// The store fails, or the segment is damaged.
    Read(ArchiveError),
    /// The file for it cannot be written.
    Write(io::Error),
}

impl From<ArchiveError> for PieceError {
    fn from(error: ArchiveError) -> PieceError {
        PieceError::Read(error)
    }
}

impl Index {
    /// Reads a part that the index does not contain, from its segment or from the tables of its packs.
    pub(super) fn read_part(&mut self, reading: &IndexSource<'_>, part: &Part) -> Result<(), ArchiveError> {
        let read = match self.read_whole_segment(reading, part) {
            Err(error) if is_broken(&error) || matches!(error, ArchiveError::Newer { .. }) => {
                return self.rebuild_part(reading, part, &error);
            }
            read => read?,
        };
        match read {
            (packs, SegmentRead::Short(entries)) => {
                let sourced: Vec<Option<SourcedPack>> =
                    packs.iter().map(|pack| self.lacks(reading, *pack).then(|| from(part, *pack))).collect();
                self.memory.add(&sourced, &entries);
            }
            (_, SegmentRead::Long(mut run)) => {
                for pack in run.packs_mut() {
                    pack.is_used = self.lacks(reading, pack.id);
                }
                self.push(*run);
            }
        }
        self.seen.extend(part.packs.iter().filter(|pack| reading.state.is_live(**pack)));
        Ok(())
    }

    /// Reads a segment: a long one into a file of the cache, or else of the folder for temporary files, or else into
    /// memory, if that has room.
    fn read_whole_segment(
        &self,
        reading: &IndexSource<'_>,
        part: &Part,
    ) -> Result<(Vec<ObjectId>, SegmentRead), ArchiveError> {
        let folders = self.cache_folder().into_iter().chain([&*self.room.temporary]).map(Some);
        let mut failed = None;
        for folder in folders.chain([None]) {
            match self.read_pieces(reading, part, folder) {
                Ok(read) => return Ok(read),
                Err(PieceError::Read(error)) => return Err(error),
                // The first error says why there is no file, and not that memory is too small, too.
                Err(PieceError::Write(error)) => failed = failed.or(Some(error)),
            }
        }
        Err(no_room(failed.unwrap_or_else(|| io::ErrorKind::StorageFull.into())))
    }

    /// Reads a segment in pieces. One that is longer than a piece goes into a file in `folder`; without one, into
    /// memory.
    fn read_pieces(
        &self,
        reading: &IndexSource<'_>,
        part: &Part,
        folder: Option<&Path>,
    ) -> Result<(Vec<ObjectId>, SegmentRead), PieceError> {
        let name = Folder::Segments.object(part.segment);
        let mut decoder = SegmentDecoder::new(reading.archive, part.segment, part.packs.len());
        let (mut offset, mut wanted) = (0, PIECE_BYTES);
        let mut entries = Vec::new();
        let mut writer: Option<RunWriter> = None;
        loop {
            let range = ByteRange::From { offset, length_bytes: wanted };
            let piece = reading.store.get(&name, range).map_err(ArchiveError::from)?;
            offset += piece.len() as u64;
            entries.append(&mut decoder.push(&piece).map_err(damaged(&name))?);
            let left = decoder.left_bytes();
            if left > 0 && writer.is_none() {
                let units = left.saturating_add(offset) / crate::format::segment::ENTRY_BYTES as u64;
                if let Some(folder) = folder {
                    let file = tempfile::tempfile_in(folder).map_err(PieceError::Write)?;
                    writer = Some(RunWriter::new(file, reading.archive, units, part.packs.len()));
                } else if !self.has_memory_for(usize::try_from(units).unwrap_or(usize::MAX)) {
                    return Err(PieceError::Write(io::ErrorKind::StorageFull.into()));
                }
            }
            if let Some(writer) = &mut writer {
                entries.drain(..).try_for_each(|entry| writer.push(entry)).map_err(PieceError::Write)?;
            }
            if (piece.len() as u64) < wanted {
                break;
            }
            // A byte behind the end is damage, as it is in a segment that is read at once.
            wanted = left.saturating_add(1).min(PIECE_BYTES);
        }
        let packs = decoder.finish().map_err(damaged(&name))?;
        check_packs(part, &packs).map_err(damaged(&name))?;
        let Some(writer) = writer else {
            return Ok((packs, SegmentRead::Short(entries)));
        };
        let sourced: Vec<(ObjectId, Option<ObjectId>)> = packs.iter().map(|pack| (*pack, Some(part.segment))).collect();
        let run = writer.finish(&sourced).map_err(|error| PieceError::Write(target(error)))?;
        Ok((packs, SegmentRead::Long(Box::new(run))))
    }

    /// Reads the packs of a part one after the other, because its segment fails with this error.
    fn rebuild_part(
        &mut self,
        reading: &IndexSource<'_>,
        part: &Part,
        segment: &ArchiveError,
    ) -> Result<(), ArchiveError> {
        for pack in &part.packs {
            if !self.lacks(reading, *pack) {
                continue;
            }
            match reading.tables.table(reading.store, reading.archive, *pack) {
                Ok(table) => self.add_table(from(part, *pack), &table),
                Err(error) if is_broken(&error) => {
                    let failure = [&error, segment].into_iter().find_map(passing);
                    self.unread.insert(*pack, failure);
                }
                Err(error) => return Err(error),
            }
            self.seen.insert(*pack);
            self.spill_if_full(reading)?;
        }
        Ok(())
    }

    /// Adds the units of a pack.
    pub(super) fn add_table(&mut self, pack: SourcedPack, table: &[TableEntry]) {
        let mut entries: Vec<IndexEntry> = table.iter().map(|entry| indexed(entry, 0)).collect();
        entries.sort_unstable_by_key(|entry| (entry.prefix, entry.offset));
        self.memory.add(&[Some(pack)], &entries);
    }

    /// Returns whether a pack has units that the index lacks.
    pub(super) fn lacks(&self, reading: &IndexSource<'_>, pack: ObjectId) -> bool {
        reading.state.is_live(pack) && !self.seen.contains(&pack)
    }
}

/// Returns the error of a store that failed to read an object which may be whole.
fn passing(error: &ArchiveError) -> Option<StoreError> {
    match error {
        ArchiveError::Store(failure) if is_unread(error) => Some(failure.for_another()),
        _ => None,
    }
}

fn from(part: &Part, id: ObjectId) -> SourcedPack {
    SourcedPack { id, segment: Some(part.segment) }
}

/// Checks that a segment has exactly the packs of its part: one that lists another's would pass for that part, too.
fn check_packs(part: &Part, packs: &[ObjectId]) -> Result<(), FormatError> {
    let listed: HashSet<&ObjectId> = packs.iter().collect();
    if packs.len() == part.packs.len() && part.packs.iter().all(|pack| listed.contains(pack)) {
        return Ok(());
    }
    Err(FormatError::Other { structure: "segment of the index", what: "its packs" })
}

/// Returns the segment of a part.
pub(in crate::archive) fn read_segment(
    store: &dyn Store,
    archive: ArchiveId,
    part: &Part,
) -> Result<Segment, ArchiveError> {
    let name = Folder::Segments.object(part.segment);
    let object = read_whole(store, &name, SEGMENT_BYTES_MAX)?;
    let segment = Segment::decode(archive, part.segment, &object).map_err(damaged(&name))?;
    check_packs(part, &segment.packs).map_err(damaged(&name))?;
    Ok(segment)
}

/// Returns what the segment of a part would say, from the tables of its live packs. Packs without a readable table are
/// left out, and `away` gets them: a missing pack may be put back, an empty one too, and an unreadable one be read
/// later.
pub(in crate::archive) fn rebuild(
    store: &dyn Store,
    archive: ArchiveId,
    state: &State,
    part: &Part,
    tables: &Tables,
    away: &mut Vec<ObjectId>,
) -> Result<Segment, ArchiveError> {
    let mut segment = Segment { packs: part.packs.clone(), entries: Vec::new() };
    for (number, pack) in (0u32..).zip(&part.packs).filter(|(_, pack)| state.is_live(**pack)) {
        let table = match tables.table(store, archive, *pack) {
            Ok(table) => table,
            Err(error) if is_broken(&error) => {
                away.push(*pack);
                continue;
            }
            Err(error) => return Err(error),
        };
        segment.entries.extend(table.iter().map(|entry| indexed(entry, number)));
    }
    segment.entries.sort_unstable_by_key(|entry| (entry.prefix, entry.pack, entry.offset));
    Ok(segment)
}

/// Returns what an index says of a unit in the pack with this number.
fn indexed(entry: &TableEntry, pack: u32) -> IndexEntry {
    let TableEntry { name, offset, stored_bytes, .. } = *entry;
    IndexEntry { prefix: name.prefix(), pack, offset, stored_bytes }
}
