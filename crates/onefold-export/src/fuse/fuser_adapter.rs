//! `fuser`'s callbacks, each handed on to the file system in its own terms and answered at once, on the thread that
//! received it.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, Generation, INodeNo, IoctlFlags, KernelConfig,
    LockOwner, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use onefold_block::BLOCK_BYTES;
use onefold_pool::{Attr, FileKind, NAME_BYTES_MAX, SetAttr};

use super::attributes::{file_type, ino, kind_of_node, new_file, permissions, set_time, to_kernel};
use super::filesystem::{Caching, Entry, Opened, Place, PoolFilesystem, Result};
use super::flags::OpenFlags;
use super::{fuser_transport, read_buffer};
use crate::options::{MountOptions, StBlocks};

/// How long the kernel may believe names and attributes: everything that changes them passes through it.
const VALID: Duration = Duration::from_secs(60 * 60);

/// Inode numbers are never reused, so no generation tells two files of one number apart.
const GENERATION: Generation = Generation(0);

/// Size of the blocks that `statfs(2)` counts.
const STATFS_UNIT_BYTES: u32 = 4096;
const _: () = assert!(STATFS_UNIT_BYTES as usize == BLOCK_BYTES);

/// A file system as `fuser` wants it.
pub(super) struct FuserAdapter {
    filesystem: PoolFilesystem,
    writeback_cache: bool,
    st_blocks: StBlocks,
}

impl FuserAdapter {
    pub(super) fn new(filesystem: PoolFilesystem, options: &MountOptions) -> FuserAdapter {
        FuserAdapter { filesystem, writeback_cache: options.writeback_cache, st_blocks: options.st_blocks }
    }

    /// Returns what `open(2)` tells the kernel.
    fn open_flags(&self, opened: Opened) -> FopenFlags {
        let flags = match opened.caching {
            // Shared mappings still work: FUSE_DIRECT_IO_ALLOW_MMAP was asked for.
            Caching::Bypass => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            Caching::Keep => FopenFlags::FOPEN_KEEP_CACHE,
        };
        // A flush has nothing to do here; with the writeback cache it is when the kernel hands over what it has.
        if self.writeback_cache { flags } else { flags | FopenFlags::FOPEN_NOFLUSH }
    }

    fn reply_entry(&self, result: Result<Attr>, reply: ReplyEntry) {
        match result {
            Ok(attr) => reply.entry(&VALID, &to_kernel(&attr, self.st_blocks), GENERATION),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn reply_attr(&self, result: Result<Attr>, reply: ReplyAttr) {
        match result {
            Ok(attr) => reply.attr(&VALID, &to_kernel(&attr, self.st_blocks)),
            Err(error) => reply.error(errno(error)),
        }
    }
}

fn errno(errno: rustix::io::Errno) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

fn at(parent: INodeNo, name: &OsStr) -> Entry<'_> {
    Entry { parent: ino(parent), name: name.as_bytes() }
}

fn place(number: INodeNo, offset: u64) -> Place {
    Place { ino: ino(number), offset }
}

fn reply_empty(result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

/// Answers `getxattr(2)` and `listxattr(2)`: a `size` of 0 asks how much room is needed.
fn reply_xattr(result: Result<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match result {
        Ok(value) => match u32::try_from(value.len()) {
            Ok(needed) if size == 0 => reply.size(needed),
            Ok(needed) if needed <= size => reply.data(&value),
            _ => reply.error(Errno::ERANGE),
        },
        Err(error) => reply.error(errno(error)),
    }
}

impl fuser::Filesystem for FuserAdapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        fuser_transport::negotiate(config, self.writeback_cache);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.reply_entry(self.filesystem.lookup(at(parent, name)), reply);
    }

    fn forget(&self, _request: &Request, number: INodeNo, holds: u64) {
        self.filesystem.forget(ino(number), holds);
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.reply_attr(self.filesystem.attr(ino(number)), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _checked: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = SetAttr {
            mode: mode.map(permissions),
            uid,
            gid,
            size_bytes: size,
            accessed: accessed.map(set_time),
            modified: modified.map(set_time),
        };
        self.reply_attr(self.filesystem.set_attr(ino(number), change, request.uid()), reply);
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        match self.filesystem.read_symlink(ino(number)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let made = kind_of_node(mode)
            .and_then(|kind| self.filesystem.create(at(parent, name), &new_file(request, kind, mode, umask, rdev)));
        self.reply_entry(made, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let new = new_file(request, FileKind::Directory, mode, umask, 0);
        self.reply_entry(self.filesystem.create(at(parent, name), &new), reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.filesystem.unlink(at(parent, name)), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.filesystem.remove_directory(at(parent, name)), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let made = self.filesystem.create_symlink(at(parent, name), target, request.uid(), request.gid());
        self.reply_entry(made, reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.filesystem.rename(at(parent, name), at(new_parent, new_name), flags.bits()), reply);
    }

    fn link(&self, _request: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.reply_entry(self.filesystem.link(ino(number), at(parent, name)), reply);
    }

    fn open(&self, _request: &Request, number: INodeNo, flags: fuser::OpenFlags, reply: ReplyOpen) {
        let opened = self.filesystem.open(ino(number), OpenFlags(flags.0));
        reply.opened(FileHandle(opened.handle), self.open_flags(opened));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let new = new_file(request, FileKind::Regular, mode, umask, 0);
        match self.filesystem.create(at(parent, name), &new) {
            Ok(attr) => {
                let opened = self.filesystem.open(attr.ino, OpenFlags(flags));
                let handle = FileHandle(opened.handle);
                reply.created(&VALID, &to_kernel(&attr, self.st_blocks), GENERATION, handle, self.open_flags(opened));
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: fuser::OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        read_buffer::with(size as usize, |buffer| {
            match self.filesystem.read(place(number, offset), handle.0, OpenFlags(flags.0), buffer) {
                Ok(count) => reply.data(&buffer[..count]),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: fuser::OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let loses_privileges = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        // Before the content changes: at no time may new content run with old privileges.
        let dropped = if loses_privileges { self.filesystem.drop_privileges(ino(number)) } else { Ok(()) };
        let written = dropped.and_then(|()| self.filesystem.write(place(number, offset), OpenFlags(flags.0), data));
        match written {
            Ok(()) => reply.written(u32::try_from(data.len()).expect("a request is under 16 MiB")),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Writes have told of their errors themselves, and close promises nothing.
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        _flags: fuser::OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.filesystem.release(ino(number));
        reply.ok();
    }

    fn fsync(&self, _request: &Request, number: INodeNo, _handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        reply_empty(self.filesystem.sync(ino(number)), reply);
    }

    fn fsyncdir(&self, _request: &Request, number: INodeNo, _handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        reply_empty(self.filesystem.sync(ino(number)), reply);
    }

    fn readdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.filesystem.list(ino(number), offset, &mut |entry| {
            let name = OsStr::from_bytes(&entry.name);
            match reply.add(INodeNo(entry.ino.0), entry.cookie, file_type(entry.kind), name) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.filesystem.list_with_attributes(ino(number), offset, &mut |entry, attr| {
            let (name, attr) = (OsStr::from_bytes(&entry.name), to_kernel(attr, self.st_blocks));
            match reply.add(attr.ino, entry.cookie, name, &VALID, &attr, GENERATION) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        let space = self.filesystem.space();
        let name_bytes = u32::try_from(NAME_BYTES_MAX).expect("255");
        reply.statfs(
            space.blocks,
            space.blocks_free,
            space.blocks_available,
            space.inodes.saturating_add(space.inodes_free),
            space.inodes_free,
            STATFS_UNIT_BYTES,
            name_bytes,
            STATFS_UNIT_BYTES,
        );
    }

    fn setxattr(
        &self,
        _request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.filesystem.set_xattr(ino(number), name.as_bytes(), value, flags), reply);
    }

    fn getxattr(&self, _request: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply_xattr(self.filesystem.xattr(ino(number), name.as_bytes()), size, reply);
    }

    fn listxattr(&self, _request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        reply_xattr(self.filesystem.xattr_names(ino(number)), size, reply);
    }

    fn removexattr(&self, _request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.filesystem.remove_xattr(ino(number), name.as_bytes()), reply);
    }

    fn ioctl(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.filesystem.allocate(place(number, offset), length, mode), reply);
    }

    fn lseek(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.filesystem.seek(ino(number), offset, whence) {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        source: INodeNo,
        _source_handle: FileHandle,
        source_offset: u64,
        target: INodeNo,
        _target_handle: FileHandle,
        target_offset: u64,
        bytes: u64,
        flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (from, to) = (place(source, source_offset), place(target, target_offset));
        match self.filesystem.clone_range(from, to, bytes, flags.bits()) {
            Ok(cloned) => reply.written(cloned),
            Err(error) => reply.error(errno(error)),
        }
    }
}
