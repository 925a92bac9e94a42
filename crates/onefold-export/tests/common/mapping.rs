//! Shared memory mappings of files, without the dangers.

use std::fs::File;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// A shared mapping of the first bytes of a file, of which single bytes can be read and written.
pub struct SharedMapping {
    address: *mut u8,
    bytes: usize,
}

#[expect(unsafe_code, reason = "mappings have no safe interface")]
impl SharedMapping {
    /// Maps the first `bytes` bytes of `file`, which must be at least so long and open for reading and writing.
    pub fn new(file: &File, bytes: usize) -> rustix::io::Result<SharedMapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of this process.
        let address = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)? };
        Ok(SharedMapping { address: address.cast(), bytes })
    }

    pub fn get(&self, at: usize) -> u8 {
        assert!(at < self.bytes);
        // SAFETY: within the mapping, which lives as long as `self`; volatile, because others change the file.
        unsafe { self.address.add(at).read_volatile() }
    }

    pub fn set(&self, at: usize, value: u8) {
        assert!(at < self.bytes);
        // SAFETY: as in `get`; no reference into the mapping is ever given out.
        unsafe { self.address.add(at).write_volatile(value) }
    }

    pub fn sync(&self) -> rustix::io::Result<()> {
        // SAFETY: the range is exactly the mapping.
        unsafe { msync(self.address.cast(), self.bytes, MsyncFlags::SYNC) }
    }
}

#[expect(unsafe_code, reason = "mappings have no safe interface")]
impl Drop for SharedMapping {
    fn drop(&mut self) {
        // Unmapping changed pages waits for them to be written, with the address space of this process locked. The
        // threads that would write them belong to this process too, and may need that lock. So nothing is left to wait
        // for. (A daemon of its own has an address space of its own.)
        let _ = self.sync();
        // SAFETY: the range is exactly the mapping, and nothing refers to it any more.
        let _ = unsafe { munmap(self.address.cast(), self.bytes) };
    }
}
