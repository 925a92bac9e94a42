//! Checks an archive: the tables of the packs and the ledger must prove that every unit of every image exists. The
//! index is not trusted.

mod packs;
mod sums;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use self::packs::PackFound;
use self::sums::Sums;
use super::index::read_segment;
use super::objects::{Folder, is_missing};
use super::state::{ImageRecord, Part, State};
use super::tables::{is_broken, is_unread};
use super::units::decompressor;
use super::{Archive, ArchiveError, DESCRIPTORS, read_descriptor};
use crate::format::FormatError;
use crate::format::chunk_header::ChunkHeader;
use crate::format::ledger::Entry;
use crate::format::manifest::Manifest;
use crate::format::pack::{TableEntry, UNIT_HEADER_BYTES};
use crate::store::{ByteRange, ObjectName, StoreError};
use crate::{ImageVersion, ObjectId, SECTOR_BYTES, UnitName, placed};

/// How often the ledger is read on for a unit that is missing: where many are, no collection is the reason.
const LOOKS_MAX: u32 = 1000;
/// Maximum number of damages that a report lists.
const DAMAGES_MAX: usize = 10_000;

/// Extent of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Read all packs and verify each unit by its name.
    pub data: bool,
}

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Number of images.
    pub images: u64,
    /// Number of packs that entries name.
    pub packs: u64,
    /// Number of distinct units in these packs.
    pub units: u64,
    /// Additional copies of units. A copy is not damage.
    pub copies: u64,
    /// Bytes of packs that were read and verified.
    pub verified_bytes: u64,
    /// Packs that no entry names. They belong to captures that are running or were killed.
    pub leftovers: u64,
    /// Damage that was found, up to a maximum number.
    pub damages: Vec<Damage>,
    /// Number of further damages that are not listed.
    pub further_damages: u64,
}

/// A damaged object or unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The object, or `unit NAME`.
    pub object: String,
    /// Description of the damage.
    pub what: String,
    /// Images that cannot be read completely because of this damage.
    pub images: Vec<ImageVersion>,
}

/// A unit of a pack, as the pack's table describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Known {
    name: UnitName,
    plain_bytes: u32,
    stored_bytes: u32,
    pack: u32,
    offset: u32,
}

/// A running check.
struct Check<'a> {
    archive: &'a Archive,
    /// What the ledger said when it was last read on.
    state: State,
    options: CheckOptions,
    report: CheckReport,
    packs: Vec<ObjectId>,
    /// All units that packs hold, sorted by name. Each takes 48 bytes.
    known: Vec<Known>,
    /// How often the ledger was read on because something was missing.
    looks: u32,
    damages: BTreeMap<String, (String, BTreeSet<ImageVersion>)>,
    sound_headers: HashSet<(UnitName, u64)>,
}

impl Archive {
    /// Checks that all objects match the ledger, and that each unit of each image exists with the right length. Calls
    /// `on_progress` with the finished and total numbers of packs and images.
    ///
    /// # Errors
    /// When the store as a whole fails. What is damaged or cannot be read is in the report.
    pub fn check(
        &self,
        options: CheckOptions,
        on_progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckReport, ArchiveError> {
        self.refresh()?;
        let state = self.state.read().clone();
        let images: Vec<ImageRecord> = state.images.values().cloned().collect();
        let parts = state.live_parts();
        let packs = state.packs();
        let mut check = Check {
            archive: self,
            state,
            options,
            report: CheckReport::default(),
            packs,
            known: Vec::new(),
            looks: 0,
            damages: BTreeMap::new(),
            sound_headers: HashSet::new(),
        };
        check.descriptors()?;
        if let Some(position) = super::ledger::hole(self.store(), &self.state.read())? {
            check.damage(Entry::object_name(position).to_string(), super::ledger::HOLE, None);
        }
        let total = (check.packs.len() + images.len()) as u64;
        check.packs(&mut |done| on_progress(done, total))?;
        check.catch_up()?;
        check.segments(&parts)?;
        for (done, image) in (check.packs.len() as u64 + 1..).zip(&images) {
            check.image(image)?;
            on_progress(done, total);
        }
        check.report.images = images.len() as u64;
        Ok(check.finish())
    }
}

impl Check<'_> {
    fn damage(&mut self, object: impl Into<String>, what: impl Into<String>, image: Option<&ImageVersion>) {
        let object = object.into();
        if self.damages.len() >= DAMAGES_MAX && !self.damages.contains_key(&object) {
            self.report.further_damages += 1;
            return;
        }
        let (_, images) = self.damages.entry(object).or_insert_with(|| (what.into(), BTreeSet::new()));
        images.extend(image.cloned());
    }

    /// Adds the damage that an object is gone, damaged or cannot be read. Fails where that is no matter of the object.
    fn broken(
        &mut self,
        object: impl Into<String>,
        error: ArchiveError,
        image: Option<&ImageVersion>,
    ) -> Result<(), ArchiveError> {
        let error = self.of_object(error)?;
        self.damage(object, cause(&error), image);
        Ok(())
    }

    /// Returns an error that concerns one object. Fails with any other: where not even the descriptor can be read any
    /// more, the store as a whole fails.
    fn of_object(&self, error: ArchiveError) -> Result<ArchiveError, ArchiveError> {
        let answers = || DESCRIPTORS.iter().any(|name| read_descriptor(self.archive.store(), name).is_ok());
        if is_broken(&error) && (!is_unread(&error) || answers()) { Ok(error) } else { Err(error) }
    }

    fn finish(self) -> CheckReport {
        let Check { mut report, damages, .. } = self;
        let damage = |(object, (what, images)): (String, (String, BTreeSet<ImageVersion>))| Damage {
            object,
            what,
            images: images.into_iter().collect(),
        };
        report.damages = damages.into_iter().map(damage).collect();
        report
    }

    fn descriptors(&mut self) -> Result<(), ArchiveError> {
        for name in DESCRIPTORS {
            match read_descriptor(self.archive.store(), name) {
                Ok(descriptor) if descriptor == *self.archive.descriptor() => {}
                Ok(_) => self.damage(name, "it describes another archive", None),
                Err(error) => self.broken(name, error, None)?,
            }
        }
        Ok(())
    }

    /// Reads all packs or their tables, and builds the list of units from them.
    fn packs(&mut self, on_progress: &mut dyn FnMut(u64)) -> Result<(), ArchiveError> {
        let lengths = packs::lengths(self.archive)?;
        let named: HashSet<ObjectName> = self.packs.iter().map(|pack| Folder::Packs.object(*pack)).collect();
        self.report.leftovers = lengths.keys().filter(|name| !named.contains(*name)).count() as u64;
        self.report.packs = self.packs.len() as u64;
        self.read_packs(0, &lengths, on_progress)?;
        let same = self.known.windows(2);
        let same = same.filter(|two| (two[0].name, two[0].plain_bytes) == (two[1].name, two[1].plain_bytes));
        self.report.copies = same.count() as u64;
        self.report.units = self.known.len() as u64 - self.report.copies;
        Ok(())
    }

    /// Reads the packs from number `from` on.
    fn read_packs(
        &mut self,
        from: usize,
        lengths: &HashMap<ObjectName, u64>,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<(), ArchiveError> {
        let (archive, data, packs) = (self.archive, self.options.data, self.packs[from..].to_vec());
        let mut done = 0;
        packs::read_all(archive, &packs, lengths, data, &mut |number, found| {
            let name = Folder::Packs.object(packs[number]).to_string();
            match found {
                Ok(PackFound { units, verified_bytes, damage }) => {
                    self.add(from + number, &units);
                    self.report.verified_bytes += verified_bytes;
                    if let Some(what) = damage {
                        self.damage(name, what, None);
                    }
                }
                Err(error) if self.is_collected(&error, |state| !state.is_live(packs[number]))? => {}
                Err(error) => self.broken(name, error, None)?,
            }
            done += 1;
            on_progress(done);
            Ok(())
        })?;
        self.known.sort_unstable();
        Ok(())
    }

    /// Returns whether an object is missing because a collection deleted it: `is_dropped` says so of the newest state.
    fn is_collected(&self, error: &ArchiveError, is_dropped: impl Fn(&State) -> bool) -> Result<bool, ArchiveError> {
        if !is_missing(error) {
            return Ok(false);
        }
        self.archive.refresh()?;
        Ok(is_dropped(&self.archive.state.read()))
    }

    /// Reads the ledger on, and the packs that came meanwhile. Forgets units of packs that went. Returns whether the
    /// ledger says anything new.
    fn catch_up(&mut self) -> Result<bool, ArchiveError> {
        self.archive.refresh()?;
        let state = self.archive.state.read().clone();
        if state.position == self.state.position {
            return Ok(false);
        }
        self.state = state;
        let (state, packs) = (&self.state, &self.packs);
        self.known.retain(|unit| state.holds(packs[unit.pack as usize], unit.name));
        let (from, known) = (packs.len(), packs.iter().copied().collect::<HashSet<ObjectId>>());
        self.packs.extend(self.state.packs().into_iter().filter(|pack| !known.contains(pack)));
        if from < self.packs.len() {
            let lengths = packs::lengths(self.archive)?;
            self.read_packs(from, &lengths, &mut |_| ())?;
        }
        Ok(true)
    }

    fn add(&mut self, number: usize, units: &[TableEntry]) {
        let pack = u32::try_from(number).expect("fewer packs than 2^32");
        // A unit that an entry calls lost is so, whatever the tables of older packs say.
        let id = self.packs[number];
        let held = units.iter().filter(|unit| self.state.holds(id, unit.name));
        self.known.extend(held.map(|unit| {
            let TableEntry { name, offset, stored_bytes, plain_bytes } = *unit;
            Known { name, plain_bytes, stored_bytes, pack, offset }
        }));
    }

    /// Compares each segment with the tables of its packs. A damaged segment costs only time, so no image is listed for
    /// it.
    fn segments(&mut self, parts: &[Part]) -> Result<(), ArchiveError> {
        for part in parts {
            let name = Folder::Segments.object(part.segment);
            match read_segment(self.archive.store(), self.archive.descriptor().archive, part) {
                Ok(segment) => {
                    let places = segment.entries.iter();
                    let places = places.map(|entry| (segment.packs[entry.pack as usize], entry.offset, entry.prefix));
                    let places: HashSet<(ObjectId, u32, u64)> = places.collect();
                    let live = part.packs.iter().filter(|pack| self.state.is_live(**pack));
                    for pack in &live.copied().collect::<Vec<ObjectId>>() {
                        let table = match self.archive.table(*pack) {
                            Ok(table) => table,
                            Err(error) if self.is_collected(&error, |state| !state.is_live(*pack))? => continue,
                            Err(error) => {
                                self.broken(Folder::Packs.object(*pack).to_string(), error, None)?;
                                continue;
                            }
                        };
                        if !table.iter().all(|unit| places.contains(&(*pack, unit.offset, unit.name.prefix()))) {
                            self.damage(name.to_string(), format!("it lacks units of the pack {pack}"), None);
                        }
                    }
                }
                // It is a hint, and the tables have its facts.
                Err(ArchiveError::Newer { .. }) => {}
                Err(error) if self.is_collected(&error, |state| !state.holds_part(part))? => {}
                Err(error) => self.broken(name.to_string(), error, None)?,
            }
        }
        Ok(())
    }

    fn image(&mut self, record: &ImageRecord) -> Result<(), ArchiveError> {
        let manifest = match self.archive.manifest(record) {
            Ok(manifest) => manifest,
            // It was removed since the check began.
            Err(ArchiveError::Removed { .. }) => return Ok(()),
            Err(error) => {
                let name = Folder::Manifests.object(record.manifest).to_string();
                return self.broken(name, error, Some(&record.image));
            }
        };
        let mut sums = Sums::of(&manifest);
        let mut region = 0;
        let mut sectors_left = manifest.size_bytes.div_ceil(SECTOR_BYTES);
        for (number, chunk) in (0u32..).zip(&manifest.chunks) {
            while manifest.regions.get(region + 1).is_some_and(|next| next.first <= number) {
                region += 1;
            }
            let sectors = self.chunk(&manifest, number, *chunk, region as u64, &mut sums)?;
            if sums.has_overlap() {
                break;
            }
            let Some(left) = sectors_left.checked_sub(sectors) else {
                // A manifest may name one chunk without end.
                let name = Folder::Manifests.object(record.manifest).to_string();
                self.damage(name, "its chunks have more sectors than the disk", Some(&record.image));
                break;
            };
            sectors_left = left;
        }
        while let Some(chunks) = sums.next() {
            for number in chunks {
                let header = self.header(manifest.chunks[number])?;
                header.iter().for_each(|header| sums.claim(number, header));
            }
        }
        if let Some(what) = sums.damage(&manifest) {
            self.damage(Folder::Manifests.object(record.manifest).to_string(), what, Some(&record.image));
        }
        Ok(())
    }

    /// Checks a chunk, which begins in `region` by the manifest. Returns how many sectors it has; 1 if nobody knows.
    fn chunk(
        &mut self,
        manifest: &Manifest,
        number: u32,
        chunk: UnitName,
        region: u64,
        sums: &mut Sums,
    ) -> Result<u64, ArchiveError> {
        let is_known = self.sound_headers.contains(&(chunk, region));
        let header = match self.header(chunk)? {
            Some(header) => Some(header),
            None if self.lost(chunk, None, &manifest.image)? => None,
            None => self.header(chunk)?,
        };
        let Some(header) = header else {
            sums.lacks_a_chunk();
            return Ok(1);
        };
        let runs = header.units.iter().flat_map(|unit| &unit.runs).chain(&header.zeros);
        let sectors = runs.map(|run| run.count).fold(0, u64::saturating_add).max(1);
        let placed = placed::check(&chunk, &header, manifest.size_bytes).map_err(|error| error.what);
        match placed {
            Ok(()) => sums.add(number as usize, &header),
            Err(_) => sums.lacks_a_chunk(),
        }
        if let Err(what) = placed.and_then(|()| check_place(manifest, number, &header, region)) {
            self.damage(format!("chunk {number} of {}", manifest.image), what, Some(&manifest.image));
        }
        if is_known {
            return Ok(sectors);
        }
        let mut is_sound = true;
        for unit in &header.units {
            if self.find(unit.name, Some(unit.plain_bytes)).is_none() {
                is_sound &= !self.lost(unit.name, Some(unit.plain_bytes), &manifest.image)?;
            }
        }
        if is_sound {
            self.sound_headers.insert((chunk, region));
        }
        Ok(sectors)
    }

    /// Records that an image needs a unit of which no pack has an intact copy, and returns true; false if a collection
    /// moved the unit meanwhile, or the image was removed. If the index places the unit in a damaged pack, the record
    /// goes to the damage of that pack.
    fn lost(&mut self, unit: UnitName, plain_bytes: Option<u32>, image: &ImageVersion) -> Result<bool, ArchiveError> {
        if self.looks < LOOKS_MAX {
            self.looks += 1;
            let is_there = self.catch_up()? && self.find(unit, plain_bytes).is_some();
            if is_there || !self.state.images.contains_key(image) {
                return Ok(false);
            }
        }
        let places = self.archive.places(unit)?;
        let packs = places.iter().map(|place| Folder::Packs.object(place.pack).to_string());
        let object = packs.into_iter().find(|pack| self.damages.contains_key(pack));
        self.damage(object.unwrap_or_else(|| format!("unit {unit}")), "no pack has it whole", Some(image));
        Ok(true)
    }

    /// Returns the unit with this name and length, if a table lists it.
    fn find(&self, name: UnitName, plain_bytes: Option<u32>) -> Option<Known> {
        let from = self.known.partition_point(|unit| (unit.name, unit.plain_bytes) < (name, plain_bytes.unwrap_or(0)));
        let unit = self.known.get(from).filter(|unit| unit.name == name)?;
        plain_bytes.is_none_or(|plain_bytes| plain_bytes == unit.plain_bytes).then_some(*unit)
    }

    /// Returns the header of a chunk, from where the tables say; otherwise from where the index does.
    fn header(&mut self, chunk: UnitName) -> Result<Option<ChunkHeader>, ArchiveError> {
        let Some(unit) = self.find(chunk, None) else {
            return Ok(None);
        };
        let id = self.packs[unit.pack as usize];
        let pack = Folder::Packs.object(id);
        let length_bytes = u64::from(UNIT_HEADER_BYTES + unit.stored_bytes);
        let range = ByteRange::From { offset: u64::from(unit.offset), length_bytes };
        let bytes = match self.archive.store().get(&pack, range).map_err(ArchiveError::from) {
            Ok(bytes) => bytes,
            Err(error) => {
                if !self.is_collected(&error, |state| !state.is_live(id))? {
                    self.broken(pack.to_string(), error, None)?;
                }
                Vec::new()
            }
        };
        let mut plain = Vec::new();
        if self.archive.decode_unit(&mut decompressor()?, chunk, &bytes, &mut plain) {
            return match ChunkHeader::decode(&plain) {
                Err(source @ FormatError::Newer { .. }) => Err(ArchiveError::refused(format!("unit {chunk}"), source)),
                header => Ok(header.ok()),
            };
        }
        match self.archive.header(&chunk) {
            Ok(header) => Ok(Some(header)),
            Err(error @ ArchiveError::Newer { .. }) => Err(error),
            Err(error @ ArchiveError::Store(_)) => self.of_object(error).map(|_| None),
            Err(_) => Ok(None),
        }
    }
}

/// Checks that the manifest leads every reader of the disk to a chunk, which stays on the disk.
fn check_place(manifest: &Manifest, number: u32, header: &ChunkHeader, region: u64) -> Result<(), &'static str> {
    if header.region != region {
        return Err("its header says another region than the manifest");
    }
    let runs = header.units.iter().flat_map(|unit| &unit.runs).chain(&header.zeros);
    let mut checked = BTreeSet::from([region]);
    for run in runs {
        let first = run.start_bytes() / manifest.region_bytes;
        let last = (run.start_bytes() + run.length_bytes() - 1) / manifest.region_bytes;
        for other in first..=last {
            let listed = || {
                let region = usize::try_from(other).ok().and_then(|other| manifest.regions.get(other));
                region.is_some_and(|region| {
                    region.others.as_ref().is_none_or(|others| others.binary_search(&number).is_ok())
                })
            };
            if checked.insert(other) && !listed() {
                return Err("it has sectors in a region that does not list it");
            }
        }
    }
    Ok(())
}

/// Returns the cause of an error without the object's name.
fn cause(error: &ArchiveError) -> String {
    match error {
        ArchiveError::Damaged { source, .. } => source.to_string(),
        ArchiveError::Store(StoreError::Missing(_)) => "it is missing".to_owned(),
        ArchiveError::Store(
            StoreError::Io { source, .. } | StoreError::Unavailable { source, .. } | StoreError::GaveUp { source, .. },
        ) => format!("it cannot be read: {source}"),
        ArchiveError::Store(StoreError::NotMade { source, .. }) => format!("it cannot be made: {source}"),
        ArchiveError::Store(StoreError::Refused { why, .. }) => format!("it cannot be read: {why}"),
        ArchiveError::Store(StoreError::Foreign { what, .. }) => format!("it cannot be read: {what}"),
        other => other.to_string(),
    }
}
