//! Requests: decodes what the kernel sends.

mod header;

use onefold_block::Timestamp;
use onefold_pool::{SetAttr, TimeChange};

pub(in crate::fuse) use header::RequestHeader;

use super::fields::{Fields, MalformedRequest};
use super::opcode;
use crate::fuse::attributes::permissions;
use crate::fuse::privileges::Privileges;

/// Writes up to this length are accepted in a few microseconds.
const BRIEF_BYTES_MAX: usize = 64 << 10;

/// A change of an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fuse) struct XattrChange<'a> {
    pub(in crate::fuse) name: &'a [u8],
    pub(in crate::fuse) value: &'a [u8],
    pub(in crate::fuse) flags: i32,
    /// Whether the attribute is an access ACL whose setter may not keep the set-group-id bit.
    pub(in crate::fuse) drops_set_gid: bool,
}

/// A range to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fuse) struct Read {
    pub(in crate::fuse) handle: u64,
    pub(in crate::fuse) offset: u64,
    pub(in crate::fuse) bytes: u32,
    /// Flags that the file was opened with.
    pub(in crate::fuse) flags: i32,
}

/// A write, with its data from the end of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fuse) struct Write<'a> {
    pub(in crate::fuse) head: WriteHead,
    pub(in crate::fuse) data: &'a [u8],
}

/// Where and how to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fuse) struct WriteHead {
    pub(in crate::fuse) handle: u64,
    pub(in crate::fuse) offset: u64,
    /// Flags that the file was opened with.
    pub(in crate::fuse) flags: i32,
    pub(in crate::fuse) privileges: Privileges,
    /// Whether the kernel hands over pages of its cache, which stay locked until the answer.
    pub(in crate::fuse) is_from_cache: bool,
}

impl WriteHead {
    /// Bytes of a request before its data.
    pub(in crate::fuse) const DATA_OFFSET: usize = RequestHeader::BYTES + 40;

    /// Returns whether a write of `bytes` bytes is usually accepted within a few microseconds.
    pub(in crate::fuse) fn is_brief(&self, bytes: usize) -> bool {
        bytes <= BRIEF_BYTES_MAX && self.flags & libc::O_DSYNC == 0
    }
}

/// The operation of a request. Names come without the zero byte at their end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::fuse) enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    /// Inodes, and how many holds on each are released. Has no reply.
    Forget(Vec<(u64, u64)>),
    GetAttr,
    Statx,
    SetAttr {
        change: SetAttr,
        privileges: Privileges,
    },
    ReadSymlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MakeNode {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    MakeDirectory {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    RemoveDirectory {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    Link {
        node: u64,
        name: &'a [u8],
    },
    Open {
        flags: i32,
    },
    Create {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        flags: i32,
    },
    CreateUnnamed {
        mode: u32,
        umask: u32,
        flags: i32,
    },
    Read(Read),
    Write(Write<'a>),
    StatFs,
    Flush,
    Release {
        handle: u64,
    },
    /// Makes a file or directory durable.
    Sync {
        handle: u64,
    },
    SetXattr(XattrChange<'a>),
    GetXattr {
        name: &'a [u8],
        room: u32,
    },
    ListXattrs {
        room: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    OpenDirectory,
    ReadDirectory {
        cookie: u64,
        room: u32,
    },
    ReadDirectoryPlus {
        cookie: u64,
        room: u32,
    },
    ReleaseDirectory {
        handle: u64,
    },
    /// An ioctl; `command` is its number with the size of its argument.
    Ioctl {
        command: u32,
    },
    Allocate {
        offset: u64,
        bytes: u64,
        mode: i32,
    },
    Seek {
        offset: i64,
        whence: i32,
    },
    CopyRange {
        source_offset: u64,
        target: u64,
        target_offset: u64,
        bytes: u64,
        flags: u64,
    },
    /// The kernel is about to release the mount.
    Destroy,
    /// Any other operation. The kernel copes without it when it gets `ENOSYS`.
    Unknown,
}

impl<'a> Operation<'a> {
    /// Decodes the body of a request. `has_long_setxattr` is the outcome of the negotiation.
    pub(in crate::fuse) fn decode(
        header: &RequestHeader,
        body: &'a [u8],
        has_long_setxattr: bool,
    ) -> Result<Operation<'a>, MalformedRequest> {
        let mut fields = Fields::new(body);
        let f = &mut fields;
        Ok(match header.opcode {
            opcode::LOOKUP => Operation::Lookup { name: f.name()? },
            opcode::FORGET => Operation::Forget(vec![(header.node, f.u64()?)]),
            opcode::GETATTR => Operation::GetAttr,
            opcode::SETATTR => set_attr(f)?,
            opcode::READLINK => Operation::ReadSymlink,
            opcode::SYMLINK => Operation::Symlink { name: f.name()?, target: f.name()? },
            opcode::MKNOD => make_node(f)?,
            opcode::MKDIR => {
                let (mode, umask) = (f.u32()?, f.u32()?);
                Operation::MakeDirectory { name: f.name()?, mode, umask }
            }
            opcode::UNLINK => Operation::Unlink { name: f.name()? },
            opcode::RMDIR => Operation::RemoveDirectory { name: f.name()? },
            opcode::RENAME => {
                let new_parent = f.u64()?;
                Operation::Rename { name: f.name()?, new_parent, new_name: f.name()?, flags: 0 }
            }
            opcode::LINK => Operation::Link { node: f.u64()?, name: f.name()? },
            opcode::OPEN => Operation::Open { flags: f.i32()? },
            opcode::READ => read(f)?,
            opcode::WRITE => write(f)?,
            opcode::STATFS => Operation::StatFs,
            opcode::RELEASE => Operation::Release { handle: f.u64()? },
            opcode::FSYNC | opcode::FSYNCDIR => Operation::Sync { handle: f.u64()? },
            opcode::SETXATTR => set_xattr(f, has_long_setxattr)?,
            opcode::GETXATTR => get_xattr(f)?,
            opcode::LISTXATTR => Operation::ListXattrs { room: f.u32()? },
            opcode::REMOVEXATTR => Operation::RemoveXattr { name: f.name()? },
            opcode::FLUSH => Operation::Flush,
            opcode::OPENDIR => Operation::OpenDirectory,
            opcode::READDIR => {
                let (cookie, room) = listing(f)?;
                Operation::ReadDirectory { cookie, room }
            }
            opcode::RELEASEDIR => Operation::ReleaseDirectory { handle: f.u64()? },
            opcode::CREATE => {
                let (flags, mode, umask, _open_flags) = (f.i32()?, f.u32()?, f.u32()?, f.u32()?);
                Operation::Create { name: f.name()?, mode, umask, flags }
            }
            opcode::DESTROY => Operation::Destroy,
            opcode::IOCTL => {
                let (_handle, _flags) = (f.u64()?, f.u32()?);
                Operation::Ioctl { command: f.u32()? }
            }
            opcode::BATCH_FORGET => Operation::Forget(batch(f)?),
            opcode::FALLOCATE => {
                let (_handle, offset, bytes) = (f.u64()?, f.u64()?, f.u64()?);
                Operation::Allocate { offset, bytes, mode: f.i32()? }
            }
            opcode::READDIRPLUS => {
                let (cookie, room) = listing(f)?;
                Operation::ReadDirectoryPlus { cookie, room }
            }
            opcode::RENAME2 => {
                let (new_parent, flags, _padding) = (f.u64()?, f.u32()?, f.u32()?);
                Operation::Rename { name: f.name()?, new_parent, new_name: f.name()?, flags }
            }
            opcode::LSEEK => {
                let (_handle, offset) = (f.u64()?, f.i64()?);
                Operation::Seek { offset, whence: f.i32()? }
            }
            opcode::COPY_FILE_RANGE => copy_range(f)?,
            opcode::TMPFILE => {
                let (flags, mode, umask) = (f.i32()?, f.u32()?, f.u32()?);
                Operation::CreateUnnamed { mode, umask, flags }
            }
            opcode::STATX => Operation::Statx,
            _ => Operation::Unknown,
        })
    }
}

/// Bits of `SETATTR` that mark its valid fields.
mod valid {
    pub(super) const MODE: u32 = 1;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ACCESSED: u32 = 1 << 4;
    pub(super) const MODIFIED: u32 = 1 << 5;
    pub(super) const ACCESSED_NOW: u32 = 1 << 7;
    pub(super) const MODIFIED_NOW: u32 = 1 << 8;
    pub(super) const KILL_SUIDGID: u32 = 1 << 11;
}

/// | bytes | field |
/// |---|---|
/// | 0..8 | which fields count, padding |
/// | 8..16 | handle |
/// | 16..24 | length |
/// | 24..32 | lock owner |
/// | 32..56 | seconds of access, modification and change, signed |
/// | 56..68 | their nanoseconds |
/// | 68..84 | mode, unused, user, group |
fn set_attr<'a>(f: &mut Fields<'_>) -> Result<Operation<'a>, MalformedRequest> {
    let given = f.u32()?;
    f.skip(12)?;
    let size_bytes = f.u64()?;
    f.skip(8)?;
    let (accessed_s, modified_s, _changed_s) = (f.i64()?, f.i64()?, f.i64()?);
    let (accessed_ns, modified_ns, _changed_ns) = (f.u32()?, f.u32()?, f.u32()?);
    let mode = f.u32()?;
    f.skip(4)?;
    let (uid, gid) = (f.u32()?, f.u32()?);
    let has = |bit: u32| given & bit != 0;
    let time = |bit: u32, now_bit: u32, seconds: i64, nanoseconds: u32| match (has(bit), has(now_bit)) {
        (_, true) => Some(TimeChange::Now),
        (true, false) => Some(TimeChange::At(Timestamp { seconds, nanoseconds })),
        (false, false) => None,
    };
    let change = SetAttr {
        mode: has(valid::MODE).then(|| permissions(mode)),
        uid: has(valid::UID).then_some(uid),
        gid: has(valid::GID).then_some(gid),
        size_bytes: has(valid::SIZE).then_some(size_bytes),
        accessed: time(valid::ACCESSED, valid::ACCESSED_NOW, accessed_s, accessed_ns),
        modified: time(valid::MODIFIED, valid::MODIFIED_NOW, modified_s, modified_ns),
    };
    Ok(Operation::SetAttr { change, privileges: privileges(has(valid::KILL_SUIDGID)) })
}

fn privileges(are_to_go: bool) -> Privileges {
    if are_to_go { Privileges::Dropped } else { Privileges::Kept }
}

fn make_node<'a>(f: &mut Fields<'a>) -> Result<Operation<'a>, MalformedRequest> {
    let (mode, rdev, umask, _padding) = (f.u32()?, f.u32()?, f.u32()?, f.u32()?);
    Ok(Operation::MakeNode { name: f.name()?, mode, umask, rdev })
}

/// Reads handle, offset, length, and the handling of locks. `READDIR` has the same form.
fn read<'a>(f: &mut Fields<'_>) -> Result<Operation<'a>, MalformedRequest> {
    let (handle, offset, bytes, _read_flags, _lock_owner) = (f.u64()?, f.u64()?, f.u32()?, f.u32()?, f.u64()?);
    Ok(Operation::Read(Read { handle, offset, bytes, flags: f.i32()? }))
}

fn listing(f: &mut Fields<'_>) -> Result<(u64, u32), MalformedRequest> {
    let (_handle, cookie, room) = (f.u64()?, f.u64()?, f.u32()?);
    Ok((cookie, room))
}

/// | bytes | field |
/// |---|---|
/// | 0..8 | handle |
/// | 8..16 | offset |
/// | 16..20 | length of the data |
/// | 20..24 | flags of the write |
/// | 24..32 | lock owner |
/// | 32..40 | flags of the opening, padding |
/// | 40.. | data |
fn write<'a>(f: &mut Fields<'a>) -> Result<Operation<'a>, MalformedRequest> {
    const FROM_CACHE: u32 = 1;
    const KILL_SUIDGID: u32 = 1 << 2;
    let (handle, offset, bytes, write_flags, _lock_owner) = (f.u64()?, f.u64()?, f.u32()?, f.u32()?, f.u64()?);
    let (flags, _padding) = (f.i32()?, f.u32()?);
    let data = f.bytes(usize::try_from(bytes).map_err(|_| MalformedRequest)?)?;
    let is_from_cache = write_flags & FROM_CACHE != 0;
    let head =
        WriteHead { handle, offset, flags, privileges: privileges(write_flags & KILL_SUIDGID != 0), is_from_cache };
    Ok(Operation::Write(Write { head, data }))
}

fn get_xattr<'a>(f: &mut Fields<'a>) -> Result<Operation<'a>, MalformedRequest> {
    let room = f.u32()?;
    f.skip(4)?;
    Ok(Operation::GetXattr { name: f.name()?, room })
}

fn set_xattr<'a>(f: &mut Fields<'a>, is_long: bool) -> Result<Operation<'a>, MalformedRequest> {
    const ACL_KILL_SGID: u32 = 1;
    let (bytes, flags) = (f.u32()?, f.i32()?);
    let (more_flags, _padding) = if is_long { (f.u32()?, f.u32()?) } else { (0, 0) };
    let name = f.name()?;
    let value = f.bytes(usize::try_from(bytes).map_err(|_| MalformedRequest)?)?;
    Ok(Operation::SetXattr(XattrChange { name, value, flags, drops_set_gid: more_flags & ACL_KILL_SGID != 0 }))
}

fn batch(f: &mut Fields<'_>) -> Result<Vec<(u64, u64)>, MalformedRequest> {
    let (count, _padding) = (f.u32()?, f.u32()?);
    // Collected without reserving room first: the count is trusted only as far as bytes follow.
    (0..count).map(|_| Ok((f.u64()?, f.u64()?))).collect()
}

fn copy_range<'a>(f: &mut Fields<'_>) -> Result<Operation<'a>, MalformedRequest> {
    let (_source_handle, source_offset, target) = (f.u64()?, f.u64()?, f.u64()?);
    let (_target_handle, target_offset, bytes) = (f.u64()?, f.u64()?, f.u64()?);
    Ok(Operation::CopyRange { source_offset, target, target_offset, bytes, flags: f.u64()? })
}

#[cfg(test)]
mod tests;
