//! Threads that examine images while rows are made of the images before them.
//!
//! An examination waits for the disk most of the time: it reads tables, folders and databases in small pieces. Several
//! at once keep more requests at the disk. Their findings are taken in the order of the images, so the result is that
//! of one thread. An examination that is far ahead waits until its findings are taken.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, Scope};
use std::time::Duration;

use onefold_disk::{CacheMemory, Disk};
use onefold_substrate::{FileStat, Substrate};
use parking_lot::Mutex;

use super::IdentifyError;
use super::claims::Circle;
use super::examine::{Ended, Findings, examine};
use super::open::open_listed;
use super::search::Search;
use crate::format::guest::{KeptFile, KeptGuest, PhasedPieces};
use crate::scan::ListedFile;
use crate::state::StateError;

/// Upper bound; more examinations at once would only monopolise the disk.
pub(in crate::files) const THREADS_MAX: usize = 4;
/// Maximum number of files of a batch, and of pieces of all of them.
const BATCH_FILES_MAX: usize = 256;
const BATCH_PIECES_MAX: usize = 4096;
/// Approximate memory of a batch, in bytes.
const BATCH_BYTES: usize = 192 << 10;
/// Interval at which a thread that waits for findings asks whether the work goes on.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// An image that is open for reading.
pub(in crate::files) struct OpenedImage<'l, S: Substrate> {
    pub(super) file: S::File,
    pub(super) stat: FileStat,
    pub(super) circle: Circle<'l>,
}

impl<'l, S: Substrate> OpenedImage<'l, S> {
    /// Opens an image of the list whose blocks can be shared.
    ///
    /// # Errors
    /// See [`IdentifyError`].
    pub(in crate::files) fn open(substrate: &S, listed: &'l ListedFile) -> Result<Self, IdentifyError> {
        let (file, stat) = open_listed(substrate, listed)?;
        let circle = Circle::of(&listed.domain, substrate.refusal(&file).map_err(IdentifyError::File)?)?;
        Ok(OpenedImage { file, stat, circle })
    }

    /// Returns the file.
    pub(in crate::files) fn file(&self) -> &S::File {
        &self.file
    }

    /// Returns its state when it was opened.
    pub(in crate::files) fn stat(&self) -> &FileStat {
        &self.stat
    }
}

/// An examination for a thread.
struct Task<'d> {
    image: ToExamine<'d>,
    into: SyncSender<Message>,
}

/// An image for a thread to examine.
pub(in crate::files) struct ToExamine<'d> {
    pub(in crate::files) disk: &'d dyn Disk,
    pub(in crate::files) stat: &'d FileStat,
    /// The record that an earlier run of this kind kept of it.
    pub(in crate::files) kept: Option<KeptGuest>,
}

impl<'d> ToExamine<'d> {
    /// Returns an open image with its disk.
    pub(in crate::files) fn new<S: Substrate>(
        opened: &'d OpenedImage<'_, S>,
        disk: &'d dyn Disk,
        kept: Option<KeptGuest>,
    ) -> ToExamine<'d> {
        ToExamine { disk, stat: &opened.stat, kept }
    }
}

/// The findings of a thread so far.
#[derive(Default)]
struct Batch {
    packages: Vec<String>,
    files: Vec<(KeptFile, Option<[u8; 16]>, PhasedPieces)>,
    pieces: usize,
}

enum Message {
    Found(Batch),
    End(Box<Ended>),
}

/// Findings of the examinations of some images, in the order in which the images were given.
pub(in crate::files) struct Ahead<'d> {
    waiting: VecDeque<ToExamine<'d>>,
    /// The queue from which threads take their tasks.
    tasks: Sender<Task<'d>>,
    begun: VecDeque<Receiver<Message>>,
    /// Maximum number of batches that an examination may be ahead.
    batches_max: usize,
    is_over: &'d AtomicBool,
}

impl<'d> Ahead<'d> {
    /// Begins the examination of images on threads of a scope. Waiting findings take about `memory_bytes` at most.
    /// `is_over` is false until this is dropped.
    pub(in crate::files) fn begin<'scope>(
        scope: &'scope Scope<'scope, 'd>,
        search: Search<'d>,
        (threads, memory_bytes): (usize, usize),
        images: Vec<ToExamine<'d>>,
        is_over: &'d AtomicBool,
    ) -> Ahead<'d>
    where
        'd: 'scope,
    {
        let threads = threads.min(images.len());
        let (tasks, queue) = channel();
        let batches_max = (memory_bytes / BATCH_BYTES / (threads + 1)).max(1);
        let mut ahead = Ahead { waiting: images.into(), tasks, begun: VecDeque::new(), batches_max, is_over };
        let queue = Arc::new(Mutex::new(queue));
        // Also in the middle of a read.
        let search = Search { read_pace: search.read_pace.until(is_over), ..search };
        for _ in 0..threads {
            let queue = Arc::clone(&queue);
            scope.spawn(move || examine_all(&queue, &search));
            ahead.begin_next();
        }
        ahead
    }

    fn begin_next(&mut self) {
        let Some(image) = self.waiting.pop_front() else { return };
        let (into, found) = sync_channel(self.batches_max);
        // Without threads, no findings are asked for.
        let _ = self.tasks.send(Task { image, into });
        self.begun.push_back(found);
    }

    /// Returns the findings of the next image; `None` if all were taken.
    pub(in crate::files) fn next_image(&mut self) -> Option<FoundAhead> {
        let found = self.begun.pop_front()?;
        self.begin_next();
        Some(FoundAhead(found))
    }
}

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The findings of a thread in an image.
pub(in crate::files) struct FoundAhead(Receiver<Message>);

impl FoundAhead {
    /// Hands all findings to `findings`.
    ///
    /// # Errors
    /// Errors of `findings` and of `go_on`, which is asked while this waits.
    pub(super) fn take(
        &self,
        findings: &mut dyn Findings,
        go_on: &dyn Fn() -> Result<(), IdentifyError>,
    ) -> Result<Ended, IdentifyError> {
        loop {
            go_on()?;
            match self.0.recv_timeout(LOOK_EVERY) {
                Ok(Message::Found(batch)) => {
                    batch.packages.into_iter().try_for_each(|name| findings.package(name))?;
                    for (file, whole, mut pieces) in batch.files {
                        findings.file(file, whole, &mut pieces)?;
                    }
                }
                Ok(Message::End(ended)) => return Ok(*ended),
                Err(RecvTimeoutError::Timeout) => {}
                // A thread that has panicked ends the work once its scope ends.
                Err(RecvTimeoutError::Disconnected) => return Err(over()),
            }
        }
    }
}

fn over() -> IdentifyError {
    IdentifyError::Stopped(StateError::Interrupted)
}

/// Examines images until there are no more, or the work is over.
fn examine_all(queue: &Mutex<Receiver<Task<'_>>>, search: &Search<'_>) {
    let mut memory = CacheMemory::default();
    let go_on = || search.read_pace.go_on().map_err(StateError::from);
    loop {
        let next = queue.lock().recv();
        let Ok(Task { image: ToExamine { disk, stat, kept }, into }) = next else { return };
        let mut batches = Batches { into, batch: Batch::default() };
        let ended = examine(disk, stat, kept, search, &mut memory, &go_on, &mut batches);
        batches.end(ended);
    }
}

/// Sends findings in batches.
struct Batches {
    into: SyncSender<Message>,
    batch: Batch,
}

impl Batches {
    /// Sends the current batch. Waits while the examination is too far ahead.
    fn send(&mut self) -> Result<(), IdentifyError> {
        // The receiver is gone once the work is over.
        self.into.send(Message::Found(std::mem::take(&mut self.batch))).map_err(|_| over())
    }

    fn end(mut self, ended: Ended) {
        if self.send().is_ok() {
            let _ = self.into.send(Message::End(Box::new(ended)));
        }
    }
}

impl Findings for Batches {
    fn package(&mut self, name: String) -> Result<(), IdentifyError> {
        self.batch.packages.push(name);
        if self.batch.packages.len() >= BATCH_FILES_MAX { self.send() } else { Ok(()) }
    }

    fn file(
        &mut self,
        file: KeptFile,
        whole: Option<[u8; 16]>,
        pieces: &mut PhasedPieces,
    ) -> Result<(), IdentifyError> {
        self.batch.pieces += pieces.phases().map(|(_, pieces)| pieces.len()).sum::<usize>();
        self.batch.files.push((file, whole, std::mem::take(pieces)));
        let is_full = self.batch.files.len() >= BATCH_FILES_MAX || self.batch.pieces >= BATCH_PIECES_MAX;
        if is_full { self.send() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::num::NonZeroU64;
    use std::ops::Range;
    use std::path::Path;
    use std::time::Instant;

    use onefold_block::clock::SystemClock;
    use onefold_disk::DiskError;
    use onefold_guest::filesystem::Timestamp;
    use onefold_substrate::{CpuTime, Files};
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

    use super::*;
    use crate::files::{Reading, Tier};
    use crate::format::guest::{KeptClaim, Piece};
    use crate::pace::{Limits, Pace, ReadPace, Wish};

    /// A disk of zeros, or one that cannot be read.
    struct Zeros {
        is_bad: bool,
    }

    impl Disk for Zeros {
        fn size_bytes(&self) -> u64 {
            1 << 30
        }

        fn next_data(&self, _: u64) -> Result<Option<Range<u64>>, DiskError> {
            Ok(None)
        }

        fn read(&self, _: u64, into: &mut [u8]) -> Result<(), DiskError> {
            if self.is_bad {
                return Err(DiskError::Other("a bad sector".into()));
            }
            into.fill(0);
            Ok(())
        }
    }

    /// A process that takes no processor time.
    struct NoCpu;

    impl CpuTime for NoCpu {
        fn used(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// Takes down the names of packages, and the number of each file with its first piece.
    #[derive(Default)]
    struct Taken {
        packages: Vec<String>,
        files: Vec<(u64, Option<Piece>)>,
    }

    impl Findings for Taken {
        fn package(&mut self, name: String) -> Result<(), IdentifyError> {
            assert!(self.files.is_empty(), "files come after the names of their packages");
            self.packages.push(name);
            Ok(())
        }

        fn file(
            &mut self,
            file: KeptFile,
            _: Option<[u8; 16]>,
            pieces: &mut PhasedPieces,
        ) -> Result<(), IdentifyError> {
            let first = pieces.phases().next().map(|(_, pieces)| pieces[0]);
            self.files.push((file.file, first));
            Ok(())
        }
    }

    fn file(number: u64) -> KeptFile {
        let time = Timestamp { seconds: 1, nanoseconds: 0 };
        KeptFile {
            package: None,
            claim: KeptClaim::Digest([1; 16]),
            tree: 0,
            system: 0,
            file: number,
            generation: 0,
            size_bytes: 4096,
            modified: time,
            changed: time,
            created: None,
        }
    }

    fn ended() -> Ended {
        Ended { sums: Default::default(), is_stranger: true, facts: Err(IdentifyError::Exhausted) }
    }

    /// Sends this many findings through a channel of one batch, and returns the result.
    fn sent(packages: usize, files: u64, into: SyncSender<Message>) -> Result<(), IdentifyError> {
        let mut batches = Batches { into, batch: Batch::default() };
        (0..packages).try_for_each(|number| batches.package(number.to_string()))?;
        (0..files).try_for_each(|number| {
            let mut pieces = PhasedPieces::default();
            pieces.0[0].push(Piece { content: 0, block: number, count: 1 });
            batches.file(file(number), None, &mut pieces)
        })?;
        batches.end(ended());
        Ok(())
    }

    #[test]
    fn findings_come_in_order_however_little_may_wait() {
        let (into, found) = sync_channel(1);
        let mut taken = Taken::default();
        let last = thread::scope(|scope| {
            scope.spawn(move || sent(700, 10_000, into).unwrap());
            FoundAhead(found).take(&mut taken, &|| Ok(())).unwrap()
        });
        assert!(last.is_stranger && matches!(last.facts, Err(IdentifyError::Exhausted)));
        assert_eq!(taken.packages, (0..700).map(|number| number.to_string()).collect::<Vec<_>>());
        let expected = (0..10_000).map(|block| (block, Some(Piece { content: 0, block, count: 1 })));
        assert_eq!(taken.files, expected.collect::<Vec<_>>());
    }

    #[test]
    fn an_examination_ends_once_nothing_is_taken_and_a_lost_one_ends_the_work() {
        let (into, found) = sync_channel(1);
        thread::scope(|scope| {
            let sender = scope.spawn(move || sent(0, 1_000_000, into));
            let asked = Cell::new(0);
            let stop = || {
                asked.set(asked.get() + 1);
                if asked.get() > 3 { Err(over()) } else { Ok(()) }
            };
            assert!(FoundAhead(found).take(&mut Taken::default(), &stop).is_err());
            assert!(matches!(sender.join().unwrap(), Err(IdentifyError::Stopped(_))));
        });
        let (into, found) = sync_channel(1);
        drop(into);
        assert!(FoundAhead(found).take(&mut Taken::default(), &|| Ok(())).is_err());
    }

    /// Returns what a file is like.
    fn a_stat() -> FileStat {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 1, ..SimulationOptions::default() });
        let host = file_system.observe();
        let created = host.substrate.create(Path::new("image")).unwrap();
        host.substrate.stat(&created).unwrap()
    }

    fn search_with(read_pace: ReadPace<'_>) -> Search<'_> {
        Search { tiers: &Tier::ALL, reading: Reading::Probes, since: None, cache_bytes: 1 << 20, read_pace }
    }

    /// At a byte per second the second read of an image waits for hours.
    #[test]
    fn threads_hear_within_a_read_that_the_work_is_over() {
        let (stat, began) = (a_stat(), Instant::now());
        let stop = || began.elapsed() > Duration::from_secs(20);
        let limits = Limits { read_bytes_per_second: NonZeroU64::new(1), ..Limits::default() };
        let pace = Pace::new(limits, &SystemClock, &NoCpu, &|| Wish::GoOn).stopped_by(&stop);
        let disks = [Zeros { is_bad: false }, Zeros { is_bad: false }];
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let images = disks.iter().map(|disk| ToExamine { disk, stat: &stat, kept: None }).collect();
            let ahead = Ahead::begin(scope, search_with(pace.reading()), (2, 1 << 20), images, &is_over);
            thread::sleep(Duration::from_millis(50));
            drop(ahead);
        });
        assert!(!stop());
    }

    #[test]
    fn images_come_in_the_order_in_which_they_were_given() {
        let (stat, pace) = (a_stat(), Pace::unlimited());
        let search = search_with(pace.reading());
        let are_bad = [true, false, false, true, false, true, true, false];
        let disks = are_bad.map(|is_bad| Zeros { is_bad });
        for threads in [0, 1, 3, 20] {
            let images = disks.iter().map(|disk| ToExamine { disk, stat: &stat, kept: None }).collect();
            let is_over = AtomicBool::new(false);
            let found: Vec<bool> = thread::scope(|scope| {
                let mut ahead = Ahead::begin(scope, search, (threads, 1 << 20), images, &is_over);
                let next = || ahead.next_image();
                std::iter::from_fn(next)
                    .map(|found| {
                        let ended = found.take(&mut Taken::default(), &|| Ok(())).unwrap();
                        ended.facts.map_or(true, |facts| facts.has_unread)
                    })
                    .collect()
            });
            let expected: &[bool] = if threads == 0 { &[] } else { &are_bad };
            assert_eq!(found, expected, "{threads} threads");
            assert!(is_over.into_inner());
        }
    }
}
