//! Full pools and failing devices behind a real mount: which call reports the failure.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::mapping::SharedMapping;
use common::{TestMount, assert_clean_on, can_mount, new_pool_of, noise};
use onefold_block::{AlignedBuffer, BlockDevice, BlockNo};
use onefold_export::control::ControlClient;
use onefold_export::{FailureLog, MountOptions, ServeError};
use onefold_pool::OpenOptions;
use onefold_testing::device::{Call, FailingCalls, Fault, FaultyDevice, MemoryDevice};
use parking_lot::Mutex;
use rustix::io::Errno;

const BLOCK: usize = 4096;
/// Blocks of the file whose clone is overwritten.
const SHARED_BLOCKS: usize = 64;

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Option<Errno> {
    result.expect_err("fails").raw_os_error().map(Errno::from_raw_os_error)
}

/// Returns a full pool with a file and its clone, and the content of both.
fn full(change: impl FnOnce(&mut MountOptions)) -> (TestMount, Vec<u8>) {
    let mount = TestMount::with(new_pool_of(8192), change);
    let data = noise(1, SHARED_BLOCKS * BLOCK);
    fs::write(mount.path("source"), &data).unwrap();
    let clone = mount.create("clone");
    ControlClient::connect(&mount.root())
        .unwrap()
        .clone_file(&File::open(mount.path("source")).unwrap(), &clone)
        .unwrap();
    fill(&mount);
    (mount, data)
}

/// Takes all free space.
fn fill(mount: &TestMount) {
    let filler = mount.create("filler");
    let (mut at, mut piece) = (0, 256 * BLOCK);
    while piece >= BLOCK {
        let written = filler.write_all_at(&noise(100 + at, piece), at).and_then(|()| filler.sync_all());
        match written {
            Ok(()) => at += piece as u64,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
                piece /= 2;
            }
        }
    }
    // Data whose write-back failed stays in the cache; the pool does not have it.
    filler.set_len(at).unwrap();
    assert!(at > 10 << 20, "{at} bytes");
}

/// Checks that the clone is unchanged, also after a remount, and that the overwrite works once there is space.
fn nothing_changed_and_space_helps(mount: TestMount, data: &[u8]) {
    let mount = mount.remount();
    assert!(fs::read(mount.path("clone")).unwrap() == data);
    assert!(fs::read(mount.path("source")).unwrap() == data);
    fs::remove_file(mount.path("filler")).unwrap();
    let clone = File::options().write(true).open(mount.path("clone")).unwrap();
    let new = noise(7, 20 * BLOCK);
    // The space is freed once the kernel has dropped the removed file, which takes some time.
    let started = Instant::now();
    while let Err(error) = clone.write_all_at(&new, 0).and_then(|()| clone.sync_all()) {
        assert!(started.elapsed() < Duration::from_secs(30), "{error}");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(clone);
    let mount = mount.remount();
    assert!(fs::read(mount.path("clone")).unwrap()[..new.len()] == new);
    assert!(fs::read(mount.path("source")).unwrap() == data);
    mount.end();
}

#[test]
fn an_overwrite_of_a_clone_that_cannot_be_kept_fails_at_the_write() {
    if !can_mount() {
        return;
    }
    let (mount, data) = full(|_| ());
    let clone = File::options().write(true).open(mount.path("clone")).unwrap();
    assert_eq!(errno(clone.write_all_at(&noise(5, 20 * BLOCK), 0)), Some(Errno::NOSPC));
    clone.sync_all().unwrap();
    drop(clone);
    nothing_changed_and_space_helps(mount, &data);
}

#[test]
fn a_mapping_that_cannot_be_kept_fails_at_msync_or_fsync() {
    if !can_mount() {
        return;
    }
    let (mount, data) = full(|_| ());
    let clone = File::options().read(true).write(true).open(mount.path("clone")).unwrap();
    let mapping = SharedMapping::new(&clone, SHARED_BLOCKS * BLOCK).unwrap();
    for block in 0..SHARED_BLOCKS {
        mapping.set(block * BLOCK, !data[block * BLOCK]);
    }
    assert_eq!(mapping.sync(), Err(Errno::NOSPC));
    for block in 0..SHARED_BLOCKS {
        mapping.set(block * BLOCK + 1, !data[block * BLOCK + 1]);
    }
    assert_eq!(errno(clone.sync_all()), Some(Errno::NOSPC));
    drop((mapping, clone));
    nothing_changed_and_space_helps(mount, &data);
}

#[test]
fn with_the_writeback_cache_an_overwrite_that_cannot_be_kept_fails_at_fsync() {
    if !can_mount() {
        return;
    }
    let (mount, data) = full(|options| options.writeback_cache = true);
    let clone = File::options().write(true).open(mount.path("clone")).unwrap();
    clone.write_all_at(&noise(5, 20 * BLOCK), 0).expect("the kernel takes it");
    assert_eq!(errno(clone.sync_all()), Some(Errno::NOSPC));
    drop(clone);
    nothing_changed_and_space_helps(mount, &data);
}

#[test]
fn a_full_pool_unlinks_truncates_and_syncs() {
    if !can_mount() {
        return;
    }
    let (mount, data) = full(|_| ());
    let clone = File::options().write(true).open(mount.path("clone")).unwrap();
    clone.set_len(5000).unwrap();
    clone.sync_all().unwrap();
    fs::remove_file(mount.path("source")).unwrap();
    File::open(mount.root()).unwrap().sync_all().unwrap();
    drop(clone);
    let mount = mount.remount();
    assert!(fs::read(mount.path("clone")).unwrap() == data[..5000]);
    assert!(!mount.path("source").exists());
    fs::remove_file(mount.path("filler")).unwrap();
    mount.end();
}

/// What was seen: a sparse pool on a full host accepted 15 MiB and lost them. `fsync` of the file failed, but `fsync`
/// of a folder and of another file, and the unmount, succeeded.
#[test]
fn a_lost_write_is_reported_by_each_open_file_and_folder_by_its_file_later_and_by_the_unmount() {
    if !can_mount() {
        return;
    }
    let device = Arc::new(FaultyDevice::new(MemoryDevice::from(new_pool_of(8192).image()), 1));
    let lines = Arc::new(Lines::default());
    let open = OpenOptions { commit_interval_ms: u32::MAX, ..OpenOptions::default() };
    let mount = TestMount::opened(device.clone(), open, |options| options.log = lines.clone());
    let synchronous = |name| File::options().write(true).custom_flags(libc::O_DSYNC).open(mount.path(name)).unwrap();
    let (victim, other) = (mount.create("victim"), mount.create("other"));
    let (folder, at_once) = (File::open(mount.root()).unwrap(), synchronous("other"));
    for file in [&victim, &other, &folder] {
        file.sync_all().unwrap();
    }
    device.fail(Call::Write, FailingCalls::FromNth(device.count(Call::Write) + 1), Fault::StorageFull);
    victim.write_all_at(&noise(1, BLOCK), 0).expect("accepted");
    // The query for the pool's numbers waits for the write.
    ControlClient::connect(&mount.root()).unwrap().stat().unwrap();
    device.heal();
    for file in [&victim, &other, &folder] {
        assert_eq!(errno(file.sync_all()), Some(Errno::NOSPC));
        file.sync_all().expect("reported once");
    }
    assert_eq!(errno(at_once.write_all_at(b"durable", 0)), Some(Errno::NOSPC), "as a write and an fsync");
    at_once.write_all_at(b"durable", 0).expect("reported once");
    for _ in 0..2 {
        let later = File::options().write(true).open(mount.path("victim")).unwrap();
        assert_eq!(errno(later.sync_all()), Some(Errno::NOSPC));
        later.sync_all().expect("reported once");
    }
    File::open(mount.path("other")).unwrap().sync_all().expect("it lost nothing, and others know");
    victim.set_len(0).unwrap();
    File::open(mount.path("victim")).unwrap().sync_all().expect("nothing of it is left");
    let heard = lines.0.lock().join("\n");
    assert!(heard.contains("accepted writes were lost") && heard.contains("no space left"), "{heard}");
    drop((victim, other, folder, at_once));
    let told = ControlClient::connect(&mount.root()).unwrap().umount();
    assert!(told.is_err_and(|error| error.to_string().contains("accepted writes were lost")));
    let (device, result) = mount.wait();
    assert!(matches!(result, Err(ServeError::Lost(_))), "{result:?}");
    assert_clean_on(&*device);
}

/// What was seen: the control socket's sync promises that everything is durable, and succeeded although accepted writes
/// had been lost.
#[test]
fn a_sync_of_the_daemon_reports_lost_writes_once_and_takes_no_report_from_an_open_file() {
    if !can_mount() {
        return;
    }
    let device = Arc::new(FaultyDevice::new(MemoryDevice::from(new_pool_of(8192).image()), 1));
    let open = OpenOptions { commit_interval_ms: u32::MAX, ..OpenOptions::default() };
    let mount = TestMount::opened(device.clone(), open, |_| ());
    let victim = mount.create("victim");
    let mut client = ControlClient::connect(&mount.root()).unwrap();
    client.sync().expect("nothing was lost yet");
    device.fail(Call::Write, FailingCalls::FromNth(device.count(Call::Write) + 1), Fault::StorageFull);
    victim.write_all_at(&noise(1, BLOCK), 0).expect("accepted");
    // The query for the pool's numbers waits for the write.
    client.stat().unwrap();
    device.heal();
    let told = client.sync();
    let is_told = told.as_ref().is_err_and(|error| error.to_string().contains("accepted writes were lost"));
    assert!(is_told, "{told:?}");
    client.sync().expect("reported once");
    assert_eq!(errno(victim.sync_all()), Some(Errno::NOSPC), "the file has a report of its own");
    drop((victim, client));
    mount.stopper.try_end().unwrap();
    let (device, result) = mount.wait();
    assert!(matches!(result, Err(ServeError::Lost(_))), "{result:?}");
    assert_clean_on(&*device);
}

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl FailureLog for Lines {
    fn error(&self, message: &str) {
        self.0.lock().push(message.to_owned());
    }
}

#[test]
fn a_pool_that_stopped_answers_with_errors_says_why_and_can_be_read_and_unmounted() {
    if !can_mount() {
        return;
    }
    for (call, says) in [(Call::Sync, "cannot flush"), (Call::Write, "cannot write")] {
        let device = Arc::new(FaultyDevice::new(MemoryDevice::from(new_pool_of(8192).image()), 1));
        let lines = Arc::new(Lines::default());
        let open = OpenOptions { commit_interval_ms: u32::MAX, ..OpenOptions::default() };
        let mount = TestMount::opened(device.clone(), open, |options| options.log = lines.clone());
        let data = noise(1, 10 * BLOCK);
        let file = mount.create("file");
        file.write_all_at(&data, 0).unwrap();
        file.sync_all().unwrap();
        device.fail(call, FailingCalls::FromNth(device.count(call) + 1), Fault::Io);
        let failed = file.write_all_at(&noise(2, BLOCK), 0).and_then(|()| file.sync_all());
        assert_eq!(errno(failed), Some(Errno::IO));
        // One failure is enough: a device that works again is not trusted.
        device.heal();
        assert_eq!(errno(file.sync_all()), Some(Errno::IO));
        assert_eq!(errno(file.write_all_at(b"more", 0)), Some(Errno::IO));
        assert_eq!(errno(fs::remove_file(mount.path("file"))), Some(Errno::IO));
        let mut last = [0; BLOCK];
        file.read_exact_at(&mut last, 9 * BLOCK as u64).expect("what is stored can be read");
        assert!(last == data[9 * BLOCK..]);
        let stat = ControlClient::connect(&mount.root()).unwrap().stat().unwrap();
        assert!(stat.stopped.as_ref().is_some_and(|cause| cause.contains(says)), "{:?}", stat.stopped);
        let heard = lines.0.lock().join("\n");
        assert!(heard.contains(says), "{heard}");
        drop(file);
        mount.stopper.try_end().unwrap();
        let (device, result) = mount.wait();
        assert!(matches!(result, Err(ServeError::Close(_))), "{result:?}");
        let mount = TestMount::with(Arc::new(MemoryDevice::from(device.inner().image())), |_| ());
        let found = fs::read(mount.path("file")).unwrap();
        assert!(found == data || found[BLOCK..] == data[BLOCK..], "what was promised is there");
        mount.end();
    }
}

/// First bytes of a block whose next transfer panics.
const MARK: &[u8] = b"a bug";

/// A device on which the transfer of a marked block panics, once.
struct PanickingDevice {
    inner: MemoryDevice,
    is_armed: AtomicBool,
}

impl PanickingDevice {
    fn pass(&self, blocks: &[u8]) {
        let is_marked = blocks.chunks(BLOCK).any(|block| block.starts_with(MARK));
        assert!(!(is_marked && self.is_armed.swap(false, Ordering::Relaxed)), "on purpose");
    }
}

impl BlockDevice for PanickingDevice {
    fn block_count(&self) -> io::Result<u64> {
        self.inner.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.inner.read(first, into)?;
        self.pass(into);
        Ok(())
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        self.pass(from);
        self.inner.write(first, from)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn has_room_for_all_blocks(&self) -> bool {
        self.inner.has_room_for_all_blocks()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.inner.discard(first, count)
    }
}

fn read_directly(path: &Path) -> io::Result<()> {
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    file.read_exact_at(&mut AlignedBuffer::zeroed(3), 0)
}

/// What was wrong, found in a review: a panic within a request was caught and answered, and the daemon continued as if
/// nothing had happened. Such a request may leave unknown work half done. Later calls built on it, and were promised to
/// be durable.
#[test]
fn a_panic_within_a_request_is_answered_and_stops_the_pool() {
    if !can_mount() {
        return;
    }
    let marked = |seed| [MARK, &noise(seed, 3 * BLOCK - MARK.len())].concat();
    for request in ["read", "write"] {
        let memory = MemoryDevice::from(new_pool_of(8192).image());
        let device = Arc::new(PanickingDevice { inner: memory, is_armed: AtomicBool::new(false) });
        let mount = TestMount::with(device, |_| ());
        fs::write(mount.path("file"), marked(1)).unwrap();
        let lines = Arc::new(Lines::default());
        let mount = TestMount::with(mount.end(), |options| options.log = lines.clone());
        let other = mount.create("other");
        other.sync_all().unwrap();
        mount.device().is_armed.store(true, Ordering::Relaxed);
        let failed = match request {
            // Bypasses the page cache, as the kernel repeats a read that failed as readahead.
            "read" => read_directly(&mount.path("file")),
            // The write may be answered before it is carried out; the sync may not.
            _ => other.write_all_at(&marked(2), 0).and_then(|()| other.sync_all()),
        };
        assert_eq!(errno(failed), Some(Errno::IO), "{request}");
        assert!(!mount.device().is_armed.load(Ordering::Relaxed), "the bug was met");
        // The same content again: it must not wait for the write that panicked.
        assert_eq!(errno(other.write_all_at(&marked(2), 0)), Some(Errno::IO), "{request}");
        assert_eq!(errno(other.sync_all()), Some(Errno::IO), "{request}");
        assert_eq!(errno(fs::remove_file(mount.path("file"))), Some(Errno::IO), "{request}");
        assert!(fs::read(mount.path("file")).unwrap() == marked(1), "what is stored can be read");
        let stat = ControlClient::connect(&mount.root()).unwrap().stat().unwrap();
        assert!(stat.stopped.as_ref().is_some_and(|cause| cause.contains("panicked")), "{:?}", stat.stopped);
        let heard = lines.0.lock().join("\n");
        assert!(heard.contains("panicked"), "{heard}");
        drop(other);
        mount.stopper.try_end().unwrap();
        let (device, result) = mount.wait();
        assert!(matches!(result, Err(ServeError::Close(_))), "{result:?}");
        let mount = TestMount::with(Arc::new(MemoryDevice::from(device.inner.image())), |_| ());
        assert!(fs::read(mount.path("file")).unwrap() == marked(1), "what was promised is there");
        assert_eq!(fs::metadata(mount.path("other")).unwrap().len(), 0);
        mount.end();
    }
}
