//! Repairs an archive: rebuilds what other objects say as well, moves intact units out of damaged packs, and records in
//! the ledger which units are lost.
//!
//! Nothing that may still be needed goes. A damaged pack is replaced by an entry that adds packs with all its intact
//! units. A missing pack, or one that cannot be read completely, stays named until no image lacks a unit without it, so
//! that it can be put back from a copy of the archive, or be read again.

mod salvage;

use std::collections::{BTreeSet, HashSet};

use onefold_block::{Clock, Random};

use super::check::{Extent, Survey};
use super::index::{read_segment, rebuild};
use super::objects::{Folder, new_id};
use super::rules::{Rule, follows};
use super::state::{Part, State};
use super::tables::{is_broken, is_unread};
use super::{Archive, ArchiveError, CheckOptions, CheckReport, Writer, descriptor_name};
use crate::format::ledger::Change;
use crate::format::segment::{IndexEntry, Segment};
use crate::{ObjectId, UnitName, WriterId};

/// How often units are healed: a chunk header that was lost reveals its lost units only when it is back.
const HEALS_MAX: u32 = 4;

/// Adds those of the named units to a writer that a source still has.
pub type Heal<'h, E> = dyn FnMut(&mut Writer<'_>, &HashSet<UnitName>) -> Result<(), E> + 'h;

/// Parameters of a repair.
#[derive(Clone, Copy)]
pub struct RepairOptions<'r> {
    /// Time, for entries and pauses.
    pub clock: &'r dyn Clock,
    /// Randomness, for names.
    pub random: &'r dyn Random,
    /// The host, for the entry that announces the repair.
    pub host: &'r str,
    /// Only report what is to be done.
    pub dry_run: bool,
    /// Repair a copy of an archive that was cut, too. It cannot be continued after that: the snapshots that tell of
    /// entries which the copy lacks are removed, and other entries take the places of these.
    pub accept_cut: bool,
}

impl std::fmt::Debug for RepairOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RepairOptions { dry_run, accept_cut, .. } = self;
        let mut shown = f.debug_struct("RepairOptions");
        shown.field("dry_run", dry_run).field("accept_cut", accept_cut).finish_non_exhaustive()
    }
}

/// Result of a repair; of a dry run, what there is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Damage that was found before anything was done.
    pub found: CheckReport,
    /// Descriptors that were written again from the other.
    pub descriptors: u64,
    /// Snapshots of the state that were removed: those that were wrong, and those of entries that a copy lacks which
    /// was cut.
    pub snapshots: u64,
    /// Segments of the index that were rebuilt from tables.
    pub segments: u64,
    /// Damaged packs that were replaced.
    pub packs: u64,
    /// Intact units that were moved out of damaged packs.
    pub units_moved: u64,
    /// Units that images need and no pack had, at the beginning or once a lost chunk header was back.
    pub units_lost: u64,
    /// How many of them are stored again.
    pub units_healed: u64,
    /// Damage that is left, by ledger and tables.
    pub left: CheckReport,
}

impl Archive {
    /// Repairs what can be repaired. Reads all stored bytes first. `heal` may have units that no pack has.
    ///
    /// # Errors
    /// [`ArchiveError::Cut`], before anything is changed, if the archive is a copy that was cut, unless the options
    /// accept that. Other errors when the store fails, another host gives the repair up, or `heal` fails. What was done
    /// until then holds, and a repeated repair continues.
    pub fn repair<E: From<ArchiveError>>(
        &self,
        options: RepairOptions<'_>,
        heal: Option<&mut Heal<'_, E>>,
        on_progress: &mut dyn FnMut(u64, u64),
    ) -> Result<RepairReport, E> {
        // Before all stored bytes are read. Behind a hole of the ledger, a snapshot may well tell of later entries.
        if !options.accept_cut && self.read_whole_ledger()?.is_none() {
            self.fail_if_cut()?;
        }
        let (found, mut survey) = self.survey(Extent::All, on_progress)?;
        if options.accept_cut {
            survey.snapshots.append(&mut survey.early_snapshots);
        }
        let mut report = RepairReport { units_lost: survey.lost.len() as u64, found, ..RepairReport::default() };
        if options.dry_run {
            report.descriptors = survey.descriptors.len() as u64;
            report.snapshots = survey.snapshots.len() as u64;
            report.segments = segments_to_rebuild(self, &survey)?;
            report.packs = survey.damaged.len() as u64;
            report.left = report.found.clone();
            return Ok(report);
        }
        let mut repair = Repair { archive: self, options, writer: None, read: Vec::new(), unread: Vec::new(), report };
        repair.descriptors(&survey)?;
        repair.snapshots(&survey)?;
        let survey = repair.units(survey, heal)?;
        repair.retire_missing(&survey)?;
        repair.segments(&survey)?;
        let Repair { mut report, .. } = repair;
        report.left = self.check(CheckOptions::default(), &mut |_, _| ())?;
        Ok(report)
    }
}

/// A running repair.
struct Repair<'a> {
    archive: &'a Archive,
    options: RepairOptions<'a>,
    /// Begins with the first change of the ledger.
    writer: Option<Writer<'a>>,
    /// Damaged packs all bytes of which were read: their intact units are in packs of the writer.
    read: Vec<ObjectId>,
    /// Damaged packs that could not be read completely. They may be whole later, and stay like those that are missing.
    unread: Vec<ObjectId>,
    report: RepairReport,
}

impl<'a> Repair<'a> {
    fn writer(&mut self) -> Result<&mut Writer<'a>, ArchiveError> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => {
                let RepairOptions { clock, random, host, .. } = self.options;
                let mut writer = self.archive.writer(clock, random, host)?;
                // What it adds takes the place of what is damaged or lost.
                writer.exceed_bound();
                writer
            }
        };
        Ok(self.writer.insert(writer))
    }

    /// Adds an entry that `change` returns for the ledger as it is then; none if that is `None`.
    fn append(
        &mut self,
        mut change: impl FnMut(&Archive, WriterId) -> Result<Option<Change>, ArchiveError>,
    ) -> Result<bool, ArchiveError> {
        let id = self.writer()?.id();
        let RepairOptions { clock, random, .. } = self.options;
        loop {
            self.archive.refresh()?;
            let position = self.archive.state.read().position;
            let Some(change) = change(self.archive, id)? else {
                return Ok(false);
            };
            if self.archive.append(position, id, clock, random, change)? {
                return Ok(true);
            }
        }
    }

    /// Writes the descriptor, or its copy, again. The archive was opened by the other one.
    fn descriptors(&mut self, survey: &Survey) -> Result<(), ArchiveError> {
        let object = self.archive.descriptor().encode()?;
        for name in &survey.descriptors {
            self.archive.store().put(&descriptor_name(name), &[&object])?;
            self.report.descriptors += 1;
        }
        Ok(())
    }

    /// Removes snapshots that do not say what the ledger does, and those of a copy that was cut if that is accepted.
    /// Nobody needs a snapshot.
    fn snapshots(&mut self, survey: &Survey) -> Result<(), ArchiveError> {
        for name in &survey.snapshots {
            self.archive.store().delete(name)?;
            self.report.snapshots += 1;
        }
        Ok(())
    }

    /// Moves intact units out of damaged packs, marks lost ones, and heals what `heal` has. Returns a survey of the
    /// tables after that.
    fn units<E: From<ArchiveError>>(&mut self, first: Survey, mut heal: Option<&mut Heal<'_, E>>) -> Result<Survey, E> {
        let archive = self.archive;
        let mut all_lost = BTreeSet::new();
        let mut survey = first;
        for _ in 0..HEALS_MAX {
            let lost = self.save(&survey)?;
            self.mark(&survey, &lost)?;
            if let Some(heal) = heal.as_deref_mut()
                && !lost.is_empty()
            {
                heal(self.writer()?, &lost)?;
            }
            if let Some(writer) = &mut self.writer {
                let read = std::mem::take(&mut self.read);
                self.report.packs += writer.replace(&read)?;
            }
            all_lost.extend(lost);
            let next = archive.survey(Extent::Tables, &mut |_, _| ())?.1;
            all_lost.extend(&next.lost);
            self.report.units_lost = all_lost.len() as u64;
            self.report.units_healed = (all_lost.len() - next.lost.len()) as u64;
            let reveals_more = !next.lost.is_subset(&survey.lost);
            survey = next;
            if !reveals_more {
                break;
            }
        }
        Ok(survey)
    }

    /// Adds to the writer what damaged packs still have, and intact copies that do not count. Returns the lost units of
    /// which there is none.
    fn save(&mut self, survey: &Survey) -> Result<HashSet<UnitName>, ArchiveError> {
        let archive = self.archive;
        let mut moved = 0;
        for pack in &survey.damaged {
            if self.unread.contains(pack) {
                continue;
            }
            let mut units = salvage::pack(archive, *pack)?;
            if units.is_read || !follows(Rule::UnreadPacksStay) {
                self.read.push(*pack);
            } else {
                // It stays, so only what it alone has needs a copy.
                self.unread.push(*pack);
                units.retain_new(archive, &survey.damaged)?;
            }
            if units.is_read || !units.is_empty() {
                moved += units.add(self.writer()?)?;
            }
        }
        if survey.lost.iter().any(|unit| survey.unheld.contains_key(unit)) {
            salvage::copies(archive, self.writer()?, survey)?;
        }
        self.report.units_moved += moved;
        let is_stored = |unit: &UnitName| self.writer.as_ref().is_some_and(|writer| writer.has_stored(unit));
        Ok(survey.lost.iter().filter(|unit| !is_stored(unit)).copied().collect())
    }

    /// Records in the ledger which units are lost. From then on, captures store them again.
    fn mark(&mut self, survey: &Survey, lost: &HashSet<UnitName>) -> Result<(), ArchiveError> {
        let broken = [&survey.damaged[..], &survey.missing].concat();
        let is_new = |archive: &Archive, unit: &UnitName| !archive.state.read().is_lost_for(*unit, &broken);
        if !lost.iter().any(|unit| is_new(self.archive, unit)) {
            return Ok(());
        }
        self.append(|archive, _| {
            let mut units: BTreeSet<UnitName> = lost.iter().filter(|unit| is_new(archive, unit)).copied().collect();
            // Another host may have stored some of them since. An entry that calls them lost would hide them.
            let from = if follows(Rule::PacksSinceCount) { survey.position } else { u64::MAX };
            let since = archive.state.read().packs_since(from);
            for pack in since {
                match archive.table(pack) {
                    Ok(table) => table.iter().for_each(|entry| {
                        units.remove(&entry.name);
                    }),
                    // What cannot be read now may have them.
                    Err(error) if is_broken(&error) && !is_unread(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            let units: Vec<UnitName> = units.into_iter().collect();
            Ok((!units.is_empty()).then_some(Change::UnitsLost { units }))
        })?;
        Ok(())
    }

    /// Retires packs that do not exist or cannot be read, once no image lacks a unit without them.
    fn retire_missing(&mut self, survey: &Survey) -> Result<(), ArchiveError> {
        let without_unread = if self.unread.is_empty() || !survey.lost.is_empty() {
            None
        } else {
            Some(self.archive.survey_without(&self.unread, Extent::Tables, &mut |_, _| ())?.1)
        };
        let survey = without_unread.as_ref().unwrap_or(survey);
        if survey.missing.is_empty() || (may_need_missing(survey) && follows(Rule::MissingPacksStay)) {
            return Ok(());
        }
        // A writer that `append` begins adds one entry.
        let position = survey.position + u64::from(self.writer.is_none());
        let retired = self.append(|archive, _| {
            // After any other entry, an image may rely on them. The next repair retires them.
            let is_as_surveyed = archive.state.read().position == position;
            Ok(is_as_surveyed.then(|| Change::PacksRetired { packs: survey.missing.clone() }))
        })?;
        self.report.packs += if retired { survey.missing.len() as u64 } else { 0 };
        Ok(())
    }

    /// Makes new segments of the tables of packs, in place of damaged ones.
    fn segments(&mut self, survey: &Survey) -> Result<(), ArchiveError> {
        for part in &survey.segments {
            // A writer that begins for nothing would add an entry with each repair.
            if self.writer.is_none() && replacement(self.archive, part, part.segment)?.is_none() {
                continue;
            }
            let random = self.options.random;
            let merged = self.append(|archive, id| {
                let Some((new, segment)) = replacement(archive, part, new_id(id, random)?)? else { return Ok(None) };
                let object = segment.encode(archive.descriptor().archive, new.segment)?;
                archive.store().put(&Folder::Segments.object(new.segment), &[&object])?;
                Ok(Some(Change::SegmentsMerged { old: vec![part.segment], new: new.segment }))
            })?;
            self.report.segments += u64::from(merged);
        }
        Ok(())
    }
}

/// Returns whether an image may lack units without the missing packs.
fn may_need_missing(survey: &Survey) -> bool {
    !survey.lost.is_empty() || survey.lost_more || survey.unknown_needs
}

/// Returns how many segments a repair without a source makes anew, which has replaced the damaged packs before.
fn segments_to_rebuild(archive: &Archive, survey: &Survey) -> Result<u64, ArchiveError> {
    let mut count = 0;
    for part in &survey.segments {
        let stays = |pack: &ObjectId| may_need_missing(survey) && survey.missing.contains(pack);
        let has_all = !part.packs.iter().any(stays);
        count += u64::from(has_all || old_segment(archive, part)?.is_some());
    }
    Ok(count)
}

/// Returns the part named `id` that may take the place of a part with a damaged segment, and its segment. `None` if the
/// old part is gone, or has to stay.
fn replacement(archive: &Archive, old: &Part, id: ObjectId) -> Result<Option<(Part, Segment)>, ArchiveError> {
    let state = archive.state.read().clone();
    if !state.parts.values().any(|other| other.segment == old.segment) {
        return Ok(None);
    }
    // The state keeps only live packs of a merged part.
    let new = Part::new(id, old.packs.iter().copied().filter(|pack| state.is_live(*pack)).collect());
    Ok(rebuilt(archive, &state, old, &new)?.map(|segment| (new, segment)))
}

/// Returns the segment of a part; `None` if it cannot be read.
fn old_segment(archive: &Archive, part: &Part) -> Result<Option<Segment>, ArchiveError> {
    match read_segment(archive.store(), archive.descriptor().archive, part) {
        Err(error) if is_broken(&error) || matches!(error, ArchiveError::Newer { .. }) => Ok(None),
        read => read.map(Some),
    }
}

/// Returns the segment of `new`, which takes the place of `old`: what the tables say, and of packs that may return what
/// the old segment says. `None` if that cannot be read: without a segment, readers look into the tables, and a segment
/// that lacks such a pack would hide its units.
fn rebuilt(archive: &Archive, state: &State, old: &Part, new: &Part) -> Result<Option<Segment>, ArchiveError> {
    let (store, id) = (archive.store(), archive.descriptor().archive);
    let mut away = Vec::new();
    let mut segment = rebuild(store, id, state, new, &archive.tables, &mut away)?;
    if away.is_empty() {
        return Ok(Some(segment));
    }
    let Some(before) = old_segment(archive, old)? else { return Ok(None) };
    let number_of = |pack: &ObjectId| new.packs.iter().position(|other| other == pack).filter(|_| away.contains(pack));
    let numbers: Vec<Option<usize>> = before.packs.iter().map(number_of).collect();
    segment.entries.extend(before.entries.iter().filter_map(|entry| {
        let pack = numbers.get(entry.pack as usize).copied().flatten()?;
        Some(IndexEntry { pack: u32::try_from(pack).ok()?, ..*entry })
    }));
    segment.entries.sort_unstable_by_key(|entry| (entry.prefix, entry.pack, entry.offset));
    Ok(Some(segment))
}
