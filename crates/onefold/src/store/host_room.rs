//! The space that a pool's file takes on the file system below it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use onefold_block::Show;
use rustix::fs::statvfs;
use serde_json::{Value, json};

use crate::machine_name::machine_name;
use crate::mounts;
use crate::size::human;

/// Bytes in which `st_blocks` counts.
const SECTOR_BYTES: u64 = 512;

/// The space of a pool's file, and what its file system has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostRoom {
    pool: PathBuf,
    /// The mount point of the file system that holds the file.
    mount_point: PathBuf,
    taken_bytes: u64,
    available_bytes: u64,
}

impl HostRoom {
    /// Returns the space of the pool's file `pool`; `None` for a partition, and for a file that this user cannot see.
    pub(crate) fn of(pool: &Path) -> Option<HostRoom> {
        let metadata = fs::metadata(pool).ok().filter(fs::Metadata::is_file)?;
        let below = statvfs(pool).ok()?;
        Some(HostRoom {
            pool: pool.to_owned(),
            mount_point: mounts::point_of(pool),
            taken_bytes: metadata.blocks().saturating_mul(SECTOR_BYTES),
            available_bytes: below.f_bavail.saturating_mul(below.f_frsize),
        })
    }

    /// Returns it for people. `free_bytes` is what the pool itself has left.
    pub(crate) fn text(&self, free_bytes: u64) -> String {
        let name = self.pool.file_name().unwrap_or(self.pool.as_os_str());
        let mut text = format!(
            "below: {} takes {} on {}, which has {} left",
            name.shown(),
            human(self.taken_bytes),
            self.mount_point.shown(),
            human(self.available_bytes)
        );
        if self.available_bytes < free_bytes {
            text.push_str(
                "\nnote: that is less than the pool has free, and writes fail once it is used up; after deletions, \
                 `onefold pool trim` gives space back",
            );
        }
        text
    }

    /// Returns it for machines.
    pub(crate) fn json(&self) -> Value {
        json!({
            "pool": machine_name(&self.pool),
            "mount_point": machine_name(&self.mount_point),
            "taken_bytes": self.taken_bytes,
            "available_bytes": self.available_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_sparse_file_takes_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("images.pool");
        let file = fs::File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        file.write_all_at(&[1; 65536], 0).unwrap();
        file.sync_all().unwrap();
        let room = HostRoom::of(&path).unwrap();
        assert!((65536..1 << 30).contains(&room.taken_bytes), "{room:?}");
        assert!(path.starts_with(&room.mount_point), "{room:?}");
        assert!(room.text(u64::MAX).contains("pool trim") && !room.text(0).contains("pool trim"), "{room:?}");
        assert_eq!(HostRoom::of(folder.path()), None);
    }
}
