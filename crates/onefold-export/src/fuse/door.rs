//! Answers the kernel's requests: hands each to the file system in the file system's terms, on the thread that received
//! it.

use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use onefold_block::{AlignedBuffer, BLOCK_BYTES};
use onefold_pool::{Attr, DirEntry, FileKind, Ino, NewFile, OwnedWrite, ReadRequest, WriteStart};
use rustix::io::Errno;

use super::attributes::{kind_of_node, permissions};
use super::device::FuseDevice;
use super::filesystem::{FileOffset, FileOwner, NameInDirectory, PoolFilesystem, Result};
use super::flags::OpenFlags;
use super::held_replies::{HeldReplies, HeldReply};
use super::open_files::OpenFiles;
use super::opening::{self, OpenReply};
use super::privileges::{Caller, Privileges};
use super::protocol::{
    DirectoryReply, InitFlags, Operation, Read, RequestHeader, Write, WriteHead, created, encode_attributes, entry,
    opened, seek_result, statfs, statx, trimmed, written, xattr_size,
};
use super::read_buffer;
use super::settled_seeks::{HeldSeek, SettledSeeks};
use crate::options::{MountOptions, StBlocks};

/// The ioctl by which `fstrim` has free space discarded: `_IOWR('X', 121, struct fstrim_range)`. The kernel hands it to
/// the daemon. The range in it is ignored, as the pool's free blocks have no places that callers could know.
const FITRIM: u32 = 0xc018_5879;

/// A read that arrived together with others, and the descriptor that it came from.
pub(super) struct GatheredRead<'d> {
    pub(super) header: RequestHeader,
    pub(super) read: Read,
    pub(super) device: &'d FuseDevice,
}

impl GatheredRead<'_> {
    /// Returns the number of buffer bytes that it needs.
    pub(super) fn room(&self) -> usize {
        (self.read.bytes as usize).next_multiple_of(BLOCK_BYTES)
    }
}

/// A file system in the form that the kernel sees.
pub(super) struct FuseFilesystem {
    filesystem: Arc<PoolFilesystem>,
    seeks: SettledSeeks,
    open_files: Arc<OpenFiles>,
    held_replies: Arc<HeldReplies>,
    writeback_cache: bool,
    /// Whether the kernel keeps the page cache coherent with direct I/O that it passes to the door.
    bypasses_cache: bool,
    st_blocks: StBlocks,
}

impl FuseFilesystem {
    pub(super) fn new(filesystem: PoolFilesystem, options: &MountOptions, agreed: InitFlags) -> FuseFilesystem {
        FuseFilesystem {
            open_files: filesystem.open_files(),
            held_replies: Arc::default(),
            filesystem: Arc::new(filesystem),
            seeks: SettledSeeks::default(),
            writeback_cache: options.writeback_cache,
            bypasses_cache: agreed.has(InitFlags::DIRECT_IO_ALLOW_MMAP),
            st_blocks: options.st_blocks,
        }
    }

    /// Stops the pool, because the daemon failed in the middle of a request.
    pub(super) fn stop(&self, cause: &str) {
        self.filesystem.stop(cause);
    }

    /// Returns the replies that wait for the kernel, and the register of open files.
    pub(super) fn held_replies(&self) -> (Arc<HeldReplies>, Arc<OpenFiles>) {
        (self.held_replies.clone(), self.open_files.clone())
    }

    /// Returns the number of blocks of accepted writes that wait to be carried out. Other requests may have to wait for
    /// them.
    pub(super) fn blocks_behind(&self) -> usize {
        self.filesystem.blocks_behind()
    }

    /// Carries out accepted writes that no thread has begun.
    pub(super) fn begin_accepted(&self) {
        self.filesystem.begin_accepted();
    }

    /// Wakes a worker for accepted writes that no thread has begun.
    pub(super) fn hand_over_accepted(&self) {
        self.filesystem.hand_over_accepted();
    }

    /// Answers one request.
    ///
    /// # Errors
    /// When the kernel does not accept the reply.
    pub(super) fn answer(
        &self,
        header: &RequestHeader,
        operation: Operation<'_>,
        device: &FuseDevice,
    ) -> io::Result<()> {
        let body = match operation {
            Operation::Forget(holds) => {
                for (node, holds) in holds {
                    self.filesystem.forget(Ino(node), holds);
                }
                return Ok(());
            }
            Operation::Read(read) => {
                let from = FileOffset { ino: Ino(header.node), offset: read.offset };
                self.note_cached_read(header, &read);
                return read_buffer::with(read.bytes as usize, |buffer| {
                    let outcome = self.filesystem.read(from, read.handle, OpenFlags(read.flags), buffer);
                    reply_read(device, header.unique, outcome, buffer)
                });
            }
            Operation::Write(Write { head, data }) => {
                let to = FileOffset { ino: Ino(header.node), offset: head.offset };
                let write = || self.filesystem.write(to, (head.handle, OpenFlags(head.flags)), data);
                return self.finish_write(header, &head, data.len(), write, device);
            }
            Operation::Seek { offset, whence } if self.settles_seeks(Ino(header.node)) => {
                let (ino, unique, device) = (Ino(header.node), header.unique, device.clone());
                self.seeks.hold(HeldSeek { ino, offset, whence, unique, device }, &self.filesystem);
                return Ok(());
            }
            operation => self.body(header, operation),
        };
        match body {
            Ok(body) => device.reply(header.unique, 0, &body),
            Err(errno) => device.reply(header.unique, errno.raw_os_error(), &[]),
        }
    }

    /// Returns whether pages that the kernel has not handed over may change the answer to a seek.
    fn settles_seeks(&self, ino: Ino) -> bool {
        !self.writeback_cache && self.open_files.may_be_mapped(ino)
    }

    /// Answers several reads together. Each reply goes to the descriptor that the read came from.
    ///
    /// # Errors
    /// When the kernel does not accept a reply.
    pub(super) fn answer_reads(&self, reads: &[GatheredRead<'_>]) -> io::Result<()> {
        let rooms = reads.iter().map(GatheredRead::room);
        read_buffer::with(rooms.clone().sum(), |buffer| {
            let mut rest = buffer;
            let mut parts = Vec::with_capacity(reads.len());
            for (gathered, room) in reads.iter().zip(rooms) {
                self.note_cached_read(&gathered.header, &gathered.read);
                let (part, after) = rest.split_at_mut(room);
                rest = after;
                let into = &mut part[..gathered.read.bytes as usize];
                parts.push(ReadRequest { ino: Ino(gathered.header.node), offset: gathered.read.offset, into });
            }
            let outcomes = self.filesystem.read_each(&mut parts, |at| {
                let read = &reads[at].read;
                (read.handle, OpenFlags(read.flags))
            });
            let mut replied = Ok(());
            for ((gathered, part), outcome) in reads.iter().zip(&parts).zip(outcomes) {
                replied = replied.and(reply_read(gathered.device, gathered.header.unique, outcome, part.into));
            }
            replied
        })
    }

    /// Answers a write whose data lie in a buffer of their own, at `buffer[range]`. If it `begins` by the caller, the
    /// caller must then call [`FuseFilesystem::begin_accepted`] or [`FuseFilesystem::hand_over_accepted`].
    ///
    /// # Errors
    /// When the kernel does not accept the reply.
    pub(super) fn answer_write(
        &self,
        header: &RequestHeader,
        head: &WriteHead,
        (buffer, range): (AlignedBuffer, Range<usize>),
        begins: WriteStart,
        device: &FuseDevice,
    ) -> io::Result<()> {
        let bytes = range.len();
        let opening = (head.handle, OpenFlags(head.flags));
        let owned = OwnedWrite { ino: Ino(header.node), offset: head.offset, buffer, range };
        let write = || self.filesystem.write_behind(owned, opening, begins);
        self.finish_write(header, head, bytes, write, device)
    }

    /// Carries out a write of `bytes` bytes and replies to it. If the write made pages or attributes in the kernel's
    /// cache stale, the reply waits until the kernel has dropped them.
    fn finish_write(
        &self,
        header: &RequestHeader,
        head: &WriteHead,
        bytes: usize,
        write: impl FnOnce() -> Result<()>,
        device: &FuseDevice,
    ) -> io::Result<()> {
        let ino = Ino(header.node);
        let range = head.offset..head.offset.saturating_add(bytes as u64);
        let is_direct = OpenFlags(head.flags).is_direct() && !head.is_from_cache;
        if !is_direct {
            // The written pages stay in the cache, and may be older than a direct write beside this one.
            self.open_files.note_cached(ino, range.clone());
        }
        let prepared = self.prepare_write(header, head.privileges, is_direct);
        let has_new_mode = match prepared.and_then(|has_new_mode| write().map(|()| has_new_mode)) {
            Ok(has_new_mode) => has_new_mode,
            Err(errno) => return device.reply(header.unique, errno.raw_os_error(), &[]),
        };
        let stale = if is_direct { self.open_files.take_stale(ino, range.clone()) } else { None };
        if stale.is_some() || has_new_mode {
            // After a direct write the kernel asks for new times and a new length, but keeps the mode that it has
            // cached.
            let (unique, device) = (header.unique, device.clone());
            self.held_replies.hold(HeldReply { ino, bytes: range, stale, unique, device });
            return Ok(());
        }
        let bytes = u32::try_from(bytes).expect("a request is about 1 MiB at most");
        device.reply(header.unique, 0, &written(bytes))
    }

    /// Notes that a read fills pages of the kernel's cache. Must be called before the read looks at the file.
    fn note_cached_read(&self, header: &RequestHeader, read: &Read) {
        if !OpenFlags(read.flags).is_direct() {
            self.open_files.note_cached(Ino(header.node), read.offset..read.offset.saturating_add(read.bytes.into()));
        }
    }

    /// Prepares the file for a write. Returns whether its mode has changed.
    fn prepare_write(&self, header: &RequestHeader, privileges: Privileges, is_direct: bool) -> Result<bool> {
        match privileges {
            // Done before the content changes: new content must never run with old privileges.
            Privileges::Dropped => self.filesystem.drop_privileges(Ino(header.node), caller(header)),
            Privileges::Kept if is_direct => self.filesystem.drop_capabilities(Ino(header.node)).map(|()| false),
            Privileges::Kept => Ok(false),
        }
    }

    /// Carries out the request and returns the body of the reply.
    fn body(&self, header: &RequestHeader, operation: Operation<'_>) -> Result<Vec<u8>> {
        let ino = Ino(header.node);
        let at = |name| NameInDirectory { parent: ino, name };
        let place = |offset| FileOffset { ino, offset };
        let fs = &self.filesystem;
        match operation {
            Operation::Lookup { name } => self.entry(fs.lookup(at(name))),
            Operation::GetAttr => self.attributes(fs.attr(ino)),
            Operation::Statx => Ok(statx(&fs.attr(ino)?, self.st_blocks)),
            Operation::SetAttr { change, privileges } => {
                self.attributes(fs.set_attr(ino, change, privileges, caller(header)))
            }
            Operation::ReadSymlink => fs.read_symlink(ino),
            Operation::Symlink { name, target } => {
                self.entry(fs.create_symlink(at(name), target, header.uid, header.gid))
            }
            Operation::MakeNode { name, mode, umask, rdev } => {
                let new = new_file(header, kind_of_node(mode)?, mode, umask, rdev);
                self.entry(fs.create(at(name), &new))
            }
            Operation::MakeDirectory { name, mode, umask } => {
                self.entry(fs.create(at(name), &new_file(header, FileKind::Directory, mode, umask, 0)))
            }
            Operation::Unlink { name } => done(fs.unlink(at(name))),
            Operation::RemoveDirectory { name } => done(fs.remove_directory(at(name))),
            Operation::Rename { name, new_parent, new_name, flags } => {
                let to = NameInDirectory { parent: Ino(new_parent), name: new_name };
                done(fs.rename(at(name), to, flags, FileOwner { uid: header.uid, gid: header.gid }))
            }
            Operation::Link { node, name } => self.entry(fs.link(Ino(node), at(name))),
            Operation::Open { flags } => {
                let opening = fs.open(ino, OpenFlags(flags));
                Ok(opened(opening.handle, self.opening_flags(opening)))
            }
            Operation::Create { name, mode, umask, flags } => {
                let new = new_file(header, FileKind::Regular, mode, umask, 0);
                self.created(fs.create(at(name), &new), flags)
            }
            Operation::CreateUnnamed { mode, umask, flags } => {
                let new = new_file(header, FileKind::Regular, mode, umask, 0);
                self.created(fs.create_unnamed(ino, &new), flags)
            }
            Operation::StatFs => Ok(statfs(&fs.space())),
            // Writes have already reported their errors, and close promises nothing.
            Operation::Flush | Operation::Destroy => Ok(Vec::new()),
            Operation::Release { handle } => {
                fs.release(ino, handle);
                Ok(Vec::new())
            }
            Operation::ReleaseDirectory { handle } => {
                fs.release_folder(handle);
                Ok(Vec::new())
            }
            Operation::Sync { handle } => done(fs.sync(ino, handle)),
            Operation::SetXattr(change) => done(fs.set_xattr(ino, &change, header.uid)),
            Operation::GetXattr { name, room } => with_room(fs.xattr(ino, name)?, room),
            Operation::ListXattrs { room } => with_room(fs.xattr_names(ino)?, room),
            Operation::RemoveXattr { name } => done(fs.remove_xattr(ino, name)),
            Operation::OpenDirectory => Ok(opened(fs.open_folder(ino), 0)),
            Operation::ReadDirectory { cookie, room } => self.list(ino, cookie, room),
            Operation::ReadDirectoryPlus { cookie, room } => self.list_with_attributes(ino, cookie, room),
            Operation::Ioctl { command: FITRIM } => fs.trim(header.uid).map(trimmed),
            Operation::Ioctl { .. } => Err(Errno::NOTTY),
            Operation::Allocate { offset, bytes, mode } => done(fs.allocate(place(offset), bytes, mode)),
            // The kernel holds data that the pool has not received, and does not hand it over before a seek. On NOSYS,
            // it treats the whole file as data.
            Operation::Seek { .. } if self.writeback_cache => Err(Errno::NOSYS),
            Operation::Seek { offset, whence } => Ok(seek_result(fs.seek(ino, offset, whence)?)),
            Operation::CopyRange { source_offset, target, target_offset, bytes, flags } => {
                let to = FileOffset { ino: Ino(target), offset: target_offset };
                Ok(written(fs.clone_range(place(source_offset), to, bytes, flags)?))
            }
            Operation::Forget(_) | Operation::Read(_) | Operation::Write(_) | Operation::Unknown => Err(Errno::NOSYS),
        }
    }

    fn entry(&self, found: Result<Attr>) -> Result<Vec<u8>> {
        Ok(entry(&found?, self.st_blocks))
    }

    fn attributes(&self, attr: Result<Attr>) -> Result<Vec<u8>> {
        Ok(encode_attributes(&attr?, self.st_blocks))
    }

    fn created(&self, made: Result<Attr>, flags: i32) -> Result<Vec<u8>> {
        let attr = made?;
        let opening = self.filesystem.open(attr.ino, OpenFlags(flags));
        Ok(created(&attr, self.st_blocks, opening.handle, self.opening_flags(opening)))
    }

    fn opening_flags(&self, opened: OpenReply) -> u32 {
        let flags = opened.flags(self.bypasses_cache);
        // A flush has nothing to do here. With the writeback cache, the kernel uses it to hand over its dirty pages.
        if self.writeback_cache { flags } else { flags | opening::NOFLUSH }
    }

    fn list(&self, ino: Ino, cookie: u64, room: u32) -> Result<Vec<u8>> {
        let mut reply = DirectoryReply::new(room as usize);
        self.filesystem.list(ino, cookie, &mut |entry| go_on(reply.add(entry, None)))?;
        Ok(reply.into_bytes())
    }

    fn list_with_attributes(&self, ino: Ino, cookie: u64, room: u32) -> Result<Vec<u8>> {
        let mut reply = DirectoryReply::new(room as usize);
        let mut take = |entry: &DirEntry, attr: &Attr| go_on(reply.add(entry, Some((attr, self.st_blocks))));
        self.filesystem.list_with_attributes(ino, cookie, &mut take)?;
        Ok(reply.into_bytes())
    }
}

fn caller(header: &RequestHeader) -> Caller {
    Caller { gid: header.gid, pid: header.pid }
}

/// Returns the attributes of a file to be created for the sender of a request.
fn new_file(header: &RequestHeader, kind: FileKind, mode: u32, umask: u32, rdev: u32) -> NewFile {
    let (uid, gid) = (header.uid, header.gid);
    NewFile { kind, mode: permissions(mode), umask: permissions(umask), uid, gid, rdev }
}

fn reply_read(device: &FuseDevice, unique: u64, outcome: Result<usize>, buffer: &[u8]) -> io::Result<()> {
    match outcome {
        Ok(count) => device.reply(unique, 0, &buffer[..count]),
        Err(errno) => device.reply(unique, errno.raw_os_error(), &[]),
    }
}

fn done(result: Result<()>) -> Result<Vec<u8>> {
    result.map(|()| Vec::new())
}

fn go_on(there_was_room: bool) -> ControlFlow<()> {
    if there_was_room { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// Answers `getxattr(2)` and `listxattr(2)`. With a `room` of 0, the caller asks for the size of the value.
fn with_room(value: Vec<u8>, room: u32) -> Result<Vec<u8>> {
    match u32::try_from(value.len()) {
        Ok(needed) if room == 0 => Ok(xattr_size(needed)),
        Ok(needed) if needed <= room => Ok(value),
        _ => Err(Errno::RANGE),
    }
}
