//! Sessions with `onefold share`.

use std::fs;
use std::path::Path;

use onefold_block::random::{Random, SeededRandom};

use crate::common::Folder;
use crate::file_system::FileSystem;
use crate::transcript::Transcript;

/// Writes `mib` MiB of content made from `seed`.
fn image(path: &Path, seed: u64, mib: usize) {
    let mut content = vec![0; mib << 20];
    SeededRandom::new(seed).fill(&mut content).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn a_file_system_without_notes() {
    let folder = Folder::new();
    let Some(file_system) = FileSystem::new(&folder, "xfs", "data") else { return };
    image(&file_system.path().join("a.raw"), 1, 1);
    let mut session = Transcript::in_folder(&folder.path(""));
    session.run("share status data").done();
    session.assert_kept("share-nothing-known");
}
