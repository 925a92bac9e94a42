//! The header of a request, and what it tells of the request.

use crate::fuse::protocol::fields::{Fields, MalformedRequest};
use crate::fuse::protocol::opcode;

/// The common start of all requests.
///
/// | bytes | field |
/// |---|---|
/// | 0..4 | length of the whole request |
/// | 4..8 | opcode |
/// | 8..16 | number of the request |
/// | 16..24 | inode it is about |
/// | 24..36 | user, group and process that ask |
/// | 36..40 | length of extensions, padding |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fuse) struct RequestHeader {
    pub(in crate::fuse) opcode: u32,
    /// Number of the request, which its reply repeats.
    pub(in crate::fuse) unique: u64,
    pub(in crate::fuse) node: u64,
    pub(in crate::fuse) uid: u32,
    pub(in crate::fuse) gid: u32,
    /// The process that sent the request; 0 if the daemon cannot see it.
    pub(in crate::fuse) pid: u32,
}

impl RequestHeader {
    /// Bytes of a request before its body.
    pub(in crate::fuse) const BYTES: usize = 40;

    /// Returns the header of a request and its body.
    pub(in crate::fuse) fn decode(request: &[u8]) -> Result<(RequestHeader, &[u8]), MalformedRequest> {
        let (header, body) = request.split_at_checked(RequestHeader::BYTES).ok_or(MalformedRequest)?;
        let mut fields = Fields::new(header);
        if usize::try_from(fields.u32()?) != Ok(request.len()) {
            return Err(MalformedRequest);
        }
        let (opcode, unique, node) = (fields.u32()?, fields.u64()?, fields.u64()?);
        let (uid, gid, pid) = (fields.u32()?, fields.u32()?, fields.u32()?);
        Ok((RequestHeader { opcode, unique, node, uid, gid, pid }, body))
    }

    /// Returns whether the request reads or writes a file's content.
    pub(in crate::fuse) fn is_transfer(&self) -> bool {
        matches!(self.opcode, opcode::READ | opcode::WRITE)
    }

    /// Returns whether answering the request usually takes a few microseconds, because it changes or shows only data in
    /// memory. For writes, see [`WriteHead::is_brief`].
    pub(in crate::fuse) fn is_brief(&self) -> bool {
        matches!(
            self.opcode,
            opcode::LOOKUP
                | opcode::FORGET
                | opcode::BATCH_FORGET
                | opcode::GETATTR
                | opcode::STATX
                | opcode::READLINK
                | opcode::SYMLINK
                | opcode::MKNOD
                | opcode::MKDIR
                | opcode::UNLINK
                | opcode::RMDIR
                | opcode::RENAME
                | opcode::RENAME2
                | opcode::LINK
                | opcode::OPEN
                | opcode::CREATE
                | opcode::TMPFILE
                | opcode::STATFS
                | opcode::FLUSH
                | opcode::RELEASE
                | opcode::GETXATTR
                | opcode::LISTXATTR
                | opcode::OPENDIR
                | opcode::READDIR
                | opcode::RELEASEDIR
        )
    }

    /// Returns whether answering the request may have to wait for accepted writes to other files.
    pub(in crate::fuse) fn waits_for_writes(&self) -> bool {
        !matches!(
            self.opcode,
            opcode::WRITE
                | opcode::LOOKUP
                | opcode::GETXATTR
                | opcode::OPEN
                | opcode::FLUSH
                | opcode::RELEASE
                | opcode::OPENDIR
                | opcode::RELEASEDIR
        )
    }
}
