//! A file of 100,000 extents, a directory of 50,000 names, and holes of gigabytes.

use std::ops::ControlFlow;

use onefold_guest::filesystem::FileSystem;

use super::{check_everything, tools, tree, with_ntfs};
use crate::fixtures::{MADE, tell};

/// Each second cluster of a file is written, a third of the names is gone again, and a file of 5 GiB has three pieces.
const RECIPE: &str = r#"
python3 - <<'END'
import os
block_bytes = os.statvfs(".").f_bsize
with open("pieces", "wb", buffering=0) as file:
    for piece in range(100_000):
        os.pwrite(file.fileno(), b"%d" % piece, piece * 2 * block_bytes)
os.mkdir("names")
for number in range(75_000):
    open(f"names/a name {number}", "wb").close()
for number in range(0, 75_000, 3):
    os.unlink(f"names/a name {number}")
with open("sparse", "wb", buffering=0) as file:
    for place in (1 << 30, 3_000_000_001, (5 << 30) - 70_000):
        os.pwrite(file.fileno(), os.urandom(70_000), place)
END
"#;

#[test]
#[ignore = "it takes minutes, for make test-guest"]
fn a_file_of_100000_extents_50000_names_and_5_gib_of_holes_are_what_the_mount_shows() {
    if !tools() {
        return;
    }
    let Some(images) = check_everything("700M", &[], RECIPE) else { return };
    with_ntfs(&images.path("image"), |ntfs| {
        let found = tree(ntfs);
        let (pieces, stat) = &found["pieces"];
        let (mut extents, mut end) = (0, 0);
        ntfs.each_extent(*pieces, &mut |extent| {
            assert!(extents == 0 || extent.offset > end, "no hole before {extent:?}");
            extents += 1;
            end = extent.offset + extent.length_bytes;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!((extents, stat.allocated_bytes), (100_000, 100_000 * ntfs.facts().block_bytes));
        assert_eq!(found.keys().filter(|path| path.starts_with("names/")).count(), 50_000);
        let (_, sparse) = &found["sparse"];
        assert_eq!(sparse.size_bytes, 5 << 30);
        assert!(sparse.allocated_bytes < 1 << 20, "{sparse:?}");
    });
    tell(1, MADE);
}
