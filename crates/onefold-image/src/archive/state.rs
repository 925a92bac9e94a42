//! The state of an archive: the combined result of the entries in its ledger.

use std::collections::{BTreeMap, HashMap, HashSet};

use onefold_block::Timestamp;

use crate::format::ledger::{Change, Entry};
use crate::{ImageName, ImageVersion, ObjectId, UnitName, WriterId};

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

/// A part of the index: a segment, and the packs whose units it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) segment: ObjectId,
    pub(super) packs: Vec<ObjectId>,
}

/// What the entries up to a position say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Number of entries.
    pub(super) position: u64,
    /// Digest of the last entry.
    pub(super) last: [u8; 32],
    pub(super) images: BTreeMap<ImageVersion, ImageRecord>,
    /// The highest version that each name has ever had.
    newest: HashMap<ImageName, u32>,
    /// Packs that hold units, each with the position of the entry that added it.
    live: HashMap<ObjectId, u64>,
    /// Packs that may be deleted.
    retired: HashSet<ObjectId>,
    /// Parts of the index by the position of the entry that added them.
    pub(super) parts: BTreeMap<u64, Part>,
    /// Writers that have begun, and whether each was given up.
    writers: HashMap<WriterId, bool>,
    /// Units of which no pack had an intact copy at a position. Packs that were added later count again.
    lost: HashMap<UnitName, u64>,
    /// Number of entries up to and including the last one that reported lost units.
    lost_until: u64,
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
        self.writers.get(&writer).copied().unwrap_or(false)
    }

    /// Returns whether a writer has begun.
    #[cfg(test)]
    pub(super) fn has_begun(&self, writer: WriterId) -> bool {
        self.writers.contains_key(&writer)
    }

    /// Returns whether a reader may look for a unit in a pack.
    pub(super) fn holds(&self, pack: ObjectId, unit: UnitName) -> bool {
        let lost = self.lost.get(&unit);
        self.live.get(&pack).is_some_and(|brought| lost.is_none_or(|lost| lost < brought))
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
        let is_live = |part: &&Part| part.packs.iter().any(|pack| self.is_live(*pack));
        self.parts.values().filter(is_live).cloned().collect()
    }

    /// Returns all packs that hold units, in the order of the entries that brought them along.
    pub(super) fn packs(&self) -> Vec<ObjectId> {
        let mut packs: Vec<(u64, ObjectId)> = self.live.iter().map(|(pack, brought)| (*brought, *pack)).collect();
        packs.sort_unstable();
        packs.into_iter().map(|(_, pack)| pack).collect()
    }

    /// Takes the next entry in, whose object has the digest `digest`. An entry that its maker could not have made,
    /// having read all before it, is an error, and the state stays as it was.
    pub(super) fn apply(&mut self, entry: &Entry, digest: [u8; 32]) -> Result<(), Wrong> {
        if entry.position != self.position || entry.previous != self.last {
            return Err("it does not follow the entry before it");
        }
        self.change(entry)?;
        self.position += 1;
        self.last = digest;
        Ok(())
    }

    /// Every check comes before the first change.
    fn change(&mut self, entry: &Entry) -> Result<(), Wrong> {
        match &entry.change {
            Change::WriterBegins { .. } => {
                if self.writers.contains_key(&entry.writer) {
                    return Err("a writer begins twice");
                }
                self.writers.insert(entry.writer, false);
            }
            Change::ImageAdded { .. } => self.add_image(entry)?,
            Change::ImageRemoved { image } => {
                self.images.remove(image).ok_or("an image is removed that is not there")?;
            }
            Change::PacksRetired { packs } => {
                self.check_live(packs)?;
                self.retire(packs);
            }
            Change::PacksReplaced { old, new, segment } => {
                self.check_new(new)?;
                self.check_owner(*segment)?;
                self.check_live(old)?;
                self.retire(old);
                self.bring(entry.position, new);
                self.parts.insert(entry.position, Part { segment: *segment, packs: new.clone() });
            }
            Change::SegmentsMerged { old, new } => {
                self.check_owner(*new)?;
                self.merge(entry.position, old, *new)?;
            }
            Change::WriterGivenUp { writer } => {
                *self.writers.get_mut(writer).ok_or("a writer is given up that never began")? = true;
            }
            Change::UnitsLost { units } => {
                self.lost.extend(units.iter().map(|unit| (*unit, entry.position)));
                self.lost_until = entry.position + 1;
            }
        }
        Ok(())
    }

    fn add_image(&mut self, entry: &Entry) -> Result<(), Wrong> {
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
        self.bring(entry.position, packs);
        if let Some(segment) = segment {
            self.parts.insert(entry.position, Part { segment: *segment, packs: packs.clone() });
        }
        Ok(())
    }

    /// Checks that an object that is named for the first time belongs to an active writer. A collector may delete
    /// objects of other writers at any time.
    fn check_owner(&self, object: ObjectId) -> Result<(), Wrong> {
        match self.writers.get(&object.writer) {
            Some(false) => Ok(()),
            Some(true) => Err("an object comes from a writer that was given up"),
            None => Err("an object comes from a writer that never began"),
        }
    }

    fn check_new(&self, packs: &[ObjectId]) -> Result<(), Wrong> {
        packs.iter().try_for_each(|pack| self.check_owner(*pack))?;
        let is_known = |pack| self.live.contains_key(pack) || self.retired.contains(pack);
        let distinct: HashSet<&ObjectId> = packs.iter().collect();
        if distinct.len() < packs.len() || packs.iter().any(is_known) {
            Err("a pack is brought along twice")
        } else {
            Ok(())
        }
    }

    fn bring(&mut self, position: u64, packs: &[ObjectId]) {
        self.live.extend(packs.iter().map(|pack| (*pack, position)));
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

    fn retire(&mut self, packs: &[ObjectId]) {
        for pack in packs {
            self.live.remove(pack);
            self.retired.insert(*pack);
        }
    }

    fn merge(&mut self, position: u64, old: &[ObjectId], new: ObjectId) -> Result<(), Wrong> {
        let old: HashSet<&ObjectId> = old.iter().collect();
        let is_old = |part: &Part| old.contains(&part.segment);
        if self.parts.values().filter(|part| is_old(part)).count() != old.len() {
            return Err("segments are merged that are not there");
        }
        let mut packs: Vec<ObjectId> =
            self.parts.values().filter(|part| is_old(part)).flat_map(|part| part.packs.clone()).collect();
        packs.retain(|pack| self.live.contains_key(pack));
        self.parts.retain(|_, part| !is_old(part));
        self.parts.insert(position, Part { segment: new, packs });
        Ok(())
    }
}
