//! A workload with every kind of operation, done step by step beside the reference.

use std::sync::Arc;

use onefold_block::BlockDevice;
use onefold_pool::check::ScrubOptions;
use onefold_pool::{
    AllocateMode, CreateOptions, Dedup, Durability, FileKind, Ino, NoProgress, OpenOptions, Pool, PoolError, RangePair,
    RenameMode, Result, SetAttr, XattrMode,
};
use onefold_testing::device::{MemoryDevice, MemoryImage};

use crate::common::observe::{Tree, check_clean, check_sums, difference, expected, seen};
use crate::common::reference::{ROOT, Reference};
use crate::common::{Dice, environment, letters, new_file, open, quiet, regular, text};

pub(crate) const BLOCK: u64 = 4096;
/// Number of blocks of a new pool; the device has twice as many, so that it can grow.
const POOL_BLOCKS: u64 = 4096;

/// One operation of a workload. Files lie in the root.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Create(&'static str),
    MakeDirectory(&'static str),
    Write(&'static str, u64, usize, Durability),
    /// First block, and number of blocks that no other file has.
    Import(&'static str, u64, u64),
    /// Clones an existing file.
    Clone(&'static str, &'static str),
    /// Source and offset, target and offset, bytes.
    CloneRange(&'static str, u64, &'static str, u64, u64),
    Unlink(&'static str),
    Rename(&'static str, &'static str),
    Truncate(&'static str, u64),
    Allocate(&'static str, AllocateMode, u64, u64),
    SetXattr(&'static str, usize),
    RemoveXattr(&'static str),
    Commit,
    Checkpoint,
    Reclaim,
    Trim,
    Grow,
    Scrub,
    /// Closes the pool and opens it again.
    Reopen,
}

use Durability::{Later, Now};

/// Import, overwrites, clones, deletion and its reclaim, names, lengths, holes, reservations, attributes, and all
/// maintenance of a pool.
pub(crate) const WORKLOAD: &[Step] = &[
    Step::Create("a"),
    Step::Write("a", 0, 30 * 4096, Later),
    Step::Commit,
    Step::Create("b"),
    Step::Write("b", 508 * BLOCK, 25 * 4096 + 100, Now),
    Step::Create("c"),
    Step::Clone("b", "c"),
    Step::Write("c", 510 * BLOCK + 7, 9000, Later),
    Step::Write("a", 3 * BLOCK, 4096, Now),
    Step::Checkpoint,
    Step::MakeDirectory("directory"),
    Step::SetXattr("a", 200),
    Step::SetXattr("b", 9000),
    Step::Rename("a", "b"),
    Step::Grow,
    Step::Reclaim,
    Step::Commit,
    Step::Truncate("c", 509 * BLOCK + 1),
    Step::Allocate("b", AllocateMode::PunchHole, BLOCK + 9, 5 * BLOCK),
    Step::Allocate("b", AllocateMode::ZeroRange, 20 * BLOCK + 100, 40 * BLOCK),
    Step::Reclaim,
    Step::Trim,
    Step::Write("c", 0, 40 * 4096, Now),
    Step::Reopen,
    Step::Create("e"),
    Step::Allocate("e", AllocateMode::Extend, 0, 600 * BLOCK),
    Step::Write("e", 100 * BLOCK, 8192, Later),
    Step::Create("f"),
    Step::Clone("e", "f"),
    Step::CloneRange("c", 0, "f", 508 * BLOCK, 30 * BLOCK),
    Step::Write("e", 101 * BLOCK, 8192, Now),
    Step::Scrub,
    Step::RemoveXattr("b"),
    Step::Unlink("c"),
    Step::Unlink("e"),
    Step::Reclaim,
    Step::Reclaim,
    Step::Reclaim,
    Step::Checkpoint,
    Step::Trim,
    Step::Create("g"),
    Step::Write("g", 0, 4096, Now),
    Step::Reopen,
    Step::Write("g", 4096, 4096, Now),
];

/// A pool under a workload, with the states that it may return to.
pub(crate) struct Trial {
    device: Arc<dyn BlockDevice>,
    options: OpenOptions,
    /// `None` if it was closed and could not be opened again.
    pub(crate) pool: Option<Pool>,
    pub(crate) reference: Reference,
    pub(crate) states: Vec<Tree>,
    /// Index of the state that must exist after a crash, or a later one.
    pub(crate) promised: usize,
    /// Number of problems that scrubs have reported.
    pub(crate) scrub_problems: u64,
}

impl Trial {
    /// Opens a new pool.
    pub(crate) fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Trial> {
        Trial::on(device, options, Reference::new(Dedup::On))
    }

    /// Opens a pool with its content.
    pub(crate) fn on(device: Arc<dyn BlockDevice>, options: OpenOptions, reference: Reference) -> Result<Trial> {
        let pool = Pool::open(Arc::clone(&device), options.clone(), environment())?;
        let states = vec![expected(&reference)];
        Ok(Trial { device, options, pool: Some(pool), reference, states, promised: 0, scrub_problems: 0 })
    }

    pub(crate) fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("the pool is open")
    }

    fn ino(&self, name: &str) -> u64 {
        self.reference.node(ROOT).entries[name.as_bytes()]
    }

    /// Does a step; if it fails, the reference stays unchanged.
    pub(crate) fn step(&mut self, step: Step) -> Result<()> {
        if let Step::Reopen = step {
            self.reopen()?;
        } else {
            self.change(step)?;
        }
        self.reference.forget_orphans();
        self.states.push(expected(&self.reference));
        if matches!(step, Step::Commit | Step::Reopen | Step::Write(_, _, _, Now)) {
            self.promised = self.states.len() - 1;
        }
        Ok(())
    }

    fn reopen(&mut self) -> Result<()> {
        if let Some(pool) = self.pool.take() {
            if let Err(error) = pool.close() {
                self.pool = Some(pool);
                return Err(error);
            }
            self.promised = self.states.len() - 1;
        }
        self.pool = Some(Pool::open(Arc::clone(&self.device), self.options.clone(), environment())?);
        Ok(())
    }

    fn change(&mut self, step: Step) -> Result<()> {
        let pool = self.pool.as_ref().expect("the pool is open");
        let ino = |name| Ino(self.ino(name));
        match step {
            Step::Create(name) | Step::MakeDirectory(name) => {
                let is_file = matches!(step, Step::Create(_));
                let new = if is_file { regular() } else { new_file(FileKind::Directory) };
                let attr = pool.create_file(Ino::ROOT, name.as_bytes(), &new)?;
                pool.release(attr.ino, 1);
                self.reference.create(ROOT, name.as_bytes(), &new, attr.ino.0);
            }
            Step::Write(name, offset, length, durability) => {
                let ino = ino(name);
                return self.write(ino, offset, length, durability);
            }
            Step::Import(name, first, count) => {
                let bytes = letters(100_000 + first..100_000 + first + count);
                pool.write(ino(name), first * BLOCK, &bytes, Later)?;
                self.reference.write(ino(name).0, first * BLOCK, &bytes).expect("a sound write");
            }
            Step::Clone(source, target) => {
                let (source, target) = (ino(source), ino(target));
                pool.clone_file(source, target)?;
                self.reference.clone_file(source.0, target.0).expect("a sound clone");
            }
            Step::CloneRange(source, from, target, to, bytes) => {
                let (source, target) = (ino(source), ino(target));
                let ranges = RangePair { source, source_offset: from, target, target_offset: to, bytes };
                assert_eq!(pool.clone_range(ranges)?, bytes);
                self.reference.copy(source.0, from, target.0, to, bytes);
            }
            Step::Unlink(name) => {
                pool.unlink(Ino::ROOT, name.as_bytes())?;
                self.reference.remove(ROOT, name.as_bytes(), false).expect("is there");
            }
            Step::Rename(name, new_name) => {
                let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
                pool.rename(Ino::ROOT, name, Ino::ROOT, new_name, RenameMode::Replace)?;
                self.reference.rename(ROOT, name, ROOT, new_name, RenameMode::Replace).expect("is there");
            }
            Step::Truncate(name, bytes) => {
                let ino = ino(name);
                pool.set_attr(ino, &SetAttr { size_bytes: Some(bytes), ..SetAttr::default() })?;
                self.reference.truncate(ino.0, bytes).expect("a sound length");
            }
            Step::Allocate(name, mode, offset, bytes) => {
                let ino = ino(name);
                return self.allocate(ino, mode, offset, bytes);
            }
            Step::SetXattr(name, length) => {
                let ino = ino(name);
                let value = vec![b'v'; length];
                pool.set_xattr(ino, b"user.note", &value, XattrMode::Either)?;
                self.reference.node_mut(ino.0).xattrs.insert(b"user.note".to_vec(), value);
            }
            Step::RemoveXattr(name) => {
                let ino = ino(name);
                pool.remove_xattr(ino, b"user.note")?;
                self.reference.node_mut(ino.0).xattrs.remove(&b"user.note"[..]);
            }
            Step::Commit => pool.commit()?,
            Step::Checkpoint => pool.checkpoint()?,
            Step::Reclaim => {
                pool.reclaim()?;
            }
            Step::Trim => {
                pool.trim(&NoProgress)?;
            }
            Step::Grow => {
                pool.grow()?;
            }
            Step::Scrub => self.scrub_problems += pool.scrub(&ScrubOptions::default(), &NoProgress)?.problems_total,
            Step::Reopen => unreachable!("is done elsewhere"),
        }
        Ok(())
    }

    fn write(&mut self, ino: Ino, offset: u64, length: usize, durability: Durability) -> Result<()> {
        let pool = self.pool.as_ref().expect("the pool is open");
        let bytes = text(&Dice::new(offset + length as u64), length, 30);
        let result = pool.write(ino, offset, &bytes, durability);
        let mut reference = self.reference.clone();
        reference.write(ino.0, offset, &bytes).expect("a sound write");
        if result.is_err() && durability == Now {
            // It may have happened, with only its commit failing.
            self.states.push(expected(&reference));
        }
        result?;
        self.reference = reference;
        Ok(())
    }

    fn allocate(&mut self, ino: Ino, mode: AllocateMode, offset: u64, bytes: u64) -> Result<()> {
        self.pool.as_ref().expect("the pool is open").allocate(ino, offset, bytes, mode)?;
        let node = self.reference.node_mut(ino.0);
        if mode != AllocateMode::Extend && mode != AllocateMode::KeepSize {
            node.zero(offset, offset + bytes);
        }
        if matches!(mode, AllocateMode::Extend | AllocateMode::ZeroRange) {
            node.size = node.size.max(offset + bytes);
        }
        Ok(())
    }

    /// Runs a workload up to a failed step, which it returns. If `goes_on` says so, the failed step must have changed
    /// nothing, and is repeated after `mend`.
    pub(crate) fn run(
        &mut self,
        workload: &[Step],
        goes_on: impl Fn(&PoolError) -> bool,
        mend: impl Fn(),
    ) -> Option<(Step, PoolError)> {
        for &step in workload {
            let before = self.states.len() - 1;
            let Err(error) = self.step(step) else { continue };
            if !goes_on(&error) {
                return Some((step, error));
            }
            mend();
            if self.pool.is_some() {
                let tree = seen(self.pool()).expect("reads");
                let was = self.states[before..].iter().any(|state| difference(&tree, state).is_none());
                assert!(was, "{step:?} failed with `{error}` and left {:?}", difference(&tree, &self.states[before]));
                check_sums(self.pool()).expect("adds up");
            }
            self.step(step).unwrap_or_else(|error| panic!("{step:?} failed again: {error}"));
        }
        None
    }
}

/// Returns an empty pool on a device with room for growth.
pub(crate) fn new_pool() -> MemoryImage {
    let memory = Arc::new(MemoryDevice::new(POOL_BLOCKS));
    let device: Arc<dyn BlockDevice> = memory.clone();
    let options = CreateOptions { journal_bytes: Some(1 << 20), ..CreateOptions::default() };
    Pool::create(&device, &options, &environment()).expect("a pool is made");
    memory.resize(2 * POOL_BLOCKS);
    memory.image()
}

/// Checks that a device reopens soundly and shows one of the states.
pub(crate) fn reopens_to(image: MemoryImage, states: &[Tree]) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from(image));
    check_clean(&*device).expect("clean before recovery");
    let pool = open(&device, &quiet());
    let tree = seen(&pool).expect("reads");
    let nearest: Vec<_> = states.iter().filter_map(|state| difference(&tree, state)).collect();
    assert!(nearest.len() < states.len(), "none of {} states: {nearest:?}", states.len());
    check_sums(&pool).expect("adds up");
    while pool.reclaim().expect("reclaims") {}
    pool.close().expect("closes");
    check_clean(&*device).expect("clean after a close");
}
