//! A source and a target whose use is measured.

use std::fmt;
use std::io;
use std::time::Duration;

use super::StageMeter;
use crate::archive::{ArchiveError, Headers, WantedUnit};
use crate::image_source::{Arrivals, ChunkReader, ImageSource, LackingPart, OnUnit, WantedUnits};
use crate::install::Target;
use crate::{ImageVersion, UnitKey, UnitName};

/// A source whose use is measured.
#[derive(Debug)]
pub struct MeteredSource<'m> {
    source: &'m dyn ImageSource,
    meter: &'m StageMeter,
}

impl<'m> MeteredSource<'m> {
    /// Returns `source`, measured by `meter`.
    #[must_use]
    pub fn new(source: &'m dyn ImageSource, meter: &'m StageMeter) -> MeteredSource<'m> {
        MeteredSource { source, meter }
    }
}

impl ImageSource for MeteredSource<'_> {
    fn key(&self) -> &UnitKey {
        self.source.key()
    }

    fn read(&self, wanted: &[WantedUnit], ahead_bytes: u64, each: OnUnit<'_>) -> Result<(), ArchiveError> {
        self.meter.read(self.source, each, |each| self.source.read(wanted, ahead_bytes, each))
    }

    fn read_of_chunks(&self, chunks: &[UnitName], wanted: &[WantedUnit], each: OnUnit<'_>) -> Result<(), ArchiveError> {
        self.meter.read(self.source, each, |each| self.source.read_of_chunks(chunks, wanted, each))
    }

    fn read_headers(&self, chunks: &[UnitName], ahead_bytes: u64, each: OnUnit<'_>) -> Result<(), ArchiveError> {
        self.meter.read(self.source, each, |each| self.source.read_headers(chunks, ahead_bytes, each))
    }

    fn find(&self, wanted: WantedUnit) -> Result<(), ArchiveError> {
        self.source.find(wanted)
    }

    fn chunks<'s>(
        &'s self,
        names: &[UnitName],
        headers: &Headers,
        wanted: &[WantedUnits],
        ahead_bytes: u64,
    ) -> Result<Box<dyn ChunkReader + 's>, ArchiveError> {
        // An archive reads units ahead here.
        let reader = self
            .meter
            .read(self.source, &mut |_, _| (), |_| self.source.chunks(names, headers, wanted, ahead_bytes))?;
        Ok(Box::new(MeteredChunks { reader, source: self.source, meter: self.meter }))
    }

    fn received_bytes(&self) -> u64 {
        self.source.received_bytes()
    }

    fn seed_bytes(&self) -> u64 {
        self.source.seed_bytes()
    }

    fn waited(&self) -> Option<Duration> {
        self.source.waited()
    }

    fn has_seeds(&self) -> bool {
        self.source.has_seeds()
    }

    fn is_in_seed(&self, unit: &UnitName) -> bool {
        self.source.is_in_seed(unit)
    }

    fn arrivals(&self, chunks: &[UnitName], is_compared: bool) -> Option<Box<dyn Arrivals + '_>> {
        let arrivals = self.source.arrivals(chunks, is_compared)?;
        Some(Box::new(MeteredArrivals { arrivals, meter: self.meter }))
    }

    fn of_image(&self, image: &ImageVersion, error: ArchiveError) -> ArchiveError {
        self.source.of_image(image, error)
    }
}

struct MeteredChunks<'s> {
    reader: Box<dyn ChunkReader + 's>,
    source: &'s dyn ImageSource,
    meter: &'s StageMeter,
}

impl ChunkReader for MeteredChunks<'_> {
    fn read(&mut self, chunk: usize, wanted: &[WantedUnit], each: OnUnit<'_>) -> Result<(), ArchiveError> {
        self.meter.read(self.source, each, |each| self.reader.read(chunk, wanted, each))
    }
}

struct MeteredArrivals<'s> {
    arrivals: Box<dyn Arrivals + 's>,
    meter: &'s StageMeter,
}

impl Arrivals for MeteredArrivals<'_> {
    fn next(&self, patience: Duration) -> Option<Vec<usize>> {
        self.meter.time(&self.meter.arrivals, 0, || self.arrivals.next(patience))
    }

    fn compared(&self, index: usize, part: LackingPart) {
        self.arrivals.compared(index, part);
    }

    fn finish(&self, indices: &[usize]) {
        self.arrivals.finish(indices);
    }
}

/// A target whose use is measured.
pub struct MeteredTarget<'m> {
    target: &'m dyn Target,
    meter: &'m StageMeter,
}

impl fmt::Debug for MeteredTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeteredTarget").field("meter", self.meter).finish_non_exhaustive()
    }
}

impl<'m> MeteredTarget<'m> {
    /// Returns `target`, measured by `meter`.
    #[must_use]
    pub fn new(target: &'m dyn Target, meter: &'m StageMeter) -> MeteredTarget<'m> {
        MeteredTarget { target, meter }
    }
}

impl Target for MeteredTarget<'_> {
    fn length_bytes(&self) -> u64 {
        self.target.length_bytes()
    }

    fn is_blank(&self) -> bool {
        self.target.is_blank()
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.meter.time(&self.meter.write, from.len() as u64, || self.target.write(offset, from))
    }

    fn zero(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        self.meter.time(&self.meter.write, 0, || self.target.zero(offset, length_bytes))
    }

    fn discard(&self, offset: u64, length_bytes: u64) -> io::Result<u64> {
        self.meter.time(&self.meter.write, 0, || self.target.discard(offset, length_bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.meter.time(&self.meter.write, 0, || self.target.sync())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.meter.time(&self.meter.compare, into.len() as u64, || self.target.read(offset, into))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use onefold_block::{Clock, Timestamp};

    use super::*;
    use crate::stages::{Stage, StageFigure};

    /// A clock that only work moves.
    #[derive(Default)]
    struct WorkClock(AtomicU64);

    impl WorkClock {
        fn pass(&self, seconds: u64) {
            self.0.fetch_add(seconds, Ordering::Relaxed);
        }
    }

    impl Clock for WorkClock {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::Relaxed))
        }
    }

    /// A source of one unit and a target, each of whose calls takes its time.
    struct SlowPlace {
        clock: Arc<WorkClock>,
        key: UnitKey,
        waited: AtomicU64,
        tells: bool,
    }

    impl fmt::Debug for SlowPlace {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("SlowPlace").finish_non_exhaustive()
        }
    }

    impl ImageSource for SlowPlace {
        fn key(&self) -> &UnitKey {
            &self.key
        }

        fn read(&self, _: &[WantedUnit], _: u64, each: OnUnit<'_>) -> Result<(), ArchiveError> {
            self.clock.pass(5);
            self.waited.fetch_add(3, Ordering::Relaxed);
            each(0, &[1; 100]);
            Ok(())
        }

        fn find(&self, _: WantedUnit) -> Result<(), ArchiveError> {
            Ok(())
        }

        fn chunks<'s>(
            &'s self,
            _: &[UnitName],
            _: &Headers,
            _: &[WantedUnits],
            _: u64,
        ) -> Result<Box<dyn ChunkReader + 's>, ArchiveError> {
            self.clock.pass(1);
            Ok(Box::new(SlowChunks(self)))
        }

        fn received_bytes(&self) -> u64 {
            40
        }

        fn waited(&self) -> Option<Duration> {
            self.tells.then(|| Duration::from_secs(self.waited.load(Ordering::Relaxed)))
        }

        fn arrivals(&self, _: &[UnitName], _: bool) -> Option<Box<dyn Arrivals + '_>> {
            Some(Box::new(SlowArrivals(Arc::clone(&self.clock))))
        }

        fn of_image(&self, _: &ImageVersion, error: ArchiveError) -> ArchiveError {
            error
        }
    }

    struct SlowChunks<'s>(&'s SlowPlace);

    impl ChunkReader for SlowChunks<'_> {
        fn read(&mut self, _: usize, wanted: &[WantedUnit], each: OnUnit<'_>) -> Result<(), ArchiveError> {
            ImageSource::read(self.0, wanted, 0, each)
        }
    }

    struct SlowArrivals(Arc<WorkClock>);

    impl Arrivals for SlowArrivals {
        fn next(&self, _: Duration) -> Option<Vec<usize>> {
            self.0.pass(7);
            None
        }

        fn compared(&self, _: usize, _: LackingPart) {}

        fn finish(&self, _: &[usize]) {}
    }

    impl Target for SlowPlace {
        fn length_bytes(&self) -> u64 {
            1000
        }

        fn is_blank(&self) -> bool {
            false
        }

        fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
            self.clock.pass(11);
            Ok(())
        }

        fn zero(&self, _: u64, length_bytes: u64) -> io::Result<u64> {
            self.clock.pass(1);
            Ok(length_bytes)
        }

        fn discard(&self, _: u64, _: u64) -> io::Result<u64> {
            Ok(0)
        }

        fn sync(&self) -> io::Result<()> {
            self.clock.pass(1);
            Ok(())
        }

        fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            self.clock.pass(2);
            Ok(())
        }
    }

    #[test]
    fn each_call_counts_for_its_stage() {
        for tells in [true, false] {
            let clock = Arc::new(WorkClock::default());
            let place =
                SlowPlace { clock: Arc::clone(&clock), key: UnitKey([7; 32]), waited: AtomicU64::new(0), tells };
            let meter = StageMeter::new(clock, &place);
            let (source, target) = (MeteredSource::new(&place, &meter), MeteredTarget::new(&place, &meter));
            let headers = Headers::of(&[], Vec::new());
            let mut reader = source.chunks(&[], &headers, &[], 0).unwrap();
            let mut passed = 0;
            reader.read(0, &[], &mut |_, plain| passed += plain.len()).unwrap();
            assert!(source.arrivals(&[], false).unwrap().next(Duration::ZERO).is_none());
            target.write(0, &[1; 30]).unwrap();
            target.zero(0, 500).unwrap();
            target.sync().unwrap();
            target.read(0, &mut [0; 20]).unwrap();
            let figures = meter.figures();
            let figure = |bytes, seconds| StageFigure { bytes, busy: Duration::from_secs(seconds) };
            assert_eq!(figures.receive, tells.then(|| figure(40, 3 + 7)));
            assert_eq!(figures.unpack, figure(100, if tells { 3 } else { 6 }));
            assert_eq!((figures.write, figures.compare), (figure(30, 13), figure(20, 2)));
            assert_eq!((figures.busy(|stage| stage == Stage::Write), passed), (figures.write.busy, 100));
        }
    }
}
