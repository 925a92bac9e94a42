//! Sessions with `onefold pool check`.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::{Folder, onefold};
use crate::transcript::Transcript;

/// Damages every copy of a block of a file in a pool. The pool holds the block as it is, once.
fn damage(pool: &Path, block: &[u8]) {
    let bytes = fs::read(pool).unwrap();
    let at = bytes.chunks(block.len()).position(|chunk| chunk == block).unwrap() * block.len();
    let file = OpenOptions::new().write(true).open(pool).unwrap();
    file.write_all_at(b"damage", at as u64 + 100).unwrap();
}

#[test]
fn data_that_no_repair_brings_back() {
    let folder = Folder::new();
    let pool = folder.pool();
    let (image, other) = (folder.noise("web.raw", 8), folder.image("db.raw", 1, 0));
    onefold("pool import", &[&pool, &image, &other]).done();
    let content = fs::read(&image).unwrap();
    damage(&pool, &content[4096..8192]);
    damage(&pool, &content[8192..12288]);
    let mut session = Transcript::in_folder(&folder.path("")).masking(&["at block", "blocks checked"]);
    session.run("pool check --quiet --data images.pool");
    session.run("pool check --quiet --data --repair images.pool");
    session.run("pool check --quiet --data images.pool");
    damage(&pool, &fs::read(&other).unwrap()[..4096]);
    session.run("pool check --quiet --data images.pool");
    session.assert_kept("check-lost-data");
}
