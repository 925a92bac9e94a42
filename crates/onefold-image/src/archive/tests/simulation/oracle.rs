//! A naive reading of an archive, after each of its changes. It shares the encoding of objects with the code under
//! test, and nothing else.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::archive::snapshot::KEPT;
use crate::archive::tests::chunk_of;
use crate::compress::Decompressor;
use crate::format::descriptor::Descriptor;
use crate::format::ledger::{Change, LedgerEntry};
use crate::format::manifest::Manifest;
use crate::format::pack::{UNIT_HEADER_BYTES, UnitHeader, cost_of, decode_pack};
use crate::store::{ByteRange, MemoryStore, ObjectName, Store, StoreError};
use crate::{ArchiveId, ImageVersion, ObjectId, UnitName, WriterId};

/// What is wrong with an archive.
pub(super) type Violation = String;

/// A capture that a writer has begun. Its chunk tells it from all others.
#[derive(Debug)]
struct Capture {
    contents: Vec<Vec<u8>>,
    has_failed: bool,
}

/// An image that exists.
#[derive(Debug)]
struct Image {
    manifest: ObjectId,
    digest: [u8; 32],
    chunk: UnitName,
}

/// What entries and packs say.
#[derive(Debug)]
pub(super) struct Oracle {
    descriptor: Descriptor,
    position: u64,
    last: [u8; 32],
    images: BTreeMap<ImageVersion, Image>,
    /// The chunk of each image that was ever added.
    added: HashMap<ImageVersion, UnitName>,
    live: HashSet<ObjectId>,
    /// Units of the packs in the store.
    packs: HashMap<ObjectId, Vec<UnitName>>,
    /// Bytes of each unit in a pack, with its header and its entry in the table.
    lengths: HashMap<(ObjectId, UnitName), u64>,
    /// Number of live packs in the store that have a unit.
    held: HashMap<UnitName, u32>,
    /// Parts of the index: the segment, and its packs.
    parts: Vec<(ObjectId, Vec<ObjectId>)>,
    captures: HashMap<UnitName, Capture>,
    /// Bytes of all units that were ever captured.
    plain: HashMap<UnitName, Vec<u8>>,
    /// Units of which a copy has rotted since one was added. Their last copy may go: nobody reads every copy all the
    /// time.
    rotted: HashSet<UnitName>,
    /// The copies of units that have rotted. The tables of their packs still list them.
    rotten: HashSet<(ObjectId, UnitName)>,
    /// Packs to which accidents happened.
    touched: HashSet<ObjectId>,
    /// Units that an entry has called lost, with the position of the last one.
    lost: HashMap<UnitName, u64>,
    /// Number of entries that called units lost.
    losses: u64,
    /// Number of changes after which some image lacked a unit.
    lacking: u64,
    /// Positions of the entries that added packs.
    brought: HashMap<ObjectId, u64>,
    /// Whether only accidents make calls fail.
    no_call_fails: bool,
}

/// Returns the object with a name of two parts behind its folder.
pub(super) fn id_of(name: &ObjectName) -> Option<ObjectId> {
    let mut parts = name.as_str().split('/').skip(1);
    let (writer, random) = (u128::from_str_radix(parts.next()?, 16), u64::from_str_radix(parts.next()?, 16));
    Some(ObjectId { writer: WriterId(writer.ok()?.to_be_bytes()), random: random.ok()?.to_be_bytes() })
}

fn object(folder: &str, id: ObjectId) -> ObjectName {
    ObjectName::new(&format!("{folder}/{id}")).unwrap()
}

/// Returns an object, if it is there.
fn read(objects: &MemoryStore, name: &ObjectName) -> Option<Vec<u8>> {
    match objects.get(name, ByteRange::Whole) {
        Ok(bytes) => Some(bytes),
        Err(StoreError::Missing(_)) => None,
        Err(error) => panic!("memory does not fail: {error}"),
    }
}

impl Oracle {
    pub(super) fn new(descriptor: Descriptor, no_call_fails: bool) -> Oracle {
        Oracle {
            descriptor,
            position: 0,
            last: [0; 32],
            images: BTreeMap::new(),
            added: HashMap::new(),
            live: HashSet::new(),
            packs: HashMap::new(),
            lengths: HashMap::new(),
            held: HashMap::new(),
            parts: Vec::new(),
            captures: HashMap::new(),
            plain: HashMap::new(),
            rotted: HashSet::new(),
            rotten: HashSet::new(),
            touched: HashSet::new(),
            lost: HashMap::new(),
            losses: 0,
            lacking: 0,
            brought: HashMap::new(),
            no_call_fails,
        }
    }

    pub(super) fn archive(&self) -> ArchiveId {
        self.descriptor.archive
    }

    /// Returns the packs that hold units, in order.
    pub(super) fn live_packs(&self) -> Vec<ObjectId> {
        let mut packs: Vec<ObjectId> = self.live.iter().copied().collect();
        packs.sort_unstable();
        packs
    }

    /// Returns the segments that name units of such packs, in order.
    pub(super) fn live_segments(&self) -> Vec<ObjectId> {
        let is_live = |(_, packs): &&(ObjectId, Vec<ObjectId>)| packs.iter().any(|pack| self.live.contains(pack));
        let mut segments: Vec<ObjectId> = self.parts.iter().filter(is_live).map(|(segment, _)| *segment).collect();
        segments.sort_unstable();
        segments
    }

    /// A unit of a pack has rotted.
    pub(super) fn rotted(&mut self, pack: ObjectId, unit: UnitName) {
        self.packs.entry(pack).or_default().retain(|other| *other != unit);
        self.count(&[unit], pack, false);
        self.rotted.insert(unit);
        self.rotten.insert((pack, unit));
        self.look_for_lacks();
    }

    /// Returns whether a live pack lists a unit of which its copy has rotted, and no later entry calls the unit lost. A
    /// capture relies on that, as it does not read the units that are there.
    fn seems_held(&self, unit: UnitName) -> bool {
        self.live.iter().any(|pack| {
            let counts = self.lost.get(&unit).is_none_or(|lost| *lost < self.brought[pack]);
            counts && self.rotten.contains(&(*pack, unit))
        })
    }

    /// Counts this change if some image lacks a unit after it.
    fn look_for_lacks(&mut self) {
        self.lacking += u64::from(self.lacks_units());
    }

    /// Something happened to a pack.
    pub(super) fn touched(&mut self, pack: ObjectId) {
        self.touched.insert(pack);
    }

    /// Returns how many entries have called units lost.
    pub(super) fn losses(&self) -> u64 {
        self.losses
    }

    /// Returns after how many changes some image lacked a unit. It may lack none any more: a repair has healed it, or
    /// the image was removed.
    pub(super) fn lacking(&self) -> u64 {
        self.lacking
    }

    /// Returns whether some image needs a unit of which no pack has an intact copy that counts by the ledger.
    pub(super) fn lacks_units(&self) -> bool {
        let mut counted: HashSet<UnitName> = HashSet::new();
        for (pack, units) in self.packs.iter().filter(|(pack, _)| self.live.contains(*pack)) {
            let brought = self.brought[pack];
            counted.extend(units.iter().filter(|unit| self.lost.get(unit).is_none_or(|lost| *lost < brought)));
        }
        self.images.values().any(|image| self.units_of(image).any(|unit| !counted.contains(&unit)))
    }

    /// Returns the bytes of a unit, as a source has them.
    pub(super) fn plain(&self, unit: &UnitName) -> Option<&Vec<u8>> {
        self.plain.get(unit)
    }

    /// Returns whether some live pack has each unit of an image intact.
    pub(super) fn is_whole(&self, image: &ImageVersion) -> bool {
        self.images.get(image).is_some_and(|image| self.units_of(image).all(|unit| self.is_held(&unit)))
    }

    fn is_held(&self, unit: &UnitName) -> bool {
        self.held.get(unit).is_some_and(|count| *count > 0)
    }

    /// Returns the units that an image needs.
    fn units_of<'o>(&'o self, image: &'o Image) -> impl Iterator<Item = UnitName> + 'o {
        let contents = self.captures[&image.chunk].contents.iter();
        contents.map(|plain| self.descriptor.key.name(plain)).chain([image.chunk])
    }

    /// Announces a capture: the image that has this chunk has these units.
    pub(super) fn expect(&mut self, chunk: UnitName, contents: &[Vec<u8>]) {
        let key = &self.descriptor.key;
        self.plain.extend(contents.iter().map(|plain| (key.name(plain), plain.clone())));
        self.plain.insert(chunk, chunk_of(key, contents));
        self.captures.entry(chunk).or_insert_with(|| Capture { contents: contents.to_vec(), has_failed: false });
    }

    /// A writer was told that its image exists.
    pub(super) fn acknowledged(&self, image: &ImageVersion, chunk: UnitName) -> Result<(), Violation> {
        match self.added.get(image) == Some(&chunk) {
            true => Ok(()),
            false => Err(format!("{image} was acknowledged, and no entry adds it")),
        }
    }

    /// A writer was told that there is no image of this capture.
    pub(super) fn failed(&mut self, chunk: UnitName) -> Result<(), Violation> {
        let added = self.added.iter().find(|(_, added)| **added == chunk);
        if let Some((image, _)) = added {
            return Err(format!("the capture of {image} failed, and an entry adds it"));
        }
        self.captures.get_mut(&chunk).expect("it was announced").has_failed = true;
        Ok(())
    }

    /// Returns whether an image exists.
    pub(super) fn is_there(&self, image: &ImageVersion) -> bool {
        self.images.contains_key(image)
    }

    /// Returns the units of an image that was ever added.
    pub(super) fn contents(&self, image: &ImageVersion) -> Option<&[Vec<u8>]> {
        Some(&self.captures.get(self.added.get(image)?)?.contents)
    }

    /// Returns all images that exist.
    pub(super) fn images(&self) -> Vec<ImageVersion> {
        self.images.keys().cloned().collect()
    }

    /// Takes the change of an object in.
    pub(super) fn changed(&mut self, objects: &MemoryStore, name: &ObjectName) -> Result<(), Violation> {
        let bytes = read(objects, name);
        match (name.as_str().split('/').next(), id_of(name)) {
            (Some("ledger"), _) => match bytes {
                Some(entry) => {
                    let result = self.entry(objects, name, &entry);
                    self.look_for_lacks();
                    result
                }
                None => Err(format!("the entry `{name}` is gone")),
            },
            (Some("packs"), Some(id)) => match bytes {
                Some(pack) if pack.is_empty() => Ok(()),
                Some(pack) => self.pack(id, &pack),
                None => {
                    let units = self.packs.get(&id).cloned().unwrap_or_default();
                    self.count(&units, id, false);
                    self.packs.remove(&id);
                    self.look_for_lacks();
                    self.check_units(name.as_str())
                }
            },
            (Some("manifests"), Some(id)) if bytes.is_none() => {
                let of = self.images.iter().find(|(_, image)| image.manifest == id);
                of.map_or(Ok(()), |(image, _)| Err(format!("the manifest of {image} is gone")))
            }
            _ => Ok(()),
        }
    }

    fn pack(&mut self, id: ObjectId, object: &[u8]) -> Result<(), Violation> {
        if self.packs.contains_key(&id) {
            return Ok(());
        }
        let pack = decode_pack(self.descriptor.archive, id, object).map_err(|error| format!("pack {id}: {error}"))?;
        let mut decompressor = Decompressor::new().unwrap();
        let mut plain = Vec::new();
        for unit in &pack.table {
            let body = (unit.offset + UNIT_HEADER_BYTES) as usize;
            let header = UnitHeader::decode(&object[unit.offset as usize..body]).map_err(|error| error.to_string())?;
            let stored = &object[body..body + unit.stored_bytes as usize];
            if !decompressor.decompress(header, stored, &mut plain) || self.descriptor.key.name(&plain) != unit.name {
                return Err(format!("pack {id} has a wrong unit"));
            }
        }
        let units: Vec<UnitName> = pack.table.iter().map(|unit| unit.name).collect();
        self.lengths.extend(pack.table.iter().map(|unit| ((id, unit.name), cost_of(unit.stored_bytes))));
        self.packs.insert(id, units.clone());
        self.count(&units, id, true);
        Ok(())
    }

    /// Counts a pack for each of its units, or no longer, if the pack is live.
    fn count(&mut self, units: &[UnitName], pack: ObjectId, is_there: bool) {
        if self.live.contains(&pack) {
            for unit in units {
                let count = self.held.entry(*unit).or_default();
                *count = if is_there { *count + 1 } else { *count - 1 };
                if is_there {
                    self.rotted.remove(unit);
                }
            }
        }
    }

    fn set_live(&mut self, packs: &[ObjectId], is_live: bool) -> Result<(), Violation> {
        for pack in packs {
            let units = self.packs.get(pack).cloned();
            if is_live {
                self.live.insert(*pack);
                // The entry has been counted already.
                self.brought.insert(*pack, self.position - 1);
                let units = units.ok_or_else(|| format!("an entry names pack {pack}, which is not there"))?;
                self.count(&units, *pack, true);
            } else {
                self.count(&units.unwrap_or_default(), *pack, false);
                self.live.remove(pack);
            }
        }
        Ok(())
    }

    /// Checks that live packs in the store have all units of all images.
    fn check_units(&self, cause: &str) -> Result<(), Violation> {
        for (name, image) in &self.images {
            if self.units_of(image).any(|unit| !self.is_held(&unit) && !self.rotted.contains(&unit)) {
                return Err(format!("{name} has lost a unit by `{cause}`"));
            }
        }
        Ok(())
    }

    fn entry(&mut self, objects: &MemoryStore, name: &ObjectName, object: &[u8]) -> Result<(), Violation> {
        if *name != LedgerEntry::object_name(self.position) {
            return Err(format!("`{name}` is made where `{}` is the next", LedgerEntry::object_name(self.position)));
        }
        let entry =
            LedgerEntry::decode(self.descriptor.archive, self.position, object).map_err(|error| error.to_string())?;
        if entry.previous != self.last {
            return Err(format!("`{name}` does not follow the entry before it"));
        }
        self.position += 1;
        self.last = *blake3::hash(object).as_bytes();
        match entry.change {
            Change::ImageAdded { image, manifest, digest, packs, segment } => {
                self.set_live(&packs, true)?;
                self.add_part(objects, segment, packs)?;
                self.add(objects, image, manifest, digest)?;
            }
            Change::ImageRemoved { image } => {
                self.images.remove(&image).ok_or_else(|| format!("{image} is removed twice"))?;
            }
            Change::PacksRetired { packs } => self.set_live(&packs, false)?,
            Change::PacksReplaced { old, new, segment } => {
                self.set_live(&new, true)?;
                self.set_live(&old, false)?;
                self.add_part(objects, Some(segment), new)?;
            }
            Change::SegmentsMerged { old, new } => {
                let (merged, parts) = self.parts.drain(..).partition::<Vec<_>, _>(|(part, _)| old.contains(part));
                self.parts = parts;
                let packs = merged.into_iter().flat_map(|(_, packs)| packs).collect();
                self.add_part(objects, Some(new), packs)?;
            }
            Change::UnitsLost { units } => {
                self.losses += 1;
                self.lost.extend(units.iter().map(|unit| (*unit, entry.position)));
                self.check_lost(&units)?;
            }
            Change::WriterBegins { .. } | Change::WriterGivenUp { .. } => {}
        }
        self.check_units(name.as_str())
    }

    /// Checks that no unit is called lost of which a live pack has a copy, unless something happened to the pack.
    fn check_lost(&self, units: &[UnitName]) -> Result<(), Violation> {
        let lost: HashSet<&UnitName> = units.iter().collect();
        let mut sound = self.live.iter().filter(|pack| !self.touched.contains(*pack));
        let has_one =
            |pack: &&ObjectId| self.packs.get(*pack).is_some_and(|has| has.iter().any(|unit| lost.contains(unit)));
        match sound.find(has_one).filter(|_| self.no_call_fails) {
            None => Ok(()),
            Some(pack) => Err(format!("a unit is called lost that the pack {pack} has")),
        }
    }

    fn add_part(&mut self, at: &MemoryStore, part: Option<ObjectId>, packs: Vec<ObjectId>) -> Result<(), Violation> {
        let Some(segment) = part else { return Ok(()) };
        self.parts.push((segment, packs));
        let is_there = read(at, &object("segments", segment)).is_some();
        if is_there { Ok(()) } else { Err(format!("an entry names segment {segment}, which is not there")) }
    }

    fn add(
        &mut self,
        objects: &MemoryStore,
        image: ImageVersion,
        manifest: ObjectId,
        digest: [u8; 32],
    ) -> Result<(), Violation> {
        let found = read(objects, &object("manifests", manifest)).ok_or(format!("{image} has no manifest"))?;
        if *blake3::hash(&found).as_bytes() != digest {
            return Err(format!("{image} has another manifest"));
        }
        let decoded = Manifest::decode(self.descriptor.archive, manifest, &found).map_err(|error| error.to_string())?;
        let [chunk] = decoded.chunks[..] else { return Err(format!("{image} has another number of chunks")) };
        match self.captures.get(&chunk) {
            None => return Err(format!("nobody captured {image}")),
            Some(Capture { has_failed: true, .. }) => return Err(format!("a capture of {image} that failed appears")),
            Some(_) => {}
        }
        let version = self.added.keys().filter(|added| added.name == image.name).map(|added| added.version).max();
        if image.version != version.unwrap_or(0) + 1 || self.added.insert(image.clone(), chunk).is_some() {
            return Err(format!("{image} does not follow version {version:?}"));
        }
        let added = Image { manifest, digest, chunk };
        let seeming = self.units_of(&added).filter(|unit| !self.is_held(unit) && self.seems_held(*unit));
        let seeming: Vec<UnitName> = seeming.collect();
        self.rotted.extend(seeming);
        self.images.insert(image, added);
        Ok(())
    }

    /// Compares with a reading of all objects from the beginning.
    pub(super) fn check_all(&mut self, objects: &MemoryStore) -> Result<(), Violation> {
        let mut other = Oracle::new(self.descriptor.clone(), false);
        std::mem::swap(&mut other.captures, &mut self.captures);
        let all = objects.objects();
        let is_pack = |name: &&ObjectName| name.as_str().starts_with("packs/");
        all.keys().filter(is_pack).try_for_each(|name| other.changed(objects, name))?;
        let live: BTreeMap<&ImageVersion, [u8; 32]> =
            self.images.iter().map(|(image, found)| (image, found.digest)).collect();
        for position in 0..self.position {
            let name = LedgerEntry::object_name(position);
            let entry = all.get(&name).ok_or(format!("`{name}` is gone"))?;
            other.replay(
                &LedgerEntry::decode(self.descriptor.archive, position, entry).map_err(|error| error.to_string())?,
            );
        }
        let again: BTreeMap<&ImageVersion, [u8; 32]> =
            other.images.iter().map(|(image, found)| (image, found.digest)).collect();
        let is_equal = live == again && other.live == self.live;
        std::mem::swap(&mut other.captures, &mut self.captures);
        if is_equal { Ok(()) } else { Err("the ledger says something else than it said".to_owned()) }
    }

    /// Takes an entry in, of which objects may be gone by now.
    fn replay(&mut self, entry: &LedgerEntry) {
        match &entry.change {
            Change::ImageAdded { image, manifest, digest, packs, .. } => {
                let found = Image { manifest: *manifest, digest: *digest, chunk: UnitName([0; 32]) };
                self.images.insert(image.clone(), found);
                self.live.extend(packs);
            }
            Change::ImageRemoved { image } => {
                self.images.remove(image);
            }
            Change::PacksRetired { packs } => self.live.retain(|pack| !packs.contains(pack)),
            Change::PacksReplaced { old, new, .. } => {
                self.live.retain(|pack| !old.contains(pack));
                self.live.extend(new);
            }
            _ => {}
        }
    }

    /// Returns the objects that nothing needs. A pack is needed if images need four fifths of its bytes.
    pub(super) fn unneeded(&self, objects: &MemoryStore) -> Vec<ObjectName> {
        let needed: HashSet<UnitName> = self.images.values().flat_map(|image| self.units_of(image)).collect();
        let objects: Vec<ObjectName> = objects.objects().into_keys().collect();
        let snapshots: Vec<ObjectName> =
            objects.iter().filter(|name| name.as_str().starts_with("snapshots/")).cloned().collect();
        let is_needed = |name: &ObjectName| match (name.as_str().split('/').next(), id_of(name)) {
            (Some("packs"), Some(id)) => {
                let bytes = |units: &mut dyn Iterator<Item = &UnitName>| -> u64 {
                    units.map(|unit| self.lengths[&(id, *unit)]).sum()
                };
                let none = Vec::new();
                let units = self.packs.get(&id).unwrap_or(&none);
                let share = bytes(&mut units.iter().filter(|unit| needed.contains(unit)));
                self.live.contains(&id) && 5 * share >= 4 * bytes(&mut units.iter())
            }
            (Some("manifests"), Some(id)) => self.images.values().any(|image| image.manifest == id),
            (Some("segments"), Some(id)) => {
                self.parts.iter().any(|(part, packs)| *part == id && packs.iter().any(|pack| self.live.contains(pack)))
            }
            (Some("snapshots"), _) => snapshots.iter().rev().take(KEPT).any(|kept| kept == name),
            (Some("ledger" | "descriptor" | "descriptor.copy"), _) => true,
            _ => false,
        };
        objects.into_iter().filter(|name| !is_needed(name)).collect()
    }
}

mod tests {
    use std::sync::Arc;

    use onefold_block::random::SeededRandom;

    use super::super::world::Life;
    use super::super::{Options, actors, small_units, try_add_all, world};
    use crate::archive::Archive;

    /// Regression: a unit had rotted, another copy came and went again while no image needed it, and then an image came
    /// that relies on the pack. The oracle had forgotten that the unit has rotted.
    #[test]
    fn an_image_may_rely_on_a_copy_of_which_nobody_knows_that_it_has_rotted() {
        let random = SeededRandom::new(8);
        let world = world(&Options::drawn(8, 0, 1), &random);
        let life = Life::last(&world);
        let archive = Archive::open(Arc::new(life.clone())).unwrap();
        let contents = small_units(&random, 2);
        let capture = |name| {
            let mut writer = archive.writer(&life, &random, actors::HOST).unwrap();
            let draft = try_add_all(&archive, &mut writer, name, &contents).unwrap();
            world.sea.lock().oracle.expect(draft.chunks[0], &contents);
            writer.commit(draft).unwrap().0
        };
        let first = capture("web");
        {
            let oracle = &mut world.sea.lock().oracle;
            let [pack] = oracle.live_packs()[..] else { panic!("there is one pack") };
            let unit = oracle.descriptor.key.name(&contents[0]);
            oracle.rotted(pack, unit);
            // As if another copy had come.
            oracle.rotted.clear();
        }
        archive.remove(&first, &life, &random).unwrap();
        assert!(!world.sea.lock().oracle.lacks_units());
        capture("mail");
        assert_eq!(world.sea.lock().failure, None);
        assert!(world.sea.lock().oracle.lacks_units());
    }
}
