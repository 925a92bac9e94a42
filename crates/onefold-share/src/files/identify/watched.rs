//! The disk of an image as the readers of guests use it. It ends the work when that is asked for, keeps to the limits,
//! and notes the parts that the readers skip.
//!
//! A hostile guest can have its readers search for hours, and readers go on behind a part that they cannot read. So
//! each read asks whether the work goes on, and the reads of one image are bounded in total. Bytes count above the
//! cache, because a search in the cache takes time, too. They are paid for below it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onefold_block::BLOCK_BYTES_U64;
use onefold_disk::{Disk, DiskError, FilePlacement};

use super::IdentifyError;
use crate::pace::{ReadPace, StopRequest};
use crate::state::StateError;

/// The reads of one image.
pub(super) struct GuestReads<'p> {
    pace: ReadPace<'p>,
    /// Bytes that the readers may ask for, and bytes that they have asked for.
    bytes_max: u64,
    bytes: AtomicU64,
    is_stopped: AtomicBool,
    has_failed: AtomicBool,
}

impl<'p> GuestReads<'p> {
    /// Returns the reads of an image whose readers may ask for this many bytes.
    pub(super) fn new(pace: ReadPace<'p>, bytes_max: u64) -> GuestReads<'p> {
        let (is_stopped, has_failed) = (AtomicBool::new(false), AtomicBool::new(false));
        GuestReads { pace, bytes_max, bytes: AtomicU64::new(0), is_stopped, has_failed }
    }

    /// Checks that all reads were made. Readers skip unreadable parts, so their findings count only if this succeeds.
    ///
    /// # Errors
    /// `Stopped` if the work was to end, `Exhausted` if the readers wanted too much.
    pub(super) fn check(&self) -> Result<(), IdentifyError> {
        if self.is_stopped.load(Ordering::Relaxed) {
            Err(IdentifyError::Stopped(StateError::Interrupted))
        } else if self.bytes.load(Ordering::Relaxed) > self.bytes_max {
            Err(IdentifyError::Exhausted)
        } else {
            Ok(())
        }
    }

    /// Returns whether some part of the image could not be read, which may pass.
    pub(super) fn have_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Counts bytes that the readers ask for.
    fn ask(&self, bytes: u64) -> Result<(), DiskError> {
        self.heard(self.pace.go_on())?;
        if self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > self.bytes_max {
            return Err(DiskError::Other("its readers want too much of it".into()));
        }
        Ok(())
    }

    fn heard(&self, heard: Result<(), StopRequest>) -> Result<(), DiskError> {
        heard.map_err(|stopped| {
            self.is_stopped.store(true, Ordering::Relaxed);
            DiskError::Other(Box::new(stopped))
        })
    }
}

/// A disk whose bytes are paid for before they are read. It belongs below a cache.
pub(super) struct PacedDisk<'d> {
    disk: &'d dyn Disk,
    reads: &'d GuestReads<'d>,
}

impl<'d> PacedDisk<'d> {
    pub(super) fn new(disk: &'d dyn Disk, reads: &'d GuestReads<'d>) -> PacedDisk<'d> {
        PacedDisk { disk, reads }
    }
}

impl Disk for PacedDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        self.disk.next_data(offset)
    }

    fn in_file(&self, offset: u64) -> Result<FilePlacement, DiskError> {
        // Looking for a piece costs something, however short it is. A hostile qcow2 image has millions of them.
        self.reads.ask(BLOCK_BYTES_U64)?;
        self.disk.in_file(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.reads.heard(self.reads.pace.read(into.len() as u64))?;
        self.disk.read(offset, into)
    }
}

/// A disk for the readers of a guest. It belongs above a cache.
pub(super) struct WatchedDisk<'d> {
    disk: &'d dyn Disk,
    reads: &'d GuestReads<'d>,
}

impl<'d> WatchedDisk<'d> {
    pub(super) fn new(disk: &'d dyn Disk, reads: &'d GuestReads<'d>) -> WatchedDisk<'d> {
        WatchedDisk { disk, reads }
    }
}

impl Disk for WatchedDisk<'_> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
        self.disk.next_data(offset)
    }

    fn in_file(&self, offset: u64) -> Result<FilePlacement, DiskError> {
        self.disk.in_file(offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.reads.ask(into.len() as u64)?;
        self.disk.read(offset, into).inspect_err(|_| self.reads.has_failed.store(true, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use onefold_block::Clock;
    use onefold_block::clock::ManualClock;
    use onefold_disk::CachedDisk;
    use onefold_substrate::CpuTime;

    use super::*;
    use crate::pace::{Limits, Pace, Wish};

    const BAD: u64 = 1 << 20;

    /// A disk with a bad sector.
    struct BadDisk;

    impl Disk for BadDisk {
        fn size_bytes(&self) -> u64 {
            1 << 30
        }

        fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
            Ok(Some(offset..1 << 30))
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
            if (offset..offset + into.len() as u64).contains(&BAD) {
                return Err(DiskError::Other("a bad sector".into()));
            }
            Ok(())
        }
    }

    /// A process that takes no processor time.
    struct IdleCpu;

    impl CpuTime for IdleCpu {
        fn used(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// Reads the disk through a cache, with a pace.
    fn with(pace: &Pace<'_>, bytes_max: u64, run: &dyn Fn(&dyn Disk, &GuestReads<'_>)) {
        let reads = GuestReads::new(pace.reading(), bytes_max);
        let paced = PacedDisk::new(&BadDisk, &reads);
        let cached = CachedDisk::new(&paced, 1 << 20);
        run(&WatchedDisk::new(&cached, &reads), &reads);
    }

    #[test]
    fn a_search_that_never_leaves_the_cache_hears_that_the_work_ends() {
        let asked = AtomicU32::new(0);
        let stop = || asked.fetch_add(1, Ordering::Relaxed) > 100;
        with(&Pace::unlimited().stopped_by(&stop), u64::MAX, &|disk, reads| {
            let read = (0..1_000_000).take_while(|_| disk.read(0, &mut [0; 4096]).is_ok()).count();
            assert!((90..=101).contains(&read), "{read} reads");
            assert!(matches!(reads.check(), Err(IdentifyError::Stopped(StateError::Interrupted))));
            assert!(!reads.have_failed());
        });
    }

    #[test]
    fn the_reads_of_an_image_have_a_sum() {
        with(&Pace::unlimited(), 10 * 4096, &|disk, reads| {
            for _ in 0..10 {
                disk.read(0, &mut [0; 4096]).unwrap();
            }
            reads.check().unwrap();
            assert!(disk.read(0, &mut [0]).is_err());
            assert!(matches!(reads.check(), Err(IdentifyError::Exhausted)) && !reads.have_failed());
        });
    }

    #[test]
    fn only_what_readers_cannot_read_counts_as_failed() {
        with(&Pace::unlimited(), u64::MAX, &|disk, reads| {
            disk.read(BAD + 512, &mut [0; 512]).unwrap();
            assert!(!reads.have_failed(), "the bad sector is in the same page only");
            assert!(disk.read(BAD, &mut [0; 512]).is_err() && reads.have_failed());
            reads.check().unwrap();
        });
    }

    #[test]
    fn what_the_cache_does_not_have_is_paid_for() {
        let clock = ManualClock::starting_at(1000);
        let limits = Limits { read_bytes_per_second: NonZeroU64::new(64 << 10), ..Limits::default() };
        let pace = Pace::new(limits, &clock, &IdleCpu, &|| Wish::GoOn);
        with(&pace, u64::MAX, &|disk, _| {
            let began = clock.monotonic();
            let read = |pages: Range<u64>| pages.for_each(|page| disk.read(page << 14, &mut [0; 512]).unwrap());
            read(0..8);
            let took = clock.monotonic() - began;
            assert!(took > Duration::from_secs(1) && took <= Duration::from_secs(2), "{took:?}");
            read(0..8);
            assert!(clock.monotonic() - began < took + Duration::from_millis(1));
        });
    }
}
