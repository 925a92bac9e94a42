//! The files of guests that lost units of an image hit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use onefold_block::Show;
use onefold_disk::{CachedDisk, Disk};
use onefold_guest::budget::Budget;
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::FileNumber;
use onefold_guest::guest::{Guest, Owner};
use onefold_guest::tree::{Crossing, Links, Tree, Visitor, WalkEntry, WalkError, WalkStep};
use onefold_image::archive::{Archive, CheckReport, ImageRecord};
use onefold_image::{ArchivedDisk, ImageVersion, SECTOR_BYTES};
use serde_json::{Value, json};

use crate::size::{counted, human};
use crate::verbs::guest::{origin, path_members};

/// Memory for units of the image, pages of the disk, and allocation maps.
const UNITS_BYTES: usize = 32 << 20;
const CACHE_BYTES: usize = 16 << 20;
const MAP_BYTES: usize = 128 << 20;
/// Maximum number of images whose files are looked for, of gaps of an image, and of places in a gap.
const IMAGES_MAX: usize = 20;
const GAPS_MAX: usize = 2000;
const PLACES_MAX: usize = 5000;
/// Distance of the places in a gap whose owners are looked for. No file system here has smaller blocks of files.
const STEP_BYTES: u64 = 4096;
/// Maximum number of files of an image that are reported.
const FILES_MAX: usize = 100;

/// Files and places that the damage of one image hits.
pub(super) struct ImageHits {
    image: ImageVersion,
    /// Damaged bytes, as far as places are known.
    bytes: u64,
    /// Volumes and paths of files; bytes of the guest.
    files: BTreeSet<(String, Vec<u8>)>,
    /// Whether files may be missing here: not all places were looked at, or names could not be read.
    is_partial: bool,
}

/// Returns the files that the lost units of a check hit, for the first damaged images.
pub(super) fn find(archive: &Arc<Archive>, found: &CheckReport) -> Vec<ImageHits> {
    let damaged: BTreeSet<&ImageVersion> = found.damages.iter().flat_map(|damage| &damage.images).collect();
    let records = archive.images();
    let records = records.iter().filter(|record| damaged.contains(&record.image));
    records.take(IMAGES_MAX).filter_map(|record| of_image(archive, found, record)).collect()
}

/// Returns what the damage of an image hits; `None` if its manifest is damaged, too.
fn of_image(archive: &Arc<Archive>, found: &CheckReport, record: &ImageRecord) -> Option<ImageHits> {
    let manifest = archive.manifest(record).ok()?;
    let disk = ArchivedDisk::damaged(archive.clone(), manifest, UNITS_BYTES);
    let gaps = disk.find_gaps(&found.lost).ok()?;
    let bytes = gaps.iter().map(|gap| gap.end - gap.start).sum();
    let mut hits =
        ImageHits { image: record.image.clone(), bytes, files: BTreeSet::new(), is_partial: gaps.len() > GAPS_MAX };
    let places = places_in(&gaps, &mut hits.is_partial);
    let cached = CachedDisk::new(&disk as &dyn Disk, CACHE_BYTES);
    if name_files(&cached, &places, &mut hits).is_err() {
        hits.is_partial = true;
    }
    Some(hits)
}

/// Returns places in gaps, so close that none misses a file.
fn places_in(gaps: &[Range<u64>], is_partial: &mut bool) -> Vec<u64> {
    let mut places = Vec::new();
    for gap in gaps.iter().take(GAPS_MAX) {
        let first = gap.start / STEP_BYTES * STEP_BYTES;
        let steps = (first..gap.end).step_by(usize::try_from(STEP_BYTES).unwrap_or(usize::MAX));
        places.extend(steps.map(|place| place.max(gap.start)).take(PLACES_MAX + 1));
        if places.len() > PLACES_MAX {
            *is_partial = true;
            places.truncate(PLACES_MAX);
            break;
        }
    }
    places
}

/// Adds the names of the files that have these places.
fn name_files(disk: &dyn Disk, places: &[u64], hits: &mut ImageHits) -> Result<(), GuestError> {
    let guest = Guest::open(disk)?.with_budget(Budget::new(MAP_BYTES));
    let owners: Vec<Owner> = guest.owning_files(places)?;
    let mut by_volume: BTreeMap<usize, BTreeSet<FileNumber>> = BTreeMap::new();
    for owner in &owners {
        let Some((volume, _)) = owner.volume else { continue };
        by_volume.entry(volume).or_default().extend(owner.files.iter().map(|file| file.file));
    }
    for (at, wanted) in by_volume {
        let Some(volume) = guest.volumes().get(at) else { continue };
        let Some(system) = volume.file_system().filter(|_| !wanted.is_empty()) else { continue };
        let tree = Tree::new(system);
        let origin = origin(&volume.volume.origin);
        let mut namer = Namer { origin, wanted, named: BTreeSet::new(), hits };
        let root = match tree.find(b"/", Links::Keep) {
            Ok(root) => root,
            Err(_) => {
                hits.is_partial = true;
                continue;
            }
        };
        namer.note(root.file.file, b"/");
        if tree.walk(&root, Crossing::Stay, &mut namer).is_err() || namer.named.len() < namer.wanted.len() {
            hits.is_partial = true;
        }
    }
    Ok(())
}

/// Collects the names of files in a walk over all files of a volume.
struct Namer<'h> {
    origin: String,
    wanted: BTreeSet<FileNumber>,
    named: BTreeSet<FileNumber>,
    hits: &'h mut ImageHits,
}

impl Namer<'_> {
    fn note(&mut self, file: FileNumber, path: &[u8]) {
        if !self.wanted.contains(&file) {
            return;
        }
        self.named.insert(file);
        if self.hits.files.len() < FILES_MAX {
            self.hits.files.insert((self.origin.clone(), path.to_vec()));
        } else {
            self.hits.is_partial = true;
        }
    }
}

impl Visitor for Namer<'_> {
    fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep {
        self.note(entry.file.file, entry.path);
        WalkStep::Enter
    }

    fn failed(&mut self, _: &[u8], _: WalkError) {
        self.hits.is_partial = true;
    }
}

/// Returns what an image's damage hits, in lines.
pub(super) fn text(hits: &[ImageHits]) -> String {
    let mut text = String::new();
    for ImageHits { image, bytes, files, is_partial } in hits {
        let more = if *is_partial { ", and perhaps others" } else { "" };
        text.push_str(&format!(
            "{image}: {} damaged, in {}{more}\n",
            human((*bytes).next_multiple_of(SECTOR_BYTES)),
            counted(files.len() as u64, "file")
        ));
        for (volume, path) in files {
            text.push_str(&format!("  {volume}: {}\n", path.shown()));
        }
    }
    text
}

/// Returns what an image's damage hits, for programs.
pub(super) fn json(hits: &[ImageHits]) -> Vec<Value> {
    let of_file = |(volume, path): &(String, Vec<u8>)| {
        let mut members = path_members("path", path);
        members.insert("volume".to_owned(), volume.as_str().into());
        Value::Object(members)
    };
    let of_image = |hits: &ImageHits| {
        json!({
            "image": hits.image.to_string(),
            "damaged_bytes": hits.bytes,
            "files": hits.files.iter().map(of_file).collect::<Vec<Value>>(),
            "is_partial": hits.is_partial,
        })
    };
    hits.iter().map(of_image).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_so_close_that_each_block_of_a_gap_has_one() {
        let mut is_partial = false;
        assert_eq!(places_in(&[5000..13000, 20480..20481], &mut is_partial), [5000, 8192, 12288, 20480]);
        assert!(!is_partial);
        assert_eq!(places_in(&[0..1 << 40, 1 << 40..u64::MAX], &mut is_partial).len(), PLACES_MAX);
        assert!(is_partial);
    }
}
