//! The answer of `onefold image install --dry-run` about a target that exists: is it still as it was installed?

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use onefold_block::Show;
use onefold_image::format::manifest::Manifest;
use onefold_image::install::Differences;
use onefold_image::{ArchivedDisk, ImageSource, ImageVersion};
use serde_json::{Map, Value, json};

use crate::output::TextTable;
use crate::size::human;
use crate::verbs::guest::{PlaceUse, files_at, path_members};

/// Memory for what is read of the image to name its files.
const DISK_BYTES: usize = 32 << 20;
/// Maximum number of files that are listed for people. The document has those of all places that are listed.
const FILES_SHOWN_MAX: usize = 50;

/// Differences of a target from an image, with the files of the guest that they hit.
pub(super) struct TargetComparison {
    differences: Differences,
    /// Bytes that differ, by file of the image, the most first.
    files: Vec<(PlaceUse, u64)>,
    /// Why no files are named.
    unnamed: Option<String>,
}

impl TargetComparison {
    /// Names the files of the image that differences hit.
    pub(super) fn new(
        differences: Differences,
        source: &Arc<dyn ImageSource>,
        manifest: &Manifest,
    ) -> TargetComparison {
        if differences.places.is_empty() {
            return TargetComparison { differences, files: Vec::new(), unnamed: None };
        }
        let disk = ArchivedDisk::new(Arc::clone(source), manifest.clone(), DISK_BYTES);
        let offsets: Vec<u64> = differences.places.iter().map(|place| place.offset).collect();
        let (mut sums, mut unnamed) = (BTreeMap::new(), None);
        match files_at(&disk, &offsets) {
            Ok(uses) => {
                for (place_use, place) in uses.into_iter().zip(&differences.places) {
                    *sums.entry(place_use).or_insert(0_u64) += place.length_bytes;
                }
            }
            Err(error) => unnamed = Some(error.to_string()),
        }
        let mut files: Vec<(PlaceUse, u64)> = sums.into_iter().collect();
        files.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        TargetComparison { differences, files, unnamed }
    }

    /// Returns what to say to people.
    pub(super) fn text(&self, image: &ImageVersion, target: &Path) -> String {
        let Differences { same_bytes, other_bytes, nonzero_bytes, .. } = self.differences;
        if self.differences.is_none() {
            return format!("{} is as {image} was installed: {} of data", target.shown(), human(same_bytes));
        }
        let mut text = format!(
            "{image} fits on {}: {} of data would be written, {} zeroed; {} are there already",
            target.shown(),
            human(other_bytes),
            human(nonzero_bytes),
            human(same_bytes)
        );
        if let Some(why) = &self.unnamed {
            text += &format!("\nthe files that differ cannot be named: {why}");
        }
        if !self.files.is_empty() {
            text += &format!("\n{}", self.table());
        }
        if self.differences.unlisted_bytes > 0 && !self.files.is_empty() {
            text += &format!("\n{} more differ, and are not listed by file", human(self.differences.unlisted_bytes));
        }
        if self.files.len() > FILES_SHOWN_MAX {
            text += &format!("\n{} further files; --json lists them", self.files.len() - FILES_SHOWN_MAX);
        }
        text
    }

    fn table(&self) -> TextTable {
        let mut table = TextTable::new(["differs", "volume", "file"]);
        for (place_use, bytes) in self.files.iter().take(FILES_SHOWN_MAX) {
            let path = place_use.path.as_ref().map(|path| path.shown().to_string());
            let path = path.unwrap_or_else(|| "none with a name".to_owned());
            table.row([human(*bytes), place_use.volume.clone().unwrap_or_else(|| "none".to_owned()), path]);
        }
        table
    }

    /// Returns the members of the document.
    pub(super) fn json(&self) -> Value {
        let file = |(place_use, bytes): &(PlaceUse, u64)| {
            let mut members = Map::new();
            if let Some(path) = &place_use.path {
                members = path_members("path", path);
            }
            members.insert("volume".to_owned(), place_use.volume.clone().into());
            members.insert("bytes".to_owned(), (*bytes).into());
            Value::Object(members)
        };
        json!({
            "same_bytes": self.differences.same_bytes,
            "other_bytes": self.differences.other_bytes,
            "nonzero_bytes": self.differences.nonzero_bytes,
            "unlisted_bytes": self.differences.unlisted_bytes,
            "files": self.files.iter().map(file).collect::<Vec<Value>>(),
        })
    }
}
