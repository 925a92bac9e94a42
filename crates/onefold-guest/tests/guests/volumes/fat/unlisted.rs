//! Records behind the end of their directory: Linux and `fsck.fat` read on, and their clusters are not free.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use onefold_guest::filesystem::State;

use super::super::{disk, whole};
use super::{first_cluster_place, free_ranges, make, open, tools, tree};
use crate::fixtures::Images;

/// A FAT16 with clusters of 2 KiB, whose bytes a test changes.
struct Volume<'i> {
    images: &'i Images,
    image: File,
    /// The first bytes of both tables.
    tables: [u64; 2],
}

impl Volume<'_> {
    fn new(images: &Images) -> Volume<'_> {
        make(images, "-F 16 -s 4 -f 2", "30000");
        let bytes = fs::read(images.path("image")).unwrap();
        let word = |at: usize| u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let start = word(14) * 512;
        let image = File::options().read(true).write(true).open(images.path("image")).unwrap();
        Volume { images, image, tables: [start, start + word(22) * 512] }
    }

    /// Returns the place of a file's record.
    fn record(&self, path: &str) -> u64 {
        let disk = disk(&self.images.path("image"));
        tree(&*open(&whole(&disk)))[path].0
    }

    fn word(&self, at: u64) -> u16 {
        let mut word = [0; 2];
        self.image.read_exact_at(&mut word, at).unwrap();
        u16::from_le_bytes(word)
    }

    /// Ends the directory before a record, as if its predecessor had never been.
    fn end_before(&self, record: u64) {
        self.image.write_all_at(&[0], record - 32).unwrap();
    }

    /// Sets the entry of a cluster in both tables.
    fn set_entry(&self, cluster: u16, entry: u16) {
        for table in self.tables {
            self.image.write_all_at(&entry.to_le_bytes(), table + u64::from(cluster) * 2).unwrap();
        }
    }

    /// Returns whether each of some clusters is free, and asserts that the volume is certain, that `unlisted` is not
    /// listed, and that `fsck.fat` visits it.
    fn are_free(&self, clusters: &[u16], unlisted: &str) -> Vec<bool> {
        let disk = disk(&self.images.path("image"));
        let fat = open(&whole(&disk));
        assert_eq!(*fat.state(), State::Certain);
        assert!(!tree(&*fat).contains_key(unlisted), "{unlisted}");
        let checked = self.images.script("fsck.fat -nvl image || true", [""; 0]);
        assert!(checked.contains(unlisted.to_uppercase().as_str()), "{checked}");
        let (free, start) = (free_ranges(&*fat), first_cluster_place(&*fat));
        assert!(!free.is_empty());
        let place = |cluster: u16| start + (u64::from(cluster) - 2) * fat.facts().block_bytes;
        clusters.iter().map(|cluster| free.iter().any(|range| range.contains(&place(*cluster)))).collect()
    }
}

#[test]
fn clusters_of_records_behind_the_end_of_a_directory_are_not_free() {
    let Some(images) = tools() else { return };
    let volume = Volume::new(&images);
    let file = volume.record("/folder/4097");
    let first = volume.word(file + 26);
    let second = volume.word(volume.tables[0] + u64::from(first) * 2);
    let third = volume.word(volume.tables[0] + u64::from(second) * 2);
    volume.end_before(file);
    assert_eq!(volume.are_free(&[first, second, third], "/folder/4097"), [false; 3]);
    // A file is read as far as entries lead.
    volume.set_entry(second, 0);
    volume.set_entry(third, 0);
    assert_eq!(volume.are_free(&[first, second, third], "/folder/4097"), [false, false, true]);
    volume.set_entry(first, 0);
    assert_eq!(volume.are_free(&[first, second, third], "/folder/4097"), [false, true, true]);
}

#[test]
fn files_in_a_directory_behind_the_end_of_another_one_are_not_free() {
    let Some(images) = tools() else { return };
    let volume = Volume::new(&images);
    let (folder, file) = (volume.record("/folder"), volume.record("/folder/4097"));
    let first = volume.word(file + 26);
    volume.end_before(folder);
    volume.set_entry(first, 0);
    assert_eq!(volume.are_free(&[first], "/folder/4097"), [false]);
}
