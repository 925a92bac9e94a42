//! A device that records every change, for tests of power cuts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::device::{MemoryDevice, MemoryImage, SharedBlock};
use onefold_block::BlockDevice;
use onefold_block::BlockNo;
use onefold_block::device::{check_on_device, whole_blocks};

/// One event on a recorded device.
#[derive(Clone, Debug)]
pub enum Event {
    /// A write of blocks.
    Write {
        /// The first block.
        first: BlockNo,
        /// Their contents.
        blocks: Arc<[SharedBlock]>,
    },
    /// A discard of blocks.
    Discard {
        /// The first block.
        first: BlockNo,
        /// Number of blocks.
        count: u64,
    },
    /// A `sync` returned: every earlier event is durable.
    Sync,
    /// The workload made a promise, for example because its own `fsync` returned. See [`RecordingDevice::mark`].
    Mark(u64),
}

impl Event {
    /// Returns whether the event may change the device's content.
    pub(crate) const fn is_change(&self) -> bool {
        matches!(self, Event::Write { .. } | Event::Discard { .. })
    }
}

/// A device in memory that records every write, discard and sync in order.
///
/// Several threads may use it at once. Each call takes effect at one moment, so the order is well defined.
#[derive(Debug)]
pub struct RecordingDevice {
    start: MemoryImage,
    device: MemoryDevice,
    /// The number of blocks that the device shows: at most that of `start`.
    block_count: AtomicU64,
    /// Held during a change, so that events are in the order of their effects.
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

    /// Sets how many of its blocks the device shows from now on, as growing a partition does. Crash images have all of
    /// them.
    ///
    /// # Panics
    /// When the image at the start of the recording has fewer.
    pub fn show(&self, block_count: u64) {
        assert!(block_count <= self.start.block_count(), "the image has {} blocks", self.start.block_count());
        self.block_count.store(block_count, Ordering::Relaxed);
    }

    /// Records that the caller made a promise at this point; `tag` stands for it. Crash images cut after the mark know
    /// it ([`super::CrashImage::last_mark`]).
    pub fn mark(&self, tag: u64) {
        self.events.lock().push(Event::Mark(tag));
    }

    /// Returns the recording so far.
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

    fn has_room_for_all_blocks(&self) -> bool {
        self.device.has_room_for_all_blocks()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        let mut events = self.events.lock();
        self.device.discard(first, count)?;
        events.push(Event::Discard { first, count });
        Ok(())
    }
}

/// The events on a device, in order, and the content before them.
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

    /// Returns the device's content before the first event.
    #[must_use]
    pub const fn start(&self) -> &MemoryImage {
        &self.start
    }

    /// Returns the tags of the marks among the first `cut` events, in order.
    pub fn marks_before(&self, cut: usize) -> impl DoubleEndedIterator<Item = u64> {
        let before = &self.events[..cut.min(self.events.len())];
        before.iter().filter_map(|event| if let Event::Mark(tag) = event { Some(*tag) } else { None })
    }

    /// Returns the number of completed syncs among the first `cut` events.
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
