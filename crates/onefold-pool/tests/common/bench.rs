//! A pool on a recorded device, beside the reference, with every state that a crash may restore.

use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_pool::{
    AllocateMode, CreateOptions, Dedup, Durability, FileKind, Ino, NewFile, OpenOptions, Pool, RangePair,
};
use onefold_pool::{PoolError, RenameMode, SetAttr, ShareOutcome, XattrMode};
use onefold_testing::device::{MemoryDevice, MemoryImage, Recording, RecordingDevice};

use super::actions::{Habits, Pair};
use super::history::{History, Steps, mark};
use super::observe::{Tree, expected};
use super::reference::{ROOT, Reference};
use super::{Dice, behind, environment, open, regular, text, write_as_doors_do};

/// A workload in progress.
pub struct Bench {
    pub pool: Option<Pool>,
    pub reference: Reference,
    pub dice: Dice,
    pub letters: u64,
    device: Arc<RecordingDevice>,
    options: OpenOptions,
    /// The visible tree after each operation.
    states: Vec<Tree>,
    /// Index of the state that was promised to be durable.
    promised: usize,
    story: Vec<String>,
}

/// The results of a workload by which its crash images are judged.
pub struct WorkloadRecord {
    pub recording: Recording,
    pub options: OpenOptions,
    pub history: Box<dyn History>,
}

impl Bench {
    /// Returns a new pool with the smallest journal on a device of `device_blocks` blocks.
    pub fn new(device_blocks: u64, seed: u64) -> Bench {
        Bench::on(new_pool(device_blocks, 1 << 20), Reference::new(Dedup::On), behind(), seed)
    }

    /// Returns an existing pool with its content.
    pub fn on(image: MemoryImage, reference: Reference, options: OpenOptions, seed: u64) -> Bench {
        let blocks = image.block_count();
        Bench::showing(image, blocks, reference, options, seed)
    }

    /// The same on a device that shows only some of its blocks until it grows.
    pub fn showing(
        image: MemoryImage,
        device_blocks: u64,
        reference: Reference,
        mut options: OpenOptions,
        seed: u64,
    ) -> Bench {
        // With every second seed, a freed block is the first to be reused.
        options.test_limits.lowest_first |= seed.is_multiple_of(2);
        // With the other seeds, each opening leaves its mark, and its trace in the journal's header.
        options.host = (!seed.is_multiple_of(2)).then_some([1; 16]);
        let device = Arc::new(RecordingDevice::new(image));
        device.show(device_blocks);
        let states = vec![expected(&reference)];
        device.mark(mark(0, 0));
        let mut bench = Bench {
            pool: None,
            reference,
            dice: Dice::new(seed),
            letters: 40,
            device,
            options,
            states,
            promised: 0,
            story: Vec::new(),
        };
        bench.open();
        bench
    }

    fn open(&mut self) {
        let device: Arc<dyn BlockDevice> = self.device.clone();
        self.pool = Some(open(&device, &self.options));
    }

    pub fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("open during a workload")
    }

    /// Records the state after an operation.
    pub fn done(&mut self) {
        self.states.push(expected(&self.reference));
        self.device.mark(mark(self.promised, self.states.len() - 1));
    }

    /// Records that everything done so far is durable.
    pub fn promise(&mut self) {
        self.promised = self.states.len() - 1;
        self.device.mark(mark(self.promised, self.promised));
    }

    pub fn commit(&mut self) {
        self.pool().commit().expect("commits");
        self.promise();
    }

    pub fn checkpoint(&mut self) {
        self.pool().checkpoint().expect("checkpoints");
    }

    /// Does some steps of reclaim.
    pub fn reclaim(&mut self, steps: u64) {
        for _ in 0..steps {
            self.pool().reclaim().expect("reclaims");
        }
    }

    /// Closes the pool, or commits and cuts the power, and opens it again.
    pub fn reopen(&mut self, close: bool) {
        let pool = self.pool.take().expect("open during a workload");
        if close {
            pool.close().expect("closes")
        } else {
            pool.commit().expect("commits")
        }
        drop(pool);
        self.promise();
        self.reference.drop_holds();
        self.open();
    }

    /// Makes a regular file in the root.
    pub fn create(&mut self, name: &str) -> u64 {
        self.create_in(ROOT, name, &regular())
    }

    /// Makes any kind of inode except a symbolic link, anywhere. Takes mode and attributes from the pool: the test is
    /// whether a crash keeps them.
    pub fn create_in(&mut self, parent: u64, name: &str, new: &NewFile) -> u64 {
        let attr = self.pool().create_file(Ino(parent), name.as_bytes(), new).expect("is new");
        self.pool().release(attr.ino, 1);
        self.reference.create(parent, name.as_bytes(), new, attr.ino.0);
        self.adopt(attr.ino.0);
        self.done();
        attr.ino.0
    }

    /// Takes the mode and the attributes that the pool reports for a file.
    fn adopt(&mut self, ino: u64) {
        let pool = self.pool();
        let mode = pool.attr(Ino(ino)).expect("exists").mode;
        let names = pool.xattr_names(Ino(ino)).expect("lists");
        let value = |name: Vec<u8>| (pool.xattr(Ino(ino), &name).expect("is listed"), name);
        let xattrs = names.into_iter().map(value).map(|(value, name)| (name, value)).collect();
        let node = self.reference.node_mut(ino);
        (node.mode, node.xattrs) = (mode, xattrs);
    }

    /// Sets an extended attribute, or an ACL, which may change the mode.
    pub fn set_xattr(&mut self, ino: u64, name: &[u8], value: &[u8]) {
        self.pool().set_xattr(Ino(ino), name, value, XattrMode::Either).expect("sets");
        self.adopt(ino);
        let kept = self.reference.node(ino).xattrs.get(name);
        assert!(kept.is_some_and(|kept| kept.len() == value.len()), "the attribute is there");
        self.done();
    }

    pub fn remove_xattr(&mut self, ino: u64, name: &[u8]) {
        self.pool().remove_xattr(Ino(ino), name).expect("is there");
        self.adopt(ino);
        assert!(!self.reference.node(ino).xattrs.contains_key(name), "the attribute is gone");
        self.done();
    }

    /// Sets the mode, which an ACL follows.
    pub fn set_mode(&mut self, ino: u64, mode: u16) {
        let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.pool().set_attr(Ino(ino), &change).expect("exists");
        self.adopt(ino);
        assert_eq!(self.reference.node(ino).mode, mode);
        self.done();
    }

    /// Writes random text.
    pub fn write(&mut self, ino: u64, offset: u64, length: usize, durability: Durability) {
        let bytes = text(&self.dice, length, self.letters);
        self.write_bytes(ino, offset, &bytes, durability);
    }

    pub fn write_bytes(&mut self, ino: u64, offset: u64, bytes: &[u8], durability: Durability) {
        write_as_doors_do(self.pool(), Ino(ino), offset, bytes, durability).expect("writes");
        self.reference.write(ino, offset, bytes).expect("a sound write");
        self.done();
        if durability == Durability::Now {
            self.promise();
        }
    }

    /// Writes random text if there is room. Returns whether there was; otherwise nothing has changed.
    pub fn try_write(&mut self, ino: u64, offset: u64, length: usize) -> bool {
        let bytes = text(&self.dice, length, self.letters);
        match write_as_doors_do(self.pool(), Ino(ino), offset, &bytes, Durability::Later) {
            Ok(()) => {
                self.reference.write(ino, offset, &bytes).expect("a sound write");
                self.done();
                true
            }
            Err(PoolError::NoSpace) => false,
            Err(error) => panic!("writes: {error}"),
        }
    }

    /// Makes all changes durable by an fsync of one file.
    pub fn fsync(&mut self, ino: u64) {
        self.pool().fsync(Ino(ino)).expect("syncs");
        self.promise();
    }

    /// Makes the device show more blocks, and grows the pool.
    pub fn grow(&mut self, device_blocks: u64) {
        self.device.show(device_blocks);
        let bytes = self.pool().grow().expect("grows");
        assert_eq!(bytes, device_blocks * 4096);
        self.done();
    }

    /// Punches a hole of whole blocks.
    pub fn punch(&mut self, ino: u64, offset: u64, length: u64) {
        self.pool().allocate(Ino(ino), offset, length, AllocateMode::PunchHole).expect("punches");
        self.reference.node_mut(ino).zero(offset, offset + length);
        self.done();
    }

    /// Reserves space for blocks, which does not change the visible tree.
    pub fn reserve(&mut self, ino: u64, offset: u64, length: u64) {
        self.pool().allocate(Ino(ino), offset, length, AllocateMode::KeepSize).expect("there is room");
    }

    pub fn clone_file(&mut self, source: u64, name: &str) -> u64 {
        let target = self.create(name);
        self.pool().clone_file(Ino(source), Ino(target)).expect("clones");
        self.reference.clone_file(source, target).expect("a sound clone");
        self.done();
        target
    }

    /// Shares equal blocks, which does not change the visible tree.
    pub fn share(&mut self, source: (u64, u64), target: (u64, u64), blocks: u64) {
        let (source, source_offset) = (Ino(source.0), source.1 * 4096);
        let (target, target_offset) = (Ino(target.0), target.1 * 4096);
        let ranges = RangePair { source, source_offset, target, target_offset, bytes: blocks * 4096 };
        let outcome = self.pool().share_range(ranges).expect("shares");
        assert_eq!(outcome, ShareOutcome::Shared);
        self.done();
    }

    pub fn truncate(&mut self, ino: u64, bytes: u64) {
        let change = SetAttr { size_bytes: Some(bytes), ..SetAttr::default() };
        self.pool().set_attr(Ino(ino), &change).expect("truncates");
        self.reference.truncate(ino, bytes).expect("a sound truncate");
        self.done();
    }

    pub fn unlink(&mut self, name: &str) {
        self.unlink_from(ROOT, name);
    }

    pub fn unlink_from(&mut self, parent: u64, name: &str) {
        self.pool().unlink(Ino(parent), name.as_bytes()).expect("is there");
        self.reference.remove(parent, name.as_bytes(), false).expect("is there");
        self.reference.forget_orphans();
        self.done();
    }

    pub fn rename(&mut self, name: &str, new_name: &str, mode: RenameMode) {
        self.rename_between((ROOT, name), (ROOT, new_name), mode);
    }

    /// Renames from one directory to another.
    pub fn rename_between(&mut self, (from, name): (u64, &str), (to, new_name): (u64, &str), mode: RenameMode) {
        self.pool().rename(Ino(from), name.as_bytes(), Ino(to), new_name.as_bytes(), mode).expect("renames");
        self.reference.rename(from, name.as_bytes(), to, new_name.as_bytes(), mode).expect("renames");
        self.reference.forget_orphans();
        self.done();
    }

    /// Does one random action of the model tests.
    pub fn act(&mut self, habits: &Habits) {
        let pool = self.pool.take().expect("open during a workload");
        let states = &mut self.states;
        let mut pair = Pair {
            pool: &pool,
            reference: &mut self.reference,
            dice: &self.dice,
            habits,
            story: &mut self.story,
            between: &mut |reference| states.push(expected(reference)),
            promised: false,
        };
        pair.act();
        let durable = pair.promised;
        self.pool = Some(pool);
        self.done();
        if durable {
            self.promise();
        }
    }

    /// Ends the workload with a commit, without closing the pool.
    pub fn end(mut self) -> WorkloadRecord {
        self.commit();
        drop(self.pool.take());
        let history = Box::new(Steps { states: self.states });
        WorkloadRecord { recording: self.device.recording(), options: self.options, history }
    }
}

/// Returns the content of a device with a new pool.
pub fn new_pool(device_blocks: u64, journal_bytes: u64) -> MemoryImage {
    let options = CreateOptions { journal_bytes: Some(journal_bytes), ..CreateOptions::default() };
    let memory = Arc::new(MemoryDevice::new(device_blocks));
    let device: Arc<dyn BlockDevice> = memory.clone();
    Pool::create(&device, &options, &environment()).expect("a pool is made");
    memory.image()
}

/// Returns the number of inodes in a tree, each once, and of its distinct blocks.
pub fn count(tree: &Tree) -> (usize, usize) {
    let inodes: std::collections::BTreeSet<u64> = tree.values().map(|view| view.ino).collect();
    let files = tree.values().filter(|view| view.kind == FileKind::Regular);
    let blocks: std::collections::BTreeSet<u64> =
        files.flat_map(|view| view.blocks.iter().map(|(_, digest)| *digest)).collect();
    (inodes.len(), blocks.len())
}
