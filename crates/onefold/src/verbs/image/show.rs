//! `onefold image show`

use std::fmt::Write;

use onefold_image::archive::ImageRecord;
use onefold_image::format::manifest::{CaptureWay, CapturedVolume, Manifest};
use serde_json::{Value, json};

use super::find_manifest;
use super::list::json_of;
use crate::calendar;
use crate::cli::image::ShowArgs;
use crate::failure::Outcome;
use crate::output::{Report, TextTable};
use crate::size::{counted, grouped, human};
use crate::verbs::archive;

pub(super) fn run(arguments: &ShowArgs) -> Outcome<Report> {
    let archive = archive::open(&arguments.archive)?;
    let (record, manifest) = find_manifest(&archive, &arguments.archive, &arguments.image)?;
    let mut json = json_of(&record.image, &manifest);
    json["chunks"] = manifest.chunks.len().into();
    json["volumes"] = manifest.volumes.iter().map(volume_json).collect();
    Ok(Report::done(text(&record, &manifest), json))
}

fn volume_json(volume: &CapturedVolume) -> Value {
    let (way, reason) = match &volume.way {
        CaptureWay::Map => ("map", None),
        CaptureWay::Raw(reason) => ("raw", Some(reason)),
    };
    json!({
        "start_bytes": volume.start_bytes,
        "length_bytes": volume.length_bytes,
        "content": volume.content,
        "captured": way,
        "reason": reason,
        "taken_bytes": volume.taken_bytes,
        "unread_bytes": volume.unread_bytes,
    })
}

fn text(record: &ImageRecord, manifest: &Manifest) -> String {
    let totals = &manifest.totals;
    let mut text = format!("{}, captured {} UTC\n\n", record.image, calendar::minute(manifest.captured.seconds));
    if !manifest.volumes.is_empty() {
        let mut table = TextTable::new(["volume", "at byte", "length", "taken", "captured"]);
        for volume in &manifest.volumes {
            table.row([
                volume.content.clone(),
                grouped(volume.start_bytes),
                human(volume.length_bytes),
                human(volume.taken_bytes),
                match &volume.way {
                    CaptureWay::Map => "by its map".to_owned(),
                    CaptureWay::Raw(_) => "raw".to_owned(),
                },
            ]);
        }
        let _ = writeln!(text, "{table}\n");
    }
    for volume in &manifest.volumes {
        if let CaptureWay::Raw(reason) = &volume.way {
            let (content, taken) = (&volume.content, human(volume.taken_bytes));
            let start = grouped(volume.start_bytes);
            let _ = writeln!(text, "{content} at byte {start} was captured raw, {taken}: {reason}");
        }
    }
    for volume in manifest.volumes.iter().filter(|volume| volume.unread_bytes > 0) {
        let (content, unread) = (&volume.content, human(volume.unread_bytes));
        let start = grouped(volume.start_bytes);
        let _ = writeln!(text, "{content} at byte {start}: {unread} that nothing reads count as zero");
    }
    if manifest.volumes.iter().any(|volume| volume.unread_bytes > 0 || matches!(volume.way, CaptureWay::Raw(_))) {
        text.push('\n');
    }
    let mut table = TextTable::new(["disk", "bytes", ""]);
    let rows = [
        ("free", totals.free_bytes),
        ("zero", totals.zero_bytes),
        ("data", totals.data_bytes),
        ("size", manifest.size_bytes),
    ];
    for (what, bytes) in rows {
        table.row([what.to_owned(), grouped(bytes), human(bytes)]);
    }
    let shared_bytes = totals.data_bytes.saturating_sub(totals.new_bytes);
    let _ = write!(
        text,
        "{table}\n\n{} in {}; new: {} of {}, stored in {}; known: {}",
        counted(totals.units, "unit"),
        counted(manifest.chunks.len() as u64, "chunk"),
        counted(totals.new_units, "unit"),
        human(totals.new_bytes),
        human(totals.stored_bytes),
        human(shared_bytes),
    );
    text
}
