//! The file system below a pool that lies in a file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use onefold_block::block::BLOCK_BYTES_U64;
use onefold_block::device::FileRoom;
use onefold_pool::FsStat;

use crate::last_answer::LastAnswer;

/// Bytes in which `st_blocks` counts.
const SECTOR_BYTES: u64 = 512;

/// The regular file that holds a pool, and the file system that holds this file.
#[derive(Debug)]
pub struct FileBelow {
    file: Arc<File>,
    room: LastAnswer<FileRoom>,
}

impl FileBelow {
    /// Opens the file of a pool without reading it; `None` if a partition holds the pool.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn open(pool: &Path) -> io::Result<Option<FileBelow>> {
        // Such a descriptor releases no lock of this process when it is closed.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(pool)?;
        let is_file = file.metadata()?.is_file();
        Ok(is_file.then(|| FileBelow { file: Arc::new(file), room: LastAnswer::default() }))
    }

    /// Returns the number of blocks that the file takes on its file system.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn allocated_blocks(&self) -> io::Result<u64> {
        let sectors = u64::try_from(rustix::fs::fstat(&self.file)?.st_blocks).unwrap_or(0);
        Ok(sectors.saturating_mul(SECTOR_BYTES) / BLOCK_BYTES_U64)
    }

    /// Returns whether the file is sparse: parts of it take no space.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn is_sparse(&self) -> io::Result<bool> {
        Ok(self.allocated_blocks()? < self.file.metadata()?.len() / BLOCK_BYTES_U64)
    }

    /// Returns the numbers of a pool with no more space than the file system below has room for, by the rule that also
    /// decides whether a write is accepted. Free blocks of the pool need no room if the file still holds them and its
    /// file system writes in place. If the file system does not answer in time, its last answer counts.
    #[must_use]
    pub fn limit(&self, space: FsStat) -> FsStat {
        let file = self.file.clone();
        self.room.ask(move || FileRoom::of(&file)).map_or(space, |room| limited(space, room))
    }
}

fn limited(space: FsStat, room: FileRoom) -> FsStat {
    // The file holds these, too. All fixed blocks count: one that has no place yet will need room.
    let used = space.blocks.saturating_sub(space.blocks_free).saturating_add(space.blocks_fixed);
    let possible = room.blocks.saturating_add(room.held_blocks.saturating_sub(used));
    FsStat { blocks_available: space.blocks_available.min(possible), ..space }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn the_smaller_room_counts_and_free_blocks_that_the_file_holds_need_none() {
        let space =
            FsStat { blocks: 1000, blocks_fixed: 60, blocks_free: 900, blocks_available: 850, ..FsStat::default() };
        let of = |blocks, held_blocks| limited(space, FileRoom { blocks, held_blocks });
        let available = |room, held| of(room, held).blocks_available;
        assert_eq!(available(10_000, 160), 850, "the pool is the smaller one");
        assert_eq!(available(0, 100), 0, "seen: 850 where nothing was left");
        assert_eq!(available(0, 160), 0, "the fixed blocks hold no data");
        assert_eq!((available(20, 160), available(20, 190), available(u64::MAX, 50)), (20, 50, 850));
        assert_eq!(of(0, 0).blocks_free, 900);
    }

    #[test]
    fn a_file_tells_what_it_takes_and_a_folder_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 30).unwrap();
        file.write_all_at(&[1; 1 << 16], 0).unwrap();
        file.sync_all().unwrap();
        let below = FileBelow::open(&path).unwrap().unwrap();
        assert!(below.is_sparse().unwrap() && (16..1 << 10).contains(&below.allocated_blocks().unwrap()));
        let space = FsStat { blocks: 10, blocks_free: 10, blocks_available: 9, ..FsStat::default() };
        assert!(below.limit(space).blocks_available <= 9);
        assert!(FileBelow::open(folder.path()).unwrap().is_none());
        file.set_len(0).unwrap();
        assert!(!below.is_sparse().unwrap());
    }
}
