//! Reads units in as few calls as their places allow, and verifies each by its name.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use super::ahead::{PlannedReads, end, unit_in};
use super::index::ClaimedPlace;
use super::objects::Folder;
use super::rules::{Rule, follows};
use super::tables::{Table, entry_at, is_broken, is_unread};
use super::wanted_unit::WantedUnit;
use super::{Archive, ArchiveError};
use crate::compress::Decompressor;
use crate::format::pack::{UNIT_HEADER_BYTES, UnitHeader};
use crate::store::{ByteRange, StoreError};
use crate::{ObjectId, UnitName};

/// Maximum gap between two units of a pack that are still read in one call, in bytes.
const GAP_BYTES: u64 = 64 << 10;
/// Maximum length of one read, in bytes. A longer unit is read alone.
const READ_BYTES: u64 = 4 << 20;
/// How often units are looked up, if the ledger says something new each time.
const LOOKUPS_MAX: u32 = 10;

/// Where a unit is stored, according to the table of its pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredUnit {
    /// The pack.
    pub pack: ObjectId,
    /// Offset of its header in the pack, in bytes.
    pub offset: u32,
    /// Length of the stored bytes behind the header.
    pub stored_bytes: u32,
    /// Length of its plain bytes.
    pub plain_bytes: u32,
}

/// Packs that could not be read, and why.
type Unread = HashMap<ObjectId, StoreError>;

/// A unit on its way: which of the wanted ones, and the places where it has not been looked for yet.
struct Job {
    index: usize,
    /// The next place to try comes last.
    places: Vec<ClaimedPlace>,
}

impl Archive {
    /// Returns where a unit is stored; `None` if no pack has it. The pack's table confirms it. Of several copies it is
    /// the shortest, unless one is beside the units that were looked up before. A pack that is gone, damaged or cannot
    /// be read has nothing, so `None` does not prove that the unit is lost.
    ///
    /// # Errors
    /// When the store fails.
    pub fn stored(&self, name: &UnitName) -> Result<Option<StoredUnit>, ArchiveError> {
        let followed = {
            let state = self.state.read();
            self.followed.find(name, |pack| state.holds(pack, *name))
        };
        if followed.is_some() {
            return Ok(followed);
        }
        for place in self.places(*name)? {
            if let Some((stored, table)) = self.confirmed(*name, place)? {
                self.followed.note(stored.pack, &table);
                return Ok(Some(stored));
            }
        }
        Ok(None)
    }

    /// Fails unless a pack has a unit: its table says so, or, if the table is damaged, the unit's header at the place
    /// that the index names. The unit is not read.
    ///
    /// # Errors
    /// When no pack has the unit, or the store fails.
    pub(crate) fn find_unit(&self, wanted: WantedUnit) -> Result<(), ArchiveError> {
        let mut lookups = 1;
        loop {
            let looked = self.state.read().position;
            for place in self.places(wanted.name)? {
                let plain_bytes = match self.confirmed(wanted.name, place)? {
                    Some((stored, _)) => Some(stored.plain_bytes),
                    None => self.header_at(place).map(|header| header.plain_bytes),
                };
                if plain_bytes.is_some_and(|found| wanted.plain_bytes.is_none_or(|wanted| wanted == found)) {
                    return Ok(());
                }
            }
            // The packs may have been replaced since the ledger was read.
            self.read_further()?;
            let is_news = self.read_unread()? || self.state.read().position != looked;
            if is_news && lookups < LOOKUPS_MAX {
                lookups += 1;
                continue;
            }
            return match self.crowded_out(wanted.name)?.is_empty() {
                true => Err(self.lost(wanted.name, Unread::new())?),
                false => Ok(()),
            };
        }
    }

    /// Returns the header of the unit at a place, if there is one of the expected length.
    fn header_at(&self, place: ClaimedPlace) -> Option<UnitHeader> {
        let length_bytes = u64::from(UNIT_HEADER_BYTES);
        let range = ByteRange::From { offset: u64::from(place.offset), length_bytes };
        let bytes = self.store().get(&Folder::Packs.object(place.pack), range).ok()?;
        UnitHeader::decode(&bytes).ok().filter(|header| header.stored_bytes == place.stored_bytes)
    }

    /// Returns the table's entry for a unit at an expected place, and the table, if that confirms it.
    fn confirmed(&self, name: UnitName, place: ClaimedPlace) -> Result<Option<(StoredUnit, Table)>, ArchiveError> {
        let table = match self.table(place.pack) {
            Ok(table) => table,
            Err(error) if is_broken(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let entry = entry_at(&table, place.offset).filter(|entry| entry.name == name);
        let stored = entry.map(|entry| StoredUnit {
            pack: place.pack,
            offset: entry.offset,
            stored_bytes: entry.stored_bytes,
            plain_bytes: entry.plain_bytes,
        });
        Ok(stored.map(|stored| (stored, table)))
    }

    /// Reads units, and calls `each` with the index of each unit in `wanted` and its plain bytes. The calls come in the
    /// order of places, not of `wanted`. The bytes match the name. Memory is bounded, whatever the packs say.
    ///
    /// # Errors
    /// When a unit is lost, or damaged in all packs that have it; when the store fails; or when `each` fails.
    pub fn read_units<E: From<ArchiveError>>(
        &self,
        wanted: &[WantedUnit],
        each: &mut impl FnMut(usize, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.read_planned_units(wanted, &mut PlannedReads::default(), each)
    }

    /// As [`Archive::read_units`], with the reads that [`Archive::read_ahead`] has planned.
    ///
    /// # Errors
    /// As [`Archive::read_units`].
    pub fn read_planned_units<E: From<ArchiveError>>(
        &self,
        wanted: &[WantedUnit],
        ahead: &mut PlannedReads,
        each: &mut impl FnMut(usize, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut decompressor = decompressor()?;
        let mut plain = Vec::new();
        self.read(wanted, ahead, &mut |index, header, stored| {
            let read_bytes = u64::from(UNIT_HEADER_BYTES) + stored.len() as u64;
            self.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
            let is_unit = decompressor.decompress(header, stored, &mut plain)
                && self.descriptor().key.name(&plain) == wanted[index].name;
            if is_unit {
                each(index, &plain)?;
            }
            Ok(is_unit)
        })
    }

    /// Returns how many bytes of units were read in their plain form so far, as packs have them.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Reads units from one place after the other until `accept` takes them. Packs that are gone may have been retired
    /// since the ledger was read. So, where a unit is in none of its places, the ledger is read on, and packs that
    /// could not be read are tried again. If that says anything new, all units that are left are looked up anew.
    pub(super) fn read<E: From<ArchiveError>>(
        &self,
        wanted: &[WantedUnit],
        ahead: &mut PlannedReads,
        accept: &mut impl FnMut(usize, UnitHeader, &[u8]) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut looked = self.state.read().position;
        let mut rest = self.jobs(wanted, 0..wanted.len())?;
        let mut lookups = 1;
        let mut unread = Unread::new();
        let mut searched = HashSet::new();
        while !rest.is_empty() {
            let (left, failed) = self.read_round(wanted, rest, ahead, &mut unread, accept)?;
            rest = left;
            let Some(first) = failed.first() else {
                continue;
            };
            if follows(Rule::ReadersReadOn) {
                self.read_further()?;
            }
            let position = self.state.read().position;
            let is_news = self.read_unread()? || position != looked;
            if !is_news || lookups == LOOKUPS_MAX {
                for index in &failed {
                    let places = match searched.insert(*index) {
                        true => self.crowded_out(wanted[*index].name)?,
                        false => Vec::new(),
                    };
                    if places.is_empty() {
                        return Err(self.lost(wanted[*first].name, unread)?.into());
                    }
                    rest.push(Job { index: *index, places });
                }
                continue;
            }
            looked = position;
            lookups += 1;
            // The places of the others are as old.
            let indices: Vec<usize> = rest.iter().map(|job| job.index).chain(failed).collect();
            rest = self.jobs(wanted, indices.into_iter())?;
        }
        Ok(())
    }

    /// Returns the places of a unit according to the tables of all packs, if the index has so many places for it that
    /// these may hide the right one: the segment of another writer may name places that are none.
    fn crowded_out(&self, name: UnitName) -> Result<Vec<ClaimedPlace>, ArchiveError> {
        let mut places = Vec::new();
        if !self.found(name)?.is_crowded {
            return Ok(places);
        }
        let packs = self.state.read().packs();
        for pack in packs.into_iter().filter(|pack| self.state.read().holds(*pack, name)) {
            match self.table(pack) {
                Ok(table) => places.extend(table.iter().filter(|entry| entry.name == name).map(|entry| ClaimedPlace {
                    pack,
                    offset: entry.offset,
                    stored_bytes: entry.stored_bytes,
                })),
                Err(error) if is_broken(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(places)
    }

    /// Returns a job for each wanted unit.
    fn jobs(&self, wanted: &[WantedUnit], indices: impl Iterator<Item = usize>) -> Result<Vec<Job>, ArchiveError> {
        let mut jobs = Vec::new();
        for index in indices {
            let name = wanted[index].name;
            let mut places = self.places(name)?;
            places.reverse();
            jobs.push(Job { index, places });
        }
        Ok(jobs)
    }

    /// Reads the next place of each job. Returns the rejected jobs that have further places, and the units of those
    /// that have none.
    fn read_round<E: From<ArchiveError>>(
        &self,
        wanted: &[WantedUnit],
        jobs: Vec<Job>,
        ahead: &mut PlannedReads,
        unread: &mut Unread,
        accept: &mut impl FnMut(usize, UnitHeader, &[u8]) -> Result<bool, E>,
    ) -> Result<(Vec<Job>, Vec<usize>), E> {
        let mut accept = |job: &Job, header: UnitHeader, stored: &[u8]| {
            let expected = wanted[job.index].plain_bytes.is_none_or(|bytes| bytes == header.plain_bytes);
            Ok::<bool, E>(expected && accept(job.index, header, stored)?)
        };
        let (mut failed, mut placed, mut rejected) = (Vec::new(), Vec::new(), Vec::new());
        for mut job in jobs {
            let Some(place) = job.places.pop() else {
                failed.push(job.index);
                continue;
            };
            match ahead.pass(self.store(), place, &mut |header, stored| accept(&job, header, stored)) {
                Ok(accepted) => match accepted? {
                    true => {}
                    false => placed.push((place, job)),
                },
                Err(error) => {
                    unread.insert(place.pack, error);
                    rejected.push(job);
                }
            }
        }
        placed.sort_by_key(|(place, _)| (place.pack, place.offset));
        let mut placed = &placed[..];
        // How many of the next units are read one by one, because the read of all of them failed.
        let mut single = 0_usize;
        while !placed.is_empty() {
            let count = if single > 0 { 1 } else { joined(placed) };
            single = single.saturating_sub(1);
            let (group, rest) = placed.split_at(count);
            let bytes = match self.read_group(group) {
                Err(error) if count > 1 && may_spare_others(&error) => {
                    single = count;
                    continue;
                }
                Err(error) => {
                    unread.insert(group[0].0.pack, error);
                    Vec::new()
                }
                Ok(bytes) => bytes,
            };
            placed = rest;
            for (place, job) in group {
                let accepted = match unit_in(&bytes, u64::from(group[0].0.offset), *place) {
                    Some((header, stored)) => accept(job, header, stored)?,
                    None => false,
                };
                if !accepted {
                    let mut places = job.places.clone();
                    // The index may have another length than the pack.
                    let stored = self.confirmed(wanted[job.index].name, *place)?.map(|(stored, _)| place_of(stored));
                    places.extend(stored.filter(|stored| stored != place));
                    rejected.push(Job { index: job.index, places });
                }
            }
        }
        Ok((rejected, failed))
    }

    /// Reads all units of a group, which are in one pack.
    fn read_group(&self, group: &[(ClaimedPlace, Job)]) -> Result<Vec<u8>, StoreError> {
        // The unit that begins last need not be the one that ends last: a false place may lie inside a true unit.
        let (Some((first, _)), Some(end)) = (group.first(), group.iter().map(|(place, _)| end(*place)).max()) else {
            return Ok(Vec::new());
        };
        let offset = u64::from(first.offset);
        let range = ByteRange::From { offset, length_bytes: end - offset };
        self.store().get(&Folder::Packs.object(first.pack), range)
    }

    /// Fills `plain` with the plain bytes of a unit. `bytes` holds the header and the stored bytes. Returns false if
    /// the plain bytes do not match the name.
    pub(super) fn decode_unit(
        &self,
        decompressor: &mut Decompressor,
        name: UnitName,
        bytes: &[u8],
        plain: &mut Vec<u8>,
    ) -> bool {
        let Some((header, stored)) = bytes.split_at_checked(UNIT_HEADER_BYTES as usize) else {
            return false;
        };
        let Ok(header) = UnitHeader::decode(header) else {
            return false;
        };
        decompressor.decompress(header, stored, plain) && self.descriptor().key.name(plain) == name
    }

    /// Says why a unit cannot be read. Where a pack may have it that cannot be read, nobody knows that it is lost.
    fn lost(&self, unit: UnitName, mut unread: Unread) -> Result<ArchiveError, ArchiveError> {
        let mut damaged = None;
        for place in self.places(unit)? {
            match unread.remove(&place.pack) {
                None | Some(StoreError::Missing(_)) => {}
                Some(error) => return Ok(error.into()),
            }
            match self.table(place.pack) {
                Ok(table) if entry_at(&table, place.offset).is_some_and(|entry| entry.name == unit) => {
                    damaged.get_or_insert(place.pack);
                }
                Err(error) if is_unread(&error) || matches!(error, ArchiveError::Newer { .. }) => return Ok(error),
                Ok(_) | Err(_) => {}
            }
        }
        if let Some(pack) = damaged {
            return Ok(ArchiveError::DamagedUnit { unit, pack: Folder::Packs.object(pack).to_string() });
        }
        let failure = self.index.read().unread().values().flatten().next().map(StoreError::for_another);
        Ok(failure.map_or(ArchiveError::Lost { unit }, ArchiveError::from))
    }
}

/// Returns the place of a unit.
fn place_of(stored: StoredUnit) -> ClaimedPlace {
    let StoredUnit { pack, offset, stored_bytes, .. } = stored;
    ClaimedPlace { pack, offset, stored_bytes }
}

/// Returns a decompressor.
pub(super) fn decompressor() -> Result<Decompressor, ArchiveError> {
    Decompressor::new().map_err(|source| ArchiveError::System { what: "memory to decompress", source })
}

/// Returns whether a read that failed may succeed for parts of its range.
fn may_spare_others(error: &StoreError) -> bool {
    !error.is_final() && !matches!(error, StoreError::Missing(_))
}

/// Returns how many of the first units one call reads.
fn joined(placed: &[(ClaimedPlace, Job)]) -> usize {
    let Some((first, _)) = placed.first() else {
        return 0;
    };
    let mut reached = end(*first);
    let follows = |(place, _): &&(ClaimedPlace, Job)| {
        let near = place.pack == first.pack && u64::from(place.offset) <= reached + GAP_BYTES;
        reached = reached.max(end(*place));
        near && reached - u64::from(first.offset) <= READ_BYTES
    };
    1 + placed[1..].iter().take_while(follows).count()
}
