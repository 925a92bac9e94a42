//! Pools in memory, files in them, and the engine over them.

use onefold_share::pace::Pace;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onefold_block::clock::{ManualClock, SystemClock};
use onefold_block::random::SeededRandom;
use onefold_block::{BLOCK_BYTES, BlockDevice, Random};
use onefold_pool::check::{CheckOptions, check};
use onefold_pool::{
    CreateOptions, Durability, Environment, FileKind, Ino, NewFile, NoProgress, OpenOptions, Pool, PoolSubstrate,
    TestLimits,
};
use onefold_share::pass::{PassError, PassOptions, PassReport};
use onefold_share::run::{RunOptions, RunReport, Seams};
use onefold_share::scan::{ScanOptions, ScanReport};
use onefold_testing::device::MemoryDevice;

pub(crate) const K: u64 = BLOCK_BYTES as u64;

thread_local! {
    /// Openings and runs so far of this test.
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

fn next_count() -> u32 {
    COUNT.set(COUNT.get() + 1);
    COUNT.get()
}

/// Files by name, and what they hold.
pub(crate) type Contents = BTreeMap<String, Vec<u8>>;

/// What a run of the engine did.
#[derive(Debug)]
pub(crate) struct EngineRun {
    pub(crate) scanned: ScanReport,
    pub(crate) passed: PassReport,
}

/// Options of a pool that does nothing by itself and finds all that is stored.
pub(crate) fn finding() -> OpenOptions {
    OpenOptions { background: false, memory_bytes: 64 << 20, ..OpenOptions::default() }
}

/// Options of a pool whose filter has room for so many bytes.
pub(crate) fn with_filter(filter_bytes_max: u64) -> OpenOptions {
    OpenOptions { test_limits: TestLimits { filter_bytes_max, ..TestLimits::default() }, ..finding() }
}

fn environment() -> Environment {
    Environment { clock: Arc::new(ManualClock::starting_at(1000)), random: Arc::new(SeededRandom::new(1)) }
}

/// Returns a device with an empty pool on it.
pub(crate) fn new_pool(blocks: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(blocks));
    let seam: Arc<dyn BlockDevice> = device.clone();
    let create = CreateOptions { journal_bytes: Some(1 << 20), ..CreateOptions::default() };
    Pool::create(&seam, &create, &environment()).unwrap();
    device
}

/// Opens a pool. Long after all that was done to it: what changed a moment ago is read again.
pub(crate) fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Pool {
    let clock = Arc::new(ManualClock::starting_at(1000 * next_count()));
    Pool::open(device, options, Environment { clock, ..environment() }).unwrap()
}

/// Returns a block for each number, random but for zero.
pub(crate) fn blocks(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in numbers {
        let mut block = vec![0; BLOCK_BYTES];
        if number > 0 {
            SeededRandom::new(number).fill(&mut block).unwrap();
        }
        bytes.extend_from_slice(&block);
    }
    bytes
}

/// Makes a file in a folder and fills it.
pub(crate) fn put(pool: &Pool, parent: Ino, name: &str, content: &[u8]) -> Ino {
    let new = NewFile { kind: FileKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = pool.create_file(parent, name.as_bytes(), &new).unwrap().ino;
    pool.release(ino, 1);
    pool.write(ino, 0, content, Durability::Later).unwrap();
    ino
}

/// Makes a folder.
pub(crate) fn folder(pool: &Pool, parent: Ino, name: &str) -> Ino {
    let new = NewFile { kind: FileKind::Directory, mode: 0o755, umask: 0, uid: 5, gid: 6, rdev: 0 };
    let ino = pool.create_file(parent, name.as_bytes(), &new).unwrap().ino;
    pool.release(ino, 1);
    ino
}

/// Returns a file of the root folder.
pub(crate) fn get(pool: &Pool, name: &str) -> Result<Vec<u8>, String> {
    let told = |error: onefold_pool::PoolError| format!("{name}: {error}");
    let attr = pool.lookup(Ino::ROOT, name.as_bytes()).map_err(told)?;
    pool.release(attr.ino, 1);
    let mut content = vec![0; usize::try_from(attr.size_bytes).unwrap()];
    let count = pool.read(attr.ino, 0, &mut content).map_err(told)?;
    if count == content.len() { Ok(content) } else { Err(format!("{name}: {count} bytes could be read")) }
}

/// Compares all files with what they should hold.
pub(crate) fn compare(pool: &Pool, contents: &Contents) -> Result<(), String> {
    for (name, content) in contents {
        if get(pool, name)? != *content {
            return Err(format!("{name} does not read as it was written"));
        }
    }
    Ok(())
}

/// Scans and does a pass, as the command does.
pub(crate) fn run(substrate: &PoolSubstrate<'_>) -> Result<EngineRun, PassError> {
    let temporary = tempfile::tempdir()?;
    let notices = RefCell::new(Vec::new());
    let notice = |notice: onefold_share::state::Notice| notices.borrow_mut().push(notice.to_string());
    // Each time another host, as far as names are concerned.
    let (pace, random) = (Pace::unlimited(), SeededRandom::new(u64::from(next_count())));
    let options = RunOptions {
        files: None,
        scan: ScanOptions { threads: 1, ..ScanOptions::new(&pace) },
        pass: PassOptions { memory_bytes: 8 << 20, ..PassOptions::new(temporary.path(), &pace, &SystemClock) },
        mend_wait: Duration::ZERO,
        step: &|_| {},
    };
    let seams = Seams { substrate, clock: &SystemClock, random: &random, notices: &notice };
    let RunReport { scanned, passed, .. } = onefold_share::run(&seams, &options)?;
    assert_eq!(*notices.borrow(), [""; 0]);
    Ok(EngineRun { scanned, passed })
}

/// Removes the state folder and waits until what it held is free.
pub(crate) fn remove_state(pool: &Pool) {
    fn remove(pool: &Pool, parent: Ino, name: &[u8]) {
        let attr = pool.lookup(parent, name).unwrap();
        pool.release(attr.ino, 1);
        if attr.kind != FileKind::Directory {
            return pool.unlink(parent, name).unwrap();
        }
        let mut names = Vec::new();
        pool.read_directory(attr.ino, 2, &mut |entry| {
            names.push(entry.name.clone());
            ControlFlow::Continue(())
        })
        .unwrap();
        names.iter().for_each(|name| remove(pool, attr.ino, name));
        pool.remove_directory(parent, name).unwrap();
    }
    remove(pool, Ino::ROOT, b".onefold");
    settle(pool);
}

/// Has everything that waits for reclaim come free.
pub(crate) fn settle(pool: &Pool) {
    while pool.reclaim().unwrap() {}
    pool.commit().unwrap();
}

/// Bytes that the pool stores, and that it saves by sharing blocks.
pub(crate) fn stored_and_saved(pool: &Pool) -> (u64, u64) {
    let stat = pool.stat().unwrap();
    (stat.unique_bytes + stat.shared_bytes, stat.saved_by_blocks_bytes)
}

/// Has the checker read all of a pool.
pub(crate) fn check_clean(device: &dyn BlockDevice) -> Result<(), String> {
    let options = CheckOptions { memory_bytes: 64 << 20, verify_data: true, ..CheckOptions::default() };
    let report = check(device, &options, &NoProgress).map_err(|error| format!("the check failed: {error}"))?;
    if report.is_clean() { Ok(()) } else { Err(format!("{:?}", report.problems)) }
}

/// Opens the whole pool for sharing.
pub(crate) fn substrate(pool: &Pool) -> PoolSubstrate<'_> {
    PoolSubstrate::open(pool, Path::new("")).unwrap()
}
