//! Replies: encodes the door's answers.

use std::ops::Range;
use std::time::Duration;

use onefold_block::{BLOCK_BYTES, Timestamp};
use onefold_pool::{Attr, DirEntry, FsStat, NAME_BYTES_MAX};

use crate::fuse::attributes::{PREFERRED_IO_BYTES, mode_of, sectors};
use crate::options::StBlocks;

/// How long the kernel may cache names and attributes. All changes of them pass through the kernel.
const VALID: Duration = Duration::from_secs(60 * 60);

/// Size of the blocks that `statfs(2)` counts.
const STATFS_UNIT_BYTES: u32 = 4096;
const _: () = assert!(STATFS_UNIT_BYTES as usize == BLOCK_BYTES);

/// Entries of a directory begin at multiples of this.
const ENTRY_ALIGNMENT: usize = 8;

/// Returns the header of a reply with a body of `body_bytes`: its length, the error as a negative number, and the
/// number of the request.
pub(in crate::fuse) fn reply_header(unique: u64, error: i32, body_bytes: usize) -> [u8; 16] {
    let length = u32::try_from(16 + body_bytes).expect("a reply is far below 4 GiB");
    let mut header = [0; 16];
    header[..4].copy_from_slice(&length.to_ne_bytes());
    header[4..8].copy_from_slice(&(-error).to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// The part of a file's cached state that the kernel is to drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::fuse) enum InvalidationReach {
    /// Attributes alone.
    Attributes,
    /// Attributes and all cached pages.
    Everything,
    /// Attributes, and the cached pages that a range of bytes touches; never empty.
    Range(Range<u64>),
}

/// Returns a complete message that makes the kernel drop cached state of inode `node`. The message answers no request:
/// the field for the request's number is 0, and the field for the error holds the kind of message.
pub(in crate::fuse) fn notify_inode(node: u64, reach: &InvalidationReach) -> Vec<u8> {
    const INVAL_INODE: i32 = 2;
    let (offset, bytes) = match reach {
        // The kernel drops pages only if the offset is not negative.
        InvalidationReach::Attributes => (-1, 0),
        // From the first byte to the end.
        InvalidationReach::Everything => (0i64, 0i64),
        InvalidationReach::Range(bytes) => {
            let offset = i64::try_from(bytes.start).unwrap_or(i64::MAX);
            (offset, i64::try_from(bytes.end - bytes.start).unwrap_or(i64::MAX).min(i64::MAX - offset).max(1))
        }
    };
    let mut message = reply_header(0, -INVAL_INODE, 24).to_vec();
    message.extend(node.to_ne_bytes());
    message.extend(offset.to_ne_bytes());
    message.extend(bytes.to_ne_bytes());
    message
}

/// Collects the fields of a reply.
struct Body(Vec<u8>);

impl Body {
    fn new() -> Body {
        Body(Vec::with_capacity(160))
    }

    fn u16(&mut self, value: u16) -> &mut Body {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Body {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Body {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn i64(&mut self, value: i64) -> &mut Body {
        self.0.extend(value.to_ne_bytes());
        self
    }

    /// Appends numbers, length and blocks; the seconds and then the nanoseconds of three times; and the rest of what
    /// `stat(2)` shows. 88 bytes.
    fn attributes(&mut self, attr: &Attr, st_blocks: StBlocks) -> &mut Body {
        let times = [attr.accessed, attr.modified, attr.changed];
        self.u64(attr.ino.0).u64(attr.size_bytes).u64(sectors(attr, st_blocks));
        for time in times {
            self.i64(time.seconds);
        }
        for time in times {
            self.u32(time.nanoseconds);
        }
        self.u32(mode_of(attr)).u32(attr.link_count).u32(attr.uid).u32(attr.gid).u32(attr.rdev);
        self.u32(PREFERRED_IO_BYTES).u32(0)
    }

    /// Appends inode and generation, how long name and attributes are valid, and the attributes. 128 bytes. Inode
    /// numbers are never reused, so the generation is constant.
    fn entry(&mut self, attr: &Attr, st_blocks: StBlocks) -> &mut Body {
        self.u64(attr.ino.0).u64(0).u64(VALID.as_secs()).u64(VALID.as_secs()).u32(0).u32(0);
        self.attributes(attr, st_blocks)
    }

    fn opening(&mut self, handle: u64, flags: u32) -> &mut Body {
        self.u64(handle).u32(flags).u32(0)
    }

    fn time(&mut self, time: Timestamp) -> &mut Body {
        self.i64(time.seconds).u32(time.nanoseconds).u32(0)
    }
}

/// Returns the answer to a look-up, and to requests that make a file.
pub(in crate::fuse) fn entry(attr: &Attr, st_blocks: StBlocks) -> Vec<u8> {
    let mut body = Body::new();
    body.entry(attr, st_blocks);
    body.0
}

/// Returns the answer to `GETATTR` and `SETATTR`.
pub(in crate::fuse) fn encode_attributes(attr: &Attr, st_blocks: StBlocks) -> Vec<u8> {
    let mut body = Body::new();
    body.u64(VALID.as_secs()).u32(0).u32(0).attributes(attr, st_blocks);
    body.0
}

/// Returns the answer to `STATX`: all basic attributes and the time of creation.
pub(in crate::fuse) fn statx(attr: &Attr, st_blocks: StBlocks) -> Vec<u8> {
    let mut body = Body::new();
    body.u64(VALID.as_secs()).u32(0).u32(0).u64(0).u64(0);
    body.u32(libc::STATX_BASIC_STATS | libc::STATX_BTIME).u32(PREFERRED_IO_BYTES).u64(0);
    body.u32(attr.link_count).u32(attr.uid).u32(attr.gid);
    body.u16(u16::try_from(mode_of(attr)).expect("a mode has 16 bits")).u16(0);
    body.u64(attr.ino.0).u64(attr.size_bytes).u64(sectors(attr, st_blocks)).u64(0);
    body.time(attr.accessed).time(attr.created).time(attr.changed).time(attr.modified);
    body.u32(libc::major(attr.rdev.into())).u32(libc::minor(attr.rdev.into())).u32(0).u32(0);
    body.0.resize(body.0.len() + 14 * 8, 0);
    body.0
}

/// Returns the answer to an opening.
pub(in crate::fuse) fn opened(handle: u64, flags: u32) -> Vec<u8> {
    let mut body = Body::new();
    body.opening(handle, flags);
    body.0
}

/// Returns the answer to a request that makes a file and opens it at once.
pub(in crate::fuse) fn created(attr: &Attr, st_blocks: StBlocks, handle: u64, flags: u32) -> Vec<u8> {
    let mut body = Body::new();
    body.entry(attr, st_blocks).opening(handle, flags);
    body.0
}

/// Returns the answer to a write or a copy.
pub(in crate::fuse) fn written(bytes: u32) -> Vec<u8> {
    let mut body = Body::new();
    body.u32(bytes).u32(0);
    body.0
}

/// Returns the answer to `getxattr(2)` or `listxattr(2)` without room: the size that is needed.
pub(in crate::fuse) fn xattr_size(bytes: u32) -> Vec<u8> {
    written(bytes)
}

/// Returns the answer to `SEEK_DATA` or `SEEK_HOLE`.
pub(in crate::fuse) fn seek_result(offset: i64) -> Vec<u8> {
    offset.to_ne_bytes().to_vec()
}

/// Returns the answer to the ioctl `FITRIM`: its `fstrim_range` with the number of bytes that were discarded.
pub(in crate::fuse) fn trimmed(bytes: u64) -> Vec<u8> {
    let mut body = Body::new();
    // The result of the ioctl, flags, and the counts of ranges for another try.
    body.u32(0).u32(0).u32(0).u32(0);
    body.u64(0).u64(bytes).u64(0);
    body.0
}

/// Returns the answer to `statfs(2)`.
pub(in crate::fuse) fn statfs(space: &FsStat) -> Vec<u8> {
    let name_bytes = u32::try_from(NAME_BYTES_MAX).expect("255");
    let mut body = Body::new();
    body.u64(space.blocks).u64(space.blocks_free).u64(space.blocks_available);
    body.u64(space.inodes.saturating_add(space.inodes_free)).u64(space.inodes_free);
    body.u32(STATFS_UNIT_BYTES).u32(name_bytes).u32(STATFS_UNIT_BYTES);
    body.0.resize(body.0.len() + 7 * 4, 0);
    body.0
}

/// Collects entries of a directory until the room is used up.
pub(in crate::fuse) struct DirectoryReply {
    body: Body,
    room_bytes: usize,
}

impl DirectoryReply {
    pub(in crate::fuse) fn new(room_bytes: usize) -> DirectoryReply {
        DirectoryReply { body: Body::new(), room_bytes }
    }

    /// Adds an entry, with attributes for `READDIRPLUS`. Returns false and adds nothing if there is no room.
    pub(in crate::fuse) fn add(&mut self, entry: &DirEntry, attr: Option<(&Attr, StBlocks)>) -> bool {
        let start = self.body.0.len();
        if let Some((attr, st_blocks)) = attr {
            self.body.entry(attr, st_blocks);
        }
        let name_bytes = u32::try_from(entry.name.len()).expect("a name has 255 bytes at most");
        let kind = crate::fuse::attributes::type_bits(entry.kind) >> 12;
        self.body.u64(entry.ino.0).u64(entry.cookie).u32(name_bytes).u32(kind);
        self.body.0.extend(&entry.name);
        self.body.0.resize(self.body.0.len().next_multiple_of(ENTRY_ALIGNMENT), 0);
        let fits = self.body.0.len() <= self.room_bytes;
        if !fits {
            self.body.0.truncate(start);
        }
        fits
    }

    pub(in crate::fuse) fn into_bytes(self) -> Vec<u8> {
        self.body.0
    }
}

#[cfg(test)]
mod tests;
