//! Copies the needed units of packs into new packs, and replaces the old ones.

use super::need::{Needs, PackNeed};
use super::read::{Span, read_spans};
use super::rows::LocatedUnit;
use super::watch::{Ground, Watch};
use super::{Collection, RETIRED_MAX};
use crate::archive::objects::Folder;
use crate::archive::tables::{entry_at, is_broken};
use crate::archive::units::decompressor;
use crate::archive::{Archive, ArchiveError};
use crate::compress::{Compressor, Decompressor};
use crate::format::ledger::Change;
use crate::format::pack::{TableEntry, UNIT_HEADER_BYTES, UnitHeader};
use crate::{ObjectId, UnitName};

/// Number of units that one entry moves at most, apart from those of one pack. It bounds the memory for their places.
const UNITS_MAX: usize = 500_000;
/// Length of the new packs of one entry. It bounds the space that a rewrite takes before it gives any back.
const BATCH_BYTES: u64 = 256 << 20;

/// Rewrites packs one after the other, and replaces them in batches.
pub(super) struct Rewriter<'a, 'r> {
    run: &'a mut Collection<'r>,
    needs: &'a Needs,
    watch: Watch<'r>,
    units: Units<'r>,
    /// Old packs of the batch with their lengths: all their needed units are in new packs, or elsewhere.
    old: Vec<(ObjectId, u64)>,
    /// Units and bytes that were added to the new packs of the batch.
    added: (usize, u64),
    ground: Ground,
}

/// Verifies units, and compresses them anew.
struct Units<'r> {
    archive: &'r Archive,
    decompressor: Decompressor,
    compressor: Option<Compressor>,
    plain: Vec<u8>,
    shorter: Vec<u8>,
}

impl<'a, 'r> Rewriter<'a, 'r> {
    pub(super) fn new(run: &'a mut Collection<'r>, needs: &'a Needs, watch: Watch<'r>) -> Result<Self, ArchiveError> {
        let compressor = run.options.level.map(Compressor::new).transpose();
        let compressor = compressor.map_err(|source| ArchiveError::System { what: "memory to compress", source })?;
        let units = Units {
            archive: run.archive,
            decompressor: decompressor()?,
            compressor,
            plain: Vec::new(),
            shorter: Vec::new(),
        };
        Ok(Rewriter { run, needs, watch, units, old: Vec::new(), added: (0, 0), ground: Ground::Same })
    }

    /// Copies the needed units of one pack, each given with the copy that is kept. A pack of which a unit is damaged
    /// stays as it is.
    pub(super) fn rewrite(&mut self, units: &[(LocatedUnit, LocatedUnit)]) -> Result<(), ArchiveError> {
        let Some((first, _)) = units.first().filter(|_| self.ground == Ground::Same) else {
            return Ok(());
        };
        let PackNeed { pack, length_bytes, .. } = self.needs.packs[first.pack as usize];
        let archive = self.run.archive;
        let table = match archive.tables.read(archive.store(), archive.descriptor().archive, pack) {
            Ok(table) => table,
            // Another collection may have deleted it.
            Err(error) if is_broken(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut moved: Vec<TableEntry> = Vec::new();
        for (unit, kept) in units {
            let Some(entry) = entry_at(&table, unit.span.offset) else { return Ok(()) };
            // Of a unit with copies, the one that stays is read before another is given up.
            if unit == kept || !self.is_intact(*kept, &entry.name)? {
                moved.push(*entry);
            }
        }
        if self.copy(pack, &moved)? {
            self.old.push((pack, length_bytes));
        }
        if self.old.len() >= RETIRED_MAX || self.added.0 >= UNITS_MAX || self.added.1 >= BATCH_BYTES {
            self.replace()?;
        }
        Ok(())
    }

    /// Replaces the packs of the last batch. Returns whether others have changed packs meanwhile.
    pub(super) fn finish(mut self) -> Result<Ground, ArchiveError> {
        self.replace()?;
        Ok(self.ground)
    }

    /// Returns whether a copy of a unit can be read.
    fn is_intact(&mut self, copy: LocatedUnit, name: &UnitName) -> Result<bool, ArchiveError> {
        let pack = self.needs.packs[copy.pack as usize].pack;
        let (mut is_intact, units) = (false, &mut self.units);
        read_spans(self.run.archive.store(), pack, &[copy.span], &mut |_, bytes| {
            is_intact = bytes.is_ok_and(|bytes| units.verified(name, bytes).is_some());
            Ok::<(), ArchiveError>(())
        })?;
        Ok(is_intact)
    }

    /// Adds units of a pack to the writer. Returns false if one of them is damaged.
    fn copy(&mut self, pack: ObjectId, moved: &[TableEntry]) -> Result<bool, ArchiveError> {
        if moved.is_empty() {
            return Ok(true);
        }
        let spans: Vec<Span> =
            moved.iter().map(|entry| Span { offset: entry.offset, stored_bytes: entry.stored_bytes }).collect();
        let archive = self.run.archive;
        let writer = self.run.writer()?;
        let before = writer.stored_bytes();
        let (mut is_whole, units) = (true, &mut self.units);
        read_spans(archive.store(), pack, &spans, &mut |index, bytes| {
            let name = moved[index].name;
            match bytes.ok().and_then(|bytes| Some((units.verified(&name, bytes)?, bytes))) {
                Some((header, bytes)) => {
                    let (header, stored) = units.shortest(header, &bytes[UNIT_HEADER_BYTES as usize..])?;
                    writer.add(name, header, stored)
                }
                None => {
                    is_whole = false;
                    Ok(())
                }
            }
        })?;
        self.added.0 += moved.len();
        self.added.1 += writer.stored_bytes() - before;
        Ok(is_whole)
    }

    /// Ends the batch: makes the new packs durable, and replaces the old ones, except those that an image needs which
    /// came meanwhile.
    fn replace(&mut self) -> Result<(), ArchiveError> {
        let mut old = std::mem::take(&mut self.old);
        self.added = (0, 0);
        let ended = match &mut self.run.writer {
            Some(writer) => writer.end_packs()?,
            None => None,
        };
        let Some(ended) = ended else {
            // All that is needed of them is also elsewhere.
            self.ground = self.run.retire_packs(&mut self.watch, &mut old)?;
            return Ok(());
        };
        let (packs, segment) = (ended.packs, ended.segment);
        let id = self.run.writer()?.id();
        let Collection { archive, clock, random, .. } = *self.run;
        while self.watch.read_on()? == Ground::Same {
            if archive.state.read().is_given_up(id) {
                return Err(ArchiveError::GivenUp { writer: id });
            }
            self.watch.spare(&mut old)?;
            if old.is_empty() {
                return self.discard(&packs, segment);
            }
            let ids = old.iter().map(|(pack, _)| *pack).collect();
            let change = Change::PacksReplaced { old: ids, new: packs.clone(), segment };
            if archive.append(self.watch.position(), id, clock, random, change)? {
                self.watch.pass_own();
                old.iter().for_each(|(_, bytes)| self.run.report.rewritten.add(*bytes));
                self.run.report.written_bytes += ended.bytes;
                return Ok(());
            }
        }
        self.ground = Ground::Changed;
        self.discard(&packs, segment)
    }

    /// Deletes new objects that no entry names.
    fn discard(&self, packs: &[ObjectId], segment: ObjectId) -> Result<(), ArchiveError> {
        self.run.archive.delete_unnamed(packs)?;
        Ok(self.run.archive.store().delete(&Folder::Segments.object(segment))?)
    }
}

impl Units<'_> {
    /// Returns the header of a unit if its bytes match its name. They are in `plain` then.
    fn verified(&mut self, name: &UnitName, bytes: &[u8]) -> Option<UnitHeader> {
        let header = UnitHeader::decode(bytes.get(..UNIT_HEADER_BYTES as usize)?).ok()?;
        let is_unit = self.archive.decode_unit(&mut self.decompressor, *name, bytes, &mut self.plain);
        is_unit.then_some(header)
    }

    /// Returns the shortest stored form of the unit that was verified last.
    fn shortest<'s>(
        &'s mut self,
        header: UnitHeader,
        stored: &'s [u8],
    ) -> Result<(UnitHeader, &'s [u8]), ArchiveError> {
        if let Some(compressor) = &mut self.compressor {
            let anew = compressor.compress(&self.plain, &mut self.shorter);
            let anew = anew.map_err(|source| ArchiveError::System { what: "memory to compress", source })?;
            if anew.stored_bytes < header.stored_bytes {
                return Ok((anew, &self.shorter));
            }
        }
        Ok((header, stored))
    }
}
