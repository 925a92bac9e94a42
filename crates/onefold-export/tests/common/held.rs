//! A device that stops answering for a while, to show which work needs no device.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_block::{BlockDevice, BlockNo};
use parking_lot::{Condvar, Mutex};

/// Maximum time for which a call is held, so that a failed test does not hang.
const HELD_MAX: Duration = Duration::from_secs(60);

/// Wraps a device and holds up all reads, writes and flushes while it is closed. It begins open.
#[derive(Debug)]
pub struct HeldDevice<D> {
    inner: Arc<D>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    /// Number of calls that are held.
    held: usize,
}

impl<D: BlockDevice> HeldDevice<D> {
    pub fn new(inner: Arc<D>) -> HeldDevice<D> {
        HeldDevice { inner, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Holds calls from now on.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
    }

    /// Lets all calls pass.
    pub fn open(&self) {
        self.state.lock().is_closed = false;
        self.changed.notify_all();
    }

    /// Waits up to `time` until `count` calls are held. Returns whether that happened.
    pub fn wait_until_held(&self, count: usize, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while state.held < count {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return state.held >= count;
            }
        }
        true
    }

    fn pass(&self) -> io::Result<&D> {
        let until = Instant::now() + HELD_MAX;
        let mut state = self.state.lock();
        if state.is_closed {
            state.held += 1;
            self.changed.notify_all();
            while state.is_closed {
                if self.changed.wait_until(&mut state, until).timed_out() {
                    return Err(io::Error::other("nobody has opened the device again"));
                }
            }
            state.held -= 1;
        }
        Ok(&self.inner)
    }
}

impl<D: BlockDevice> BlockDevice for HeldDevice<D> {
    fn block_count(&self) -> io::Result<u64> {
        self.inner.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.pass()?.read(first, into)
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        self.pass()?.write(first, from)
    }

    fn sync(&self) -> io::Result<()> {
        self.pass()?.sync()
    }

    fn has_room_for_all_blocks(&self) -> bool {
        self.inner.has_room_for_all_blocks()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.pass()?.discard(first, count)
    }
}
