//! Scrub: reads all stored data while the pool is in use, and compares it with its fingerprints.
//!
//! Blocks are pinned while they are read: one that is freed meanwhile is not handed out again before, so what is read
//! is what its entry describes. A block that does not match is believed damaged only if its entry is still the same.
//! Files are named by a second walk, and only if something is wrong.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::time::Duration;

use onefold_block::block::BLOCK_BYTES_U64;
use onefold_block::{AlignedBuffer, BlockNo, Timestamp};

use super::Pool;
use crate::attr::{FileKind, Ino};
use crate::check::data::{self, Described, mismatches};
use crate::check::findings::{FILES_MAX, PROBLEMS_MAX};
use crate::check::{CheckReport, Problem, ScrubOptions};
use crate::engine::Engine;
use crate::error::{PoolError, Result};
use crate::format::geometry::{ENTRIES_PER_STORE_PAGE, STORE_PAGES_PER_GROUP};
use crate::format::header::BlockKind;
use crate::format::inode::Inode;
use crate::format::items::{self, DirItem, ItemKind};
use crate::format::map_node::MapEntry;
use crate::format::state::Field;
use crate::format::store_page::{self, BlockUse};
use crate::map::seek::Sought;
use crate::meta::op::damaged;
use crate::names::inodes::blocks_spanned;
use crate::progress::Progress;
use crate::tree::{self, Key};

/// Longest sleep before the caller is asked again whether to go on.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Items of the names tree that are looked at under one hold of the metadata lock.
const ITEMS_PER_STEP: usize = 256;
/// Blocks of a file whose map is read under one hold of the metadata lock.
const MAP_BLOCKS_PER_STEP: u64 = 508 * 8;
/// Directories that a path goes through at most.
const DEPTH_MAX: usize = 1000;

/// Where files lie: directory and name.
type Names = HashMap<Ino, (Ino, Vec<u8>)>;

/// Pins given back when dropped.
struct Pinned<'e> {
    engine: &'e Engine,
    blocks: Vec<Described>,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        let mut meta = self.engine.meta();
        for described in &self.blocks {
            meta.in_flight.unpin(described.block);
        }
    }
}

/// Keeps reading below a rate.
struct Pace<'p> {
    bytes_per_second: Option<u64>,
    started: Timestamp,
    bytes_done: u64,
    progress: &'p dyn Progress,
}

impl Pool {
    /// Reads every stored block and compares it with its fingerprint; the files that damaged blocks hit are named. What
    /// is written while it runs may be left out: it is as new as can be.
    ///
    /// # Errors
    /// Damage of fingerprint stores or file maps; [`PoolError::Invalid`] for a rate of 0. A block that cannot be read is
    /// a problem in the report.
    pub fn scrub(&self, options: &ScrubOptions, progress: &dyn Progress) -> Result<CheckReport> {
        if options.bytes_per_second == Some(0) {
            return Err(PoolError::Invalid("a scrub that reads nothing in a second never ends"));
        }
        let engine = &*self.engine;
        let geometry = engine.meta().geometry;
        let pages = engine.meta().state(Field::GroupsReady) * STORE_PAGES_PER_GROUP;
        let started = engine.environment.clock.now();
        let mut pace = Pace { bytes_per_second: options.bytes_per_second, started, bytes_done: 0, progress };
        let mut report = CheckReport::default();
        let total = pages * ENTRIES_PER_STORE_PAGE;
        for page_no in 0..pages {
            let pinned = pin(engine, page_no)?;
            report.data_blocks_hashed += pinned.blocks.len() as u64;
            for problem in read_and_compare(engine, &pinned)? {
                report.problems_total += 1;
                if report.problems.len() < PROBLEMS_MAX {
                    report.problems.push(problem);
                }
            }
            let bytes = pinned.blocks.len() as u64 * BLOCK_BYTES_U64;
            drop(pinned);
            let done = (page_no + 1) * ENTRIES_PER_STORE_PAGE;
            if progress.update(done, total).is_break() || pace.wait(engine, bytes, done, total).is_break() {
                report.stopped = true;
                break;
            }
        }
        report.blocks_checked = report.data_blocks_hashed.min(geometry.total_blocks);
        name_files(engine, &mut report)?;
        Ok(report)
    }
}

/// Pins the data blocks that a store page describes.
fn pin(engine: &Engine, page_no: u64) -> Result<Pinned<'_>> {
    let blocks = engine.view(|op| {
        let geometry = op.meta.geometry;
        let (at, first) = geometry.store_page_by_no(page_no);
        let page = op.block(at, BlockKind::StorePage)?;
        let mut found = Vec::new();
        for index in 0..ENTRIES_PER_STORE_PAGE {
            let entry = store_page::entry(page, usize::try_from(index).expect("below 170"))
                .ok_or_else(|| damaged(BlockKind::StorePage.name(), at, "an entry makes no sense"))?;
            let block = first.plus(index);
            if entry.usage == BlockUse::Data && geometry.is_allocatable(block) {
                found.push(Described { block, fingerprint: entry.fingerprint, domain: entry.domain });
            }
        }
        // The last step of the look: it cannot be tried again after this.
        for described in &found {
            op.meta.in_flight.pin(described.block);
        }
        Ok(found)
    })?;
    Ok(Pinned { engine, blocks })
}

fn read_and_compare(engine: &Engine, pinned: &Pinned<'_>) -> Result<Vec<Problem>> {
    let described = &pinned.blocks;
    if described.is_empty() {
        return Ok(Vec::new());
    }
    let mut buffer = AlignedBuffer::zeroed(described.len());
    let blocks: Vec<BlockNo> = described.iter().map(|one| one.block).collect();
    // From the device, not from any cache: what is there is the question.
    let unread = data::read(&*engine.device, &blocks, &mut buffer);
    let mut problems = Vec::new();
    for block in mismatches(|domain| engine.key(domain), described, &buffer) {
        let Some(expected) = described.iter().find(|one| one.block == block) else { continue };
        let entry = engine.view(|op| op.entry(block))?;
        if entry.usage != BlockUse::Data || entry.fingerprint != expected.fingerprint {
            continue;
        }
        let what = match unread.iter().find(|(unread, _)| *unread == block) {
            Some((_, error)) => format!("the block cannot be read: {error}"),
            None => "the content is not what was written: it does not match its fingerprint".to_owned(),
        };
        problems.push(Problem { structure: "data", block: Some(block), files: Vec::new(), what });
    }
    Ok(problems)
}

impl Pace<'_> {
    /// Waits until `bytes` more may have been read.
    fn wait(&mut self, engine: &Engine, bytes: u64, done: u64, total: u64) -> ControlFlow<()> {
        let Some(rate) = self.bytes_per_second else { return ControlFlow::Continue(()) };
        self.bytes_done += bytes;
        // No more than this step's share: a clock that was set back must not stop a scrub.
        let mut left = Duration::from_secs_f64(bytes as f64 / rate as f64);
        while !left.is_zero() {
            let due = Duration::from_secs_f64(self.bytes_done as f64 / rate as f64);
            let early = due.saturating_sub(elapsed(self.started, engine.environment.clock.now()));
            let nap = early.min(left).min(SLEEP_MAX);
            if nap.is_zero() {
                break;
            }
            std::thread::sleep(nap);
            left = left.saturating_sub(nap);
            self.progress.update(done, total)?;
        }
        ControlFlow::Continue(())
    }
}

fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    let since_1970 = |time: Timestamp| Duration::new(u64::try_from(time.seconds).unwrap_or(0), time.nanoseconds);
    since_1970(to).saturating_sub(since_1970(from))
}

/// Adds the paths of all files that map a damaged block.
fn name_files(engine: &Engine, report: &mut CheckReport) -> Result<()> {
    let damaged: HashMap<BlockNo, usize> =
        report.problems.iter().enumerate().filter_map(|(at, problem)| Some((problem.block?, at))).collect();
    if damaged.is_empty() {
        return Ok(());
    }
    let mut hit: Vec<(usize, Ino)> = Vec::new();
    each_item(
        engine,
        &mut |key, value| {
            let inode = Inode::decode(Ino(key.ino), value).filter(|_| items::item_kind(&key) == Some(ItemKind::Inode));
            inode.filter(|inode| inode.attr.kind == FileKind::Regular).map(|inode| inode.attr.ino)
        },
        |ino| {
            hit.extend(problems_of(engine, ino, &damaged)?.into_iter().map(|at| (at, ino)));
            Ok(())
        },
    )?;
    let wanted: HashSet<Ino> = hit.iter().map(|(_, ino)| *ino).collect();
    let mut names: Names = HashMap::new();
    each_item(
        engine,
        &mut |key, value| {
            let item = DirItem::decode(value).filter(|_| items::item_kind(&key) == Some(ItemKind::DirEntry))?;
            // Any directory may be on the way to a file.
            let is_wanted = item.kind == FileKind::Directory || wanted.contains(&item.ino);
            is_wanted.then_some((item.ino, Ino(key.ino), item.name))
        },
        |(ino, parent, name)| {
            names.insert(ino, (parent, name));
            Ok(())
        },
    )?;
    for (at, ino) in hit {
        let files = &mut report.problems[at].files;
        if files.len() < FILES_MAX {
            files.push(path(ino, &names));
        }
    }
    Ok(())
}

/// Shows `pick` all items of inodes, some under each hold of the metadata lock, and gives `take` what it picks, with no
/// lock held.
fn each_item<T>(
    engine: &Engine,
    pick: &mut dyn FnMut(Key, &[u8]) -> Option<T>,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut next = Key { ino: 1, kind: 0, sub: 0 };
    loop {
        let (picked, last) = engine.view(|op| {
            let root = op.tree_root();
            let (mut picked, mut last, mut count) = (Vec::new(), None, 0);
            let end = tree::scan(op, root, next.., |key, value| {
                picked.extend(pick(key, value));
                last = Some(key);
                count += 1;
                if count == ITEMS_PER_STEP { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            Ok((picked, last.filter(|_| end.is_break())))
        })?;
        for one in picked {
            take(one)?;
        }
        match last {
            Some(key) => next = Key { sub: key.sub.saturating_add(1), ..key },
            None => return Ok(()),
        }
    }
}

/// Returns the problems that hit a file.
fn problems_of(engine: &Engine, ino: Ino, damaged: &HashMap<BlockNo, usize>) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let step = engine.view(|op| {
            // Gone since it was listed: nothing of it is hit any more.
            let Ok(inode) = op.inode(ino) else { return op.settle().map(|()| None) };
            let end = blocks_spanned(inode.attr.size_bytes);
            if at >= end || inode.mapped == 0 {
                return Ok(None);
            }
            // A file of terabytes may be one hole: it is not walked block by block.
            let (Sought::Found(from) | Sought::GoOn(from)) = op.map_seek(&inode, at, end, true)?;
            let mut entries = vec![MapEntry::Hole; usize::try_from((end - from).min(MAP_BLOCKS_PER_STEP)).unwrap_or(0)];
            op.map_read(&inode, from, &mut entries)?;
            Ok(Some((from, entries)))
        })?;
        let Some((from, entries)) = step else { break };
        at = from + entries.len() as u64;
        for entry in entries {
            if let MapEntry::Block(block) = entry {
                found.extend(damaged.get(&block));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn path(ino: Ino, names: &Names) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut at = ino;
    while at != Ino::ROOT && parts.len() < DEPTH_MAX {
        let Some((parent, name)) = names.get(&at) else {
            parts.push(format!("inode {at}"));
            parts.reverse();
            return parts.join("/");
        };
        parts.push(String::from_utf8_lossy(name).into_owned());
        at = *parent;
    }
    parts.push(String::new());
    parts.reverse();
    parts.join("/")
}
