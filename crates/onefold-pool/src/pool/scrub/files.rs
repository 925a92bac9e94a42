//! Finds the files that the problems of a scrub affect: a second walk, over names and maps, while the pool is in use.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use onefold_block::BlockNo;

use crate::attr::{FileKind, Ino};
use crate::check::findings::{FILES_MAX, PROBLEMS_MAX};
use crate::check::{CheckProblem, CheckReport};
use crate::engine::Engine;
use crate::error::{PoolError, Result};
use crate::format::inode::Inode;
use crate::format::items::{self, DirItem, ItemKind};
use crate::format::map_node::MapEntry;
use crate::map::seek::SeekStep;
use crate::names::inodes::blocks_spanned;
use crate::tree::{self, Key};

/// Number of items of the names tree that are read under one hold of the metadata lock.
const ITEMS_PER_STEP: usize = 256;
/// Number of blocks of a file whose map is read under one hold of the metadata lock.
const MAP_BLOCKS_PER_STEP: u64 = 508 * 8;
/// Maximum number of directories in a path.
const DEPTH_MAX: usize = 1000;

/// A name: directory, and the last part of the path.
type EntryPath = (Ino, Vec<u8>);

/// Adds the paths of all files that map a block with a problem. Structures that cannot be read become problems, too.
///
/// # Errors
/// Device errors.
pub(super) fn name_files(engine: &Engine, report: &mut CheckReport) -> Result<()> {
    let mut blocks: HashMap<BlockNo, Vec<usize>> = HashMap::new();
    for (at, problem) in report.problems.iter().enumerate() {
        if let Some(block) = problem.block {
            blocks.entry(block).or_default().push(at);
        }
    }
    if blocks.is_empty() {
        return Ok(());
    }
    let mut hit: BTreeMap<Ino, BTreeSet<usize>> = BTreeMap::new();
    let inodes = each_item(
        engine,
        &mut |key, value| {
            let inode = Inode::decode(Ino(key.ino), value).filter(|_| items::item_kind(&key) == Some(ItemKind::Inode));
            inode.filter(|inode| inode.attr.kind == FileKind::Regular).map(|inode| inode.attr.ino)
        },
        |ino| {
            match problems_of(engine, ino, &blocks) {
                Ok(problems) if problems.is_empty() => {}
                Ok(problems) => hit.entry(ino).or_default().extend(problems),
                Err(error) => {
                    let at = add(report, error)?;
                    hit.entry(ino).or_default().extend(at);
                }
            }
            Ok(())
        },
    );
    let mut names: BTreeMap<Ino, Vec<EntryPath>> = BTreeMap::new();
    let entries = each_item(
        engine,
        &mut |key, value| {
            let item = DirItem::decode(value).filter(|_| items::item_kind(&key) == Some(ItemKind::DirEntry))?;
            hit.contains_key(&item.ino).then_some((item.ino, (Ino(key.ino), item.name)))
        },
        |(ino, name)| {
            let of_file = names.entry(ino).or_default();
            if of_file.len() < FILES_MAX {
                of_file.push(name);
            }
            Ok(())
        },
    );
    for result in [inodes, entries] {
        if let Err(error) = result {
            add(report, error)?;
        }
    }
    for (ino, problems) in &hit {
        let paths: Vec<String> = match names.get(ino) {
            Some(names) => names.iter().map(|name| path(engine, name)).collect(),
            None => vec![format!("inode {ino}")],
        };
        for &at in problems {
            let files = &mut report.problems[at].files;
            files.extend(paths.iter().take(FILES_MAX - files.len().min(FILES_MAX)).cloned());
        }
    }
    Ok(())
}

/// Adds newly met damage to the report, once; returns its place if it is new and there was room.
///
/// # Errors
/// `error` itself if it is not damage.
pub(super) fn add(report: &mut CheckReport, error: PoolError) -> Result<Option<usize>> {
    let (structure, block, what) = match error {
        PoolError::Damaged { structure, block, what } => (structure, block, what),
        PoolError::Io { action: "read", block, source } => ("metadata", block, format!("cannot be read: {source}")),
        error => return Err(error),
    };
    let is_known = |problem: &CheckProblem| problem.structure == structure && problem.block == Some(block);
    if report.problems.iter().any(is_known) {
        return Ok(None);
    }
    report.problems_total += 1;
    if report.problems.len() >= PROBLEMS_MAX {
        return Ok(None);
    }
    report.problems.push(CheckProblem::new(structure, Some(block), what));
    Ok(Some(report.problems.len() - 1))
}

/// Passes all items of inodes to `pick`, some under each hold of the metadata lock, and passes each result of it to
/// `take`, with no lock held.
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
        match last.and_then(Key::successor) {
            Some(key) => next = key,
            None => return Ok(()),
        }
    }
}

/// Returns the problems that affect a file.
fn problems_of(engine: &Engine, ino: Ino, blocks: &HashMap<BlockNo, Vec<usize>>) -> Result<BTreeSet<usize>> {
    let mut found = BTreeSet::new();
    let mut at = 0;
    loop {
        let step = engine.view(|op| {
            // Removed since it was listed, so no problem affects it any more.
            let Ok(inode) = op.inode(ino) else { return op.settle().map(|()| None) };
            let end = blocks_spanned(inode.attr.size_bytes);
            if at >= end || inode.mapped == 0 {
                return Ok(None);
            }
            // A file of terabytes may be one hole, so holes are not walked block by block.
            let (SeekStep::Found(from) | SeekStep::GoOn(from)) = op.map_seek(&inode, at, end, true)?;
            let mut entries = vec![MapEntry::Hole; usize::try_from((end - from).min(MAP_BLOCKS_PER_STEP)).unwrap_or(0)];
            op.map_read(&inode, from, &mut entries)?;
            Ok(Some((from, entries)))
        })?;
        let Some((from, entries)) = step else { return Ok(found) };
        at = from + entries.len() as u64;
        for entry in entries {
            if let MapEntry::Block(block) = entry {
                found.extend(blocks.get(&block).into_iter().flatten());
            }
        }
    }
}

/// Returns the whole path of a name. Directories whose parents cannot be found are shown by number.
fn path(engine: &Engine, (directory, name): &EntryPath) -> String {
    let mut parts = vec![String::from_utf8_lossy(name).into_owned()];
    let mut at = *directory;
    while at != Ino::ROOT && parts.len() < DEPTH_MAX {
        match name_of_directory(engine, at) {
            Some((parent, name)) => {
                parts.push(String::from_utf8_lossy(&name).into_owned());
                at = parent;
            }
            None => {
                parts.push(format!("inode {at}"));
                parts.reverse();
                return parts.join("/");
            }
        }
    }
    parts.push(String::new());
    parts.reverse();
    parts.join("/")
}

/// Finds a directory's name in its parent.
fn name_of_directory(engine: &Engine, directory: Ino) -> Option<EntryPath> {
    let parent = Ino(engine.view(|op| op.directory(directory)).ok()?.parent);
    let (mut next, last) = (items::dir_entry_key(parent, 0), items::dir_entry_key(parent, u64::MAX));
    loop {
        let found = engine.view(|op| {
            let root = op.tree_root();
            let mut count = 0;
            tree::scan(op, root, next..=last, |key, value| {
                count += 1;
                match DirItem::decode(value).filter(|item| item.ino == directory) {
                    Some(item) => ControlFlow::Break(Ok(item.name)),
                    None if count == ITEMS_PER_STEP => ControlFlow::Break(Err(key)),
                    None => ControlFlow::Continue(()),
                }
            })
        });
        match found.ok()?.break_value()? {
            Ok(name) => return Some((parent, name)),
            Err(key) => next = key.successor()?,
        }
    }
}
