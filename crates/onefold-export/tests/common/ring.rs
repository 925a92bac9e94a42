//! Asynchronous writes, as QEMU's `aio=io_uring` makes them.

use std::fs::File;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};
use onefold_block::AlignedBuffer;

/// Writes pieces of a buffer to a file, all in flight at once, and waits for their completion.
pub struct AsyncWriter {
    ring: IoUring,
}

impl AsyncWriter {
    pub fn new() -> AsyncWriter {
        AsyncWriter { ring: IoUring::new(64).unwrap() }
    }

    /// Writes `from` at `offset` in pieces of `piece` bytes; returns once all of them have completed.
    #[expect(unsafe_code, reason = "the ring takes addresses of memory")]
    pub fn write(&mut self, file: &File, offset: u64, from: &AlignedBuffer, piece: usize) {
        let descriptor = types::Fd(file.as_raw_fd());
        let mut count = 0;
        for (at, part) in (0..).step_by(piece).zip(from.chunks(piece)) {
            let bytes = u32::try_from(part.len()).unwrap();
            let entry = opcode::Write::new(descriptor, part.as_ptr(), bytes).offset(offset + at).build();
            // SAFETY: the memory stays borrowed and the file open until all entries have completed, below.
            unsafe { self.ring.submission().push(&entry.user_data(u64::from(bytes))).unwrap() };
            count += 1;
        }
        self.ring.submit_and_wait(count).unwrap();
        for entry in self.ring.completion() {
            assert_eq!(u64::try_from(entry.result()), Ok(entry.user_data()), "a write failed or was short");
        }
    }
}
