//! How much more a file can take from its file system.

use std::fs::File;

use super::places::has_places;
use crate::BLOCK_BYTES_U64;

/// The numbers by which `statfs(2)` names Btrfs, bcachefs and ZFS. They never write in place, so even a fully written
/// file takes more room.
const NEVER_IN_PLACE: [u64; 3] = [0x9123_683e, 0xca45_1a4e, 0x2fc1_2fc1];

/// Unit of `st_blocks`, in bytes.
const STAT_SECTOR_BYTES: u64 = 512;

/// The room that a regular file has on its file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileRoom {
    /// Blocks that the file system has room for.
    pub blocks: u64,
    /// Blocks of the file that have their place and can be written again without room. None on a file system that never
    /// writes in place.
    pub held_blocks: u64,
}

impl FileRoom {
    /// Returns the room of a regular file, which may be open as a mere path; `None` if each block of the file already
    /// has its place. If the system does not answer, no room is assumed.
    #[must_use]
    pub fn of(file: &File) -> Option<FileRoom> {
        let (Ok(stat), Ok(host)) = (rustix::fs::fstat(file), rustix::fs::fstatfs(file)) else {
            return Some(FileRoom::default());
        };
        let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(STAT_SECTOR_BYTES);
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        // Network file systems and FUSE count in fragments that are smaller than a block.
        let unit = if host.f_frsize > 0 { host.f_frsize } else { host.f_bsize };
        let available = host.f_bavail.saturating_mul(u64::try_from(unit).unwrap_or(0));
        let is_in_place = u64::try_from(host.f_type).is_ok_and(|number| !NEVER_IN_PLACE.contains(&number));
        FileRoom::with(size, allocated, available, is_in_place)
    }

    /// Returns the room of a file of `size` bytes, of which `allocated` have a place, on a file system with `available`
    /// bytes.
    fn with(size: u64, allocated: u64, available: u64, is_in_place: bool) -> Option<FileRoom> {
        if allocated >= size.next_multiple_of(BLOCK_BYTES_U64) && is_in_place {
            return None;
        }
        let held_blocks = if is_in_place { allocated / BLOCK_BYTES_U64 } else { 0 };
        Some(FileRoom { blocks: available / BLOCK_BYTES_U64, held_blocks })
    }
}

/// Returns how many blocks the file system of a regular file has room for, or `None` if each block of the file already
/// has its place.
pub(super) fn room_blocks(file: &File) -> Option<u64> {
    FileRoom::of(file).map(|room| room.blocks)
}

/// Tells whether each block of a regular file is known to have a place that is the file's alone.
pub(super) fn has_room_for_all_blocks(file: &File) -> bool {
    // The first question is the cheaper one.
    room_blocks(file).is_none() && file.metadata().is_ok_and(|metadata| has_places(file, metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::file::{BlockDevice, FileDevice, OpenMode};
    use crate::{AlignedBuffer, BLOCK_BYTES, BlockNo};

    #[test]
    fn a_file_holds_places_only_where_its_file_system_writes_in_place() {
        let kib = |count: u64| count << 10;
        let room = |allocated, is_in_place| FileRoom::with(kib(400), kib(allocated), kib(40), is_in_place);
        assert_eq!(room(200, true), Some(FileRoom { blocks: 10, held_blocks: 50 }));
        assert_eq!(room(400, true), None);
        assert_eq!(room(200, false), Some(FileRoom { blocks: 10, held_blocks: 0 }));
        assert_eq!(room(400, false), Some(FileRoom { blocks: 10, held_blocks: 0 }));
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
            assert!(device.room_blocks().is_none() && device.has_room_for_all_blocks());
            device.discard(BlockNo(1), 2).unwrap();
            assert!(device.room_blocks().is_some() && !device.has_room_for_all_blocks(), "it has a hole");
        }
    }
}
