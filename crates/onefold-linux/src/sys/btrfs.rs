//! Calls that only Btrfs has: its trees, generations, space, and references to extents.

use std::mem::{offset_of, size_of};
use std::ops::RangeInclusive;

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// `struct btrfs_ioctl_search_args_v2`, followed by room for the result.
#[repr(C)]
struct TreeSearch {
    tree: u64,
    objects: [u64; 2],
    offsets: [u64; 2],
    transactions: [u64; 2],
    kinds: [u32; 2],
    item_count: u32,
    reserved1: u32,
    reserved2: [u64; 4],
    buffer_bytes: u64,
    buffer: [u8; TREE_BUFFER_BYTES],
}

const TREE_SEARCH_HEADER_BYTES: usize = 112;
/// Room for about six hundred items of a file's map.
const TREE_BUFFER_BYTES: usize = 48 << 10;
const _: () = assert!(offset_of!(TreeSearch, buffer) == TREE_SEARCH_HEADER_BYTES);

const BTRFS_IOC_TREE_SEARCH_V2: Opcode = opcode::read_write::<[u8; TREE_SEARCH_HEADER_BYTES]>(0x94, 17);

/// An item of a Btrfs tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeItem {
    /// The last part of its key.
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Returns the first items of one kind of a Btrfs object, within a range of offsets. They come from the tree of the
/// given number, or without one from the tree of the file's subvolume.
pub(crate) fn tree_items(
    file: impl AsFd,
    tree: Option<u64>,
    object: (u64, u8),
    offsets: RangeInclusive<u64>,
) -> Result<Vec<TreeItem>, Errno> {
    tree_items_since(file, tree, object, offsets, 0)
}

/// Like [`tree_items`], but returns only items in tree blocks that were changed in the given generation or later.
pub(crate) fn tree_items_since(
    file: impl AsFd,
    tree: Option<u64>,
    (object, kind): (u64, u8),
    offsets: RangeInclusive<u64>,
    generation: u64,
) -> Result<Vec<TreeItem>, Errno> {
    let mut search = Box::new(TreeSearch {
        tree: tree.unwrap_or(0),
        objects: [object; 2],
        offsets: [*offsets.start(), *offsets.end()],
        transactions: [generation, u64::MAX],
        kinds: [kind.into(); 2],
        item_count: u32::MAX,
        reserved1: 0,
        reserved2: [0; 4],
        buffer_bytes: TREE_BUFFER_BYTES as u64,
        buffer: [0; TREE_BUFFER_BYTES],
    });
    // SAFETY: the opcode takes a header that states the number of bytes behind it. `search` has exactly this number.
    let call = unsafe { Updater::<BTRFS_IOC_TREE_SEARCH_V2, TreeSearch>::new(&mut search) };
    // SAFETY: as above; the kernel writes to `search` only, during the call, and any bytes are valid there.
    unsafe { ioctl(file, call) }?;
    Ok(items_of(&search.buffer, search.item_count, object, kind))
}

/// Splits the kernel's result into items: a header of 32 bytes and the item's bytes, repeated.
fn items_of(buffer: &[u8], count: u32, object: u64, kind: u8) -> Vec<TreeItem> {
    let (mut items, mut rest) = (Vec::new(), buffer);
    for _ in 0..count {
        let Some((header, behind)) = rest.split_first_chunk::<32>() else { break };
        let long = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let short = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        let length = usize::try_from(short(28)).unwrap_or(usize::MAX);
        let Some((bytes, next)) = behind.split_at_checked(length) else { break };
        if long(8) == object && short(24) == u32::from(kind) {
            items.push(TreeItem { offset: long(16), bytes: bytes.to_vec() });
        }
        rest = next;
    }
    items
}

/// `struct btrfs_ioctl_fs_info_args`, as far as needed here.
#[repr(C)]
struct FileSystemInfo {
    before: [u64; 6],
    flags: u64,
    generation: u64,
    behind: [u64; 120],
}

const BTRFS_IOC_FS_INFO: Opcode = opcode::read::<FileSystemInfo>(0x94, 31);
const _: () = assert!(offset_of!(FileSystemInfo, flags) == 48 && size_of::<FileSystemInfo>() == 1024);
/// `BTRFS_FS_INFO_FLAG_GENERATION`, since Linux 5.9.
const WITH_GENERATION: u64 = 2;

/// Returns the number of the latest Btrfs transaction that was begun. `None` if the kernel does not report it.
pub(crate) fn generation(file: impl AsFd) -> Result<Option<u64>, Errno> {
    let mut info = Box::new(FileSystemInfo { before: [0; 6], flags: WITH_GENERATION, generation: 0, behind: [0; 120] });
    // SAFETY: the opcode reads and writes one `btrfs_ioctl_fs_info_args`, which has the size of `info`.
    let call = unsafe { Updater::<BTRFS_IOC_FS_INFO, FileSystemInfo>::new(&mut info) };
    // SAFETY: as above; the kernel writes to `info` only, during the call, and any bytes are valid there.
    unsafe { ioctl(file, call) }?;
    Ok((info.flags & WITH_GENERATION != 0).then_some(info.generation))
}

/// `struct btrfs_ioctl_space_info`: the space that Btrfs has allocated for a kind of content, and its used part.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpaceInfo {
    /// `BTRFS_BLOCK_GROUP_*`.
    pub(crate) flags: u64,
    pub(crate) total: u64,
    pub(crate) used: u64,
}

/// Maximum number of kinds. There are four, or twice as many while a file system is converted.
const SPACE_INFOS_MAX: usize = 32;

/// `struct btrfs_ioctl_space_args`, followed by room for the result.
#[repr(C)]
struct SpaceInfos {
    capacity: u64,
    count: u64,
    infos: [SpaceInfo; SPACE_INFOS_MAX],
}

const SPACE_HEADER_BYTES: usize = 16;
const BTRFS_IOC_SPACE_INFO: Opcode = opcode::read_write::<[u8; SPACE_HEADER_BYTES]>(0x94, 20);
const _: () = assert!(offset_of!(SpaceInfos, infos) == SPACE_HEADER_BYTES && size_of::<SpaceInfo>() == 24);

/// Returns the space that Btrfs has allocated for each kind of content.
pub(crate) fn space_infos(file: impl AsFd) -> Result<Vec<SpaceInfo>, Errno> {
    let infos = [SpaceInfo::default(); SPACE_INFOS_MAX];
    let mut spaces = SpaceInfos { capacity: SPACE_INFOS_MAX as u64, count: 0, infos };
    // SAFETY: the opcode takes a header that states the number of kinds for which there is room behind it. `spaces` has
    // room for exactly this number.
    let call = unsafe { Updater::<BTRFS_IOC_SPACE_INFO, SpaceInfos>::new(&mut spaces) };
    // SAFETY: as above; the kernel writes to `spaces` only, during the call, and any bytes are valid there.
    unsafe { ioctl(file, call) }?;
    let count = usize::try_from(spaces.count).unwrap_or(SPACE_INFOS_MAX).min(SPACE_INFOS_MAX);
    Ok(spaces.infos[..count].to_vec())
}

/// `struct btrfs_ioctl_logical_ino_args`.
#[repr(C)]
struct LogicalInodes {
    place: u64,
    buffer_bytes: u64,
    reserved: [u64; 3],
    flags: u64,
    buffer: u64,
}

const BTRFS_IOC_LOGICAL_INO_V2: Opcode = opcode::read_write::<LogicalInodes>(0x94, 59);
const _: () = assert!(size_of::<LogicalInodes>() == 56);

/// Also report references to other parts of the extent.
const IGNORE_OFFSET: u64 = 1;
/// Maximum number of references in a result, of three numbers each.
pub(crate) const REFERENCES_MAX: usize = 2048;

/// `struct btrfs_data_container`, followed by room for the result.
#[repr(C)]
struct FoundInodes {
    bytes_left: u32,
    bytes_missing: u32,
    /// Count of the numbers that were found, three for each reference.
    count: u32,
    missed: u32,
    numbers: [[u64; 3]; REFERENCES_MAX],
}

/// A reference to an extent of Btrfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InodeReference {
    pub(crate) inode: u64,
    /// Offset in the file at which the item of its map begins, in bytes.
    pub(crate) offset: u64,
    /// The tree of the subvolume.
    pub(crate) tree: u64,
}

/// Returns all references to an extent of Btrfs. `OVERFLOW` if there are too many.
pub(crate) fn references(file: impl AsFd, place: u64) -> Result<Vec<InodeReference>, Errno> {
    let numbers = [[0; 3]; REFERENCES_MAX];
    let mut found = Box::new(FoundInodes { bytes_left: 0, bytes_missing: 0, count: 0, missed: 0, numbers });
    let buffer: *mut FoundInodes = &raw mut *found;
    let mut call = LogicalInodes {
        place,
        buffer_bytes: size_of::<FoundInodes>() as u64,
        reserved: [0; 3],
        flags: IGNORE_OFFSET,
        buffer: buffer.expose_provenance() as u64,
    };
    // SAFETY: the opcode takes one `btrfs_ioctl_logical_ino_args`, which is what `call` is; it names `found` and its
    // size.
    let call = unsafe { Updater::<BTRFS_IOC_LOGICAL_INO_V2, LogicalInodes>::new(&mut call) };
    // SAFETY: as above; the kernel writes to `call` and to `found` only, during the call, and both outlive it.
    unsafe { ioctl(file, call) }?;
    if found.missed > 0 || found.bytes_missing > 0 {
        return Err(Errno::OVERFLOW);
    }
    let count = usize::try_from(found.count / 3).unwrap_or(REFERENCES_MAX).min(REFERENCES_MAX);
    let references = found.numbers[..count].iter();
    Ok(references.map(|&[inode, offset, tree]| InodeReference { inode, offset, tree }).collect())
}
