//! A device that stops answering for a while, to show which work needs no device.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_block::{BLOCK_BYTES, BlockDevice, BlockNo};
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
    /// Whether the first write of a checkpoint closes the device.
    closes_at_checkpoint: bool,
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

    /// Holds calls from the next checkpoint on: once a page of the names tree is written to its place. Its transaction
    /// is in the journal and durable by then.
    pub fn close_at_checkpoint(&self) {
        self.state.lock().closes_at_checkpoint = true;
    }

    /// Lets all calls pass.
    pub fn open(&self) {
        let mut state = self.state.lock();
        state.is_closed = false;
        state.closes_at_checkpoint = false;
        drop(state);
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
        let mut state = self.state.lock();
        state.is_closed |= state.closes_at_checkpoint && has_tree_page_in_place(first, from);
        drop(state);
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

/// Returns whether one of the blocks written at `first` is a page of the names tree that is meant for that place. In
/// the journal, such a page lies elsewhere.
fn has_tree_page_in_place(first: BlockNo, from: &[u8]) -> bool {
    const TREE_PAGE: [u8; 2] = [4, 0];
    let mut places = (first.0..).zip(from.chunks_exact(BLOCK_BYTES));
    places.any(|(place, block)| block[8..14] == place.to_le_bytes()[..6] && block[14..16] == TREE_PAGE)
}
