//! The FUSE protocol on `/dev/fuse`: decodes requests and encodes replies. It knows neither pools nor descriptors.
//!
//! Every number has the host's byte order, as both ends are on one machine. A request is a [`RequestHeader`] and a body
//! that depends on its opcode; a reply is 16 bytes and a body. The layouts are the kernel's (`linux/fuse.h`). Each is
//! written once, in `request` for decoding or in `reply` for encoding.
//!
//! Versions, newest first, with the changes that matter to this door:
//!
//! | minor | Linux | what it brought |
//! |---|---|---|
//! | 39 | 6.6 | `STATX`: times of creation |
//! | 37 | 6.1 | `TMPFILE` |
//! | 36 | 5.17 | a second word of abilities |
//! | 33 | 5.12 | a longer `SETXATTR`, which tells when an ACL takes the set-group-id bit away |
//! | 31 | 5.4 | the oldest that is spoken |

mod fields;
mod init;
pub(in crate::fuse) mod opcode;
mod reply;
mod request;

pub(super) use init::{InitFlags, InitReply, InitRequest};
pub(super) use reply::{
    DirectoryReply, InvalidationReach, created, encode_attributes, entry, notify_inode, opened, reply_header,
    seek_result, statfs, statx, trimmed, written, xattr_size,
};
pub(super) use request::{Operation, Read, RequestHeader, Write, WriteHead, XattrChange};
