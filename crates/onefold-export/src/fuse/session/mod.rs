//! A connection to the kernel: mounts, negotiates, and serves with several threads.

#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use onefold_pool::Ino;

use super::device::FuseDevice;
use super::filesystem::PoolFilesystem;
use super::held_replies::HeldReplies;
use super::mounting::FuseMount;
use super::protocol::{InitFlags, InitReply, InitRequest, InvalidationReach, RequestHeader, notify_inode};
use super::refusal::MountRefusal;
use super::server::{REQUEST_BYTES_MAX, Server};
use super::transport::{Invalidate, Transport};
use crate::options::MountOptions;

/// Length of a request without its data. The kernel requires room for at least 80 bytes.
const REQUEST_HEADER_BYTES_MAX: usize = 4096;

/// Maximum number of readahead and asynchronous direct requests that the kernel keeps in progress; its default is 12.
/// The disk queue of a single guest is 32 to 128 deep.
const BACKGROUND_REQUESTS_MAX: u16 = 128;

/// Abilities that the door uses if the kernel has them.
///
/// Two kinds must never be added: `POSIX_LOCKS` and `FLOCK_LOCKS`, because locks that the kernel keeps itself are
/// released as QEMU expects; and `PASSTHROUGH`, because the pool must see all data.
const ABILITIES: [InitFlags; 16] = [
    InitFlags::INIT_EXT,
    InitFlags::ASYNC_READ,
    // Writes of more than a page, requests of more than 32 pages.
    InitFlags::BIG_WRITES,
    InitFlags::MAX_PAGES,
    // The kernel checks permissions with ACLs, and the pool applies the umask unless a default ACL replaces it.
    InitFlags::POSIX_ACL,
    InitFlags::DONT_MASK,
    // Reports when an ACL removes the set-group-id bit.
    InitFlags::SETXATTR_EXT,
    // Saves the kernel a request for `security.capability` before every buffered write; see `privileges`.
    InitFlags::HANDLE_KILLPRIV_V2,
    InitFlags::DO_READDIRPLUS,
    InitFlags::READDIRPLUS_AUTO,
    InitFlags::PARALLEL_DIROPS,
    // Look-ups of `.` and `..` by number, for NFS.
    InitFlags::EXPORT_SUPPORT,
    InitFlags::ASYNC_DIO,
    InitFlags::DIRECT_IO_ALLOW_MMAP,
    // Cached pages stay when a reply carries a new size, because only this mount changes files.
    InitFlags::EXPLICIT_INVAL_DATA,
    InitFlags::CACHE_SYMLINKS,
];

/// Mounts `filesystem` at `mountpoint` and agrees with the kernel on abilities.
///
/// # Errors
/// When the kernel refuses, or `fusermount3` for users other than root: see [`MountRefusal`].
pub(crate) fn connect(
    filesystem: PoolFilesystem,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Box<dyn Transport>, MountRefusal> {
    let mount = FuseMount::new(mountpoint, options)?;
    let agreed = agree(&mount.device, options.writeback_cache)?;
    let threads = options.threads.get().min(MountOptions::THREADS_MAX);
    Ok(Box::new(FuseSession { server: Arc::new(Server::new(filesystem, options, agreed)), mount, threads }))
}

/// Answers the first request of a connection and returns the abilities that both sides have.
fn agree(device: &FuseDevice, writeback_cache: bool) -> io::Result<InitFlags> {
    let invalid = |error: &dyn std::error::Error| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    let mut request = vec![0; REQUEST_HEADER_BYTES_MAX + REQUEST_BYTES_MAX as usize];
    let Some(bytes) = device.receive(&mut request)? else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    let (header, body) = RequestHeader::decode(&request[..bytes]).map_err(|error| invalid(&error))?;
    if header.opcode != InitRequest::OPCODE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel began with another request than INIT"));
    }
    let offered = match InitRequest::decode(body) {
        Ok(offered) => offered,
        Err(error) => {
            device.reply(header.unique, libc::EPROTO, &[])?;
            return Err(invalid(&error));
        }
    };
    let cached = writeback_cache.then_some(InitFlags::WRITEBACK_CACHE);
    let wanted = ABILITIES.into_iter().chain(cached).fold(InitFlags(0), InitFlags::and);
    let reply = InitReply::new(offered, wanted, REQUEST_BYTES_MAX, BACKGROUND_REQUESTS_MAX);
    device.reply(header.unique, 0, &reply.encode())?;
    Ok(reply.abilities)
}

/// Unmounts when it is dropped.
struct FuseSession {
    server: Arc<Server>,
    mount: FuseMount,
    threads: usize,
}

impl Transport for FuseSession {
    fn serve(self: Box<Self>) -> io::Result<()> {
        // All clones are made before the first thread starts, so that no thread keeps serving after a failure here.
        let devices = (1..self.threads).map(|_| self.mount.device.try_clone()).collect::<io::Result<Vec<_>>>()?;
        let droppers = self.drop_stale_pages()?;
        let mut helpers = Vec::new();
        for (number, device) in (1..).zip(devices) {
            let server = self.server.clone();
            match thread::Builder::new().name(format!("fuse-{number}")).spawn(move || server.serve(&device)) {
                Ok(helper) => helpers.push(helper),
                Err(error) => self.server.warn(&format!("the mount is served by fewer threads: {error}")),
            }
        }
        let mut served = self.server.serve(&self.mount.device);
        for helper in helpers {
            let ended = helper.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the mount panicked")));
            served = served.and(ended);
        }
        drop(droppers);
        served
    }

    fn invalidator(&self) -> Arc<dyn Invalidate> {
        Arc::new(Invalidator { device: self.mount.device.clone() })
    }
}

impl FuseSession {
    /// Starts the threads that reply to writes once the kernel has dropped the pages that they made stale.
    fn drop_stale_pages(&self) -> io::Result<Droppers> {
        let (held_replies, open_files) = self.server.held_replies();
        let mut droppers = Droppers { held_replies: held_replies.clone(), threads: Vec::new() };
        let (replies, device) = (held_replies.clone(), self.mount.device.clone());
        let dropper = move || replies.serve(&device, &open_files);
        droppers.threads.push(thread::Builder::new().name("fuse-drop".to_owned()).spawn(dropper)?);
        let late = move || held_replies.serve_late();
        droppers.threads.push(thread::Builder::new().name("fuse-late".to_owned()).spawn(late)?);
        Ok(droppers)
    }
}

/// The threads that make the kernel drop stale pages. Dropping this ends them.
struct Droppers {
    held_replies: Arc<HeldReplies>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Droppers {
    fn drop(&mut self) {
        self.held_replies.end();
        for thread in self.threads.drain(..) {
            // A panic in it is already reported on standard error.
            let _ = thread.join();
        }
    }
}

struct Invalidator {
    device: Arc<FuseDevice>,
}

impl Invalidate for Invalidator {
    fn invalidate(&self, ino: Ino) -> io::Result<()> {
        self.device.notify(&notify_inode(ino.0, &InvalidationReach::Everything))
    }

    fn is_connected(&self) -> bool {
        self.device.is_connected()
    }

    fn has_requests(&self) -> bool {
        self.device.has_requests()
    }
}
