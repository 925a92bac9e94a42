//! A pool on a recorded device, beside the reference, with every state that a crash may bring back.

use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_block::device::{CrashImage, MemoryDevice, MemoryImage, Recording, RecordingDevice};
use onefold_pool::{CreateOptions, Dedup, Durability, FileKind, Ino, OpenOptions, Pool, RenameMode, SetAttr};

use super::actions::{Habits, Pair};
use super::observe::{Tree, expected};
use super::reference::{ROOT, Reference};
use super::{Dice, environment, open, quiet, regular, text};

/// A workload under way.
pub struct Bench {
    pub pool: Option<Pool>,
    pub reference: Reference,
    pub dice: Dice,
    pub letters: u64,
    device: Arc<RecordingDevice>,
    options: OpenOptions,
    /// What can be seen after each operation.
    states: Vec<Tree>,
    /// Index of the state that was promised to be durable.
    promised: usize,
    story: Vec<String>,
}

/// What a workload leaves for its crash images to be judged by.
pub struct Recorded {
    pub recording: Recording,
    pub options: OpenOptions,
    states: Vec<Tree>,
}

/// A mark says which state was promised and which was the last to be finished.
fn mark(promised: usize, finished: usize) -> u64 {
    (promised as u64) << 32 | finished as u64
}

impl Bench {
    /// A new pool with the least journal on a device of so many blocks.
    pub fn new(device_blocks: u64, seed: u64) -> Bench {
        let least = CreateOptions { journal_bytes: Some(1 << 20), ..CreateOptions::default() };
        let memory = Arc::new(MemoryDevice::new(device_blocks));
        let device: Arc<dyn BlockDevice> = memory.clone();
        Pool::create(&device, &least, &environment()).expect("a pool is made");
        Bench::on(memory.image(), Reference::new(Dedup::On), quiet(), seed)
    }

    /// A pool that exists, and what is in it.
    pub fn on(image: MemoryImage, reference: Reference, options: OpenOptions, seed: u64) -> Bench {
        let device = Arc::new(RecordingDevice::new(image));
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

    /// Notes the state after an operation.
    pub fn done(&mut self) {
        self.states.push(expected(&self.reference));
        self.device.mark(mark(self.promised, self.states.len() - 1));
    }

    /// Notes that all that was done is durable.
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
        let attr = self.pool().create_file(Ino::ROOT, name.as_bytes(), &regular()).expect("is new");
        self.pool().release(attr.ino, 1);
        self.reference.create(ROOT, name.as_bytes(), &regular(), attr.ino.0);
        self.done();
        attr.ino.0
    }

    /// Writes random text.
    pub fn write(&mut self, ino: u64, offset: u64, length: usize, durability: Durability) {
        let bytes = text(&self.dice, length, self.letters);
        self.write_bytes(ino, offset, &bytes, durability);
    }

    pub fn write_bytes(&mut self, ino: u64, offset: u64, bytes: &[u8], durability: Durability) {
        self.pool().write(Ino(ino), offset, bytes, durability).expect("writes");
        self.reference.write(ino, offset, bytes).expect("a sound write");
        self.done();
        if durability == Durability::Now {
            self.promise();
        }
    }

    pub fn clone_file(&mut self, source: u64, name: &str) -> u64 {
        let target = self.create(name);
        self.pool().clone_file(Ino(source), Ino(target)).expect("clones");
        self.reference.clone_file(source, target).expect("a sound clone");
        self.done();
        target
    }

    pub fn truncate(&mut self, ino: u64, bytes: u64) {
        let change = SetAttr { size_bytes: Some(bytes), ..SetAttr::default() };
        self.pool().set_attr(Ino(ino), &change).expect("truncates");
        self.reference.truncate(ino, bytes).expect("a sound truncate");
        self.done();
    }

    pub fn unlink(&mut self, name: &str) {
        self.pool().unlink(Ino::ROOT, name.as_bytes()).expect("is there");
        self.reference.remove(ROOT, name.as_bytes(), false).expect("is there");
        self.reference.forget_orphans();
        self.done();
    }

    pub fn rename(&mut self, name: &str, new_name: &str, mode: RenameMode) {
        self.pool().rename(Ino::ROOT, name.as_bytes(), Ino::ROOT, new_name.as_bytes(), mode).expect("renames");
        self.reference.rename(ROOT, name.as_bytes(), ROOT, new_name.as_bytes(), mode).expect("renames");
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
    pub fn end(mut self) -> Recorded {
        self.commit();
        drop(self.pool.take());
        Recorded { recording: self.device.recording(), options: self.options, states: self.states }
    }

    /// The present content of the device.
    pub fn image(&self) -> MemoryImage {
        self.device.image()
    }
}

impl Recorded {
    /// The states that a crash image may show: from what was promised to what was under way.
    pub fn candidates(&self, image: &CrashImage) -> &[Tree] {
        let promised = image.last_mark().map_or(0, |mark| mark >> 32);
        let events = &self.recording.events()[image.cut..];
        let next_mark = events.iter().find_map(|event| match event {
            onefold_block::device::Event::Mark(mark) => Some(mark & 0xffff_ffff),
            _ => None,
        });
        let index = |number: u64| usize::try_from(number).expect("an index of a state");
        let last = next_mark.map_or(self.states.len() - 1, index);
        &self.states[index(promised)..=last]
    }

    /// The state that the workload ended with, and the numbers of its inodes.
    pub fn last_state(&self) -> &Tree {
        self.states.last().expect("there is always a first state")
    }
}

/// Numbers of inodes in a tree, each once, and its distinct blocks.
pub fn count(tree: &Tree) -> (usize, usize) {
    let inodes: std::collections::BTreeSet<u64> = tree.values().map(|view| view.ino).collect();
    let files = tree.values().filter(|view| view.kind == FileKind::Regular);
    let blocks: std::collections::BTreeSet<u64> =
        files.flat_map(|view| view.blocks.iter().map(|(_, digest)| *digest)).collect();
    (inodes.len(), blocks.len())
}
