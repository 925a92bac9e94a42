//! `onefold image list`

use onefold_image::ImageVersion;
use onefold_image::archive::{ImageRecord, LedgerHole};
use onefold_image::format::manifest::Manifest;
use serde_json::{Value, json};

use super::signed::{Signer, Signers};
use crate::calendar;
use crate::cli::image::ListArgs;
use crate::failure::{Exit, Outcome};
use crate::output::{Report, TextTable};
use crate::size::human;
use crate::verbs::archive;
use crate::verbs::archive::manifests::{Manifests, UnreadManifest};

pub(super) fn run(arguments: &ListArgs) -> Outcome<Report> {
    let archive = archive::open(&arguments.archive)?;
    let signers = Signers::read(&archive)?;
    let Manifests { images: read, unread } = Manifests::of(&archive);
    let mut images = Vec::new();
    for (record, manifest) in read {
        let signers = signers.of(&archive, &record)?;
        images.push((record, manifest, signers));
    }
    Ok(report(&images, &unread, archive.hole()))
}

/// Reports images, those whose manifests cannot be read, and the entry at which the ledger ends too early.
fn report(
    images: &[(ImageRecord, Manifest, Vec<Signer>)],
    unread: &[UnreadManifest],
    hole: Option<&LedgerHole>,
) -> Report {
    let mut table = TextTable::new(["image", "captured (UTC)", "size", "data", "new", "stored", "signed by"]);
    for (record, manifest, signers) in images {
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
    let (mut exit, lines) = UnreadManifest::lines(unread);
    let mut text = match (images.is_empty(), unread.is_empty()) {
        (true, true) => "no images".to_owned(),
        (true, false) => lines,
        (false, true) => table.to_string(),
        (false, false) => format!("{table}\n{lines}"),
    };
    if let Some(LedgerHole { position, what }) = hole {
        let text_end = format!("warning: images behind entry {position} of the ledger are hidden: {what}");
        text = format!("{}\n{text_end}", text.trim_end());
    }
    let images: Vec<Value> = images
        .iter()
        .map(|(record, manifest, signers)| {
            let mut json = json_of(&record.image, manifest);
            json["signers"] = signers.iter().map(Signer::json).collect();
            json
        })
        .collect();
    if hole.is_some() {
        exit = exit.worse(Exit::Damage);
    }
    let hole = hole.map(|hole| json!({ "entry": hole.position, "object": hole.object(), "what": hole.what }));
    let unread: Vec<Value> = unread.iter().map(UnreadManifest::json).collect();
    Report { text, json: json!({ "images": images, "unread": unread, "ledger_hole": hole }), exit }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use onefold_image::archive::Archive;
    use onefold_image::store::{FolderStore, ObjectName, Store};

    use super::*;
    use crate::failure::Exit;

    /// Regression: one damaged manifest hid all images.
    #[test]
    fn a_manifest_that_cannot_be_read_hides_no_other_image() {
        let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../onefold-image/samples/archive-1");
        let folder = tempfile::tempdir().unwrap();
        let store = FolderStore::open(folder.path()).unwrap();
        let kept = FolderStore::open(std::path::Path::new(sample)).unwrap();
        let objects = kept.list("", None).unwrap();
        for object in &objects {
            let bytes = kept.get(&object.name, onefold_image::store::ByteRange::Whole).unwrap();
            store.put(&object.name, &[&bytes]).unwrap();
        }
        let archive = Archive::open(Arc::new(store)).unwrap();
        let second = archive.images().pop().unwrap();
        let name = ObjectName::new(&format!("manifests/{}", second.manifest)).unwrap();
        archive.store().put(&name, &[b"damaged"]).unwrap();

        let Manifests { images, unread } = Manifests::of(&archive);
        let images: Vec<_> = images.into_iter().map(|(record, manifest)| (record, manifest, Vec::new())).collect();
        let hole = LedgerHole { position: 3, what: "it is cut".to_owned() };
        let holed = report(&images, &[], Some(&hole));
        assert_eq!((holed.exit, &holed.json["ledger_hole"]["entry"]), (Exit::Damage, &json!(3)));
        assert!(holed.text.ends_with("behind entry 3 of the ledger are hidden: it is cut"), "{}", holed.text);
        let report = report(&images, &unread, None);
        assert!(report.json["ledger_hole"].is_null());
        assert_eq!(report.exit, Exit::Damage);
        assert!(report.text.contains("debian/12@1 "), "{}", report.text);
        assert!(report.text.contains("cannot read the image `debian/12@2`"), "{}", report.text);
        assert_eq!(
            (report.json["images"].as_array().unwrap().len(), &report.json["unread"][0]["version"]),
            (1, &json!(2))
        );
    }
}
