//! The file or device below a loop device.

use std::mem::{offset_of, size_of};

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopStatus {
    /// Number of the file system of the file below.
    pub(crate) device: u64,
    /// Number of the file.
    pub(crate) inode: u64,
    /// Number of the device, if a block device lies below.
    pub(crate) device_below: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encryption: u32,
    key_bytes: u32,
    flags: u32,
    file_name: [u8; 64],
    encryption_name: [u8; 64],
    key: [u8; 32],
    reserved: [u64; 2],
}

const _: () = assert!(offset_of!(LoopStatus, file_name) == 56 && size_of::<LoopStatus>() == 232);

/// The number is older than the encoding of sizes in such numbers.
const LOOP_GET_STATUS64: Opcode = 0x4c05;

/// Returns what a loop device lies on. Numbers of devices have the form that `stat` returns.
pub(crate) fn status(device: impl AsFd) -> Result<LoopStatus, Errno> {
    // SAFETY: the opcode writes one `loop_info64`, which is what `LoopStatus` is.
    let call = unsafe { Getter::<LOOP_GET_STATUS64, LoopStatus>::new() };
    // SAFETY: as above; any bytes are a valid `LoopStatus`.
    unsafe { ioctl(device, call) }
}
