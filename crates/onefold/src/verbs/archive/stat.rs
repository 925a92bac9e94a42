//! `onefold archive stat`

use onefold_block::Show;
use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_image::archive::{Archive, ArchiveError, CollectOptions, CollectReport, ImageRecord};
use onefold_image::format::manifest::Manifest;
use onefold_image::store::Store;
use serde_json::json;

use super::create::{kind_name, kind_text};
use super::manifests::{Manifests, UnreadManifest};
use crate::cli::archive::StatArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, TextTable, machine_name};
use crate::size::{counted, grouped, human};

/// The kinds of objects, by the beginning of their names, and what they are called here.
const KINDS: [(&str, &str); 7] = [
    ("packs/", "units in packs"),
    ("manifests/", "manifests"),
    ("segments/", "index"),
    ("signatures/", "signatures"),
    ("ledger/", "ledger"),
    ("snapshots/", "snapshots"),
    ("descriptor", "descriptor"),
];

/// Objects of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct ObjectTotals {
    objects: u64,
    bytes: u64,
}

/// Content of the images of an archive, in bytes: `size = free + zero + data`.
#[derive(Clone, Copy, Debug, Default)]
struct ContentTotals {
    size_bytes: u64,
    free_bytes: u64,
    zero_bytes: u64,
    data_bytes: u64,
}

pub(super) fn run(arguments: &StatArgs) -> Outcome<Report> {
    let path = &arguments.archive;
    let archive = super::open(path)?;
    let cannot = |error: &ArchiveError| {
        Failure::of_archive(format!("cannot read the numbers of the archive `{}`", path.shown()), error)
    };
    let Manifests { images, unread } = Manifests::of(&archive);
    let contained = contained(&images);
    let mut stored = Vec::new();
    for (prefix, what) in KINDS {
        stored.push((what, objects_of(archive.store(), prefix).map_err(|error| cannot(&error))?));
    }
    let unneeded = unneeded(&archive).map_err(|error| cannot(&error))?;
    let total_bytes: u64 = stored.iter().map(|(_, stored)| stored.bytes).sum();
    let units = archive.descriptor().units;
    let (cut, unit_bytes) = kind_text(units);

    let mut table = TextTable::new(["stored", "objects", "bytes", ""]);
    for (what, stored) in &stored {
        table.row([(*what).to_owned(), grouped(stored.objects), grouped(stored.bytes), human(stored.bytes)]);
    }
    let objects: u64 = stored.iter().map(|(_, stored)| stored.objects).sum();
    table.row(["all".to_owned(), grouped(objects), grouped(total_bytes), human(total_bytes)]);
    let (exit, lines) = UnreadManifest::lines(&unread);
    let lines = if lines.is_empty() { lines } else { format!("\nnot counted:\n{lines}") };
    let text = format!(
        "{} of {}: {} free, {} zero, {} data\nunits of up to {} {cut}\n\n{table}\n{}{lines}",
        counted(images.len() as u64, "image"),
        human(contained.size_bytes),
        human(contained.free_bytes),
        human(contained.zero_bytes),
        human(contained.data_bytes),
        human(unit_bytes.into()),
        unneeded_text(unneeded.as_ref()),
    );
    let kinds: serde_json::Map<_, _> = KINDS
        .iter()
        .zip(&stored)
        .map(|((prefix, _), (_, stored))| {
            let name = prefix.trim_end_matches('/').to_owned();
            (name, json!({ "objects": stored.objects, "bytes": stored.bytes }))
        })
        .collect();
    let json = json!({
        "archive": machine_name(path),
        "id": archive.descriptor().archive.to_string(),
        "units": kind_name(units),
        "unit_bytes": unit_bytes,
        "images": images.len(),
        "unread": unread.iter().map(UnreadManifest::json).collect::<Vec<_>>(),
        "size_bytes": contained.size_bytes,
        "free_bytes": contained.free_bytes,
        "zero_bytes": contained.zero_bytes,
        "data_bytes": contained.data_bytes,
        "stored": kinds,
        "stored_bytes": total_bytes,
        "unneeded_bytes": unneeded.as_ref().map(CollectReport::unneeded_bytes),
        "unfinished_bytes": unneeded.as_ref().map(|report| report.running.bytes),
    });
    Ok(Report { text, json, exit })
}

fn contained(images: &[(ImageRecord, Manifest)]) -> ContentTotals {
    let mut sum = ContentTotals::default();
    for (_, manifest) in images {
        sum.size_bytes = sum.size_bytes.saturating_add(manifest.size_bytes);
        sum.free_bytes = sum.free_bytes.saturating_add(manifest.totals.free_bytes);
        sum.zero_bytes = sum.zero_bytes.saturating_add(manifest.totals.zero_bytes);
        sum.data_bytes = sum.data_bytes.saturating_add(manifest.totals.data_bytes);
    }
    sum
}

/// Returns what a collection would do; `None` if damage hides what an image needs.
fn unneeded(archive: &Archive) -> Result<Option<CollectReport>, ArchiveError> {
    let temporary = onefold_disk::temporary_folder();
    let options = CollectOptions { dry_run: true, ..CollectOptions::new(&temporary) };
    match archive.collect(&options, &SystemClock, &SystemRandom, &mut |_, _| ()) {
        Ok(report) => Ok(Some(report)),
        Err(ArchiveError::Unknown { .. } | ArchiveError::Ledger { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn unneeded_text(report: Option<&CollectReport>) -> String {
    let Some(report) = report else {
        return "no longer needed: unknown, because of damage; `onefold archive check` tells more".to_owned();
    };
    let unneeded = format!("no longer needed: {}", human(report.unneeded_bytes()));
    match report.running.objects {
        0 => unneeded,
        _ => format!("{unneeded}\nof captures that run or were killed: {}", human(report.running.bytes)),
    }
}

/// Counts the objects whose names begin with `prefix`.
fn objects_of(store: &dyn Store, prefix: &str) -> Result<ObjectTotals, ArchiveError> {
    let mut sum = ObjectTotals::default();
    let mut after = None;
    loop {
        let listed = store.list(prefix, after.as_ref())?;
        for object in &listed {
            sum.objects += 1;
            sum.bytes = sum.bytes.saturating_add(object.length_bytes);
        }
        match listed.into_iter().next_back() {
            Some(last) => after = Some(last.name),
            None => return Ok(sum),
        }
    }
}
