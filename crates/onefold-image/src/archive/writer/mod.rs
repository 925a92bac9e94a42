//! A writer: puts units into packs and finally makes an image of them.

mod commit;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use onefold_block::{Clock, Random};

pub use self::commit::ManifestDraft;
use super::objects::{Folder, new_id, random_bytes};
use super::puts::Puts;
use super::{Archive, ArchiveError, StoredUnit};
use crate::format::ledger::{Change, HOST_BYTES_MAX};
use crate::format::pack::{PACK_BYTES_MAX, PackBuilder, TableEntry, UNIT_HEADER_BYTES, UnitHeader};
use crate::format::segment::SEGMENT_UNITS_MAX;
use crate::{ObjectId, UnitName, WriterId};

/// Where this writer has stored a unit.
#[derive(Clone, Copy, Debug)]
struct OwnUnit {
    /// Index of the pack among the writer's own packs.
    pack: u32,
    offset: u32,
    stored_bytes: u32,
    plain_bytes: u32,
}

/// The archive's side of one capture, or of several consecutive ones.
///
/// A capture calls [`Writer::rely`] for each unit, and adds the units that the archive does not have. The packs become
/// durable before the segment, the segment before the manifest, and the manifest before the entry that adds the image.
#[derive(Debug)]
pub struct Writer<'a> {
    archive: &'a Archive,
    seams: Seams<'a>,
    host: String,
    id: WriterId,
    /// Length at which a pack is finished, in bytes.
    pack_bytes: u64,
    /// The pack that is being filled. It is the last of `packs`.
    pack: Option<PackBuilder>,
    /// Finished packs that are not known to be durable.
    puts: Puts,
    packs: Vec<ObjectId>,
    own: HashMap<UnitName, OwnUnit>,
    /// Packs of other writers on which the image relies.
    relied: HashSet<ObjectId>,
    /// Chunks whose headers no pack returns, whatever tables say.
    unreadable: HashSet<UnitName>,
    /// Number of entries of which it has looked whether they concern what it relies on.
    looked: u64,
    stored_bytes: u64,
    /// Whether it may bring the archive beyond its bound of units: a collection removes more than it adds.
    exceeds: bool,
}

/// New packs that are durable, and that no entry names yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndedPacks {
    pub(super) packs: Vec<ObjectId>,
    /// The segment with their units.
    pub(super) segment: ObjectId,
    /// Bytes that their units take, with headers.
    pub(super) bytes: u64,
}

/// Time and randomness.
#[derive(Clone, Copy)]
struct Seams<'a> {
    clock: &'a dyn Clock,
    random: &'a dyn Random,
}

impl std::fmt::Debug for Seams<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seams")
    }
}

/// Returns how long the buffer of a pack is that ends at `pack_bytes`: it has the last unit and the table of most
/// packs, too, so that it does not grow. Its pages take no memory before they are used.
fn buffer_bytes(pack_bytes: u64) -> usize {
    const LAST_UNIT_AND_TABLE_BYTES: u64 = 2 << 20;
    usize::try_from(pack_bytes.min(PACK_BYTES_MAX - LAST_UNIT_AND_TABLE_BYTES) + LAST_UNIT_AND_TABLE_BYTES).unwrap_or(0)
}

/// Announces a new writer by an entry, and returns its name.
fn announce(archive: &Archive, seams: Seams<'_>, host: &str) -> Result<WriterId, ArchiveError> {
    let id = WriterId(random_bytes(seams.random)?);
    let change = Change::WriterBegins { host: host.to_owned() };
    loop {
        archive.refresh()?;
        let position = archive.state.read().position;
        if archive.append(position, id, seams.clock, seams.random, change.clone())? {
            return Ok(id);
        }
    }
}

impl<'a> Writer<'a> {
    pub(super) fn begin(
        archive: &'a Archive,
        clock: &'a dyn Clock,
        random: &'a dyn Random,
        host: &str,
    ) -> Result<Writer<'a>, ArchiveError> {
        let host = host.chars().scan(0, |length, character| {
            *length += character.len_utf8();
            (*length <= HOST_BYTES_MAX).then_some(character)
        });
        let (host, seams) = (host.collect::<String>(), Seams { clock, random });
        let id = announce(archive, seams, &host)?;
        let (pack, packs, own, relied) = (None, Vec::new(), HashMap::new(), HashSet::new());
        let looked = archive.state.read().position;
        let puts = Puts::new(Arc::clone(&archive.store), archive.limits.threads);
        Ok(Writer {
            archive,
            seams,
            host,
            id,
            pack_bytes: archive.limits.pack_bytes,
            pack,
            puts,
            packs,
            own,
            relied,
            unreadable: HashSet::new(),
            looked,
            stored_bytes: 0,
            exceeds: false,
        })
    }

    pub(super) fn archive(&self) -> &'a Archive {
        self.archive
    }

    /// Returns a name for a new object of this writer.
    pub(super) fn new_id(&self) -> Result<ObjectId, ArchiveError> {
        new_id(self.id, self.seams.random)
    }

    /// Adds an entry of this writer, as [`Archive::append`] does.
    pub(super) fn append(&self, position: u64, change: Change) -> Result<bool, ArchiveError> {
        self.archive.append(position, self.id, self.seams.clock, self.seams.random, change)
    }

    /// Returns the name of the writer.
    #[must_use]
    pub fn id(&self) -> WriterId {
        self.id
    }

    /// Finishes packs at this length, in bytes, if it is less than the usual one. One pack is put while another is
    /// filled.
    pub(crate) fn limit_packs(&mut self, pack_bytes: u64) {
        self.pack_bytes = self.archive.limits.pack_bytes.min(pack_bytes);
    }

    /// Lets the writer bring the archive beyond its bound of units.
    pub(super) fn exceed_bound(&mut self) {
        self.exceeds = true;
    }

    /// Returns how many bytes the writer's units take in packs, including their headers, without the tables. A writer
    /// that begins again counts again.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Returns where a unit is stored, and lets the image rely on it. Returns `None` if the caller must add the unit.
    ///
    /// # Errors
    /// When the store fails.
    pub fn rely(&mut self, name: &UnitName) -> Result<Option<StoredUnit>, ArchiveError> {
        if let Some(own) = self.own.get(name) {
            let OwnUnit { pack, offset, stored_bytes, plain_bytes } = *own;
            return Ok(Some(StoredUnit { pack: self.packs[pack as usize], offset, stored_bytes, plain_bytes }));
        }
        if self.unreadable.contains(name) {
            return Ok(None);
        }
        let stored = self.archive.stored(name)?;
        if let Some(stored) = stored {
            self.relied.insert(stored.pack);
        }
        Ok(stored)
    }

    /// Lets the image rely on a unit where [`Archive::stored`] has found it. Whether its pack still counts shows when
    /// the image is made.
    pub fn rely_on(&mut self, name: &UnitName, stored: StoredUnit) {
        if !self.own.contains_key(name) {
            self.relied.insert(stored.pack);
        }
    }

    /// Returns whether the writer has stored a unit since its last entry.
    #[must_use]
    pub fn has_stored(&self, unit: &UnitName) -> bool {
        self.own.contains_key(unit)
    }

    /// Adds a unit in the form that [`crate::compress::Compressor::compress`] returns. Ignores a unit that this writer
    /// has already added. A thread puts a full pack while the next one is filled.
    ///
    /// # Errors
    /// When the store fails, or the archive has its maximum number of units.
    ///
    /// # Panics
    /// When the header states another length than that of `stored`.
    pub fn add(&mut self, name: UnitName, header: UnitHeader, stored: &[u8]) -> Result<(), ArchiveError> {
        if self.own.contains_key(&name) {
            return Ok(());
        }
        if self.own.len() >= SEGMENT_UNITS_MAX {
            return Err(ArchiveError::TooManyNew { units_max: SEGMENT_UNITS_MAX });
        }
        if !self.exceeds {
            self.archive.index.read().check_room(self.own.len(), self.archive.limits.units_max)?;
        }
        let is_over = |pack: &PackBuilder| pack.length_bytes() >= self.pack_bytes || !pack.fits(header.stored_bytes);
        if self.puts.has_failed() {
            self.puts.settle()?;
        }
        if self.pack.as_ref().is_some_and(is_over) {
            self.end_pack();
            self.puts.begin()?;
        }
        if self.pack.is_none() {
            let id = new_id(self.id, self.seams.random)?;
            let buffer = self.puts.buffer(buffer_bytes(self.pack_bytes));
            self.pack = Some(PackBuilder::in_buffer(self.archive.descriptor().archive, id, buffer));
            self.packs.push(id);
        }
        let pack = u32::try_from(self.packs.len() - 1).expect("fewer packs than units");
        let builder = self.pack.as_mut().expect("there is one now");
        let TableEntry { offset, stored_bytes, plain_bytes, .. } = builder.add(name, header, stored);
        self.own.insert(name, OwnUnit { pack, offset, stored_bytes, plain_bytes });
        self.stored_bytes += u64::from(UNIT_HEADER_BYTES) + u64::from(stored_bytes);
        Ok(())
    }

    /// Ends the current pack, if there is one.
    fn end_pack(&mut self) {
        if let (Some(pack), Some(id)) = (self.pack.take(), self.packs.last()) {
            self.puts.push(Folder::Packs.object(*id), pack.finish().0);
        }
    }

    /// Makes all packs durable. A pack whose put fails stays, and is put again before anything else.
    pub(super) fn put_packs(&mut self) -> Result<(), ArchiveError> {
        self.end_pack();
        Ok(self.puts.settle()?)
    }

    /// Makes the packs durable, and a segment for them. Returns `None` if no unit was added. The writer then has none
    /// of these units any more.
    pub(super) fn end_packs(&mut self) -> Result<Option<EndedPacks>, ArchiveError> {
        self.put_packs()?;
        let segment = self.put_segment()?;
        let cost = |unit: &OwnUnit| u64::from(UNIT_HEADER_BYTES) + u64::from(unit.stored_bytes);
        let bytes = self.own.drain().map(|(_, unit)| cost(&unit)).sum();
        let packs = std::mem::take(&mut self.packs);
        Ok(segment.map(|segment| EndedPacks { packs, segment, bytes }))
    }

    /// Deletes the packs that no entry names, as far as that is possible. The units in them have to be added again.
    pub(super) fn abandon(&mut self) {
        self.forget();
        // If this fails, the packs go when the writer is given up.
        let _ = self.archive.delete_unnamed(&std::mem::take(&mut self.packs));
    }

    /// Forgets the units that it added, and waits for the thread that puts a pack.
    fn forget(&mut self) {
        self.own.clear();
        self.pack = None;
        self.puts = Puts::new(Arc::clone(&self.archive.store), self.archive.limits.threads);
    }
}
