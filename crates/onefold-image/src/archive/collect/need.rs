//! Which units and packs the images of an archive need. Tables of packs and headers of chunks decide that: the index is
//! only a hint. The work is sorted outside of memory where it does not fit.

use std::io;
use std::path::Path;

use onefold_sort::{Merge, Row, SortWriter, Spool, SpoolWriter};

use super::read::{Span, read_spans};
use super::rows::{LocatedUnit, Match, UnitPrefix, join, table_row, temporary};
use crate::archive::rules::{Rule, follows};
use crate::archive::state::{ImageRecord, State};
use crate::archive::tables::is_broken;
use crate::archive::units::decompressor;
use crate::archive::{Archive, ArchiveError};
use crate::compress::Decompressor;
use crate::format::chunk_header::ChunkHeader;
use crate::format::pack::{UNIT_HEADER_BYTES, UnitHeader, cost_of, length_of};
use crate::{ObjectId, UnitName};

/// A sort takes this share of the memory, and so do the sorted rows of all tables. At most two sorts run at once.
const MEMORY_SHARE: usize = 4;

/// A live pack, and what of it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackNeed {
    pub(super) pack: ObjectId,
    pub(super) length_bytes: u64,
    /// Bytes that all its units take.
    pub(super) units_bytes: u64,
    /// Bytes that the units take that images need and that have no other copy to be kept.
    pub(super) needed_bytes: u64,
    /// Number of needed units of which a copy is kept in another pack, or another one here.
    pub(super) surplus: u64,
    /// Whether its table can be read, and other packs hold all needed units of it that an entry calls lost. If not, it
    /// stays: what it has may be all that there is.
    pub(super) is_read: bool,
}

/// The needed units of an archive at a position of its ledger.
#[derive(Debug)]
pub(super) struct Needs {
    pub(super) state: State,
    /// All live packs, in the order of the entries that added them.
    pub(super) packs: Vec<PackNeed>,
    /// Number of different needed units that the packs hold.
    pub(super) units: u64,
    /// The tables of all packs, sorted by unit.
    tables: Spool,
    /// All needed units, sorted, some of them several times.
    needed: Spool,
}

/// Where sorts get their memory and temporary files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room<'r> {
    pub(super) folder: &'r Path,
    pub(super) memory_bytes: usize,
}

impl Room<'_> {
    pub(super) fn sort(self) -> SortWriter {
        SortWriter::new(self.folder, self.memory_bytes / MEMORY_SHARE)
    }

    /// Returns sorted rows that can be read several times.
    fn spool(self, rows: Merge) -> Result<Spool, ArchiveError> {
        let mut spool = SpoolWriter::new(self.folder, self.memory_bytes / MEMORY_SHARE);
        for row in rows {
            spool.push(row.map_err(temporary)?).map_err(temporary)?;
        }
        spool.finish().map_err(temporary)
    }
}

impl Needs {
    /// Determines what the images of a state need. Calls `on_progress` with the number of packs and images that were
    /// read, and that of all.
    ///
    /// # Errors
    /// [`ArchiveError::Unknown`] when manifest or header of an image cannot be read: nobody can tell then what it
    /// needs.
    pub(super) fn of(
        archive: &Archive,
        state: State,
        room: Room<'_>,
        on_progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Needs, ArchiveError> {
        let images: Vec<ImageRecord> = state.images.values().cloned().collect();
        let total = state.packs().len() as u64 + images.len() as u64;
        let mut done = 0;
        let mut step = || {
            done += 1;
            on_progress(done, total);
        };
        let PackTables { mut packs, tables, unheld } = read_tables(archive, &state, room, &mut step)?;
        let (mut unheld, mut units) = (unheld.peekable(), 0);
        let needed = Headers { archive, images: &images, packs: &packs, room }.read(&tables, &mut step)?;
        let (all_needed, all_tables) = (needed.read(0, u64::MAX), tables.read(0, u64::MAX));
        join(all_needed, all_tables, &mut |key, matched| {
            match matched {
                Match::Copy { unit, kept } => {
                    let pack = &mut packs[unit.pack as usize];
                    if unit == kept {
                        units += 1;
                        pack.needed_bytes += cost_of(unit.span.stored_bytes);
                    } else {
                        pack.surplus += 1;
                    }
                }
                // A pack that was put back may have the unit whole, although it does not count until a repair.
                Match::Nowhere => {
                    let is_passed =
                        |row: &io::Result<Row>| row.as_ref().is_ok_and(|row| UnitPrefix::of_row(*row) > key);
                    while let Some(row) = unheld.next_if(|row| !is_passed(row)) {
                        let row = row.map_err(temporary)?;
                        if UnitPrefix::of_row(row) == key && follows(Rule::LastCopiesStay) {
                            packs[LocatedUnit::of_table_row(row).pack as usize].is_read = false;
                        }
                    }
                }
            }
            Ok(())
        })?;
        Ok(Needs { state, packs, units, tables, needed })
    }

    /// Calls `each` with the needed units of the packs that `is_wanted` selects by their number, in the order of packs
    /// and places, each with the copy that is kept.
    pub(super) fn units_of(
        &self,
        room: Room<'_>,
        is_wanted: impl Fn(u32) -> bool,
        each: &mut dyn FnMut(LocatedUnit, LocatedUnit) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let mut sort = room.sort();
        join(self.needed.read(0, u64::MAX), self.tables.read(0, u64::MAX), &mut |_, matched| match matched {
            Match::Copy { unit, kept } if is_wanted(unit.pack) => sort.push(unit.row_beside(kept)).map_err(temporary),
            _ => Ok(()),
        })?;
        for row in sort.finish().map_err(temporary)? {
            let (unit, kept) = LocatedUnit::of_row_beside(row.map_err(temporary)?);
            each(unit, kept)?;
        }
        Ok(())
    }
}

/// The tables of all live packs.
struct PackTables {
    packs: Vec<PackNeed>,
    /// The units that the packs hold, sorted.
    tables: Spool,
    /// The units that the packs have although an entry calls them lost, sorted.
    unheld: Merge,
}

/// Reads the tables of all live packs.
fn read_tables(
    archive: &Archive,
    state: &State,
    room: Room<'_>,
    step: &mut dyn FnMut(),
) -> Result<PackTables, ArchiveError> {
    let mut sort = room.sort();
    // They are few.
    let mut unheld = SortWriter::new(room.folder, room.memory_bytes / MEMORY_SHARE / 4);
    let mut packs = Vec::new();
    for (number, pack) in (0_u32..).zip(state.packs()) {
        let mut need = PackNeed { pack, length_bytes: 0, units_bytes: 0, needed_bytes: 0, surplus: 0, is_read: false };
        match archive.tables.read(archive.store(), archive.descriptor().archive, pack) {
            Ok(table) => {
                need.is_read = true;
                need.length_bytes = length_of(&table);
                need.units_bytes = table.iter().map(|unit| cost_of(unit.stored_bytes)).sum();
                for unit in &table {
                    let sort = if state.holds(pack, unit.name) { &mut sort } else { &mut unheld };
                    sort.push(table_row(number, unit)).map_err(temporary)?;
                }
            }
            Err(error) if is_broken(&error) || matches!(error, ArchiveError::Newer { .. }) => {}
            Err(error) => return Err(error),
        }
        packs.push(need);
        step();
    }
    let tables = room.spool(sort.finish().map_err(temporary)?)?;
    Ok(PackTables { packs, tables, unheld: unheld.finish().map_err(temporary)? })
}

/// Reads the headers of all chunks.
struct Headers<'h> {
    archive: &'h Archive,
    images: &'h [ImageRecord],
    packs: &'h [PackNeed],
    room: Room<'h>,
}

impl Headers<'_> {
    /// Returns the names of all units that images need, headers too, sorted.
    fn read(&self, tables: &Spool, step: &mut dyn FnMut()) -> Result<Spool, ArchiveError> {
        let chunks = self.chunks(step)?;
        let mut needed = self.room.sort();
        let mut places = self.room.sort();
        // Headers that are read in another way, because this one fails.
        let mut others: Vec<UnitPrefix> = Vec::new();
        join(chunks, tables.read(0, u64::MAX), &mut |key, matched| {
            match matched {
                Match::Copy { unit, kept } if unit == kept => {
                    needed.push(key.row()).map_err(temporary)?;
                    places.push(unit.row(key)).map_err(temporary)?;
                }
                Match::Copy { .. } => {}
                Match::Nowhere => others.push(key),
            }
            Ok(())
        })?;
        let mut add = |header: &ChunkHeader| {
            header.units.iter().try_for_each(|unit| needed.push(UnitPrefix::of(&unit.name).row()).map_err(temporary))
        };
        self.read_placed(places.finish().map_err(temporary)?, &mut others, &mut add)?;
        self.read_others(others, &mut add)?;
        self.room.spool(needed.finish().map_err(temporary)?)
    }

    /// Returns the names of the headers of all images.
    fn chunks(&self, step: &mut dyn FnMut()) -> Result<Merge, ArchiveError> {
        let mut chunks = self.room.sort();
        for record in self.images {
            if let Some(names) = self.chunks_of(record)? {
                names.iter().try_for_each(|chunk| chunks.push(UnitPrefix::of(chunk).row())).map_err(temporary)?;
            }
            step();
        }
        chunks.finish().map_err(temporary)
    }

    /// Returns the chunks of an image; `None` if it was removed since the ledger was read: it needs nothing then.
    fn chunks_of(&self, record: &ImageRecord) -> Result<Option<Vec<UnitName>>, ArchiveError> {
        match self.archive.manifest(record) {
            Ok(manifest) => Ok(Some(manifest.chunks)),
            Err(ArchiveError::Removed { .. }) => Ok(None),
            Err(error) => Err(unknown(record, error)),
        }
    }

    /// Reads headers from their places, pack by pack.
    fn read_placed(
        &self,
        places: Merge,
        others: &mut Vec<UnitPrefix>,
        add: &mut dyn FnMut(&ChunkHeader) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let mut decoder = HeaderDecoder { archive: self.archive, decompressor: decompressor()?, plain: Vec::new() };
        let mut batch: Vec<(LocatedUnit, UnitPrefix)> = Vec::new();
        let mut places = places.peekable();
        while let Some(row) = places.next() {
            let (unit, key) = LocatedUnit::of_row(row.map_err(temporary)?);
            batch.push((unit, key));
            let is_last = match places.peek() {
                Some(Ok(next)) => LocatedUnit::of_row(*next).0.pack != unit.pack,
                Some(Err(_)) | None => true,
            };
            if !is_last && batch.len() < BATCH_MAX {
                continue;
            }
            let spans: Vec<Span> = batch.iter().map(|(unit, _)| unit.span).collect();
            let pack = self.packs[unit.pack as usize].pack;
            read_spans(self.archive.store(), pack, &spans, &mut |index, bytes| {
                let key = batch[index].1;
                match bytes.ok().and_then(|bytes| decoder.decode(key, bytes)) {
                    Some(header) => add(&header),
                    None => {
                        others.push(key);
                        Ok(())
                    }
                }
            })?;
            batch.clear();
        }
        Ok(())
    }

    /// Reads headers by their names, with all means of a reader.
    fn read_others(
        &self,
        mut others: Vec<UnitPrefix>,
        add: &mut dyn FnMut(&ChunkHeader) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        if others.is_empty() {
            return Ok(());
        }
        others.sort_unstable();
        for record in self.images {
            for chunk in self.chunks_of(record)?.unwrap_or_default() {
                if others.binary_search(&UnitPrefix::of(&chunk)).is_err() {
                    continue;
                }
                match self.archive.header(&chunk).map_err(|error| self.archive.of_image(&record.image, error)) {
                    Ok(header) => add(&header)?,
                    Err(ArchiveError::Removed { .. }) => break,
                    Err(error) => return Err(unknown(record, error)),
                }
            }
        }
        Ok(())
    }
}

/// Maximum number of headers that are read at once.
const BATCH_MAX: usize = 4096;

fn unknown(record: &ImageRecord, error: ArchiveError) -> ArchiveError {
    ArchiveError::Unknown { image: record.image.clone(), source: Box::new(error) }
}

/// Decodes headers of chunks from the stored bytes of units.
struct HeaderDecoder<'d> {
    archive: &'d Archive,
    decompressor: Decompressor,
    plain: Vec<u8>,
}

impl HeaderDecoder<'_> {
    /// Returns the header with a name that begins with `key`.
    fn decode(&mut self, key: UnitPrefix, bytes: &[u8]) -> Option<ChunkHeader> {
        let (header, stored) = bytes.split_at_checked(UNIT_HEADER_BYTES as usize)?;
        let header = UnitHeader::decode(header).ok()?;
        let is_unit = self.decompressor.decompress(header, stored, &mut self.plain)
            && UnitPrefix::of(&self.archive.descriptor().key.name(&self.plain)) == key;
        if is_unit { ChunkHeader::decode(&self.plain).ok() } else { None }
    }
}
