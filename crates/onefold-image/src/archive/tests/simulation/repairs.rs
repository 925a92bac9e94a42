//! Deeds of repairers: check and repair.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use onefold_block::random::SeededRandom;

use super::actors::{self, Actor, HOST};
use super::oracle::Violation;
use super::world::{Life, World};
use crate::UnitName;
use crate::archive::tests::contents;
use crate::archive::{Archive, ArchiveError, CheckOptions, Heal, RepairOptions, RepairReport, Writer};
use crate::compress::{Compressor, LEVEL};

/// Adds the wanted units that a source has: all.
fn heal(world: &World, writer: &mut Writer<'_>, wanted: &HashSet<UnitName>) -> Result<(), ArchiveError> {
    let wanted: BTreeSet<&UnitName> = wanted.iter().collect();
    for unit in wanted {
        let Some(plain) = world.sea.lock().oracle.plain(unit).cloned() else { continue };
        let mut stored = Vec::new();
        let header = Compressor::new(LEVEL).unwrap().compress(&plain, &mut stored).unwrap();
        writer.add(*unit, header, &stored)?;
    }
    Ok(())
}

impl Actor<'_> {
    /// Checks the archive. Beside whatever others do, nothing is damaged unless something happened.
    pub(super) fn check(&self) {
        let outset = self.life.outset();
        match self.archive.check(CheckOptions { data: self.random.below(2) == 0 }, &mut |_, _| ()) {
            Ok(report) => {
                self.world.sea.lock().counters.checks += 1;
                if !self.life.is_dead() && self.life.is_calm(outset) && !report.damages.is_empty() {
                    self.world.check(Err(format!("a check finds damage: {:?}", report.damages)));
                }
            }
            Err(error) => self.failed_where(outset, "a check", &error),
        }
    }

    /// Repairs the archive, perhaps with a source that has all units.
    pub(super) fn repair(&self) {
        let outset = self.life.outset();
        let has_source = self.random.below(2) == 0;
        match repair(self.world, &self.life, &self.archive, &self.random, has_source) {
            Ok(report) => count(self.world, &report),
            // Another collector may have given this one up, or a capture may have taken its packs.
            Err(ArchiveError::GivenUp { .. }) => {}
            Err(error) => self.failed_where(outset, "a repair", &error),
        }
    }
}

fn count(world: &World, report: &RepairReport) {
    let counters = &mut world.sea.lock().counters;
    counters.repairs += 1;
    counters.moved += report.units_moved;
    counters.healed += report.units_healed;
}

fn repair(
    world: &Arc<World>,
    life: &Life,
    archive: &Archive,
    random: &SeededRandom,
    has_source: bool,
) -> Result<RepairReport, ArchiveError> {
    let options = RepairOptions { clock: life, random, host: HOST, dry_run: false, accept_cut: false };
    let mut from_source = |writer: &mut Writer<'_>, wanted: &HashSet<UnitName>| heal(world, writer, wanted);
    let heal: Option<&mut Heal<'_, ArchiveError>> = if has_source { Some(&mut from_source) } else { None };
    archive.repair(options, heal, &mut |_, _| ())
}

/// Repairs what is left while packs are still away or cannot be read, lets them return, and collects: nothing may go
/// that the returned packs alone have.
pub(super) fn settle(world: &Arc<World>, archive: &Archive, random: &SeededRandom) -> Result<(), Violation> {
    let failure = |what: &str, error: ArchiveError| Err(format!("{what} fails without a fault: {error:?}"));
    let is_harmed = !world.sea.lock().is_sound();
    if is_harmed && let Err(error) = repair(world, &Life::last(world), archive, random, false) {
        return failure("a repair", error);
    }
    world.sea.lock().let_all_return();
    match actors::collect_once(archive, &Life::last(world), random) {
        // Nobody knows what an image needs of which a chunk header is lost.
        Err(ArchiveError::Unknown { .. }) if world.sea.lock().oracle.lacks_units() => Ok(()),
        Err(error) if is_harmed => failure("a collection", error),
        _ => Ok(()),
    }?;
    world.sea.lock().failure.take().map_or(Ok(()), Err)
}

/// Repairs what is left, with a store that does not fail: images whose units are all there are whole then, and all are
/// once a source has given the rest.
pub(super) fn repair_all(world: &Arc<World>, archive: &Archive, random: &SeededRandom) -> Result<(), Violation> {
    if world.sea.lock().is_sound() {
        return Ok(());
    }
    let life = Life::last(world);
    for has_source in [false, true] {
        for _ in 0..2 {
            let repaired = repair(world, &life, archive, random, has_source);
            count(world, &repaired.map_err(|error| format!("the last repair: {error:?}"))?);
        }
        let images = world.sea.lock().oracle.images();
        for image in images {
            if !has_source && !world.sea.lock().oracle.is_whole(&image) {
                continue;
            }
            let found = contents(archive, &image).map_err(|error| format!("{image} is not repaired: {error:?}"))?;
            if Some(&found[..]) != world.sea.lock().oracle.contents(&image) {
                return Err(format!("{image} was repaired to something else"));
            }
        }
    }
    check_all(archive)
}

/// Checks that nothing is damaged in the end.
pub(super) fn check_all(archive: &Archive) -> Result<(), Violation> {
    let report = archive.check(CheckOptions { data: true }, &mut |_, _| ()).map_err(|error| format!("{error:?}"))?;
    match report.damages.is_empty() {
        true => Ok(()),
        false => Err(format!("damage is left: {:?}", report.damages)),
    }
}
