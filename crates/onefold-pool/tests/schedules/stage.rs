//! The stage for scripts: a pool on a device in memory, at each of whose calls another thread may continue.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use onefold_block::{BLOCK_BYTES, BlockDevice, BlockNo};
use onefold_pool::check::{CheckOptions, ScrubOptions, check};
use onefold_pool::{
    AllocateMode, CreateOptions, Durability, Ino, NoProgress, OpenOptions, Pool, RangePair, Result, SetAttr,
    TestLimits, Verification,
};
use onefold_testing::device::{MemoryDevice, MemoryImage};
use shuttle::sync::atomic::{AtomicU64, Ordering};

use crate::common::observe::check_sums;
use crate::common::{environment, kind_of, letter, open, read_as_doors_do, regular, write_as_doors_do};
use crate::script::{Act, Beliefs, FILE_BLOCKS, Files, Letter, Name, Script};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Letters of scripts are below this.
const LETTERS: Letter = 10;
/// 16 MiB, the minimum size of a pool.
const DEVICE_BLOCKS: u64 = 4096;

/// A device at the begin and end of whose calls the explorer may switch threads.
struct SteppedDevice {
    inner: MemoryDevice,
    calls: AtomicU64,
}

impl SteppedDevice {
    fn step<T>(&self, call: impl FnOnce(&MemoryDevice) -> io::Result<T>) -> io::Result<T> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let result = call(&self.inner);
        self.calls.fetch_add(1, Ordering::SeqCst);
        result
    }
}

impl BlockDevice for SteppedDevice {
    fn block_count(&self) -> io::Result<u64> {
        self.inner.block_count()
    }

    fn read(&self, first: BlockNo, into: &mut [u8]) -> io::Result<()> {
        self.step(|inner| inner.read(first, into))
    }

    fn write(&self, first: BlockNo, from: &[u8]) -> io::Result<()> {
        self.step(|inner| inner.write(first, from))
    }

    fn sync(&self) -> io::Result<()> {
        self.step(BlockDevice::sync)
    }

    fn has_room_for_all_blocks(&self) -> bool {
        self.inner.has_room_for_all_blocks()
    }

    fn discard(&self, first: BlockNo, count: u64) -> io::Result<()> {
        self.step(|inner| inner.discard(first, count))
    }
}

/// The initial state of all schedules of a scenario.
pub struct InitialState {
    image: MemoryImage,
    inodes: BTreeMap<Name, Ino>,
    options: OpenOptions,
}

impl InitialState {
    /// Makes a pool with files.
    pub fn new(options: &OpenOptions, files: &Files) -> InitialState {
        let memory = Arc::new(MemoryDevice::new(DEVICE_BLOCKS));
        let device: Arc<dyn BlockDevice> = memory.clone();
        let create = CreateOptions { journal_bytes: Some(1 << 20), ..CreateOptions::default() };
        Pool::create(&device, &create, &environment()).expect("a pool is made");
        let pool = open(&device, options);
        let mut inodes = BTreeMap::new();
        for (name, holds) in files {
            let ino = new_file(&pool, name);
            inodes.insert(*name, ino);
            for (block, number) in holds {
                pool.write(ino, block * BLOCK, &letter(*number), Durability::Later).expect("writes");
            }
        }
        pool.close().expect("closes");
        drop(pool);
        InitialState { image: memory.image(), inodes, options: options.clone() }
    }
}

fn new_file(pool: &Pool, name: Name) -> Ino {
    let ino = pool.create_file(Ino::ROOT, name.as_bytes(), &regular()).expect("is new").ino;
    pool.release(ino, 1);
    ino
}

/// An open pool with files.
pub struct Stage {
    device: Arc<SteppedDevice>,
    pool: Pool,
    limits: TestLimits,
    verify: Verification,
    inodes: BTreeMap<Name, Ino>,
    alphabet: Vec<[u8; BLOCK_BYTES]>,
}

impl Stage {
    /// Opens a prepared pool.
    pub fn open(prepared: &InitialState) -> Stage {
        let inner = MemoryDevice::from(prepared.image.clone());
        let device = Arc::new(SteppedDevice { inner, calls: AtomicU64::new(0) });
        let seam: Arc<dyn BlockDevice> = device.clone();
        Stage {
            device,
            pool: open(&seam, &prepared.options),
            limits: prepared.options.test_limits,
            verify: prepared.options.verify,
            inodes: prepared.inodes.clone(),
            alphabet: (0..LETTERS).map(letter).collect(),
        }
    }

    /// Plays one thread's script and judges what it reads; `files` is their initial content.
    pub fn play(&self, thread: usize, script: &Script, beliefs: &Beliefs, files: &Files) {
        let mut inodes = self.inodes.clone();
        let mut files = files.clone();
        for act in script {
            if let Act::Read(file) = act {
                let owned = beliefs.is_owner(thread, file).then_some(&files);
                self.judge(file, inodes.get(file).copied(), beliefs, owned);
            } else if let Err(error) = self.act(act, &mut inodes) {
                let excused = act.files().any(|file| beliefs.may_be_gone(file) && !beliefs.is_owner(thread, file));
                assert!(excused && kind_of(&error) == "NotFound", "{act:?} by thread {thread}: {error}");
            }
            act.apply(&mut files);
        }
    }

    fn act(&self, act: &Act, inodes: &mut BTreeMap<Name, Ino>) -> Result<()> {
        let pool = &self.pool;
        match act {
            Act::Write(file, first, letters) => {
                let bytes: Vec<u8> = letters.iter().flat_map(|letter| *self.letter(*letter)).collect();
                write_as_doors_do(pool, inodes[file], first * BLOCK, &bytes, Durability::Later)
            }
            Act::Punch(file, first, count) => {
                pool.allocate(inodes[file], first * BLOCK, count * BLOCK, AllocateMode::PunchHole)
            }
            Act::Truncate(file, blocks) => {
                let size = SetAttr { size_bytes: Some(blocks * BLOCK), ..SetAttr::default() };
                pool.set_attr(inodes[file], &size).map(|_| ())
            }
            Act::Clone(source, target) => {
                let ino = new_file(pool, target);
                inodes.insert(target, ino);
                pool.clone_file(inodes[source], ino)
            }
            Act::Share((source, from), (target, to)) => {
                let shared = pool.share_range(RangePair {
                    source: inodes[source],
                    source_offset: from * BLOCK,
                    target: inodes[target],
                    target_offset: to * BLOCK,
                    bytes: BLOCK,
                });
                shared.map(|_| ())
            }
            Act::Unlink(file) => pool.unlink(Ino::ROOT, file.as_bytes()),
            Act::Commit => pool.commit(),
            Act::Checkpoint => pool.checkpoint(),
            Act::Reclaim => pool.reclaim().map(|_| ()),
            Act::Scrub => {
                let report = pool.scrub(&ScrubOptions::default(), &NoProgress)?;
                assert!(report.is_clean(), "a scrub found {:?}", report.problems);
                Ok(())
            }
            Act::Read(_) => Ok(()),
        }
    }

    fn letter(&self, number: Letter) -> &[u8; BLOCK_BYTES] {
        &self.alphabet[usize::try_from(number).expect("below 10")]
    }

    /// Reads a file and compares each block with what its owner knows, or with what any thread may have left there.
    fn judge(&self, file: Name, ino: Option<Ino>, beliefs: &Beliefs, owned: Option<&Files>) {
        let found = match ino {
            Some(ino) => Ok(ino),
            None => self.pool.lookup(Ino::ROOT, file.as_bytes()).map(|attr| {
                self.pool.release(attr.ino, 1);
                attr.ino
            }),
        };
        let mut bytes = vec![0; usize::try_from(FILE_BLOCKS * BLOCK).expect("small")];
        let read = found.and_then(|ino| read_as_doors_do(&self.pool, ino, 0, &mut bytes));
        if let Err(error) = read {
            let gone = owned.map_or(beliefs.may_be_gone(file), |files| !files.contains_key(file));
            assert!(gone && kind_of(&error) == "NotFound", "reading `{file}`: {error}");
            return;
        }
        for (block, bytes) in (0..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            let found = (0..).zip(&self.alphabet).find(|(_, letter)| letter[..] == *bytes).map(|(number, _)| number);
            match owned {
                Some(files) => {
                    let expected = files.get(file).and_then(|holds| holds.get(&block)).copied().unwrap_or(0);
                    assert_eq!(found, Some(expected), "block {block} of `{file}`, which only its owner changes");
                }
                None => {
                    let allowed = found.is_some_and(|letter| beliefs.allows(file, block, letter));
                    assert!(allowed, "block {block} of `{file}` is {found:?}, which nobody wrote there");
                }
            }
        }
    }

    /// Carries out accepted writes until [`Stage::end_workers`].
    pub fn work(&self) {
        self.pool.work();
    }

    /// Ends the threads that carry out accepted writes.
    pub fn end_workers(&self) {
        self.pool.end_workers();
    }

    /// Judges the result when all threads have ended.
    pub fn close(self, scripts: &[Script], beliefs: &Beliefs, files: &Files) {
        let pool = &self.pool;
        while pool.reclaim().expect("reclaims") {}
        pool.commit().expect("commits");
        pool.checkpoint().expect("checkpoints");
        check_sums(pool).unwrap_or_else(|problem| panic!("{problem}"));
        let names: std::collections::BTreeSet<Name> =
            files.keys().copied().chain(scripts.iter().flatten().filter_map(Act::changes)).collect();
        for file in names {
            let owner = (0..scripts.len()).find(|thread| beliefs.is_owner(*thread, file));
            let owned = owner.map(|thread| {
                let mut files = files.clone();
                scripts[thread].iter().for_each(|act| act.apply(&mut files));
                files
            });
            self.judge(file, None, beliefs, owned.as_ref());
        }
        let stat = pool.stat().expect("has numbers");
        assert_eq!((stat.freeing_bytes, stat.reclaim_pending), (0, 0), "nothing is busy any more: {stat:?}");
        let finds_all = self.limits.references_max == u32::MAX && self.limits.filter_bytes_max == u64::MAX;
        if self.limits.fingerprint_bits == 128 && finds_all {
            let distinct = self.distinct_letters();
            let stored = (stat.unique_bytes + stat.shared_bytes) / BLOCK;
            assert_eq!(stored, distinct, "distinct letters are seen: {stat:?}");
        }
        pool.close().expect("closes");
        let whole = self.limits.fingerprint_bits == 128 || self.verify == Verification::Fingerprint;
        let options = CheckOptions {
            memory_bytes: onefold_pool::MEMORY_BYTES_MIN,
            verify_data: whole,
            ..CheckOptions::default()
        };
        let report = check(&*self.device, &options, &NoProgress).expect("can be checked");
        assert!(report.is_clean(), "the check found {:?}", report.problems);
    }

    /// Returns the number of distinct contents of all files, without zeros.
    fn distinct_letters(&self) -> u64 {
        let tree = crate::common::observe::seen(&self.pool).unwrap_or_else(|problem| panic!("{problem}"));
        crate::common::bench::count(&tree).1 as u64
    }
}
