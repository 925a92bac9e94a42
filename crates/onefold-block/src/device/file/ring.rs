//! Many transfers in flight at once, by io_uring.
//!
//! A call puts its runs into a ring and returns when all of them have completed: no buffer is ever in flight when its
//! borrow ends. Rings are kept for the next call. If the system forbids rings, callers use plain calls.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::runs::Transfer;

/// Maximum number of transfers in flight at once.
const DEPTH: u32 = 64;
/// Maximum number of rings, in use or not; a caller beyond them uses plain calls.
const RINGS_MAX: usize = 8;
/// Time between two checks for completions when the ring can no longer be waited on.
const DRAIN_WAIT: Duration = Duration::from_millis(1);

/// Each run's outcome: bytes transferred, or the system's error; [`NOT_DONE`] if it was never begun.
pub(super) type Outcomes = Vec<Result<usize, Errno>>;

/// Outcome of a run that remains to be done by plain calls.
pub(super) const NOT_DONE: Result<usize, Errno> = Err(Errno::AGAIN);

/// The rings of one device.
#[derive(Default)]
pub(super) struct Rings {
    state: Mutex<RingState>,
}

#[derive(Default)]
struct RingState {
    idle: Vec<IoUring>,
    in_use: usize,
    is_forbidden: bool,
}

impl Rings {
    /// Reads the runs in parallel, as far as a ring is available.
    #[expect(unsafe_code, reason = "see `drive`")]
    pub(super) fn read(&self, file: &File, runs: &[Transfer], slices: &mut [IoSliceMut<'_>]) -> Outcomes {
        let file = types::Fd(file.as_raw_fd());
        self.with_ring(runs, |ring| {
            // An `IoSliceMut` is an `iovec`, as its documentation says.
            let entry = |run: &Transfer| {
                let slices = &mut slices[run.slices.clone()];
                opcode::Readv::new(file, slices.as_mut_ptr().cast(), slice_count(slices.len()))
                    .offset(run.offset)
                    .build()
            };
            let entries = runs.iter().map(entry).collect();
            // SAFETY: file, slices and the buffers in them are borrowed until after the call, the buffers exclusively.
            unsafe { drive(ring, entries) }
        })
    }

    /// Writes the runs in parallel, as far as a ring is available.
    #[expect(unsafe_code, reason = "see `drive`")]
    pub(super) fn write(&self, file: &File, runs: &[Transfer], slices: &[IoSlice<'_>]) -> Outcomes {
        let file = types::Fd(file.as_raw_fd());
        self.with_ring(runs, |ring| {
            let entry = |run: &Transfer| {
                let slices = &slices[run.slices.clone()];
                opcode::Writev::new(file, slices.as_ptr().cast(), slice_count(slices.len())).offset(run.offset).build()
            };
            let entries = runs.iter().map(entry).collect();
            // SAFETY: file, slices and the buffers in them are borrowed until after the call.
            unsafe { drive(ring, entries) }
        })
    }

    fn with_ring(&self, runs: &[Transfer], work: impl FnOnce(&mut IoUring) -> (Outcomes, Soundness)) -> Outcomes {
        let Some(mut ring) = self.acquire() else { return vec![NOT_DONE; runs.len()] };
        let (outcomes, soundness) = work(&mut ring);
        let mut state = self.state.lock();
        state.in_use -= 1;
        if soundness == Soundness::Reusable {
            state.idle.push(ring);
        }
        outcomes
    }

    fn acquire(&self) -> Option<IoUring> {
        {
            let mut state = self.state.lock();
            if state.is_forbidden || state.in_use == RINGS_MAX {
                return None;
            }
            state.in_use += 1;
            if let Some(ring) = state.idle.pop() {
                return Some(ring);
            }
        }
        let ring = IoUring::builder().dontfork().build(DEPTH);
        if ring.is_err() {
            let mut state = self.state.lock();
            state.in_use -= 1;
            state.is_forbidden = true;
        }
        ring.ok()
    }
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rings").field("in_use", &self.state.lock().in_use).finish_non_exhaustive()
    }
}

fn slice_count(slices: usize) -> u32 {
    u32::try_from(slices).expect("runs have few slices")
}

/// Whether a ring may be used for another call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Soundness {
    Reusable,
    /// It may hold entries that were never submitted; a later call would submit them after their buffers are gone.
    Spent,
}

/// Performs the entries and returns their outcomes once none is in flight any more.
///
/// # Safety
/// During the call, the files and memory that the entries point to stay valid, and memory to be filled is not touched.
#[expect(unsafe_code, reason = "the kernel works on memory behind the borrow checker's back")]
unsafe fn drive(ring: &mut IoUring, entries: Vec<squeue::Entry>) -> (Outcomes, Soundness) {
    let mut outcomes = vec![NOT_DONE; entries.len()];
    let mut soundness = Soundness::Reusable;
    let (submitter, mut queue, mut completions) = ring.split();
    let mut waiting = (0..).zip(entries).peekable();
    // Nothing in this loop may panic: unwinding would end borrows that the kernel still uses.
    let mut in_flight = 0;
    while in_flight > 0 || (soundness == Soundness::Reusable && waiting.peek().is_some()) {
        while soundness == Soundness::Reusable && in_flight < DEPTH as usize && !queue.is_full() {
            let Some((index, entry)) = waiting.next() else { break };
            // SAFETY: the data that the entry points to is valid until this function returns, as its own contract says,
            // and it returns only when nothing is in flight. The queue has room.
            if unsafe { queue.push(&entry.user_data(index)) }.is_ok() {
                in_flight += 1;
            }
        }
        queue.sync();
        if soundness == Soundness::Spent {
            thread::sleep(DRAIN_WAIT);
        } else if let Err(error) = submitter.submit_and_wait(1)
            && error.kind() != io::ErrorKind::Interrupted
        {
            // The kernel takes no more entries now. Entries that it has not taken are not in flight.
            queue.sync();
            in_flight -= queue.len();
            soundness = Soundness::Spent;
        }
        completions.sync();
        for completion in &mut completions {
            in_flight -= 1;
            let outcome = usize::try_from(completion.result());
            let outcome = outcome.map_err(|_| Errno::from_raw_os_error(-completion.result()));
            let index = usize::try_from(completion.user_data()).unwrap_or(usize::MAX);
            if let Some(place) = outcomes.get_mut(index) {
                *place = outcome;
            }
        }
    }
    (outcomes, soundness)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::file::runs::into_runs;
    use crate::{AlignedBuffer, BLOCK_BYTES, BlockNo};

    /// Writes scattered single blocks to a new file through `rings`; returns their outcomes and the file's content
    /// there.
    fn write_scattered(rings: &Rings) -> (Outcomes, Vec<u8>) {
        let file = tempfile::tempfile().unwrap();
        let mut data = AlignedBuffer::zeroed(200);
        data.fill(7);
        let operations = (0..).step_by(3).map(BlockNo).zip(data.chunks(BLOCK_BYTES).map(IoSlice::new));
        let (slices, runs) = into_runs(operations.collect(), |slice| slice.len());
        let outcomes = rings.write(&file, &runs, &slices);
        let mut back = AlignedBuffer::zeroed(200);
        let operations = (0..).step_by(3).map(BlockNo).zip(back.chunks_mut(BLOCK_BYTES).map(IoSliceMut::new));
        let (mut slices, runs) = into_runs(operations.collect(), |slice| slice.len());
        assert_eq!(rings.read(&file, &runs, &mut slices), outcomes);
        (outcomes, back.to_vec())
    }

    #[test]
    fn more_runs_than_the_ring_is_deep_all_complete() {
        let rings = Rings::default();
        if IoUring::new(DEPTH).is_err() {
            println!("skipped: the system has no io_uring");
            return;
        }
        let (outcomes, back) = write_scattered(&rings);
        assert_eq!(outcomes, vec![Ok(BLOCK_BYTES); 200]);
        assert_eq!(back, vec![7; 200 * BLOCK_BYTES]);
        assert_eq!(rings.state.lock().idle.len(), 1, "the ring is kept");
    }

    #[test]
    fn where_rings_are_forbidden_nothing_is_done() {
        let rings = Rings::default();
        rings.state.lock().is_forbidden = true;
        let (outcomes, back) = write_scattered(&rings);
        assert_eq!(outcomes, vec![NOT_DONE; 200]);
        assert_eq!(back, vec![0; 200 * BLOCK_BYTES]);
    }

    #[test]
    fn rings_are_bounded_and_a_caller_beyond_them_gets_none() {
        let rings = Rings::default();
        rings.state.lock().in_use = RINGS_MAX;
        assert!(rings.acquire().is_none());
        assert_eq!(rings.state.lock().in_use, RINGS_MAX);
        rings.state.lock().in_use = RINGS_MAX - 1;
        assert!(rings.acquire().is_some() || rings.state.lock().is_forbidden);
    }

    #[test]
    fn an_error_is_the_runs_own() {
        let rings = Rings::default();
        let not_writable = File::open("/dev/zero").unwrap();
        let block = AlignedBuffer::zeroed(1);
        let operations = [4, 2].map(|first| (BlockNo(first), IoSlice::new(&block)));
        let (slices, runs) = into_runs(operations.to_vec(), |slice| slice.len());
        let outcomes = rings.write(&not_writable, &runs, &slices);
        assert!(outcomes == vec![Err(Errno::BADF); 2] || outcomes == vec![NOT_DONE; 2], "{outcomes:?}");
    }
}
