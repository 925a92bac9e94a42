//! Threads that examine images while rows are made of the images before them.
//!
//! An examination waits for the disk most of the time: it reads tables, folders and databases in small pieces. Several
//! at once keep more requests at the disk. Their findings are taken in the order of the images, so the result is that
//! of one thread. An examination that is far ahead waits until its findings are taken.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, Scope};
use std::time::Duration;

use onefold_disk::{CacheMemory, Disk};
use onefold_substrate::{FileStat, Substrate};
use parking_lot::{Condvar, Mutex};

use super::IdentifyError;
use super::claims::Circle;
use super::examine::{ExaminationEnd, Findings, examine};
use super::open::open_listed;
use super::search::Search;
use crate::format::guest::{KeptFile, KeptGuest, PhasedPieces, Piece};
use crate::scan::ListedFile;
use crate::state::StateError;

/// Upper bound; more examinations at once would only monopolise the disk.
pub(in crate::files) const THREADS_MAX: usize = 4;
/// A batch that takes so much memory is handed on. The file that made it so large comes with it.
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
    image: ExaminationJob<'d>,
    into: Outlet,
}

/// An image for a thread to examine.
pub(in crate::files) struct ExaminationJob<'d> {
    pub(in crate::files) disk: &'d dyn Disk,
    pub(in crate::files) stat: &'d FileStat,
    /// The record that an earlier run of this kind kept of it.
    pub(in crate::files) kept: Option<KeptGuest>,
}

impl<'d> ExaminationJob<'d> {
    /// Returns an open image with its disk.
    pub(in crate::files) fn new<S: Substrate>(
        opened: &'d OpenedImage<'_, S>,
        disk: &'d dyn Disk,
        kept: Option<KeptGuest>,
    ) -> ExaminationJob<'d> {
        ExaminationJob { disk, stat: &opened.stat, kept }
    }
}

/// The findings of a thread so far.
#[derive(Default)]
struct Batch {
    packages: Vec<String>,
    files: Vec<FoundFile>,
    /// Its memory, in bytes, about.
    bytes: usize,
}

/// A file with the digest of its content, where that was read as a whole, and its pieces.
type FoundFile = (KeptFile, Option<[u8; 16]>, PhasedPieces);

enum Message {
    Found(Batch),
    End(Box<ExaminationEnd>),
}

/// The findings of one image that wait to be taken, by their bytes.
#[derive(Default)]
struct FindingsQueue {
    now: Mutex<QueueState>,
    /// Some were taken, or the image has its turn, or nothing is taken any more.
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    bytes: usize,
    /// Whether somebody takes what is found in this image.
    is_taken: bool,
    is_closed: bool,
}

impl FindingsQueue {
    fn change(&self, change: impl FnOnce(&mut QueueState)) {
        change(&mut self.now.lock());
        self.changed.notify_all();
    }
}

/// Where the findings of an image go: to an [`ImageFindings`].
struct Outlet {
    into: Sender<Message>,
    waiting: Arc<FindingsQueue>,
    /// Findings that may wait, in bytes.
    bytes_max: usize,
}

/// Returns both ends of the way that findings of an image take. They take `bytes_max` in memory while they wait.
fn outlet(bytes_max: usize) -> (Outlet, ImageFindings) {
    let ((into, found), waiting) = (channel(), Arc::<FindingsQueue>::default());
    (Outlet { into, waiting: Arc::clone(&waiting), bytes_max }, ImageFindings { found, waiting })
}

impl Outlet {
    /// Sends a batch once there is room for it. A batch that takes more than may wait, as one with a hostile file does,
    /// is sent when its image has its turn.
    fn send(&self, batch: Batch) -> Result<(), IdentifyError> {
        let mut now = self.waiting.now.lock();
        loop {
            if now.is_closed {
                return Err(over());
            }
            let bytes = now.bytes.saturating_add(batch.bytes);
            if bytes <= self.bytes_max || now.is_taken && now.bytes == 0 {
                now.bytes = bytes;
                return self.into.send(Message::Found(batch)).map_err(|_| over());
            }
            self.waiting.changed.wait(&mut now);
        }
    }

    fn end(&self, ended: ExaminationEnd) {
        // Nobody takes it any more once the work is over.
        let _ = self.into.send(Message::End(Box::new(ended)));
    }
}

/// What the examinations of some images find, in the order in which these were given.
pub(in crate::files) struct ExaminationQueue<'d> {
    waiting: VecDeque<ExaminationJob<'d>>,
    /// The queue from which threads take their tasks.
    tasks: Sender<Task<'d>>,
    begun: VecDeque<ImageFindings>,
    /// Findings of an image that may wait, in bytes.
    bytes_max: usize,
    is_over: &'d AtomicBool,
}

impl<'d> ExaminationQueue<'d> {
    /// Begins the examination of images on threads of a scope. Findings that wait take `memory_bytes` at most; beside
    /// it there is the batch that each thread makes. `is_over` is false until this is dropped.
    pub(in crate::files) fn begin<'scope>(
        scope: &'scope Scope<'scope, 'd>,
        search: Search<'d>,
        (threads, memory_bytes): (usize, usize),
        images: Vec<ExaminationJob<'d>>,
        is_over: &'d AtomicBool,
    ) -> ExaminationQueue<'d>
    where
        'd: 'scope,
    {
        let threads = threads.min(images.len());
        let (tasks, queue) = channel();
        let bytes_max = memory_bytes / (threads + 1);
        let mut ahead = ExaminationQueue { waiting: images.into(), tasks, begun: VecDeque::new(), bytes_max, is_over };
        let queue = Arc::new(Mutex::new(queue));
        // Also in the middle of a read.
        let search = Search { read_pace: search.read_pace.until(is_over), ..search };
        for _ in 0..threads {
            let queue = Arc::clone(&queue);
            // Where there are no more threads, there are fewer images at once. Without any they are examined in turn.
            if Builder::new().spawn_scoped(scope, move || examine_all(&queue, &search)).is_err() {
                break;
            }
            ahead.begin_next();
        }
        ahead
    }

    fn begin_next(&mut self) {
        let Some(image) = self.waiting.pop_front() else { return };
        let (into, found) = outlet(self.bytes_max);
        // Without threads nothing is asked for.
        let _ = self.tasks.send(Task { image, into });
        self.begun.push_back(found);
    }

    /// Returns the findings of the next image; `None` if all were taken.
    pub(in crate::files) fn next_image(&mut self) -> Option<ImageFindings> {
        let found = self.begun.pop_front()?;
        self.begin_next();
        Some(found)
    }
}

impl Drop for ExaminationQueue<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Findings of a thread in an image.
pub(in crate::files) struct ImageFindings {
    found: Receiver<Message>,
    waiting: Arc<FindingsQueue>,
}

impl Drop for ImageFindings {
    fn drop(&mut self) {
        self.waiting.change(|now| now.is_closed = true);
    }
}

impl ImageFindings {
    /// Hands all findings to `findings`.
    ///
    /// # Errors
    /// Those of `findings` and of `go_on`, which is asked while it waits. `waited` hears before that that it has
    /// waited.
    pub(super) fn take(
        &self,
        findings: &mut dyn Findings,
        go_on: &dyn Fn() -> Result<(), IdentifyError>,
        waited: &dyn Fn(),
    ) -> Result<ExaminationEnd, IdentifyError> {
        self.waiting.change(|now| now.is_taken = true);
        loop {
            go_on()?;
            match self.found.recv_timeout(LOOK_EVERY) {
                Ok(Message::Found(batch)) => {
                    batch.packages.into_iter().try_for_each(|name| findings.package(name))?;
                    for (file, whole, mut pieces) in batch.files {
                        findings.file(file, whole, &mut pieces)?;
                    }
                    self.waiting.change(|now| now.bytes = now.bytes.saturating_sub(batch.bytes));
                }
                Ok(Message::End(ended)) => return Ok(*ended),
                Err(RecvTimeoutError::Timeout) => waited(),
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
        let Ok(Task { image: ExaminationJob { disk, stat, kept }, into }) = next else { return };
        let mut batches = Batches { into, batch: Batch::default() };
        let ended = examine(disk, stat, kept, search, &mut memory, &go_on, &mut batches);
        batches.end(ended);
    }
}

/// Sends findings in batches.
struct Batches {
    into: Outlet,
    batch: Batch,
}

impl Batches {
    /// Sends the current batch. Waits while the examination is too far ahead.
    fn send(&mut self) -> Result<(), IdentifyError> {
        self.into.send(std::mem::take(&mut self.batch))
    }

    /// Counts what a finding takes in memory, and sends all that there is where that is enough.
    fn added(&mut self, bytes: usize) -> Result<(), IdentifyError> {
        self.batch.bytes = self.batch.bytes.saturating_add(bytes);
        if self.batch.bytes >= BATCH_BYTES.min(self.into.bytes_max / 2) { self.send() } else { Ok(()) }
    }

    fn end(mut self, ended: ExaminationEnd) {
        if self.send().is_ok() {
            self.into.end(ended);
        }
    }
}

impl Findings for Batches {
    fn package(&mut self, name: String) -> Result<(), IdentifyError> {
        let bytes = size_of::<String>() + name.capacity();
        self.batch.packages.push(name);
        self.added(bytes)
    }

    fn file(
        &mut self,
        file: KeptFile,
        whole: Option<[u8; 16]>,
        pieces: &mut PhasedPieces,
    ) -> Result<(), IdentifyError> {
        let room_of_pieces: usize = pieces.0.iter().map(Vec::capacity).sum();
        self.batch.files.push((file, whole, std::mem::take(pieces)));
        self.added(size_of::<FoundFile>() + room_of_pieces * size_of::<Piece>())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::num::NonZeroU64;
    use std::ops::Range;
    use std::path::Path;
    use std::thread;
    use std::time::Instant;

    use onefold_block::clock::SystemClock;
    use onefold_disk::DiskError;
    use onefold_guest::filesystem::Timestamp;
    use onefold_substrate::{CpuTime, Files};
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

    use super::*;
    use crate::files::{ReadScope, Tier};
    use crate::format::guest::{KeptClaim, PIECES_MAX};
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
    struct IdleCpu;

    impl CpuTime for IdleCpu {
        fn used(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// Takes down the names of packages, and the number of each file with its first piece.
    #[derive(Default)]
    struct TakenFindings {
        packages: Vec<String>,
        files: Vec<(u64, Option<Piece>)>,
    }

    impl Findings for TakenFindings {
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

    fn ended() -> ExaminationEnd {
        ExaminationEnd { sums: Default::default(), is_stranger: true, facts: Err(IdentifyError::Exhausted) }
    }

    /// Sends so many findings; returns what becomes of them.
    fn sent(packages: usize, files: u64, into: Outlet) -> Result<(), IdentifyError> {
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
        let (into, found) = outlet(1);
        let mut taken = TakenFindings::default();
        let last = thread::scope(|scope| {
            scope.spawn(move || sent(700, 10_000, into).unwrap());
            found.take(&mut taken, &|| Ok(()), &|| ()).unwrap()
        });
        assert!(last.is_stranger && matches!(last.facts, Err(IdentifyError::Exhausted)));
        assert_eq!(taken.packages, (0..700).map(|number| number.to_string()).collect::<Vec<_>>());
        let expected = (0..10_000).map(|block| (block, Some(Piece { content: 0, block, count: 1 })));
        assert_eq!(taken.files, expected.collect::<Vec<_>>());
    }

    /// A hostile guest has files of half a million pieces: what waits is counted by its bytes.
    #[test]
    fn findings_that_wait_are_counted_by_bytes() {
        const FILES: u64 = 8;
        let bytes_max = 1 << 20;
        let (into, found) = outlet(bytes_max);
        let waiting = Arc::clone(&found.waiting);
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut batches = Batches { into, batch: Batch::default() };
                for number in 0..FILES {
                    let mut pieces = PhasedPieces::default();
                    let piece = |block| Piece { content: 0, block, count: 1 };
                    let all = if number % 2 == 0 { 10 } else { PIECES_MAX as u64 };
                    pieces.0.iter_mut().for_each(|of_phase| of_phase.extend((number..number + all).map(piece)));
                    batches.file(file(number), None, &mut pieces).unwrap();
                }
                batches.end(ended());
            });
            // However long nobody takes them.
            for _ in 0..20 {
                thread::sleep(Duration::from_millis(5));
                assert!(waiting.now.lock().bytes <= bytes_max);
            }
            let mut taken = TakenFindings::default();
            found.take(&mut taken, &|| Ok(()), &|| ()).unwrap();
            assert_eq!(taken.files.iter().map(|(number, _)| *number).collect::<Vec<_>>(), Vec::from_iter(0..FILES));
        });
        assert_eq!(waiting.now.lock().bytes, 0);
    }

    #[test]
    fn an_examination_ends_once_nothing_is_taken_and_a_lost_one_ends_the_work() {
        let (into, found) = outlet(1);
        thread::scope(|scope| {
            let sender = scope.spawn(move || sent(0, 1_000_000, into));
            let asked = Cell::new(0);
            let stop = || {
                asked.set(asked.get() + 1);
                if asked.get() > 3 { Err(over()) } else { Ok(()) }
            };
            assert!(found.take(&mut TakenFindings::default(), &stop, &|| ()).is_err());
            drop(found);
            assert!(matches!(sender.join().unwrap(), Err(IdentifyError::Stopped(_))));
        });
        let (into, found) = outlet(1);
        drop(into);
        assert!(found.take(&mut TakenFindings::default(), &|| Ok(()), &|| ()).is_err());
    }

    /// Returns what a file is like.
    fn a_stat() -> FileStat {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 1, ..SimulationOptions::default() });
        let host = file_system.observe();
        let created = host.substrate.create(Path::new("image")).unwrap();
        host.substrate.stat(&created).unwrap()
    }

    fn search_with(read_pace: ReadPace<'_>) -> Search<'_> {
        Search { tiers: &Tier::ALL, reading: ReadScope::Probes, since: None, cache_bytes: 1 << 20, read_pace }
    }

    /// A pace asks only now and then whether to go on, because most steps are short. A wait is not.
    #[test]
    fn a_caller_that_waits_for_a_thread_hears_soon_that_the_work_is_to_end() {
        let is_to_end = Cell::new(false);
        let wish = || if is_to_end.get() { Wish::StopSoon } else { Wish::GoOn };
        let pace = Pace::new(Limits::default(), &SystemClock, &IdleCpu, &wish);
        pace.boundary().unwrap();
        is_to_end.set(true);
        let (_into, found) = outlet(1);
        let began = Instant::now();
        let go_on = || pace.boundary().map_err(|stopped| IdentifyError::Stopped(stopped.into()));
        assert!(found.take(&mut TakenFindings::default(), &go_on, &|| pace.waited()).is_err());
        assert!(began.elapsed() < 20 * LOOK_EVERY, "{:?}", began.elapsed());
    }

    /// At a byte per second the second read of an image waits for hours.
    #[test]
    fn threads_hear_within_a_read_that_the_work_is_over() {
        let (stat, began) = (a_stat(), Instant::now());
        let stop = || began.elapsed() > Duration::from_secs(20);
        let limits = Limits { read_bytes_per_second: NonZeroU64::new(1), ..Limits::default() };
        let pace = Pace::new(limits, &SystemClock, &IdleCpu, &|| Wish::GoOn).stopped_by(&stop);
        let disks = [Zeros { is_bad: false }, Zeros { is_bad: false }];
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let images = disks.iter().map(|disk| ExaminationJob { disk, stat: &stat, kept: None }).collect();
            let ahead = ExaminationQueue::begin(scope, search_with(pace.reading()), (2, 1 << 20), images, &is_over);
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
            let images = disks.iter().map(|disk| ExaminationJob { disk, stat: &stat, kept: None }).collect();
            let is_over = AtomicBool::new(false);
            let found: Vec<bool> = thread::scope(|scope| {
                let mut ahead = ExaminationQueue::begin(scope, search, (threads, 1 << 20), images, &is_over);
                let next = || ahead.next_image();
                std::iter::from_fn(next)
                    .map(|found| {
                        let ended = found.take(&mut TakenFindings::default(), &|| Ok(()), &|| ()).unwrap();
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
