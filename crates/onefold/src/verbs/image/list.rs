//! `onefold image list`

use onefold_image::ImageVersion;
use onefold_image::archive::ArchiveError;
use onefold_image::format::manifest::Manifest;
use serde_json::{Value, json};

use super::signed::{Signer, Signers};
use crate::calendar;
use crate::cli::image::ListArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Report, TextTable};
use crate::size::human;
use crate::verbs::archive;

pub(super) fn run(arguments: &ListArgs) -> Outcome<Report> {
    let archive = archive::open(&arguments.archive)?;
    let signers = Signers::read(&archive)?;
    let mut images = Vec::new();
    for record in archive.images() {
        let manifest = match archive.manifest(&record) {
            Ok(manifest) => manifest,
            // Another host removed it a moment ago.
            Err(ArchiveError::Removed { .. }) => continue,
            Err(error) => {
                return Err(Failure::of_archive(format!("cannot read the image `{}`", record.image), &error));
            }
        };
        let signers = signers.of(&archive, &record)?;
        images.push((record, manifest, signers));
    }
    let mut table = TextTable::new(["image", "captured (UTC)", "size", "data", "new", "stored", "signed by"]);
    for (record, manifest, signers) in &images {
        table.row([
            record.image.to_string(),
            calendar::minute(manifest.captured.seconds),
            human(manifest.size_bytes),
            human(manifest.totals.data_bytes),
            human(manifest.totals.new_bytes),
            human(manifest.totals.stored_bytes),
            signers.iter().map(Signer::text).collect::<Vec<String>>().join(", "),
        ]);
    }
    let mut text = match images.is_empty() {
        true => "no images".to_owned(),
        false => table.to_string(),
    };
    let missing = archive.missing_entry();
    if let Some(entry) = missing {
        text = format!(
            "{}\nwarning: entry {entry} of the ledger is missing; images of later entries are hidden",
            text.trim_end()
        );
    }
    let images: Vec<Value> = images
        .iter()
        .map(|(record, manifest, signers)| {
            let mut json = json_of(&record.image, manifest);
            json["signers"] = signers.iter().map(Signer::json).collect();
            json
        })
        .collect();
    let exit = if missing.is_some() { Exit::Damage } else { Exit::Done };
    Ok(Report { text, json: json!({ "images": images, "missing_entry": missing }), exit })
}

/// Returns an image for programs.
pub(super) fn json_of(image: &ImageVersion, manifest: &Manifest) -> Value {
    let totals = &manifest.totals;
    json!({
        "image": image.to_string(),
        "name": image.name.as_str(),
        "version": image.version,
        "captured": calendar::iso(manifest.captured.seconds),
        "size_bytes": manifest.size_bytes,
        "free_bytes": totals.free_bytes,
        "zero_bytes": totals.zero_bytes,
        "data_bytes": totals.data_bytes,
        "units": totals.units,
        "new_units": totals.new_units,
        "new_bytes": totals.new_bytes,
        "stored_bytes": totals.stored_bytes,
    })
}
