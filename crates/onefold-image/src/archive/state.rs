//! The state of an archive: the combined result of the entries in its ledger.

use std::collections::{BTreeMap, HashMap, HashSet};

use onefold_block::Timestamp;

use super::ArchiveError;
use super::objects::{Folder, damaged};
use super::rules::{Rule, follows};
use crate::format::FormatError;
use crate::format::ledger::{Change, LedgerEntry};
use crate::format::manifest::Manifest;
use crate::{ArchiveId, ImageName, ImageVersion, ObjectId, UnitName, WriterId};

/// An image of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRecord {
    /// Name and version.
    pub image: ImageVersion,
    /// Its manifest.
    pub manifest: ObjectId,
    /// BLAKE3 digest of the manifest's object.
    pub digest: [u8; 32],
    /// Number of packs that its capture added.
    pub packs: usize,
    /// End of its capture, by the clock of the capturing host.
    pub added: Timestamp,
}

impl ImageRecord {
    /// Decodes the manifest of this image. Verifies that the bytes are those that the ledger names, and that the
    /// manifest belongs to an archive and to this image.
    ///
    /// # Errors
    /// When it does not.
    pub fn decode_manifest(&self, archive: ArchiveId, object: &[u8]) -> Result<Manifest, ArchiveError> {
        self.check_manifest(object)?;
        let name = Folder::Manifests.object(self.manifest);
        let manifest = Manifest::decode(archive, self.manifest, object).map_err(damaged(&name))?;
        if manifest.image != self.image {
            return Err(damaged(&name)(FormatError::Other { structure: "manifest", what: "its image" }));
        }
        Ok(manifest)
    }

    /// Fails unless the bytes are those of this image's manifest.
    pub(super) fn check_manifest(&self, object: &[u8]) -> Result<(), ArchiveError> {
        let name = Folder::Manifests.object(self.manifest);
        match *blake3::hash(object).as_bytes() == self.digest {
            true => Ok(()),
            false => Err(damaged(&name)(FormatError::Digest { structure: "manifest" })),
        }
    }
}

/// A part of the index: a segment, and the packs whose units it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) segment: ObjectId,
    pub(super) packs: Vec<ObjectId>,
    /// Number of the packs that hold units.
    pub(super) live: usize,
}

impl Part {
    /// Returns a part all whose packs hold units.
    pub(super) fn new(segment: ObjectId, packs: Vec<ObjectId>) -> Part {
        let live = packs.len();
        Part { segment, packs, live }
    }
}

/// A pack that holds units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldPack {
    /// Position of the entry that added the pack.
    pub(super) brought: u64,
    /// Position of the part of the index that has its units.
    pub(super) part: u64,
}

/// A writer that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriterRecord {
    pub(super) is_given_up: bool,
    /// Position of the entry with which it began.
    pub(super) began: u64,
    /// The latest time of its entries, by its own clock.
    pub(super) last: Timestamp,
}

/// State of an archive by the entries up to a position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Number of entries.
    pub(super) position: u64,
    /// Digest of the last entry.
    pub(super) last: [u8; 32],
    pub(super) images: BTreeMap<ImageVersion, ImageRecord>,
    /// The highest version that each name has ever had.
    pub(super) newest: HashMap<ImageName, u32>,
    /// Packs that hold units.
    pub(super) live: HashMap<ObjectId, HeldPack>,
    /// Objects that an entry named and that no image needs any more, with the time of the entry that says so. They may
    /// be deleted.
    pub(super) dropped: HashMap<(Folder, ObjectId), Timestamp>,
    /// Parts of the index that have a live pack, by the position of the entry that added them.
    pub(super) parts: BTreeMap<u64, Part>,
    /// Writers that have begun.
    pub(super) writers: HashMap<WriterId, WriterRecord>,
    /// Writers that have added nothing since they began, and are not given up, by the position where they began; with
    /// their hosts.
    pub(super) open: BTreeMap<u64, (WriterId, String)>,
    /// Units of which no pack had an intact copy at a position. Packs that were added later count again.
    pub(super) lost: HashMap<UnitName, u64>,
    /// Number of entries up to and including the last one that reported lost units.
    pub(super) lost_until: u64,
}

/// Why an entry is invalid.
type Wrong = &'static str;

impl State {
    /// Returns the version of the next image with a name; `None` if the version number would overflow.
    pub(super) fn next_version(&self, name: &ImageName) -> Option<u32> {
        self.newest.get(name).copied().unwrap_or(0).checked_add(1)
    }

    /// Returns the image with a name: the newest version unless `version` is given.
    pub(super) fn find(&self, name: &ImageName, version: Option<u32>) -> Option<&ImageRecord> {
        let of = |version| ImageVersion { name: name.clone(), version };
        match version {
            Some(version) => self.images.get(&of(version)),
            None => self.images.range(of(0)..=of(u32::MAX)).next_back().map(|(_, record)| record),
        }
    }

    /// Returns whether another host gave a writer up.
    pub(super) fn is_given_up(&self, writer: WriterId) -> bool {
        self.writer(writer).is_some_and(|writer| writer.is_given_up)
    }

    /// Returns at most `count` of the writers that have added nothing since they began, the latest first: those whose
    /// host `is_wanted` accepts.
    pub(super) fn open_writers(&self, is_wanted: &dyn Fn(&str) -> bool, count: usize) -> Vec<WriterId> {
        let wanted = self.open.values().rev().filter(|(_, host)| is_wanted(host));
        wanted.take(count).map(|(writer, _)| *writer).collect()
    }

    /// Returns whether an entry has ever named a pack.
    pub(super) fn is_named(&self, pack: ObjectId) -> bool {
        self.is_live(pack) || self.dropped(Folder::Packs, pack).is_some()
    }

    /// Returns whether an entry has ever named a segment of the index.
    pub(super) fn is_segment_named(&self, segment: ObjectId) -> bool {
        let is_there = || self.parts.values().any(|part| part.segment == segment);
        self.dropped(Folder::Segments, segment).is_some() || is_there()
    }

    /// Returns a writer, if it has begun.
    pub(super) fn writer(&self, writer: WriterId) -> Option<WriterRecord> {
        self.writers.get(&writer).copied()
    }

    /// Returns whether a writer, which is not given up, has made no entry since `before`.
    pub(super) fn is_silent(&self, writer: WriterId, before: Timestamp) -> bool {
        self.writer(writer).is_some_and(|writer| !writer.is_given_up && writer.last < before)
    }

    /// Returns whether a part of the index is still there, under the same segment.
    pub(super) fn holds_part(&self, part: &Part) -> bool {
        let held = part.packs.iter().find_map(|pack| self.live.get(pack));
        held.and_then(|held| self.parts.get(&held.part)).is_some_and(|other| other.segment == part.segment)
    }

    /// Returns when an entry said that an object is not needed any more; `None` if none did.
    pub(super) fn dropped(&self, folder: Folder, object: ObjectId) -> Option<Timestamp> {
        self.dropped.get(&(folder, object)).copied()
    }

    /// Returns the segment that has the units of a pack, if the pack holds units.
    pub(super) fn segment_of(&self, pack: ObjectId) -> Option<ObjectId> {
        let held = self.live.get(&pack)?;
        self.parts.get(&held.part).map(|part| part.segment)
    }

    /// Returns all objects that images need, and the segments of the index.
    pub(super) fn needed(&self) -> HashSet<(Folder, ObjectId)> {
        let packs = self.live.keys().map(|pack| (Folder::Packs, *pack));
        let manifests = self.images.values().map(|record| (Folder::Manifests, record.manifest));
        let segments = self.parts.values().map(|part| (Folder::Segments, part.segment));
        packs.chain(manifests).chain(segments).collect()
    }

    /// Returns whether a reader may look for a unit in a pack.
    pub(super) fn holds(&self, pack: ObjectId, unit: UnitName) -> bool {
        let lost = self.lost.get(&unit);
        self.live.get(&pack).is_some_and(|held| lost.is_none_or(|lost| *lost < held.brought))
    }

    /// Returns whether the ledger says of a unit that it is lost, and that no pack in `packs` was added since.
    pub(super) fn is_lost_for(&self, unit: UnitName, packs: &[ObjectId]) -> bool {
        let is_later = |lost: u64| packs.iter().any(|pack| self.live.get(pack).is_some_and(|held| held.brought > lost));
        self.lost.get(&unit).is_some_and(|lost| !is_later(*lost))
    }

    /// Returns the live packs that entries from `position` on added.
    pub(super) fn packs_since(&self, position: u64) -> Vec<ObjectId> {
        let since = self.live.iter().filter(|(_, held)| held.brought >= position);
        let mut packs: Vec<ObjectId> = since.map(|(pack, _)| *pack).collect();
        packs.sort_unstable();
        packs
    }

    /// Returns whether an entry from `position` on reports lost units.
    pub(super) fn lost_since(&self, position: u64) -> bool {
        self.lost_until > position
    }

    /// Returns whether an entry added the pack and none has retired or replaced it since.
    pub(super) fn is_live(&self, pack: ObjectId) -> bool {
        self.live.contains_key(&pack)
    }

    /// Returns the parts of the index that have at least one live pack, with all packs that their segments list.
    pub(super) fn live_parts(&self) -> Vec<Part> {
        self.parts.values().cloned().collect()
    }

    /// Returns all packs that hold units, in the order of the entries that brought them along.
    pub(super) fn packs(&self) -> Vec<ObjectId> {
        let mut packs: Vec<(u64, ObjectId)> = self.live.iter().map(|(pack, held)| (held.brought, *pack)).collect();
        packs.sort_unstable();
        packs.into_iter().map(|(_, pack)| pack).collect()
    }

    /// Takes the next entry in, whose object has the digest `digest`. An entry that its maker could not have made,
    /// having read all before it, is an error, and the state stays as it was.
    pub(super) fn apply(&mut self, entry: &LedgerEntry, digest: [u8; 32]) -> Result<(), Wrong> {
        if entry.position != self.position || entry.previous != self.last {
            return Err("it does not follow the entry before it");
        }
        self.change(entry)?;
        if let Some(writer) = self.writers.get_mut(&entry.writer) {
            writer.last = writer.last.max(entry.made);
        }
        self.position += 1;
        self.last = digest;
        Ok(())
    }

    /// Every check comes before the first change.
    fn change(&mut self, entry: &LedgerEntry) -> Result<(), Wrong> {
        match &entry.change {
            Change::WriterBegins { host } => {
                if self.writers.contains_key(&entry.writer) {
                    return Err("a writer begins twice");
                }
                self.writers
                    .insert(entry.writer, WriterRecord { is_given_up: false, began: entry.position, last: entry.made });
                self.open.insert(entry.position, (entry.writer, host.clone()));
            }
            Change::ImageAdded { .. } => self.add_image(entry)?,
            Change::ImageRemoved { image } => {
                let record = self.images.remove(image).ok_or("an image is removed that is not there")?;
                self.dropped.insert((Folder::Manifests, record.manifest), entry.made);
            }
            Change::PacksRetired { packs } => {
                self.check_live(packs)?;
                self.retire(packs, entry.made);
            }
            Change::PacksReplaced { old, new, segment } => {
                self.check_new(new)?;
                self.check_owner(*segment)?;
                self.check_live(old)?;
                self.retire(old, entry.made);
                self.bring(entry, new, Some(*segment));
            }
            Change::SegmentsMerged { old, new } => {
                self.check_owner(*new)?;
                self.merge(entry, old, *new)?;
            }
            Change::WriterGivenUp { writer } => {
                let record = self.writers.get_mut(writer).ok_or("a writer is given up that never began")?;
                record.is_given_up = true;
                self.close(*writer);
            }
            Change::UnitsLost { units } => {
                self.lost.extend(units.iter().map(|unit| (*unit, entry.position)));
                self.lost_until = entry.position + 1;
            }
        }
        Ok(())
    }

    fn add_image(&mut self, entry: &LedgerEntry) -> Result<(), Wrong> {
        let Change::ImageAdded { image, manifest, digest, packs, segment } = &entry.change else {
            return Ok(());
        };
        self.check_owner(ObjectId { writer: entry.writer, random: [0; 8] })?;
        self.check_owner(*manifest)?;
        segment.map_or(Ok(()), |segment| self.check_owner(segment))?;
        if self.next_version(&image.name) != Some(image.version) {
            return Err("an image has a version that does not follow its last");
        }
        self.check_new(packs)?;
        if segment.is_none() && !packs.is_empty() {
            return Err("packs come without a segment");
        }
        let (image, manifest, digest, added) = (image.clone(), *manifest, *digest, entry.made);
        self.newest.insert(image.name.clone(), image.version);
        self.images.insert(image.clone(), ImageRecord { image, manifest, digest, packs: packs.len(), added });
        self.bring(entry, packs, *segment);
        Ok(())
    }

    /// Checks that an object that is named for the first time belongs to an active writer. A collector may delete
    /// objects of other writers at any time.
    fn check_owner(&self, object: ObjectId) -> Result<(), Wrong> {
        match self.writer(object.writer) {
            Some(writer) if writer.is_given_up && follows(Rule::GivenUpAddsNothing) => {
                Err("an object comes from a writer that was given up")
            }
            Some(_) => Ok(()),
            None => Err("an object comes from a writer that never began"),
        }
    }

    fn check_new(&self, packs: &[ObjectId]) -> Result<(), Wrong> {
        packs.iter().try_for_each(|pack| self.check_owner(*pack))?;
        let is_known =
            |pack: &ObjectId| self.live.contains_key(pack) || self.dropped.contains_key(&(Folder::Packs, *pack));
        let distinct: HashSet<&ObjectId> = packs.iter().collect();
        if distinct.len() < packs.len() || packs.iter().any(is_known) {
            Err("a pack is brought along twice")
        } else {
            Ok(())
        }
    }

    /// Notes that a writer has added something, or was given up.
    fn close(&mut self, writer: WriterId) {
        if let Some(record) = self.writers.get(&writer) {
            self.open.remove(&record.began);
        }
    }

    /// Adds packs and the segment with their units.
    fn bring(&mut self, entry: &LedgerEntry, packs: &[ObjectId], segment: Option<ObjectId>) {
        self.close(entry.writer);
        packs.iter().for_each(|pack| self.close(pack.writer));
        let position = entry.position;
        self.live.extend(packs.iter().map(|pack| (*pack, HeldPack { brought: position, part: position })));
        let Some(segment) = segment else { return };
        if packs.is_empty() {
            self.dropped.insert((Folder::Segments, segment), entry.made);
        } else {
            self.parts.insert(position, Part::new(segment, packs.to_vec()));
        }
    }

    /// Checks that packs hold units, none of them named twice.
    fn check_live(&self, packs: &[ObjectId]) -> Result<(), Wrong> {
        let distinct: HashSet<&ObjectId> = packs.iter().collect();
        if distinct.len() == packs.len() && packs.iter().all(|pack| self.is_live(*pack)) {
            Ok(())
        } else {
            Err("a pack is retired that holds nothing")
        }
    }

    fn retire(&mut self, packs: &[ObjectId], made: Timestamp) {
        for pack in packs {
            self.dropped.insert((Folder::Packs, *pack), made);
            let Some(HeldPack { part: position, .. }) = self.live.remove(pack) else { continue };
            let Some(part) = self.parts.get_mut(&position) else { continue };
            part.live -= 1;
            if part.live == 0 {
                self.dropped.insert((Folder::Segments, part.segment), made);
                self.parts.remove(&position);
            }
        }
    }

    /// Replaces the segments of some parts of the index by one for all their live packs.
    fn merge(&mut self, entry: &LedgerEntry, old: &[ObjectId], new: ObjectId) -> Result<(), Wrong> {
        let old: HashSet<&ObjectId> = old.iter().collect();
        let is_old = |part: &Part| old.contains(&part.segment);
        let count = self.parts.values().filter(|part| is_old(part)).count();
        if count != old.len() || count == 0 {
            return Err("segments are merged that are not there");
        }
        let (part, mut packs) = (entry.position, Vec::new());
        for (_, merged) in self.parts.extract_if(.., |_, part| is_old(part)) {
            self.dropped.insert((Folder::Segments, merged.segment), entry.made);
            packs.extend(merged.packs);
        }
        packs.retain(|pack| self.live.contains_key(pack));
        for pack in &packs {
            self.live.entry(*pack).and_modify(|held| held.part = part);
        }
        self.parts.insert(part, Part::new(new, packs));
        Ok(())
    }
}
