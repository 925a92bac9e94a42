//! Reuse of the packs that an interrupted capture left.
//!
//! A pack that no entry names belongs to its writer. Another writer may name it in an entry of its own as long as no
//! earlier entry gave the owner up, because only then may a collector delete the pack. From that entry on, it is a pack
//! like any other. An owner that is still running finds its pack named, and begins again under a new name.

use std::collections::HashSet;

use super::objects::{Folder, damaged};
use super::tables::is_broken;
use super::{Archive, ArchiveError, Writer};
use crate::format::FormatError;
use crate::format::ledger::Change;
use crate::format::pack::{TableEntry, length_of};
use crate::format::segment::{IndexEntry, Segment};
use crate::store::{Creation, ListedObject};
use crate::{ObjectId, WriterId};

/// Maximum number of interrupted writers whose packs one capture looks for, the latest first.
const WRITERS_MAX: usize = 32;

/// A pack that an interrupted writer left.
struct LeftPack {
    pack: ObjectId,
    table: Vec<TableEntry>,
}

impl Writer<'_> {
    /// Names the packs that interrupted writers left in an entry, so that captures can rely on their units. `is_ended`
    /// tells by the host of a writer whether it has ended; it decides what is tried, never what is safe. Returns the
    /// number of units in these packs.
    ///
    /// A pack counts if it has its whole length and a valid table. Its units are verified when they are read, as those
    /// of every other pack are.
    ///
    /// # Errors
    /// When the store fails. A pack that is damaged, or cannot be read or made durable, is left out.
    pub fn reuse(&mut self, is_ended: &dyn Fn(&str) -> bool) -> Result<u64, ArchiveError> {
        let archive = self.archive();
        archive.refresh()?;
        let owners = archive.state.read().open_writers(is_ended, WRITERS_MAX);
        let mut found = Vec::new();
        for owner in owners.iter().filter(|owner| **owner != self.id()) {
            found.extend(packs_of(archive, *owner)?);
        }
        let mut put: Option<(ObjectId, Vec<ObjectId>)> = None;
        loop {
            archive.refresh()?;
            let position = {
                let state = archive.state.read();
                if state.is_given_up(self.id()) {
                    return Err(ArchiveError::GivenUp { writer: self.id() });
                }
                found.retain(|LeftPack { pack, .. }| !state.is_named(*pack) && !state.is_given_up(pack.writer));
                state.position
            };
            if found.is_empty() || !archive.has_room_for(found.iter().map(|found| found.table.len()).sum())? {
                return Ok(0);
            }
            let packs: Vec<ObjectId> = found.iter().map(|found| found.pack).collect();
            let segment = match put {
                Some((segment, of)) if of == packs => segment,
                _ => self.put_segment_of(&found)?,
            };
            let change = Change::PacksReplaced { old: Vec::new(), new: packs.clone(), segment };
            put = Some((segment, packs));
            if self.append(position, change)? {
                return Ok(found.iter().map(|found| found.table.len() as u64).sum());
            }
        }
    }

    /// Makes the segment of these packs durable.
    fn put_segment_of(&self, found: &[LeftPack]) -> Result<ObjectId, ArchiveError> {
        let mut segment = Segment { packs: found.iter().map(|found| found.pack).collect(), entries: Vec::new() };
        for (pack, LeftPack { table, .. }) in (0u32..).zip(found) {
            segment.entries.extend(table.iter().map(|entry| IndexEntry {
                prefix: entry.name.prefix(),
                pack,
                offset: entry.offset,
                stored_bytes: entry.stored_bytes,
            }));
        }
        segment.entries.sort_unstable_by_key(|entry| (entry.prefix, entry.pack, entry.offset));
        let id = self.new_id()?;
        let object = segment.encode(self.archive().descriptor().archive, id)?;
        self.archive().store().put(&Folder::Segments.object(id), &[&object])?;
        Ok(id)
    }
}

/// Returns the packs of a writer that no entry names, and that are whole.
fn packs_of(archive: &Archive, owner: WriterId) -> Result<Vec<LeftPack>, ArchiveError> {
    let prefix = format!("{}{owner}/", Folder::Packs.prefix());
    let mut after = None;
    let mut found = Vec::new();
    let mut listed_packs = HashSet::new();
    loop {
        let listed = archive.store().list(&prefix, after.as_ref())?;
        let Some(last) = listed.last() else {
            return Ok(found);
        };
        after = Some(last.name.clone());
        for object in &listed {
            let Some(pack) = Folder::Packs.id_of(&object.name) else { continue };
            if archive.state.read().is_named(pack) || !listed_packs.insert(pack) {
                continue;
            }
            match whole(archive, pack, object) {
                Ok(pack) => found.extend(pack),
                Err(error) if is_broken(&error) || matches!(error, ArchiveError::Newer { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Archive {
    /// Deletes packs of a writer at work, except those that another writer has named because it took the owner for
    /// ended.
    pub(super) fn delete_unnamed(&self, packs: &[ObjectId]) -> Result<(), ArchiveError> {
        self.refresh()?;
        for pack in packs {
            if !self.state.read().is_named(*pack) {
                self.store().delete(&Folder::Packs.object(*pack))?;
            }
        }
        Ok(())
    }
}

/// Returns a pack if its table is valid and its length is right, and makes it durable: its owner may have died before
/// it did that.
fn whole(archive: &Archive, pack: ObjectId, listed: &ListedObject) -> Result<Option<LeftPack>, ArchiveError> {
    let table = archive.tables.read(archive.store(), archive.descriptor().archive, pack)?;
    if length_of(&table) != listed.length_bytes {
        return Err(damaged(&listed.name)(FormatError::Length { structure: "pack" }));
    }
    // By the contract of stores, an object is durable once a creation has found it. If there is none any more, the
    // empty object belongs to a writer that was given up, and goes with its others.
    match archive.store().create(&listed.name, &[]) {
        Ok(Creation::Exists) => Ok(Some(LeftPack { pack, table })),
        Ok(Creation::New) => Ok(None),
        // As one that cannot be read: its folder may belong to another user.
        Err(error) if !error.is_final() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
