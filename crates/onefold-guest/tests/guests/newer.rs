//! Programs of the Debian 13 of the corpus, which are newer than those here, for the scripts that make file systems.

use std::fs::File;
use std::path::Path;

use onefold_disk::FileDisk;
use onefold_guest::partitions;

use crate::fixtures::skip;

const IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/corpus/cache/debian-13-xfs.raw");

/// Mounts a root, and has `mke2fs` and `mkfs.xfs` be its own, with its libraries and settings.
const PRELUDE: &str = r#"
mkdir -p newer; mount -o ro,norecovery,loop,offset=START 'IMAGE' newer; newer=$PWD/newer
newer() {
    local program=$newer/usr/sbin/$1; shift
    "$newer/lib64/ld-linux-x86-64.so.2" --library-path "$newer/usr/lib/x86_64-linux-gnu" "$program" "$@"
}
mke2fs() { MKE2FS_CONFIG=$newer/etc/mke2fs.conf newer mke2fs "$@"; }
mkfs.xfs() { newer mkfs.xfs "$@"; }
"#;

/// Returns what a script begins with that is to make file systems with the newer programs; `None`, and says why, where
/// the corpus was not built.
pub(crate) fn prelude() -> Option<String> {
    let path = Path::new(IMAGE);
    if !path.exists() {
        return skip("the corpus was not built");
    }
    let disk = FileDisk::new(File::open(path).unwrap(), path).unwrap();
    let root = partitions(&disk).unwrap().into_iter().max_by_key(|part| part.length_bytes).unwrap();
    Some(PRELUDE.replace("START", &root.start_bytes.to_string()).replace("IMAGE", IMAGE))
}
