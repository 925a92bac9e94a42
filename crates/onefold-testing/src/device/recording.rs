//! A device that remembers all that was done to it, for tests of what a power cut may leave.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::device::{MemoryDevice, MemoryImage, SharedBlock};
use onefold_block::BlockDevice;
use onefold_block::BlockNo;
use onefold_block::device::{check_on_device, whole_blocks};

/// One thing that happened to a recorded device.
#[derive(Clone, Debug)]
pub enum Event {
    /// Blocks were written.
    Write {
        /// The first of them.
        first: BlockNo,
        /// Their contents.
        blocks: Arc<[SharedBlock]>,
    },
    /// Blocks were given up.
    Discard {
        /// The first of them.
        first: BlockNo,
        /// How many.
        count: u64,
    },
    /// A `sync` returned: every earlier event is durable.
    Sync,
    /// The workload made a promise, for example because an `fsync` of its own returned. See [`RecordingDevice::mark`].
    Mark(u64),
}

impl Event {
    /// Tells whether the event may change what the device holds.
    pub(crate) const fn is_change(&self) -> bool {
        matches!(self, Event::Write { .. } | Event::Discard { .. })
    }
}

/// A device in memory that records every write, discard and sync in the order in which they happened.
///
/// Threads may use it at once; each call happens at one moment, so that the order is a true one.
#[derive(Debug)]
pub struct RecordingDevice {
    start: MemoryImage,
    device: MemoryDevice,
    /// The blocks that the device says it has: at most those of `start`.
    block_count: AtomicU64,
    /// Held while a change is made, so that events are in the order of their effects.
    events: Mutex<Vec<Event>>,
}

impl RecordingDevice {
    /// Returns a device that starts with the content of `start` and an empty recording.
    #[must_use]
    pub fn new(start: MemoryImage) -> RecordingDevice {
        RecordingDevice {
            device: MemoryDevice::from(start.clone()),
            block_count: AtomicU64::new(start.block_count()),
            start,
            events: Mutex::new(Vec::new()),
        }
    }

    /// Sets how many of its blocks the device shows from now on, as when a partition is made longer. Crash images have
    /// all of them.
    ///
    /// # Panics
    /// When the image that the recording started with has fewer.
    pub fn show(&self, block_count: u64) {
        assert!(block_count <= self.start.block_count(), "the image has {} blocks", self.start.block_count());
        self.block_count.store(block_count, Ordering::Relaxed);
    }

    /// Notes that at this point something was promised; what, is the caller's business. Crash images later than the
    /// mark know of it ([`super::CrashImage::last_mark`]).
    pub fn mark(&self, tag: u64) {
        self.events.lock().push(Event::Mark(tag));
    }

    /// Returns what was recorded so far.
    #[must_use]
    pub fn recording(&self) -> Recording {
        Recording { start: self.start.clone(), events: self.events.lock().clone() }
    }

    /// Returns the present content.
    #[must_use]
    pub fn image(&self) -> MemoryImage {
        self.device.image()
    }
}

impl BlockDevice for RecordingDevice {
    fn block_count(&self) -> io::Result<u64> {
        Ok(self.block_count.load(Ordering::Relaxed))
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.device.read(first, into)
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        check_on_device(first, whole_blocks(from.len())?, self.block_count()?)?;
        let blocks: Arc<[SharedBlock]> = from.as_chunks().0.iter().map(|block| Arc::new(*block)).collect();
        let mut events = self.events.lock();
        self.device.set(first, &blocks);
        events.push(Event::Write { first, blocks });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.events.lock().push(Event::Sync);
        Ok(())
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        let mut events = self.events.lock();
        self.device.discard(first, count)?;
        events.push(Event::Discard { first, count });
        Ok(())
    }
}

/// What happened to a device, in order, and what it held before.
#[derive(Clone, Debug)]
pub struct Recording {
    start: MemoryImage,
    events: Vec<Event>,
}

impl Recording {
    /// Returns the events in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns what the device held before the first event.
    #[must_use]
    pub const fn start(&self) -> &MemoryImage {
        &self.start
    }

    /// Returns the tags of the marks among the first `cut` events, in order.
    pub fn marks_before(&self, cut: usize) -> impl DoubleEndedIterator<Item = u64> {
        let before = &self.events[..cut.min(self.events.len())];
        before.iter().filter_map(|event| if let Event::Mark(tag) = event { Some(*tag) } else { None })
    }

    /// Returns how many of the first `cut` events are completed syncs.
    #[must_use]
    pub fn syncs_before(&self, cut: usize) -> usize {
        let before = &self.events[..cut.min(self.events.len())];
        before.iter().filter(|event| matches!(event, Event::Sync)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::BLOCK_BYTES;

    #[test]
    fn events_are_recorded_in_order_and_the_start_is_kept() {
        let mut start = MemoryImage::new(8);
        start.set(BlockNo(0), Arc::new([9; BLOCK_BYTES]));
        let device = RecordingDevice::new(start.clone());
        device.write(BlockNo(0), &[1; 2 * BLOCK_BYTES]).unwrap();
        device.sync().unwrap();
        device.mark(77);
        device.discard(BlockNo(1), 1).unwrap();
        assert!(device.write(BlockNo(7), &[1; 2 * BLOCK_BYTES]).is_err(), "and is not recorded");

        let recording = device.recording();
        let [write, Event::Sync, Event::Mark(77), Event::Discard { first: BlockNo(1), count: 1 }] = recording.events()
        else {
            panic!("{:?}", recording.events());
        };
        assert!(matches!(write, Event::Write { first: BlockNo(0), blocks } if blocks.len() == 2));
        assert_eq!(*recording.start(), start);
        assert_eq!(recording.marks_before(2).count(), 0);
        assert_eq!(recording.marks_before(3).collect::<Vec<_>>(), [77]);
        assert_eq!([recording.syncs_before(1), recording.syncs_before(2)], [0, 1]);
        assert_eq!(device.image().get(BlockNo(0)).unwrap()[0], 1);
    }

    #[test]
    fn a_device_shows_as_many_blocks_as_it_was_told() {
        let device = RecordingDevice::new(MemoryImage::new(8));
        device.show(4);
        assert_eq!(device.block_count().unwrap(), 4);
        assert!(device.write(BlockNo(4), &[1; BLOCK_BYTES]).is_err());
        device.show(8);
        device.write(BlockNo(4), &[1; BLOCK_BYTES]).unwrap();
        assert_eq!(device.recording().start().block_count(), 8);
    }

    #[test]
    fn writes_of_threads_are_recorded_in_the_order_of_their_effects() {
        let device = RecordingDevice::new(MemoryImage::new(4));
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let device = &device;
                scope.spawn(move || {
                    for round in 0..50u8 {
                        device.write(BlockNo(u64::from(round % 4)), &[thread * 50 + round; BLOCK_BYTES]).unwrap();
                    }
                });
            }
        });
        let mut replayed = MemoryImage::new(4);
        for event in device.recording().events() {
            let Event::Write { first, blocks } = event else { panic!("{event:?}") };
            replayed.set(*first, Arc::clone(&blocks[0]));
        }
        assert_eq!(replayed, device.image());
    }
}
