//! XFS against the kernel, `xfs_db` and `xfs_repair`.

mod allocation;
mod directory;
mod dirty;
mod dump;
mod freed;
mod log;
mod matrix;
mod refused;
mod samples;
mod shared;
mod tree;
mod version4;

use std::path::Path;

use onefold_disk::{CachedDisk, Disk, FileDisk};
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::FileSystem;
use onefold_guest::volume::{DiskRange, Volume, VolumeOrigin, VolumeReader};
use onefold_guest::xfs;

use crate::fixtures::{Images, has};

/// Makes `image` with the options of `mkfs.xfs` in the second argument, fills it by the recipe with its further
/// arguments, and writes what the kernel shows of it, mounted again, into `view`, and its free space into `fsmap`.
/// Small file systems are made as the tests of XFS itself make them.
const MAKE: &str = r#"
export TEST_DIR=. TEST_DEV=image QA_CHECK_FS=1
truncate -s "$1" image
eval "mkfs.xfs -q $2 image"
mkdir -p mounted
mount -o loop image mounted
python3 "$RECIPES/recipe.py" mounted "${@:3}"
umount mounted
"#;

/// Mounts `image`, and writes what the kernel shows of it.
const SHOW: &str = r#"
mkdir -p mounted
mount -o loop,ro,noatime image mounted || exit 77
python3 "$RECIPES/view.py" mounted > view
xfs_io -c fsmap mounted > fsmap
stat --file-system --format '%c %d' mounted > inodes
umount mounted
"#;

/// Returns a folder with `image` and what the kernel shows of it: the files in `view`, its free space in `fsmap`, and
/// the number of `inodes`; `None` where the tools are missing.
fn make(size: &str, options: &str, recipe: &[&str]) -> Option<Images> {
    make_after("", size, options, recipe)
}

/// As [`make`], with a prelude to the script that makes it.
fn make_after(prelude: &str, size: &str, options: &str, recipe: &[&str]) -> Option<Images> {
    let images = empty()?;
    let arguments = [size, options].into_iter().chain(recipe.iter().copied());
    images.script(&prepared(&format!("{prelude}{MAKE}{SHOW}")), arguments);
    Some(images)
}

/// Returns an empty folder; `None` where the tools are missing.
fn empty() -> Option<Images> {
    let has_tools = ["mkfs.xfs", "xfs_io", "python3", "setfacl"].iter().all(|program| has(program));
    if has_tools { Images::new() } else { None }
}

/// Lets a script work on the files of its folder in memory, where a sync costs nothing, and tells it where the recipes
/// are.
fn prepared(script: &str) -> String {
    let recipes = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/xfs");
    let copy = "find . -maxdepth 1 -type f -exec cp --sparse=always --target-directory";
    format!(
        "RECIPES={recipes}; mkdir -p memory; mount -t tmpfs none memory; {copy} memory {{}} +; cd memory
        {script}
        {copy} .. {{}} +"
    )
}

/// Calls `then` with the file system in the file at a path.
fn with_xfs<T>(path: &Path, then: impl FnOnce(&dyn FileSystem) -> T) -> T {
    with_outcome(path, |outcome| then(&outcome.unwrap().expect("an XFS file system")))
}

/// Calls `then` with the outcome of opening the file at a path.
fn with_outcome<T>(path: &Path, then: impl FnOnce(Result<Option<xfs::Xfs<'_>>, GuestError>) -> T) -> T {
    let file = FileDisk::new(std::fs::File::open(path).unwrap(), path).unwrap();
    let disk = CachedDisk::new(&file, 16 << 20);
    let ranges = vec![DiskRange { start_bytes: 0, length_bytes: disk.size_bytes() }];
    let volume = Volume { origin: VolumeOrigin::WholeDisk, ranges };
    then(xfs::open(VolumeReader::new(&disk, &volume)))
}
