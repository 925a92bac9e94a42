//! An archive: its descriptor, its ledger and its index, and the operations that use them.

mod ahead;
mod check;
mod collect;
mod descriptors;
mod error;
mod followed;
mod index;
mod ledger;
mod lookup;
mod objects;
pub mod probe;
mod puts;
mod repair;
mod reuse;
mod rules;
mod signatures;
mod snapshot;
mod state;
mod stored;
mod tables;
mod units;
mod wanted_unit;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use onefold_block::{Clock, Random};
use parking_lot::RwLock;

pub use ahead::{Headers, PlannedReads};
pub use check::{CheckOptions, CheckReport, Damage, Sample};
pub use collect::{Amount, COLLECT_BYTES_MIN, CollectOptions, CollectReport, RemovalGain};
pub use error::ArchiveError;
pub use ledger::LedgerHole;
pub use repair::{Heal, RepairOptions, RepairReport};
pub use state::ImageRecord;
pub use units::StoredUnit;
pub use wanted_unit::WantedUnit;
pub use writer::{ManifestDraft, Writer};

use self::descriptors::{DESCRIPTORS, OpenedDescriptor, descriptor_name, read_descriptor};
use self::followed::RecentTables;
pub use self::index::IndexRoom;
use self::index::{Index, UNITS_MAX};
use self::objects::{Folder, is_missing, random_bytes, read_whole};
use self::probe::PROBES;
use self::state::State;
use self::tables::{Tables, is_broken, is_unread};
use crate::format::chunk_header::ChunkHeader;
use crate::format::descriptor::{Descriptor, REGION_BYTES, UnitKind};
use crate::format::ledger::{Change, LedgerEntry};
use crate::format::manifest::{MANIFEST_BYTES_MAX, Manifest};
use crate::format::pack::PACK_BYTES;
use crate::store::{ByteRange, Store};
use crate::{ArchiveId, ImageName, ImageVersion, UnitKey, UnitName, WriterId};

/// Bounds of what writers add.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Length at which a pack is finished, in bytes.
    pack_bytes: u64,
    /// Maximum number of units in an archive up to which a capture may add more.
    units_max: usize,
    /// Whether threads help: one puts a pack while the next one is filled, and several read packs for a check.
    threads: bool,
    /// Number of entries between two snapshots of the state.
    snapshot_entries: u64,
}

const LIMITS: Limits =
    Limits { pack_bytes: PACK_BYTES, units_max: UNITS_MAX, threads: true, snapshot_entries: snapshot::ENTRIES_BETWEEN };

/// An open archive. Threads share it.
#[derive(Debug)]
pub struct Archive {
    store: Arc<dyn Store>,
    descriptor: Descriptor,
    /// Lock order: before the index.
    state: RwLock<State>,
    index: RwLock<Index>,
    tables: Tables,
    followed: RecentTables,
    /// The entry up to which the archive is read, if that is not its end. Nothing is added then.
    hole: Option<LedgerHole>,
    /// Whether the copy of the descriptor is missing, as after a creation that was killed.
    lacks_copy: bool,
    limits: Limits,
    /// Bytes of units that were read, as they are stored.
    read_bytes: AtomicU64,
}

impl Archive {
    /// Creates an archive in an empty store. First tests the calls on which the safety of the archive depends.
    ///
    /// # Errors
    /// When the store contains objects, breaks its contract or fails, or there is no randomness.
    pub fn create(store: Arc<dyn Store>, units: UnitKind, random: &dyn Random) -> Result<Archive, ArchiveError> {
        Archive::create_with_regions(store, units, REGION_BYTES, random)
    }

    /// As [`Archive::create`], with regions of another length: tests have small disks.
    pub(crate) fn create_with_regions(
        store: Arc<dyn Store>,
        units: UnitKind,
        region_bytes: u64,
        random: &dyn Random,
    ) -> Result<Archive, ArchiveError> {
        let listed = store.list("", None)?;
        if let Some(found) = listed.iter().find(|listed| !listed.name.as_str().starts_with(PROBES)) {
            return Err(ArchiveError::NotEmpty { name: found.name.to_string() });
        }
        probe::check(&*store, random)?;
        let archive = ArchiveId(random_bytes(random)?);
        let descriptor = Descriptor { archive, key: UnitKey(random_bytes(random)?), units, region_bytes };
        let object = descriptor.encode()?;
        for name in DESCRIPTORS.map(descriptor_name) {
            if !ledger::create_exactly(&*store, None, &name, &object)? {
                return Err(ArchiveError::NotEmpty { name: name.to_string() });
            }
        }
        // Nothing may fail from here on: the archive is made.
        Ok(Archive::unread(store, descriptor))
    }

    /// Opens an archive: reads the descriptor, or its copy, and the ledger up to the first entry that is missing,
    /// damaged or cannot be read. If that is not the end of the ledger, nothing can be added; [`Archive::hole`] and
    /// [`Archive::check`] say so.
    ///
    /// # Errors
    /// When there is no archive, both descriptors are damaged, no whole one is known to belong to the ledger, an object
    /// is of a newer version, or the store fails.
    pub fn open(store: Arc<dyn Store>) -> Result<Archive, ArchiveError> {
        let OpenedDescriptor { descriptor, lacks_copy } = descriptors::open(&*store)?;
        let mut archive = Archive::unread(store, descriptor);
        *archive.state.get_mut() = snapshot::newest(&*archive.store, archive.descriptor.archive);
        archive.lacks_copy = lacks_copy;
        archive.hole = archive.find_hole()?;
        Ok(archive)
    }

    /// Returns an archive whose ledger has not been read.
    fn unread(store: Arc<dyn Store>, descriptor: Descriptor) -> Archive {
        let (state, index) = (RwLock::default(), RwLock::default());
        Archive {
            store,
            descriptor,
            state,
            index,
            tables: Tables::default(),
            followed: RecentTables::default(),
            hole: None,
            lacks_copy: false,
            limits: LIMITS,
            read_bytes: AtomicU64::new(0),
        }
    }

    /// Returns the descriptor of the archive.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Returns the store that holds its objects.
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Reads the entries that were appended to the ledger since the last read.
    ///
    /// # Errors
    /// When an entry is damaged, or the store fails.
    pub fn refresh(&self) -> Result<(), ArchiveError> {
        ledger::read_on(&*self.store, self.descriptor.archive, &mut self.state.write())
    }

    /// Reads the whole ledger, whatever snapshots say: for those who remove something by it, or check it. Returns the
    /// first entry that hides later ones. If a snapshot has led beyond that one, the state stays the snapshot's.
    ///
    /// # Errors
    /// When an entry is of a newer version, or the store as a whole fails.
    fn read_whole_ledger(&self) -> Result<Option<LedgerHole>, ArchiveError> {
        let mut state = State::default();
        let read = ledger::read_on(&*self.store, self.descriptor.archive, &mut state);
        let hole = self.hole_of(read, &state)?;
        let mut current = self.state.write();
        if state.position < current.position {
            return Ok(hole.or_else(|| Some(LedgerHole::missing(state.position))));
        }
        if *current != state {
            // The same position may stand for other parts of the index now.
            self.index.write().clear();
            current.clone_from(&state);
        }
        drop(current);
        match hole {
            None => ledger::hole(&*self.store, &state),
            hole => Ok(hole),
        }
    }

    /// As [`Archive::refresh`], for readers: they need no entry that is damaged or cannot be read. Returns such an
    /// entry.
    ///
    /// # Errors
    /// When an entry is of a newer version, or the store as a whole fails.
    fn read_further(&self) -> Result<Option<LedgerHole>, ArchiveError> {
        let read = self.refresh();
        self.hole_of(read, &self.state.read())
    }

    /// Returns the entry behind those of `state` if it is damaged or cannot be read, as the outcome of reading says.
    fn hole_of(&self, read: Result<(), ArchiveError>, state: &State) -> Result<Option<LedgerHole>, ArchiveError> {
        let Err(error) = read else {
            return Ok(None);
        };
        Ok(Some(LedgerHole { position: state.position, what: self.of_object(error)?.cause() }))
    }

    /// Reads the ledger as far as possible, and returns the entry that hides later ones.
    fn find_hole(&self) -> Result<Option<LedgerHole>, ArchiveError> {
        match self.read_further()? {
            None => ledger::hole(&*self.store, &self.state.read()),
            hole => Ok(hole),
        }
    }

    /// Returns an error that concerns one object. Fails with any other: if not even a descriptor can be read any more,
    /// the store as a whole fails.
    fn of_object(&self, error: ArchiveError) -> Result<ArchiveError, ArchiveError> {
        let answers = || DESCRIPTORS.iter().any(|name| read_descriptor(&*self.store, name).is_ok());
        let is_broken = is_broken(&error) || matches!(error, ArchiveError::Ledger { .. });
        if is_broken && (!is_unread(&error) || answers()) { Ok(error) } else { Err(error) }
    }

    /// Returns the entry of the ledger at which it ended when the archive was opened, if other entries may follow.
    /// Their images are hidden.
    #[must_use]
    pub fn hole(&self) -> Option<&LedgerHole> {
        self.hole.as_ref()
    }

    /// Returns all images, sorted by name and version, as of the last read of the ledger.
    #[must_use]
    pub fn images(&self) -> Vec<ImageRecord> {
        self.state.read().images.values().cloned().collect()
    }

    /// Returns the image with a name: the newest version unless `version` is given.
    #[must_use]
    pub fn find(&self, name: &ImageName, version: Option<u32>) -> Option<ImageRecord> {
        self.state.read().find(name, version).cloned()
    }

    /// Returns the manifest of an image. Verifies that its bytes are those that the ledger names, and that it belongs
    /// to this archive and this image.
    ///
    /// # Errors
    /// When it is damaged or another, the image was removed meanwhile, or the store fails.
    pub fn manifest(&self, image: &ImageRecord) -> Result<Manifest, ArchiveError> {
        image.decode_manifest(self.descriptor.archive, &self.manifest_object(image)?)
    }

    /// As [`Archive::manifest`]; `None` if the object is longer than `bytes_max`. No more than one byte beyond them is
    /// read.
    ///
    /// # Errors
    /// As [`Archive::manifest`].
    pub fn manifest_within(&self, image: &ImageRecord, bytes_max: u64) -> Result<Option<Manifest>, ArchiveError> {
        let bytes_max = bytes_max.min(MANIFEST_BYTES_MAX);
        let name = Folder::Manifests.object(image.manifest);
        let range = ByteRange::From { offset: 0, length_bytes: bytes_max + 1 };
        let object = self.store.get(&name, range).map_err(|error| self.of_image(&image.image, error.into()))?;
        match object.len() as u64 > bytes_max {
            true => Ok(None),
            false => image.decode_manifest(self.descriptor.archive, &object).map(Some),
        }
    }

    /// Returns the bytes of an image's manifest. Verifies that they are those that the ledger names.
    fn manifest_object(&self, image: &ImageRecord) -> Result<Vec<u8>, ArchiveError> {
        let name = Folder::Manifests.object(image.manifest);
        let object =
            read_whole(&*self.store, &name, MANIFEST_BYTES_MAX).map_err(|error| self.of_image(&image.image, error))?;
        image.check_manifest(&object)?;
        Ok(object)
    }

    /// Returns the name of a manifest's object.
    pub(crate) fn manifest_name(manifest: &Manifest) -> String {
        Folder::Manifests.object(manifest.id).to_string()
    }

    /// Returns why an image cannot be read: `error`, unless that is for the image's removal since the ledger was read.
    #[must_use]
    pub fn of_image(&self, image: &ImageVersion, error: ArchiveError) -> ArchiveError {
        let may_be_collected =
            is_missing(&error) || matches!(error, ArchiveError::Lost { .. } | ArchiveError::DamagedUnit { .. });
        if may_be_collected && self.refresh().is_ok() && !self.state.read().images.contains_key(image) {
            return ArchiveError::Removed { image: image.clone() };
        }
        error
    }

    /// Returns the header of a chunk.
    ///
    /// # Errors
    /// When it is lost or damaged, or the store fails.
    pub fn header(&self, name: &UnitName) -> Result<ChunkHeader, ArchiveError> {
        let mut header = None;
        self.read_units::<ArchiveError>(&[WantedUnit { name: *name, plain_bytes: None }], &mut |_, plain| {
            header = Some(ChunkHeader::decode(plain));
            Ok(())
        })?;
        let header = header.ok_or(ArchiveError::Lost { unit: *name })?;
        header.map_err(|source| ArchiveError::refused(format!("unit {name}"), source))
    }

    /// Returns a writer with a new name. An entry in the ledger announces the writer first.
    ///
    /// # Errors
    /// When the store fails, or there is no randomness.
    pub fn writer<'a>(
        &'a self,
        clock: &'a dyn Clock,
        random: &'a dyn Random,
        host: &str,
    ) -> Result<Writer<'a>, ArchiveError> {
        let writer = Writer::begin(self, clock, random, host)?;
        if self.lacks_copy {
            // A reader needs it only after damage, so a failure is no reason not to write. A check reports it.
            let copy = self.descriptor.encode()?;
            let _ = ledger::create_exactly(&*self.store, Some(clock), &descriptor_name(DESCRIPTORS[1]), &copy);
        }
        Ok(writer)
    }

    /// Removes an image by an entry in the ledger. A collector may then delete units that only this image needed.
    ///
    /// # Errors
    /// When there is no such image, or the store fails. The image is there then, or, after
    /// [`ArchiveError::Doubtful`], may be.
    pub fn remove(&self, image: &ImageVersion, clock: &dyn Clock, random: &dyn Random) -> Result<(), ArchiveError> {
        let writer = WriterId(random_bytes(random)?);
        loop {
            self.refresh()?;
            let position = {
                let state = self.state.read();
                if !state.images.contains_key(image) {
                    return Err(ArchiveError::NoImage { image: image.clone() });
                }
                state.position
            };
            if self.append(position, writer, clock, random, Change::ImageRemoved { image: image.clone() })? {
                return Ok(());
            }
        }
    }

    /// Adds an entry at a position, up to which its maker has read all others. Returns false if another is there; then
    /// the maker reads it and decides anew. After any error but [`ArchiveError::Doubtful`] there is no such entry.
    fn append(
        &self,
        position: u64,
        writer: WriterId,
        clock: &dyn Clock,
        random: &dyn Random,
        change: Change,
    ) -> Result<bool, ArchiveError> {
        let mut state = self.state.read().clone();
        if state.position != position {
            // Another thread has read further entries meanwhile.
            return Ok(false);
        }
        // An entry that could not be read when the archive was opened may be one that does not exist.
        if self.hole.as_ref().is_some_and(|hole| hole.position == position)
            && let Some(hole) = ledger::hole(&*self.store, &state)?
        {
            return Err(hole.into());
        }
        // Before this entry, not behind the last one: a change that is made is reported at once.
        snapshot::write_if_due(&*self.store, self.descriptor.archive, &state, self.limits.snapshot_entries);
        let previous = state.last;
        let (archive, token) = (self.descriptor.archive, random_bytes(random)?);
        let entry = LedgerEntry { archive, position, previous, writer, token, made: clock.now(), change };
        let object = entry.encode()?;
        // Every reader would stop at an invalid entry, and the entry could never be removed.
        let digest = *blake3::hash(&object).as_bytes();
        state.apply(&entry, digest).map_err(|what| ArchiveError::Ledger { position, what: what.to_owned() })?;
        let is_ours = ledger::create_exactly(&*self.store, Some(clock), &LedgerEntry::object_name(position), &object)?;
        if is_ours {
            // Nothing may fail from here on: the change is made.
            let mut current = self.state.write();
            if current.position == position {
                *current = state;
            }
        }
        Ok(is_ours)
    }
}
