//! Several threads at once, each with its own files, all with the same contents.
//!
//! The machine decides the order, so two recordings of one seed differ. What a crash must keep is recorded in a form
//! that is right for every schedule ([`Threads`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onefold_block::BlockDevice;
use onefold_pool::{AllocateMode, Dedup, Durability, FileKind, Ino, Pool, RenameMode, SetAttr, XattrMode};
use onefold_testing::device::{MemoryDevice, RecordingDevice};
use parking_lot::Mutex;

use super::{BLOCK, LEAF, SMALL};
use crate::common::bench::{WorkloadRecord, new_pool};
use crate::common::history::{Note, Threads};
use crate::common::observe::{Tree, expected};
use crate::common::reference::{ROOT, Reference};
use crate::common::{Dice, behind, new_file, open, quiet, regular, text, write_as_doors_do};

const THREADS: usize = 4;
/// Number of operations of each thread.
const OPERATIONS: u64 = 45;
/// Number of letters in the alphabet of contents: few, so that threads share, free and reuse the same blocks.
const LETTERS: u64 = 60;

/// Data common to the threads.
struct Stage {
    pool: Pool,
    device: Arc<RecordingDevice>,
    notes: Mutex<Vec<Note>>,
    /// Number of ended operations of each thread.
    ended: Vec<AtomicUsize>,
    working: AtomicUsize,
}

impl Stage {
    /// Records a note, and marks the place in the recording, with no other thread in between.
    fn note(&self, note: Note) {
        let mut notes = self.notes.lock();
        self.device.mark(notes.len() as u64);
        notes.push(note);
    }

    /// Runs an action that makes everything durable that has ended until now.
    fn promise(&self, make_durable: impl FnOnce(&Pool)) {
        let before = self.ended.iter().map(|ended| ended.load(Ordering::SeqCst)).collect();
        make_durable(&self.pool);
        self.note(Note::Promised(before));
    }
}

/// One thread's files, in its own directory.
struct Worker<'a> {
    stage: &'a Stage,
    number: usize,
    directory: u64,
    base: u64,
    reference: Reference,
    dice: Dice,
    states: Vec<Tree>,
}

fn owner(path: &str) -> Option<usize> {
    path.strip_prefix("/thread")?.split('/').next()?.parse().ok()
}

impl Worker<'_> {
    /// Does one operation and records the visible tree after it.
    fn step(&mut self, change: impl FnOnce(&Pool, &mut Reference)) {
        self.stage.note(Note::Began(self.number));
        change(&self.stage.pool, &mut self.reference);
        self.stage.ended[self.number].fetch_add(1, Ordering::SeqCst);
        self.stage.note(Note::Ended(self.number));
        self.states.push(own(&self.reference, self.number));
    }

    fn files(&self) -> Vec<(String, u64)> {
        let entries = &self.reference.node(self.directory).entries;
        entries.iter().map(|(name, ino)| (String::from_utf8_lossy(name).into_owned(), *ino)).collect()
    }

    fn create(&mut self, name: &str) -> u64 {
        let directory = self.directory;
        let mut made = 0;
        self.step(|pool, reference| {
            let attr = pool.create_file(Ino(directory), name.as_bytes(), &regular()).expect("is new");
            pool.release(attr.ino, 1);
            reference.create(directory, name.as_bytes(), &regular(), attr.ino.0);
            made = attr.ino.0;
        });
        made
    }

    fn write(&mut self, ino: u64, durability: Durability) {
        let offset = self.dice.below(600) * BLOCK + if self.dice.one_in(4) { 700 } else { 0 };
        let length = (1 + self.dice.index(20)) * 4096;
        let bytes = text(&self.dice, length, LETTERS);
        let before: Vec<usize> = self.stage.ended.iter().map(|ended| ended.load(Ordering::SeqCst)).collect();
        self.step(|pool, reference| {
            write_as_doors_do(pool, Ino(ino), offset, &bytes, durability).expect("writes");
            reference.write(ino, offset, &bytes).expect("a sound write");
        });
        if durability == Durability::Now {
            let mut durable = before;
            durable[self.number] += 1;
            self.stage.note(Note::Promised(durable));
        }
    }

    fn act(&mut self, round: u64) {
        let files = self.files();
        let Some((name, ino)) = (!files.is_empty()).then(|| self.dice.pick(&files).clone()) else {
            let ino = self.create(&format!("file{round}"));
            return self.write(ino, Durability::Later);
        };
        let directory = self.directory;
        match self.dice.below(16) {
            0 => {
                let ino = self.create(&format!("file{round}"));
                self.write(ino, Durability::Later);
            }
            1..3 => {
                let (source, target) = (self.base, self.create(&format!("clone{round}")));
                self.step(|pool, reference| {
                    pool.clone_file(Ino(source), Ino(target)).expect("clones");
                    reference.clone_file(source, target).expect("a sound clone");
                });
            }
            3 => {
                let bytes = self.dice.below(600 * BLOCK);
                self.step(|pool, reference| {
                    let change = SetAttr { size_bytes: Some(bytes), ..SetAttr::default() };
                    pool.set_attr(Ino(ino), &change).expect("truncates");
                    reference.truncate(ino, bytes).expect("a sound truncate");
                });
            }
            4 => {
                let (from, length) = (self.dice.below(500) * BLOCK, (1 + self.dice.below(200)) * BLOCK);
                self.step(|pool, reference| {
                    pool.allocate(Ino(ino), from, length, AllocateMode::PunchHole).expect("punches");
                    reference.node_mut(ino).zero(from, from + length);
                });
            }
            5 => {
                let target = self.dice.pick(&files).0.clone();
                self.step(|pool, reference| {
                    let (parent, mode) = (Ino(directory), RenameMode::Replace);
                    pool.rename(parent, name.as_bytes(), parent, target.as_bytes(), mode).expect("renames");
                    reference.rename(directory, name.as_bytes(), directory, target.as_bytes(), mode).expect("renames");
                    reference.forget_orphans();
                });
            }
            6 => self.step(|pool, reference| {
                pool.unlink(Ino(directory), name.as_bytes()).expect("is there");
                reference.remove(directory, name.as_bytes(), false).expect("is there");
                reference.forget_orphans();
            }),
            7 => self.step(|pool, reference| {
                let value = round.to_le_bytes();
                pool.set_xattr(Ino(ino), b"user.round", &value, XattrMode::Either).expect("sets");
                reference.node_mut(ino).xattrs.insert(b"user.round".to_vec(), value.to_vec());
            }),
            8..10 => self.stage.promise(|pool| pool.fsync(Ino(ino)).expect("syncs")),
            10 => self.write(ino, Durability::Now),
            _ => self.write(ino, Durability::Later),
        }
    }
}

/// Returns the part of a reference that belongs to a thread.
fn own(reference: &Reference, thread: usize) -> Tree {
    let mut tree: BTreeMap<_, _> = expected(reference);
    tree.retain(|path, _| owner(path) == Some(thread));
    tree
}

/// Returns a pool with a file that all threads clone, and a directory for each thread, with the numbers of their
/// inodes.
fn prepared(seed: u64) -> (MemoryDevice, Reference, u64, Vec<u64>) {
    let memory = Arc::new(MemoryDevice::from(new_pool(SMALL, 1 << 20)));
    let device: Arc<dyn BlockDevice> = memory.clone();
    let pool = open(&device, &quiet());
    let mut reference = Reference::new(Dedup::On);
    let mut make = |name: &str, kind: FileKind| {
        let attr = pool.create_file(Ino::ROOT, name.as_bytes(), &new_file(kind)).expect("is new");
        pool.release(attr.ino, 1);
        reference.create(ROOT, name.as_bytes(), &new_file(kind), attr.ino.0);
        attr.ino.0
    };
    let base = make("base", FileKind::Regular);
    let directories = (0..THREADS).map(|thread| make(&format!("thread{thread}"), FileKind::Directory)).collect();
    for offset in [0, LEAF * BLOCK] {
        let bytes = text(&Dice::new(seed), 80 * 4096, LETTERS);
        pool.write(Ino(base), offset, &bytes, Durability::Later).expect("writes");
        reference.write(base, offset, &bytes).expect("a sound write");
    }
    pool.close().expect("closes");
    (MemoryDevice::from(memory.image()), reference, base, directories)
}

/// Threads write, clone, cut, rename and remove their own files, beside commits, checkpoints and reclaim.
pub(super) fn threads(seed: u64) -> WorkloadRecord {
    let (memory, reference, base, directories) = prepared(seed);
    let device = Arc::new(RecordingDevice::new(memory.image()));
    let as_device: Arc<dyn BlockDevice> = device.clone();
    let mut options = behind();
    options.test_limits.lowest_first = seed.is_multiple_of(2);
    let stage = Stage {
        pool: open(&as_device, &options),
        device,
        notes: Mutex::new(Vec::new()),
        ended: (0..THREADS).map(|_| AtomicUsize::new(0)).collect(),
        working: AtomicUsize::new(THREADS),
    };
    let states = std::thread::scope(|scope| {
        let workers: Vec<_> = directories
            .iter()
            .enumerate()
            .map(|(number, &directory)| {
                let reference = reference.clone();
                let states = vec![own(&reference, number)];
                let dice = Dice::new(seed ^ ((number as u64 + 1) << 32));
                let mut worker = Worker { stage: &stage, number, directory, base, reference, dice, states };
                scope.spawn(move || {
                    for round in 0..OPERATIONS {
                        worker.act(round);
                    }
                    worker.stage.working.fetch_sub(1, Ordering::SeqCst);
                    worker.states
                })
            })
            .collect();
        scope.spawn(|| look_after(&stage, seed));
        for _ in 0..2 {
            scope.spawn(|| stage.pool.work());
        }
        let states = workers.into_iter().map(|worker| worker.join().expect("no thread panics")).collect();
        stage.pool.end_workers();
        states
    });
    stage.promise(|pool| pool.commit().expect("commits"));
    let Stage { pool, device, notes, .. } = stage;
    drop(pool);
    let history = Box::new(Threads { states, notes: notes.into_inner(), owner });
    WorkloadRecord { recording: device.recording(), options, history }
}

/// Reclaims, commits and checkpoints while other threads work.
fn look_after(stage: &Stage, seed: u64) {
    let dice = Dice::new(!seed);
    while stage.working.load(Ordering::SeqCst) > 0 {
        match dice.below(10) {
            0..4 => {
                stage.pool.reclaim().expect("reclaims");
            }
            4 => stage.promise(|pool| pool.commit().expect("commits")),
            5 if dice.one_in(3) => stage.pool.checkpoint().expect("checkpoints"),
            _ => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
}
