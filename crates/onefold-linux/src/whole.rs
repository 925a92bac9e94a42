//! Whole extents of Btrfs: their slices and the references to them.
//!
//! Maps (`FIEMAP`) report where a slice lies, but not to which extent it belongs. The items of a file's tree do
//! (`BTRFS_IOC_TREE_SEARCH_V2`), and the extent's references lead back to files (`BTRFS_IOC_LOGICAL_INO_V2`). Both
//! calls require `CAP_SYS_ADMIN`.

use std::io;

use onefold_substrate::{AgedExtent, FileHandle, Reference, Slice, WholeExtent};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::IFlags;
use rustix::io::Errno;

use crate::file::LinuxFile;
use crate::sys::btrfs::{self, TreeItem};

/// Kinds of items: an inode, and a part of its data.
const INODE_ITEM: u8 = 1;
const EXTENT_DATA: u8 = 108;

/// How a part of a file's data is stored; zero means within the item.
const REGULAR: u8 = 1;
const SET_ASIDE: u8 = 2;

/// The type of Btrfs handles (`FILEID_BTRFS_WITHOUT_PARENT`).
const HANDLE_KIND: i32 = 0x4d;

/// Maximum length of a data extent (`BTRFS_MAX_EXTENT_SIZE`), in bytes.
const EXTENT_BYTES_MAX: u64 = 128 << 20;
/// Distance of the first search for a slice that begins before an offset: a fragmented file has one that near.
const NEAR_BYTES: u64 = 64 << 10;

/// Returns the next slices of a file.
pub(super) fn slices(file: &LinuxFile, from: u64) -> io::Result<Vec<Slice>> {
    let inode = rustix::fs::fstat(file.as_fd())?.st_ino;
    let items = |offsets| btrfs::tree_items(file, None, (inode, EXTENT_DATA), offsets).map_err(unsupported);
    let mut key = from;
    loop {
        let found = items(key..=u64::MAX)?;
        let mut slices: Vec<Slice> = found.iter().filter_map(slice_of).collect();
        if key == from && found.first().is_none_or(|first| first.offset > from) {
            // A slice that begins before `from` may reach beyond it.
            let mut distance = NEAR_BYTES;
            let before = loop {
                let near = items(from.saturating_sub(distance)..=from.saturating_sub(1))?;
                if near.last().is_some() || distance >= EXTENT_BYTES_MAX {
                    break near;
                }
                distance *= 8;
            };
            slices.splice(0..0, before.last().and_then(slice_of).filter(|slice| slice.end() > from));
        }
        let Some(last) = found.last().filter(|_| slices.is_empty()) else { return Ok(slices) };
        key = last.offset.saturating_add(1);
    }
}

/// Returns the number of the latest transaction, if the items of a file's map show all changes from then on. They do
/// not if the file is overwritten in place (`nodatacow`) or the process may not read items.
pub(super) fn generation(file: &LinuxFile) -> io::Result<Option<u64>> {
    if rustix::fs::ioctl_getflags(file)?.contains(IFlags::NOCOW) {
        return Ok(None);
    }
    let inode = rustix::fs::fstat(file.as_fd())?.st_ino;
    if btrfs::tree_items(file, None, (inode, INODE_ITEM), 0..=0).is_err() {
        return Ok(None);
    }
    Ok(btrfs::generation(file)?)
}

/// Returns the next extents of a file, from those parts of its map that changed since a generation.
pub(super) fn changed_since(file: &LinuxFile, generation: u64, from: u64) -> io::Result<Vec<AgedExtent>> {
    let inode = rustix::fs::fstat(file.as_fd())?.st_ino;
    let mut key = from;
    loop {
        let found = btrfs::tree_items_since(file, None, (inode, EXTENT_DATA), key..=u64::MAX, generation);
        let found = found.map_err(unsupported)?;
        let extents: Vec<AgedExtent> = found.iter().filter_map(aged_extent_of).collect();
        let Some(last) = found.last().filter(|_| extents.is_empty()) else { return Ok(extents) };
        key = last.offset.saturating_add(1);
    }
}

/// Decodes an item of a file's data, however it is stored. `None` for holes.
fn aged_extent_of(item: &TreeItem) -> Option<AgedExtent> {
    let bytes = &item.bytes;
    let (generation, whole, kind) = (long(bytes, 0)?, long(bytes, 8)?, *bytes.get(20)?);
    if !matches!(kind, REGULAR | SET_ASIDE) {
        // Stored within the item: the length is that of the decoded bytes.
        let extent = AgedExtent { offset: item.offset, length: whole, place: None, is_unwritten: false, generation };
        return (whole > 0 && item.offset.checked_add(whole).is_some()).then_some(extent);
    }
    let [place, within, length] = [21, 37, 45].map(|at| long(bytes, at));
    let (place, within, length) = (place?, within?, length?);
    let is_sound = place > 0 && length > 0 && item.offset.checked_add(length).is_some();
    is_sound.then_some(AgedExtent {
        offset: item.offset,
        length,
        // For compressed data this is no real place, but it stays the same as long as the extent does.
        place: Some(place.wrapping_add(within)),
        is_unwritten: kind == SET_ASIDE,
        generation,
    })
}

/// Returns the references to an extent.
pub(super) fn references(folder: &OwnedFd, extent: WholeExtent) -> io::Result<Vec<Reference>> {
    let mut found = match btrfs::references(folder, extent.place) {
        // The extent is gone.
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(Errno::OVERFLOW) => return Err(io::ErrorKind::InvalidInput.into()),
        found => found.map_err(unsupported)?,
    };
    found.sort_unstable();
    found.dedup();
    let mut references = Vec::with_capacity(found.len());
    // The list is in order: references of one file are adjacent.
    let mut last: Option<(u64, u64, Option<FileHandle>)> = None;
    for reference in found {
        let handle = match &last {
            Some((inode, tree, handle)) if (*inode, *tree) == (reference.inode, reference.tree) => handle.clone(),
            _ => handle(folder, reference.inode, reference.tree)?,
        };
        last = Some((reference.inode, reference.tree, handle.clone()));
        references.push(Reference { handle, offset: reference.offset });
    }
    Ok(references)
}

/// Returns the handle that the kernel would give an inode. `None` if the inode does not exist.
fn handle(folder: &OwnedFd, inode: u64, tree: u64) -> io::Result<Option<FileHandle>> {
    let items = match btrfs::tree_items(folder, Some(tree), (inode, INODE_ITEM), 0..=u64::MAX) {
        Err(Errno::NOENT) => return Ok(None),
        items => items.map_err(unsupported)?,
    };
    let Some(generation) = items.first().and_then(|item| long(&item.bytes, 0)) else { return Ok(None) };
    // The kernel truncates it in the same way.
    let generation = u32::try_from(generation & u64::from(u32::MAX)).unwrap_or(0);
    let parts: [&[u8]; 4] =
        [&HANDLE_KIND.to_le_bytes(), &inode.to_ne_bytes(), &tree.to_ne_bytes(), &generation.to_ne_bytes()];
    Ok(FileHandle::new(&parts.concat()))
}

/// Decodes an item of a file's data (`struct btrfs_file_extent_item`). `None` for data that is stored within it,
/// compressed or encrypted, and for holes.
fn slice_of(item: &TreeItem) -> Option<Slice> {
    let bytes = &item.bytes;
    let (encodings, kind) = (bytes.get(16..20)?, *bytes.get(20)?);
    if encodings != [0; 4] || !matches!(kind, REGULAR | SET_ASIDE) {
        return None;
    }
    let [place, length, within, count] = [21, 29, 37, 45].map(|at| long(bytes, at));
    let (extent, within, length) = (WholeExtent { place: place?, length: length? }, within?, count?);
    let is_within = within.checked_add(length).is_some_and(|end| end <= extent.length);
    (extent.place > 0 && length > 0 && is_within).then_some(Slice {
        offset: item.offset,
        length,
        extent,
        within,
        is_unwritten: kind == SET_ASIDE,
    })
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Reports a missing ability as `Unsupported`: it is no fault of the device.
fn unsupported(errno: Errno) -> io::Error {
    match errno {
        Errno::NOTTY => Errno::OPNOTSUPP.into(),
        errno => errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(encodings: [u8; 4], kind: u8, numbers: [u64; 4]) -> TreeItem {
        let mut bytes = vec![7; 16];
        bytes.extend(encodings);
        bytes.push(kind);
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        TreeItem { offset: 8192, bytes }
    }

    #[test]
    fn items_of_data_are_understood_and_odd_ones_are_none() {
        let numbers = [1 << 30, 1 << 20, 4096, 8192];
        let extent = WholeExtent { place: 1 << 30, length: 1 << 20 };
        let expected = Slice { offset: 8192, length: 8192, extent, within: 4096, is_unwritten: false };
        assert_eq!(slice_of(&item([0; 4], REGULAR, numbers)), Some(expected));
        assert!(slice_of(&item([0; 4], SET_ASIDE, numbers)).unwrap().is_unwritten);
        for odd in [
            item([0; 4], 0, numbers),
            item([1, 0, 0, 0], REGULAR, numbers),
            item([0; 4], REGULAR, [0, 1 << 20, 0, 8192]),
            item([0; 4], REGULAR, [1 << 30, 4096, 4096, 4096]),
            item([0; 4], REGULAR, [1 << 30, u64::MAX, u64::MAX, 2]),
            TreeItem { offset: 0, bytes: vec![0; 30] },
            TreeItem { offset: 0, bytes: Vec::new() },
        ] {
            assert_eq!(slice_of(&odd), None, "{odd:?}");
        }
    }
}
