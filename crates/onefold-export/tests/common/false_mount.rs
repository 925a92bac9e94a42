//! A mount that makes false claims about itself: any user who may use `fusermount3` can make one.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const HEADER_BYTES: usize = 40;
const INIT: u32 = 26;
const GET_XATTR: u32 = 22;

/// A FUSE mount of a given user whose root has one value for all extended attributes. Unmounted when dropped.
pub struct FalseMount {
    path: PathBuf,
    server: Option<JoinHandle<()>>,
}

impl FalseMount {
    /// Mounts at `path`, as the helper would for `user` with `allow_other`.
    pub fn new(path: &Path, user: u32, value: &Path) -> FalseMount {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
        let options = format!(
            "fd={},rootmode=40755,user_id={user},group_id={user},allow_other,subtype=onefold",
            device.as_raw_fd()
        );
        mount("false.pool", path, "fuse", MountFlags::NOSUID | MountFlags::NODEV, &*CString::new(options).unwrap())
            .unwrap();
        let value = value.as_os_str().as_encoded_bytes().to_vec();
        let server = thread::spawn(move || serve(device, &value));
        FalseMount { path: path.to_owned(), server: Some(server) }
    }
}

impl Drop for FalseMount {
    fn drop(&mut self) {
        let _ = unmount(&self.path, UnmountFlags::FORCE | UnmountFlags::DETACH);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

fn serve(mut device: File, value: &[u8]) {
    let mut request = vec![0; 1 << 17];
    while let Ok(bytes) = device.read(&mut request) {
        let field = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let (error, body) = match field(4) {
            INIT => (0, init()),
            GET_XATTR if bytes >= HEADER_BYTES => (0, value.to_vec()),
            _ => (-libc::ENOSYS, Vec::new()),
        };
        let mut reply = u32::try_from(16 + body.len()).unwrap().to_ne_bytes().to_vec();
        reply.extend(error.to_ne_bytes());
        reply.extend(&request[8..16]);
        reply.extend(body);
        if device.write_all(&reply).is_err() {
            return;
        }
    }
}

/// Version 7.31 without abilities.
fn init() -> Vec<u8> {
    let mut body = vec![0; 64];
    body[..4].copy_from_slice(&7_u32.to_ne_bytes());
    body[4..8].copy_from_slice(&31_u32.to_ne_bytes());
    body[20..24].copy_from_slice(&4096_u32.to_ne_bytes());
    body
}
