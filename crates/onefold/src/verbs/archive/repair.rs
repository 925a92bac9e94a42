//! `onefold archive repair`

use std::collections::HashSet;
use std::path::Path;

use onefold_block::Show;
use onefold_block::clock::{Clock, SystemClock};
use onefold_block::random::SystemRandom;
use onefold_disk::Disk;
use onefold_image::archive::{Archive, Heal, RepairOptions, RepairReport, Writer};
use onefold_image::capture::{self, CaptureError, CaptureOptions, MEMORY_BYTES_MIN, Scope, restore};
use onefold_image::compress::LEVEL;
use onefold_image::format::pack::PACK_BYTES;
use onefold_image::{ImageName, UnitName};
use serde_json::{Value, json};

use super::check;
use super::watched::WatchedArchive;
use crate::cli::Talk;
use crate::cli::archive::RepairArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::host;
use crate::output::{Report, machine_name};
use crate::progress::Meter;
use crate::size::{grouped, human};
use crate::verbs::images::{self, FoundImage};

/// Divisor of `--memory`: this share is for an archived image after `--from`.
const ARCHIVED_SHARE: u64 = 4;

pub(super) fn run(arguments: &RepairArgs, talk: Talk) -> Outcome<Report> {
    if arguments.memory.0 < MEMORY_BYTES_MIN as u64 {
        let least = human(MEMORY_BYTES_MIN as u64);
        return Err(Failure::usage("too little memory").because_of(format!("--memory is at least {least}")));
    }
    let path = &arguments.archive;
    let watched = WatchedArchive::open(path, arguments.rate.map(|rate| rate.0))?;
    let (archive, interrupt) = (&watched.archive, &watched.interrupt);
    let disk = match &arguments.from {
        Some(from) => {
            let meter = Meter::new(format!("opening {}", from.shown()), talk.quiet, interrupt.clone());
            let opened = open_disk(from, arguments, &meter);
            meter.finish();
            Some(opened.map_err(|failure| watched.failure(failure, &watched.changes(), "run the command again"))?)
        }
        None => None,
    };
    let options = RepairOptions {
        clock: &SystemClock,
        random: &SystemRandom,
        host: &host::process(),
        dry_run: arguments.dry_run,
        accept_cut: arguments.accept_cut,
    };
    let meter = Meter::new(format!("checking {}", path.shown()), talk.quiet, interrupt.clone());
    let mut heal = |writer: &mut Writer<'_>, wanted: &HashSet<UnitName>| match &disk {
        Some(disk) => {
            meter.finish();
            let from = arguments.from.as_deref().unwrap_or(path).shown().to_string();
            let meter = Meter::new(format!("reading {from}"), talk.quiet, interrupt.clone());
            let healed = heal_from(archive, writer, wanted, disk.as_ref(), arguments, &meter);
            meter.finish();
            healed
        }
        None => Ok(()),
    };
    let heal: Option<&mut Heal<'_, CaptureError>> = if disk.is_some() { Some(&mut heal) } else { None };
    let repaired = archive.repair(options, heal, &mut |done, total| {
        let _ = meter.show_bytes(done.saturating_mul(PACK_BYTES), total.saturating_mul(PACK_BYTES));
    });
    meter.finish();
    let cannot = format!("cannot repair the archive `{}`", path.shown());
    let repaired = repaired.map_err(|error| Failure::of_capture(&cannot, &error));
    let repaired = repaired.and_then(|repaired| watched.unless_cut_short(repaired, &cannot)).map_err(|failure| {
        let next = match arguments.dry_run {
            true => "run the command again",
            false => "run the command again: what was repaired stays, and it repairs the rest",
        };
        watched.failure(failure, &watched.changes(), next)
    })?;
    let is_sound = repaired.left.damages.is_empty() && repaired.left.further_damages == 0;
    Ok(Report {
        text: text(&repaired, arguments.dry_run),
        json: json_of(&repaired, path, arguments.dry_run),
        exit: if is_sound { Exit::Done } else { Exit::Damage },
    })
}

/// Opens a disk that may have lost content. It may change meanwhile: every unit is verified by its name.
fn open_disk(path: &Path, arguments: &RepairArgs, meter: &Meter) -> Outcome<Box<dyn Disk>> {
    let cannot = || format!("cannot read `{}`", path.shown());
    let found = match images::find_one(path).map_err(|failure| failure.wrap(cannot()))? {
        FoundImage::Archived(image) => return Ok(Box::new(image.disk(arguments.memory.0 / ARCHIVED_SHARE))),
        FoundImage::File(found) => found,
    };
    let file = found.open().map_err(|error| Failure::of_io(cannot(), &error))?;
    let format = arguments.format.map(Into::into);
    let image = onefold_disk::open(file, format, &arguments.backing_from, &meter.on_progress());
    Ok(image.map_err(|error| Failure::of_disk(&error).wrap(cannot()))?.disk)
}

/// Adds the wanted units that a disk has.
fn heal_from(
    archive: &Archive,
    writer: &mut Writer<'_>,
    wanted: &HashSet<UnitName>,
    disk: &dyn Disk,
    arguments: &RepairArgs,
    meter: &Meter,
) -> Result<(), CaptureError> {
    let folder = onefold_disk::temporary_folder();
    let source = capture::Source { disk, has_changed: &|| Ok(false) };
    // Captures with other options have other units where used, free and unread places meet.
    let passes = [(Scope::Allocated, false), (Scope::Allocated, true), (Scope::All, true)];
    for (scope, exact) in passes {
        let rest: HashSet<UnitName> = wanted.iter().filter(|unit| !writer.has_stored(unit)).copied().collect();
        if rest.is_empty() {
            break;
        }
        let options = CaptureOptions {
            name: ImageName::new("repair").expect("letters are a name"),
            began: SystemClock.now(),
            scope,
            exact,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: usize::try_from(arguments.memory.0).unwrap_or(usize::MAX),
            level: LEVEL,
            folder: &folder,
        };
        restore(archive, writer, &rest, source, &options, &meter.on_progress())?;
    }
    Ok(())
}

fn json_of(repaired: &RepairReport, path: &Path, is_dry: bool) -> Value {
    json!({
        "archive": machine_name(path),
        "dry_run": is_dry,
        "descriptors": repaired.descriptors,
        "snapshots": repaired.snapshots,
        "segments": repaired.segments,
        "packs": repaired.packs,
        "units_moved": repaired.units_moved,
        "units_lost": repaired.units_lost,
        "units_healed": repaired.units_healed,
        "damages": repaired.left.damages.iter().map(check::damage_json).collect::<Vec<Value>>(),
        "further_damages": repaired.left.further_damages,
    })
}

fn text(repaired: &RepairReport, is_dry: bool) -> String {
    let RepairReport { found, descriptors, snapshots, segments, packs, units_moved, units_lost, units_healed, left } =
        repaired;
    let mut text = String::new();
    if found.damages.is_empty() && left.damages.is_empty() && *snapshots == 0 {
        return "no damage: there is nothing to repair".to_owned();
    }
    let mut line = |count: u64, done: &str, to_do: &str| {
        if count > 0 {
            text.push_str(&format!("{} {}\n", grouped(count), if is_dry { to_do } else { done }));
        }
    };
    line(*descriptors, "descriptors written again", "descriptors to be written again");
    line(*snapshots, "snapshots of the state removed", "snapshots of the state to be removed");
    line(*segments, "segments of the index rebuilt", "segments of the index to be rebuilt");
    line(*packs, "damaged packs replaced", "damaged packs to be replaced");
    line(*units_moved, "intact units moved out of damaged packs", "");
    line(*units_lost, "units were lost", "units are not whole as their packs are; damaged packs may still have them");
    line(*units_healed, "of them are stored again", "");
    text.push_str(&check::damages_text(left));
    text.push_str(match left.damages.is_empty() && left.further_damages == 0 {
        true => "no damage is left",
        false if is_dry => "nothing was changed",
        false => {
            "damage is left: repair with --from DISK, capture the content again, or remove the images with `image rm`"
        }
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_image::archive::{CheckReport, Damage};

    #[test]
    fn a_repair_says_what_it_did_and_what_is_left() {
        let damage =
            Damage { object: "unit 00".to_owned(), what: "no pack has it whole".to_owned(), images: Vec::new() };
        let damaged = CheckReport { damages: vec![damage], ..CheckReport::default() };
        let sound = RepairReport { found: damaged.clone(), units_lost: 2, units_healed: 2, ..RepairReport::default() };
        let said = text(&sound, false);
        assert_eq!(said, "2 units were lost\n2 of them are stored again\nno damage is left");
        let said = text(&RepairReport { left: damaged, units_healed: 1, ..sound }, false);
        assert!(said.contains("damaged: unit 00") && said.contains("--from DISK"), "{said}");
        assert!(text(&RepairReport::default(), false).starts_with("no damage"));
    }
}
