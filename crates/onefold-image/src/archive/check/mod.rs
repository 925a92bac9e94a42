//! Checks an archive: the tables of the packs and the ledger must prove that every unit of every image exists. The
//! index is not trusted.

mod images;
pub(super) mod packs;
mod sums;
mod survey;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use self::packs::PackFound;
pub(super) use self::survey::Survey;
use super::index::read_segment;
use super::objects::{Folder, is_missing};
use super::state::{ImageRecord, Part, State};
use super::tables::is_unread;
use super::{Archive, ArchiveError, DESCRIPTORS, read_descriptor};
use crate::format::pack::TableEntry;
use crate::store::{ByteRange, ObjectName};
use crate::{ImageVersion, ObjectId, UnitName};

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

/// A random part of the packs, of which a check reads all data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The part in millionths of all bytes. At least one pack is read.
    pub millionths: u32,
    /// Decides which packs they are. The same seed selects the same ones in the same archive.
    pub seed: u64,
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
    /// Units that images need and no pack has whole, chunk headers included, up to a maximum number.
    pub lost: BTreeSet<UnitName>,
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
struct TableUnit {
    name: UnitName,
    plain_bytes: u32,
    stored_bytes: u32,
    pack: u32,
    offset: u32,
}

/// How much of the packs is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Tables,
    Sample(Sample),
    All,
}

/// A running check.
struct Check<'a> {
    archive: &'a Archive,
    /// State by the ledger as last read.
    state: State,
    extent: Extent,
    report: CheckReport,
    packs: Vec<ObjectId>,
    /// All units that packs hold, sorted by name. Each takes 48 bytes.
    known: Vec<TableUnit>,
    /// How often the ledger was read on because something was missing.
    looks: u32,
    damages: BTreeMap<String, (String, BTreeSet<ImageVersion>)>,
    sound_headers: HashSet<(UnitName, u64)>,
    survey: Survey,
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
        let extent = if options.data { Extent::All } else { Extent::Tables };
        Ok(self.survey(extent, on_progress)?.0)
    }

    /// As [`Archive::check`], and reads all data of a random part of the packs.
    ///
    /// # Errors
    /// As [`Archive::check`].
    pub fn check_sample(
        &self,
        sample: Sample,
        on_progress: &mut dyn FnMut(u64, u64),
    ) -> Result<CheckReport, ArchiveError> {
        Ok(self.survey(Extent::Sample(sample), on_progress)?.0)
    }

    /// As [`Archive::check`], and also returns what a repair has to know.
    pub(super) fn survey(
        &self,
        extent: Extent,
        on_progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(CheckReport, Survey), ArchiveError> {
        self.survey_without(&[], extent, on_progress)
    }

    /// As [`Archive::survey`], as if the live packs in `without` did not exist.
    pub(super) fn survey_without(
        &self,
        without: &[ObjectId],
        extent: Extent,
        on_progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(CheckReport, Survey), ArchiveError> {
        let hole = self.read_whole_ledger()?;
        let state = self.state.read().clone();
        let images: Vec<ImageRecord> = state.images.values().cloned().collect();
        let parts = state.live_parts();
        let (missing, packs) = state.packs().into_iter().partition(|pack| without.contains(pack));
        let survey = Survey { position: state.position, missing, ..Survey::default() };
        let mut check = Check {
            archive: self,
            state,
            extent,
            report: CheckReport::default(),
            packs,
            known: Vec::new(),
            looks: 0,
            damages: BTreeMap::new(),
            sound_headers: HashSet::new(),
            survey,
        };
        check.descriptors()?;
        for (name, what) in self.wrong_snapshots(hole.as_ref().map(|hole| hole.position))? {
            check.damage(name.to_string(), what, None);
            check.survey.snapshots.push(name);
        }
        match hole {
            Some(hole) => {
                check.survey.unknown_needs = true;
                check.damage(hole.object(), hole.what, None);
            }
            // They are no damage, and hint at entries that a copy of the archive lacks.
            None => check.survey.early_snapshots = self.early_snapshots()?,
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
        let error = self.archive.of_object(error)?;
        self.damage(object, error.cause(), image);
        Ok(())
    }

    fn finish(self) -> (CheckReport, Survey) {
        let Check { mut report, damages, survey, .. } = self;
        let damage = |(object, (what, images)): (String, (String, BTreeSet<ImageVersion>))| Damage {
            object,
            what,
            images: images.into_iter().collect(),
        };
        report.damages = damages.into_iter().map(damage).collect();
        report.lost.clone_from(&survey.lost);
        (report, survey)
    }

    fn descriptors(&mut self) -> Result<(), ArchiveError> {
        for name in DESCRIPTORS {
            match read_descriptor(self.archive.store(), name) {
                Ok(descriptor) if descriptor == *self.archive.descriptor() => {}
                // A repair leaves it alone: it may be the only one with the key of the units here.
                Ok(_) => self.damage(name, "it describes another archive", None),
                Err(error) => {
                    // One that cannot be read now may be whole, and that of another archive. A damaged one may be all
                    // that is left of the key, if nothing proves that the other one belongs to the ledger.
                    let is_lost = is_missing(&error) || !is_unread(&error);
                    if is_lost && self.archive.has_certain_descriptor()? {
                        self.survey.descriptors.push(name);
                    }
                    self.broken(name, error, None)?;
                }
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
        let (archive, packs) = (self.archive, self.packs[from..].to_vec());
        let chosen = match self.extent {
            Extent::Sample(sample) => packs::choose(&packs, lengths, sample),
            Extent::Tables | Extent::All => HashSet::new(),
        };
        let is_all = self.extent == Extent::All;
        let is_read = |pack: ObjectId| is_all || chosen.contains(&pack);
        let mut done = 0;
        packs::read_all(archive, &packs, lengths, &is_read, &mut |number, found| {
            let name = Folder::Packs.object(packs[number]).to_string();
            match found {
                Ok(PackFound { units, verified_bytes, damage }) => {
                    self.add(from + number, &units);
                    self.report.verified_bytes += verified_bytes;
                    if let Some(what) = damage {
                        self.survey.damaged.push(packs[number]);
                        self.damage(name, what, None);
                    }
                }
                Err(error) if self.is_collected(&error, |state| !state.is_live(packs[number]))? => {}
                Err(error) => {
                    let is_missing = is_missing(&error) || self.is_empty(packs[number]);
                    self.broken(name, error, None)?;
                    let list = if is_missing { &mut self.survey.missing } else { &mut self.survey.damaged };
                    list.push(packs[number]);
                }
            }
            done += 1;
            on_progress(done);
            Ok(())
        })?;
        self.known.sort_unstable();
        Ok(())
    }

    /// Returns whether a pack is an empty object. A capture that made sure of a missing pack may have left it, and a
    /// copy that was cut, too. Like a missing one, it may be put back.
    fn is_empty(&self, pack: ObjectId) -> bool {
        let first = ByteRange::From { offset: 0, length_bytes: 1 };
        self.archive.store().get(&Folder::Packs.object(pack), first).is_ok_and(|bytes| bytes.is_empty())
    }

    /// Returns whether an object is missing because a collection deleted it: `is_dropped` says so of the newest state.
    fn is_collected(&self, error: &ArchiveError, is_dropped: impl Fn(&State) -> bool) -> Result<bool, ArchiveError> {
        if !is_missing(error) {
            return Ok(false);
        }
        self.archive.read_further()?;
        Ok(is_dropped(&self.archive.state.read()))
    }

    /// Reads the ledger on, and the packs that came meanwhile. Forgets units of packs that went. Returns whether the
    /// ledger says anything new.
    fn catch_up(&mut self) -> Result<bool, ArchiveError> {
        self.archive.read_further()?;
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
        for unit in units {
            let TableEntry { name, offset, stored_bytes, plain_bytes } = *unit;
            if self.state.holds(id, name) {
                self.known.push(TableUnit { name, plain_bytes, stored_bytes, pack, offset });
            } else {
                self.survey.unheld.entry(name).or_default().push((id, *unit));
            }
        }
    }

    /// Compares each segment with the tables of its packs. A damaged segment costs only time, so no image is listed for
    /// it.
    fn segments(&mut self, parts: &[Part]) -> Result<(), ArchiveError> {
        for part in parts {
            let name = Folder::Segments.object(part.segment);
            match read_segment(self.archive.store(), self.archive.descriptor().archive, part) {
                Ok(segment) => {
                    let mut places: HashMap<ObjectId, HashSet<(u32, u64, u32)>> = HashMap::new();
                    for entry in &segment.entries {
                        let pack = segment.packs[entry.pack as usize];
                        places.entry(pack).or_default().insert((entry.offset, entry.prefix, entry.stored_bytes));
                    }
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
                        let named = places.remove(pack).unwrap_or_default();
                        let place = |unit: &TableEntry| (unit.offset, unit.name.prefix(), unit.stored_bytes);
                        if !table.iter().all(|unit| named.contains(&place(unit))) {
                            self.damage(name.to_string(), format!("it lacks units of the pack {pack}"), None);
                        } else if named.len() > table.len() {
                            // Readers look in false places first, and for a unit with very many of them in all tables.
                            self.damage(name.to_string(), format!("it names units that the pack {pack} lacks"), None);
                        }
                    }
                }
                // It is a hint, and the tables have its facts.
                Err(ArchiveError::Newer { .. }) => {}
                Err(error) if self.is_collected(&error, |state| !state.holds_part(part))? => {}
                Err(error) => self.broken(name.to_string(), error, None)?,
            }
            if self.damages.contains_key(name.as_str()) {
                self.survey.segments.push(part.clone());
            }
        }
        Ok(())
    }
}
