//! Images that other tools and kernels made than those of this Debian: `onefold-hostile/samples/make-xfs.sh`.

use std::os::unix::fs::FileExt;
use std::path::Path;

use onefold_guest::filesystem::State;

use super::allocation::poison;
use super::dump::{crc32, dump};
use super::tree::must_be_as_mounted;
use super::{SHOW, empty, prepared, with_xfs};
use crate::fixtures::{has, skip};

/// Writes a sample as an image.
fn unpack(name: &str, path: &Path) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../onefold-hostile/samples");
    let sample = std::fs::read(folder.join(name)).unwrap();
    let number = |at: usize| u32::from_le_bytes(sample[at..at + 4].try_into().unwrap());
    let file = std::fs::File::create(path).unwrap();
    file.set_len(u64::from(number(0))).unwrap();
    let mut at = 8;
    while at < sample.len() {
        let (offset, length) = (number(at), number(at + 4) as usize);
        file.write_all_at(&sample[at + 8..at + 8 + length], u64::from(offset)).unwrap();
        at += 8 + length;
    }
}

#[test]
fn parent_pointers_and_exchange_range_read_as_mounted() {
    let Some(images) = empty() else { return };
    unpack("xfs-parents.sample", &images.path("image"));
    with_xfs(&images.path("image"), |xfs| {
        let features = &xfs.facts().features;
        assert!(["parent", "exchange"].iter().all(|name| features.iter().any(|feature| feature == name)));
    });
    let outcome = images.try_script(&prepared(SHOW), [""; 0]);
    if outcome.status.code() == Some(77) {
        return skip("this kernel does not know parent pointers").unwrap_or_default();
    }
    assert!(outcome.status.success(), "{outcome:?}");
    must_be_as_mounted(&images);
}

/// The CRC-32 of what `view.py` printed of the sample of version 4, mounted by Linux 6.1 in a guest.
const VERSION_4_VIEW: u32 = 0x5080_a5d2;

#[test]
fn version_4_with_trees_reads_as_an_older_kernel_showed_it_and_withstands_poison() {
    let Some(images) = empty() else { return };
    let path = images.path("image");
    unpack("xfs-4.sample", &path);
    let must_be_as_shown = || {
        with_xfs(&path, |xfs| {
            let view = dump(xfs).join("\n") + "\n";
            assert_eq!(crc32(view.as_bytes(), 0), VERSION_4_VIEW, "{view:.2000}");
            assert_eq!((xfs.state(), xfs.damage().first()), (&State::Certain, vec![]));
        });
    };
    must_be_as_shown();
    poison(&path);
    if has("xfs_repair") {
        images.script("xfs_repair -n -f image >repair 2>&1 || { cat repair >&2; false; }", [""; 0]);
    }
    must_be_as_shown();
}
