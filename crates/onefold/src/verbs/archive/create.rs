//! `onefold archive create`

use onefold_block::Show;
use onefold_block::random::SystemRandom;
use onefold_image::archive::probe::race;
use onefold_image::archive::{Archive, ArchiveError};
use onefold_image::format::descriptor::UnitKind;
use serde_json::json;

use super::place::ArchivePlace;
use crate::cli::archive::{CreateArgs, Units};
use crate::failure::{Failure, Outcome};
use crate::output::{Report, machine_name};
use crate::size::human;

/// Bounds of the length of a unit.
const UNIT_BYTES_MIN: u64 = 4 << 10;
const UNIT_BYTES_MAX: u64 = 1 << 20;
/// The length of units along files unless another is given.
const FILES_UNIT_BYTES: u64 = 256 << 10;
/// That of units at fixed places: the paper's.
const FIXED_UNIT_BYTES: u64 = 32 << 10;

pub(super) fn run(arguments: &CreateArgs) -> Outcome<Report> {
    let path = &arguments.archive;
    let cannot = || format!("cannot create an archive in `{}`", path.shown());
    let units = units_of(arguments)
        .ok_or_else(|| Failure::usage(cannot()).because_of("the length of a unit is a power of two from 4K to 1M"))?;
    let store = ArchivePlace::from(path).create()?;
    let failed = |error: ArchiveError| Failure::of_archive(cannot(), &error);
    // A store with objects is refused below, and keeps the objects that it has.
    let is_empty = store.list("", None).map_err(|error| failed(error.into()))?.is_empty();
    if is_empty && !arguments.archive.store.one_writer {
        race(&*store, &SystemRandom).map_err(failed)?;
    }
    let archive = Archive::create(store, units, &SystemRandom).map_err(failed)?;
    let (cut, unit_bytes) = kind_text(units);
    let text = format!("created an archive in {}: units of up to {} {cut}", path.shown(), human(unit_bytes.into()));
    let json = json!({
        "archive": machine_name(path),
        "id": archive.descriptor().archive.to_string(),
        "units": kind_name(units),
        "unit_bytes": unit_bytes,
    });
    Ok(Report::done(text, json))
}

fn units_of(arguments: &CreateArgs) -> Option<UnitKind> {
    let default = match arguments.unit {
        Units::Files => FILES_UNIT_BYTES,
        Units::Fixed => FIXED_UNIT_BYTES,
    };
    let bytes = arguments.unit_size.map_or(default, |size| size.0);
    if !bytes.is_power_of_two() || !(UNIT_BYTES_MIN..=UNIT_BYTES_MAX).contains(&bytes) {
        return None;
    }
    let unit_bytes = u32::try_from(bytes).ok()?;
    Some(match arguments.unit {
        Units::Files => UnitKind::Files { unit_bytes },
        Units::Fixed => UnitKind::Fixed { unit_bytes },
    })
}

/// Returns the name of a kind of units in documents.
pub(super) fn kind_name(units: UnitKind) -> &'static str {
    match units {
        UnitKind::Files { .. } => "files",
        UnitKind::Fixed { .. } => "fixed",
    }
}

/// Returns how units are cut, in words, and their length in bytes.
pub(super) fn kind_text(units: UnitKind) -> (&'static str, u32) {
    match units {
        UnitKind::Files { unit_bytes } => ("along guests' files", unit_bytes),
        UnitKind::Fixed { unit_bytes } => ("at fixed places of the disk", unit_bytes),
    }
}
