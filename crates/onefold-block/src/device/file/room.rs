//! How much more a file can take from its file system.

use std::fs::File;

use super::places::has_places;
use crate::BLOCK_BYTES_U64;

/// The numbers by which `statfs(2)` names Btrfs, bcachefs and ZFS. They never write in place, so even a fully written
/// file takes more room.
const NEVER_IN_PLACE: [u64; 3] = [0x9123_683e, 0xca45_1a4e, 0x2fc1_2fc1];

/// The numbers of ext4, XFS, OCFS2 and GFS2. They write in place where a file does not share blocks, and their maps of
/// files tell of shared ones. Others give no promise: overlayfs hands out the map of the file system below, which may
/// write elsewhere, and some maps tell nothing of sharing.
const PROMISING: [u64; 4] = [0xef53, 0x5846_5342, 0x7461_636f, 0x0116_1970];

/// Unit of `st_blocks`, in bytes.
const STAT_SECTOR_BYTES: u64 = 512;

/// The room that a regular file has on its file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileRoom {
    /// Blocks that the file system has room for.
    pub blocks: u64,
    /// Blocks that the file takes, and that can be written again without room unless another file shares them. None on
    /// a file system that never writes in place.
    pub held_blocks: u64,
}

impl FileRoom {
    /// Returns the room of a regular file, which may be open as a mere path. If the system does not answer, no room is
    /// assumed.
    #[must_use]
    pub fn of(file: &File) -> FileRoom {
        FileUse::of(file).map_or_else(FileRoom::default, |file_use| file_use.room())
    }
}

/// Size of a regular file, and its share of the file system.
#[derive(Clone, Copy, Debug)]
struct FileUse {
    size_bytes: u64,
    /// Includes the file system's own records of the file.
    allocated_bytes: u64,
    /// Free bytes of the file system for an ordinary user.
    available_bytes: u64,
    is_in_place: bool,
    /// Whether the map of the file can show that its blocks need no more room.
    is_promising: bool,
}

impl FileUse {
    fn of(file: &File) -> Option<FileUse> {
        let stat = rustix::fs::fstat(file).ok()?;
        let host = rustix::fs::fstatfs(file).ok()?;
        // Network file systems and FUSE count in fragments that are smaller than a block.
        let unit = if host.f_frsize > 0 { host.f_frsize } else { host.f_bsize };
        Some(FileUse {
            size_bytes: u64::try_from(stat.st_size).unwrap_or(u64::MAX),
            allocated_bytes: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(STAT_SECTOR_BYTES),
            available_bytes: host.f_bavail.saturating_mul(u64::try_from(unit).unwrap_or(0)),
            is_in_place: u64::try_from(host.f_type).is_ok_and(|number| !NEVER_IN_PLACE.contains(&number)),
            is_promising: u64::try_from(host.f_type).is_ok_and(|number| PROMISING.contains(&number)),
        })
    }

    fn room(self) -> FileRoom {
        let held_blocks = if self.is_in_place { self.allocated_bytes / BLOCK_BYTES_U64 } else { 0 };
        FileRoom { blocks: self.available_bytes / BLOCK_BYTES_U64, held_blocks }
    }

    /// Returns whether each block has a place that is the file's alone. `has_places` reads that from the map of the
    /// first bytes of the file; the numbers alone only show that some block has none.
    fn has_room_for_all_blocks(self, has_places: impl FnOnce(u64) -> bool) -> bool {
        let may_be_dense = self.allocated_bytes >= self.size_bytes.next_multiple_of(BLOCK_BYTES_U64);
        self.is_promising && may_be_dense && has_places(self.size_bytes)
    }
}

/// Returns how many blocks the file system of a regular file has room for.
pub(super) fn room_blocks(file: &File) -> u64 {
    FileRoom::of(file).blocks
}

/// Tells whether each block of a regular file is known to have a place that is the file's alone.
pub(super) fn has_room_for_all_blocks(file: &File) -> bool {
    FileUse::of(file).is_some_and(|file_use| file_use.has_room_for_all_blocks(|bytes| has_places(file, bytes)))
}

#[cfg(test)]
mod tests {
    use rustix::fs::FallocateFlags;

    use super::*;
    use crate::device::file::{BlockDevice, FileDevice, OpenMode};
    use crate::{AlignedBuffer, BLOCK_BYTES, BlockNo};

    fn file_use(allocated_kib: u64, is_in_place: bool) -> FileUse {
        let (size_bytes, available_bytes) = (400 << 10, 40 << 10);
        FileUse {
            size_bytes,
            allocated_bytes: allocated_kib << 10,
            available_bytes,
            is_in_place,
            is_promising: is_in_place,
        }
    }

    #[test]
    fn a_file_holds_places_only_where_its_file_system_writes_in_place() {
        let room = |allocated, is_in_place| file_use(allocated, is_in_place).room();
        assert_eq!(room(200, true), FileRoom { blocks: 10, held_blocks: 50 });
        assert_eq!(room(400, true), FileRoom { blocks: 10, held_blocks: 100 });
        assert_eq!(room(200, false), FileRoom { blocks: 10, held_blocks: 0 });
        assert_eq!(room(400, false), FileRoom { blocks: 10, held_blocks: 0 });
        let has_room = |allocated, is_in_place, map| file_use(allocated, is_in_place).has_room_for_all_blocks(|_| map);
        assert!(has_room(400, true, true));
        assert!(!has_room(400, true, false), "shared with a copy, or a hole behind records of a fragmented file");
        assert!(!has_room(200, true, true) && !has_room(400, false, true));
        let over_another = FileUse { is_promising: false, ..file_use(400, true) };
        assert!(!over_another.has_room_for_all_blocks(|_| true), "the map is that of a file system below");
    }

    #[test]
    fn a_sparse_file_has_the_room_of_its_host_until_it_is_written_in_full() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        file.as_file().set_len(4 * BLOCK_BYTES_U64).unwrap();
        let device = FileDevice::open(file.path(), OpenMode::ReadWrite).unwrap();
        assert!(device.room_blocks().is_some_and(|blocks| blocks > 0));
        assert!(!device.has_room_for_all_blocks());
        device.write(BlockNo(0), &AlignedBuffer::copy_of(&[7; 4 * BLOCK_BYTES])).unwrap();
        device.sync().unwrap();
        let host = rustix::fs::fstatfs(file.as_file()).unwrap();
        if u64::try_from(host.f_type).is_ok_and(|number| !NEVER_IN_PLACE.contains(&number)) {
            assert!(device.has_room_for_all_blocks());
            device.discard(BlockNo(1), 2).unwrap();
            assert!(device.room_blocks().is_some() && !device.has_room_for_all_blocks(), "it has a hole");
        }
    }

    /// Found in a review: ext4 keeps the map of a file in pieces in blocks of its own and counts them
    /// with the file's, so a file with as many holes counted as one that needs no room.
    #[test]
    fn a_hole_shows_although_the_records_of_a_fragmented_file_make_up_for_it() {
        let blocks = 64;
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        let allocated = rustix::fs::fallocate(file.as_file(), FallocateFlags::empty(), 0, blocks * BLOCK_BYTES_U64);
        if allocated.is_err() {
            eprintln!("skipped: no space can be set aside here");
            return;
        }
        let device = FileDevice::open(file.path(), OpenMode::ReadWrite).unwrap();
        for block in (0..blocks).step_by(4) {
            device.write(BlockNo(block), &AlignedBuffer::copy_of(&[7; BLOCK_BYTES])).unwrap();
        }
        device.sync().unwrap();
        device.discard(BlockNo(2), 1).unwrap();
        assert!(device.room_blocks().is_some_and(|blocks| blocks > 0) && !device.has_room_for_all_blocks());
    }
}
