//! Requests that wait for the device do not keep other requests from being received.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::held::HeldDevice;
use common::probe::xattr_bytes;
use common::{TestMount, can_mount, environment, new_pool, noise};
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice, Processors};
use onefold_export::CONTROL_XATTR;
use onefold_pool::{CreateOptions, OpenOptions as PoolOptions, Pool};
use onefold_testing::device::{GatedDevice, MemoryDevice};

/// Maximum time for the answer to a request that needs no device, even on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// Maximum time for a request to reach the daemon.
const ON_ITS_WAY: Duration = Duration::from_millis(300);

type Mount = TestMount<HeldDevice<MemoryDevice>>;

fn mount_with(threads: usize, device: Arc<HeldDevice<MemoryDevice>>) -> Mount {
    TestMount::with(device, |options| options.threads = NonZeroUsize::new(threads).unwrap())
}

/// Mounts a pool that two threads serve, prepares it, and mounts it again, so that the caches are empty.
fn prepared(prepare: impl FnOnce(&Mount)) -> Mount {
    let mount = mount_with(2, Arc::new(HeldDevice::new(new_pool())));
    prepare(&mount);
    mount_with(2, mount.end())
}

/// Makes a file of eight different blocks.
fn write_disk(mount: &Mount) {
    fs::write(mount.path("disk"), noise(1, 8 * BLOCK_BYTES)).unwrap();
}

/// Returns whether the daemon answers a request that needs only memory: this attribute does not reach the pool.
fn answers(root: &Path) -> bool {
    let (root, (answered, answer)) = (root.to_owned(), mpsc::channel());
    thread::spawn(move || answered.send(xattr_bytes(&root, CONTROL_XATTR).is_ok()));
    answer.recv_timeout(SOON).unwrap_or(false)
}

/// Makes `request` wait for the device, and panics if another request is not answered meanwhile.
fn assert_others_are_answered_beside<R: Send + 'static>(
    mount: &Mount,
    request: impl FnOnce(PathBuf) -> R + Send + 'static,
) -> R {
    assert!(answers(&mount.root()));
    mount.device().close();
    let root = mount.root();
    let waiting = thread::spawn(move || request(root));
    let is_held = mount.device().wait_until_held(1, SOON);
    // The held call may be one that the request waits for, with the request itself still on its way.
    thread::sleep(ON_ITS_WAY);
    let is_answered = answers(&mount.root());
    let has_waited = !waiting.is_finished();
    mount.device().open();
    let result = waiting.join().unwrap();
    assert!(is_held && has_waited, "the request did not wait for the device");
    assert!(is_answered, "nobody received requests while one waited for the device");
    result
}

fn open_direct(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
}

/// Seen: the one receiving thread itself carried out single reads, writes up to 64 KiB, cold names and commits. With
/// reads of 4 KiB, two clients at depth 1 got hardly more than one, and all clients waited for a guest's small writes.
#[test]
fn others_are_answered_beside_a_single_read() {
    if !can_mount() {
        return;
    }
    let mount = prepared(write_disk);
    let file = open_direct(&mount.path("disk"));
    // This read brings the file's map into memory, but not the block that is read below.
    file.read_exact_at(&mut AlignedBuffer::zeroed(1), 0).unwrap();
    let block = assert_others_are_answered_beside(&mount, move |_| {
        let mut block = AlignedBuffer::zeroed(1);
        file.read_exact_at(&mut block, 4 * BLOCK_BYTES as u64).unwrap();
        block.to_vec()
    });
    assert_eq!(block, noise(1, 8 * BLOCK_BYTES)[4 * BLOCK_BYTES..5 * BLOCK_BYTES]);
    mount.end();
}

#[test]
fn others_are_answered_beside_a_write_within_a_block() {
    if !can_mount() {
        return;
    }
    let mount = prepared(write_disk);
    let file = open_direct(&mount.path("disk"));
    file.read_exact_at(&mut AlignedBuffer::zeroed(1), 0).unwrap();
    assert_others_are_answered_beside(&mount, move |_| {
        let mut sector = AlignedBuffer::zeroed(1);
        sector.fill(7);
        file.write_all_at(&sector[..512], 4 * BLOCK_BYTES as u64 + 512).unwrap();
    });
    let content = fs::read(mount.path("disk")).unwrap();
    assert_eq!(content[4 * BLOCK_BYTES + 512..4 * BLOCK_BYTES + 1024], [7; 512]);
    mount.end();
}

#[test]
fn others_are_answered_beside_a_look_up_of_a_name_that_is_not_in_memory() {
    if !can_mount() {
        return;
    }
    let mount = prepared(|mount| {
        fs::create_dir(mount.path("folder")).unwrap();
        for number in 0..2000 {
            mount.create(&format!("folder/a-file-with-a-name-of-some-length-{number}"));
        }
    });
    fs::metadata(mount.path("folder")).unwrap();
    let length = assert_others_are_answered_beside(&mount, |root| {
        fs::metadata(root.join("folder/a-file-with-a-name-of-some-length-1234")).unwrap().len()
    });
    assert_eq!(length, 0);
    mount.end();
}

#[test]
fn others_are_answered_beside_a_verb_that_waits_for_an_accepted_write() {
    if !can_mount() {
        return;
    }
    let mount = prepared(write_disk);
    let file = open_direct(&mount.path("disk"));
    file.read_exact_at(&mut AlignedBuffer::zeroed(1), 0).unwrap();
    assert_others_are_answered_beside(&mount, move |root| {
        // Accepted and answered; the file that is made next must not be committed before it.
        file.write_all_at(&AlignedBuffer::copy_of(&noise(2, BLOCK_BYTES)), 0).unwrap();
        File::create_new(root.join("made")).unwrap();
    });
    assert!(mount.path("made").exists());
    mount.end();
}

/// First bytes of an accepted write that is held on its way to the device.
const MARK: &[u8] = b"held up";

/// Each read of a file waited for all accepted writes to it, although a write locks only its own blocks.
#[test]
fn a_direct_read_does_not_wait_for_an_accepted_write_of_other_blocks() {
    if !can_mount() {
        return;
    }
    let gate = GatedDevice::new(MemoryDevice::from(new_pool().image()), MARK);
    let mount = TestMount::with(Arc::new(gate), |options| options.threads = NonZeroUsize::new(2).unwrap());
    let content = noise(1, 64 * BLOCK_BYTES);
    fs::write(mount.path("disk"), &content).unwrap();
    let file = open_direct(&mount.path("disk"));
    file.sync_all().unwrap();
    // Large enough not to be kept in memory until the next commit.
    let mut marked = AlignedBuffer::copy_of(&noise(2, 32 * BLOCK_BYTES));
    marked[..MARK.len()].copy_from_slice(MARK);
    let held_at = 32 * BLOCK_BYTES as u64;
    file.write_all_at(&marked, held_at).unwrap();
    let read = |offset| {
        let ((read, was_read), file) = (mpsc::channel(), file.try_clone().unwrap());
        thread::spawn(move || {
            let mut block = AlignedBuffer::zeroed(1);
            file.read_exact_at(&mut block, offset).unwrap();
            read.send(block.to_vec())
        });
        was_read
    };
    let other = read(4 * BLOCK_BYTES as u64).recv_timeout(SOON);
    let same = read(held_at);
    let same_too_soon = same.recv_timeout(ON_ITS_WAY);
    mount.device().open();
    assert!(same_too_soon.is_err(), "the write was not held");
    assert!(other.expect("the read waits for the write") == content[4 * BLOCK_BYTES..5 * BLOCK_BYTES]);
    assert!(same.recv_timeout(SOON).unwrap() == marked[..BLOCK_BYTES]);
    drop(file);
    mount.end();
}

/// Makes files until one waits for the device, which `close` closes. Panics if another request is not answered
/// meanwhile.
fn assert_others_are_answered_beside_new_files(mount: &Mount, close: impl FnOnce(&HeldDevice<MemoryDevice>)) {
    assert!(answers(&mount.root()));
    close(mount.device());
    let (made, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let maker = thread::spawn({
        let (made, is_over, root) = (made.clone(), is_over.clone(), mount.root());
        move || {
            for number in (0..50_000).take_while(|_| !is_over.load(Ordering::SeqCst)) {
                File::create_new(root.join(format!("a-file-with-a-name-of-some-length-{number}"))).unwrap();
                made.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let is_held = mount.device().wait_until_held(1, SOON);
    let mut before = u64::MAX;
    while std::mem::replace(&mut before, made.load(Ordering::SeqCst)) != made.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(500));
    }
    let is_answered = answers(&mount.root());
    let has_waited = !maker.is_finished();
    is_over.store(true, Ordering::SeqCst);
    mount.device().open();
    maker.join().unwrap();
    assert!(is_held && has_waited, "no file waited for the device");
    assert!(is_answered, "nobody received requests while one waited for the device");
}

/// An operation that makes a transaction exceed its bound commits it, or waits for the commit in progress.
#[test]
fn others_are_answered_beside_files_that_are_made_while_a_commit_waits() {
    if !can_mount() {
        return;
    }
    let mount = prepared(|_| ());
    assert_others_are_answered_beside_new_files(&mount, HeldDevice::close);
    mount.end();
}

/// A commit that fills half of the journal also empties it, and later operations wait for that.
#[test]
fn others_are_answered_beside_files_that_are_made_while_a_checkpoint_waits() {
    if !can_mount() {
        return;
    }
    let device = Arc::new(MemoryDevice::new(1 << 16));
    let seam: Arc<dyn BlockDevice> = device.clone();
    let create = CreateOptions { journal_bytes: Some(2 << 20), ..CreateOptions::default() };
    Pool::create(&seam, &create, &environment()).unwrap();
    let mount = mount_with(2, Arc::new(HeldDevice::new(device)));
    assert_others_are_answered_beside_new_files(&mount, HeldDevice::close_at_checkpoint);
    mount.end();
}

/// With one thread, no other thread can receive: everything still works, one request after another.
#[test]
fn one_thread_does_all_of_it() {
    if !can_mount() {
        return;
    }
    let mount = mount_with(1, Arc::new(HeldDevice::new(new_pool())));
    write_disk(&mount);
    let mount = mount_with(1, mount.end());
    let file = open_direct(&mount.path("disk"));
    let mut block = AlignedBuffer::zeroed(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..200 {
                File::create_new(mount.path(format!("made-{number}"))).unwrap();
            }
        });
        for round in 0..200 {
            let at = (round % 8) * BLOCK_BYTES as u64;
            file.read_exact_at(&mut block, at).unwrap();
            block[..512].fill(u8::try_from(round).unwrap());
            file.write_all_at(&block[..512], at + 1024).unwrap();
            file.sync_all().unwrap();
        }
    });
    drop(file);
    assert_eq!(fs::read_dir(mount.root()).unwrap().count(), 201);
    mount.end();
}

/// Processors that are idle as the test decides. They count how often a thread asked because it had found nothing.
#[derive(Debug, Default)]
struct TestProcessors {
    are_idle: AtomicBool,
    asked: AtomicU64,
}

impl Processors for TestProcessors {
    fn have_idle(&self, _now: Duration) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.are_idle.load(Ordering::SeqCst)
    }
}

/// Polling threads answer all requests, and stop polling soon after the last one. The pool's own waits are counted
/// apart: what is looked for here are requests.
#[test]
fn threads_look_for_requests_while_there_are_some_and_not_when_idle() {
    if !can_mount() {
        return;
    }
    let [requests, pool] = [(); 2].map(|()| Arc::new(TestProcessors::default()));
    let asked = || [&requests, &pool].map(|processors| processors.asked.load(Ordering::SeqCst));
    let set_idle = |are_idle| {
        for processors in [&requests, &pool] {
            processors.are_idle.store(are_idle, Ordering::SeqCst);
        }
    };
    set_idle(true);
    let open = PoolOptions { processors: Some(pool.clone()), ..PoolOptions::default() };
    let mount = TestMount::opened(new_pool(), open, |options| options.processors = Some(requests.clone()));
    // Whether two requests come close enough together depends on other load on the machine.
    let is_looked_for = (0..2000).any(|number| {
        let file = mount.create(&format!("made-{number}"));
        file.write_all_at(b"content", 0).unwrap();
        file.sync_all().unwrap();
        asked()[0] > 0
    });
    assert!(is_looked_for, "no request was looked for");
    // Some requests are still on their way when the last call returns, such as the release of a file.
    thread::sleep(ON_ITS_WAY);
    let before = asked();
    thread::sleep(Duration::from_secs(1));
    assert_eq!(asked(), before, "threads look while nobody asks for anything");
    // With work for all processors, each wait asks at most once.
    set_idle(false);
    for number in 0..100 {
        fs::metadata(mount.path(format!("none-{number}"))).unwrap_err();
    }
    let questions = asked()[0] - before[0];
    assert!(questions <= 300, "{questions} questions for 100 requests");
    mount.end();
}

/// A file that is made waits for the write to the one before, which waits for no device.
#[test]
fn small_files_are_made_without_the_device_once_syncs_are_rare() {
    if !can_mount() {
        return;
    }
    let mount = mount_with(2, Arc::new(HeldDevice::new(new_pool())));
    let (root, made) = (mount.root(), |number: u64| (format!("f{number}"), noise(number, BLOCK_BYTES)));
    let make = move |numbers: std::ops::Range<u64>| {
        for (name, content) in numbers.map(made) {
            fs::write(root.join(name), content).unwrap();
        }
    };
    make(0..40);
    mount.device().close();
    let (sender, receiver) = mpsc::channel();
    let client = thread::spawn(move || {
        make(40..48);
        sender.send(()).unwrap();
    });
    let is_made = receiver.recv_timeout(SOON).is_ok();
    mount.device().open();
    client.join().unwrap();
    assert!(is_made, "they wait for the device");
    let mount = mount_with(2, mount.end());
    for (name, content) in (0..48).map(made) {
        assert!(fs::read(mount.path(&name)).unwrap() == content, "{name}");
    }
}
