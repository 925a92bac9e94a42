//! The visible state of a file system, in a form for comparing the pool with the reference.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use onefold_block::{BLOCK_BYTES, BlockDevice};
use onefold_pool::check::{CheckOptions, check};
use onefold_pool::{Attr, Dedup, FileKind, Ino, NoProgress, Pool, SeekTarget};

use super::kind_of;
use super::reference::{Node, ROOT, Reference};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Number of blocks in one read of a comparison.
const READ_BLOCKS: u64 = 64;

/// Everything that a user sees of one inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub ino: u64,
    pub kind: FileKind,
    pub mode: u16,
    pub owner: (u32, u32),
    pub rdev: u32,
    pub links: u32,
    pub size: u64,
    /// Place and digest of each block that is not zero.
    pub blocks: Vec<(u64, u64)>,
    pub target: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub domain: u16,
    pub dedup: Dedup,
}

/// Everything that can be reached from the root, by path.
pub type Tree = BTreeMap<String, View>;

fn digest(block: &[u8]) -> u64 {
    let hash = blake3::hash(block);
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight bytes"))
}

/// Returns the tree of the reference.
pub fn expected(reference: &Reference) -> Tree {
    let mut tree = Tree::new();
    let mut paths = vec![(String::new(), ROOT)];
    while let Some((path, ino)) = paths.pop() {
        let node = reference.node(ino);
        for (name, child) in &node.entries {
            paths.push((format!("{path}/{}", String::from_utf8_lossy(name)), *child));
        }
        tree.insert(path, view_of(ino, node));
    }
    tree
}

/// Returns the reference's view of one inode.
pub fn view_of(ino: u64, node: &Node) -> View {
    View {
        ino,
        kind: node.kind,
        mode: node.mode,
        owner: (node.uid, node.gid),
        rdev: node.rdev,
        links: node.links,
        size: match node.kind {
            FileKind::Directory => node.entries.len() as u64,
            FileKind::Symlink => node.target.len() as u64,
            _ => node.size,
        },
        blocks: node
            .blocks
            .iter()
            .filter(|_| !node.xattrs.contains_key(&b"user.unread"[..]))
            .map(|(index, block)| (*index, digest(&block[..])))
            .collect(),
        target: node.target.clone(),
        xattrs: node.xattrs.clone(),
        domain: node.domain,
        dedup: node.dedup,
    }
}

/// Returns the tree of the pool. Reads every byte of every file, except those with an attribute `user.unread`, which
/// fill a pool that is read many times.
///
/// # Errors
/// The pool's error, and where it occurred.
pub fn seen(pool: &Pool) -> Result<Tree, String> {
    let mut tree = Tree::new();
    let mut paths = vec![(String::new(), Ino::ROOT)];
    while let Some((path, ino)) = paths.pop() {
        let view = see(pool, ino).map_err(|error| format!("`{path}`: {error}"))?;
        if view.kind == FileKind::Directory {
            for (name, child) in list(pool, ino).map_err(|error| format!("listing `{path}`: {error}"))? {
                let found =
                    pool.lookup(ino, &name).map_err(|error| format!("looking up {name:?} in `{path}`: {error}"))?;
                pool.release(found.ino, 1);
                if found.ino != child {
                    return Err(format!(
                        "`{path}`: {name:?} is listed as inode {child} and looked up as {}",
                        found.ino
                    ));
                }
                paths.push((format!("{path}/{}", String::from_utf8_lossy(&name)), child));
            }
        }
        tree.insert(path, view);
    }
    Ok(tree)
}

/// Returns the names in a directory, without the dots, which must come first.
///
/// # Errors
/// The pool's error, or the problem of the listing.
pub fn list(pool: &Pool, ino: Ino) -> Result<BTreeMap<Vec<u8>, Ino>, String> {
    let mut names = BTreeMap::new();
    let mut count = 0;
    let mut last_cookie = 0;
    let mut wrong = None;
    pool.read_directory(ino, 0, &mut |entry| {
        count += 1;
        if entry.cookie <= last_cookie || i64::try_from(entry.cookie).is_err() {
            wrong = Some(format!("cookie {} after {last_cookie}", entry.cookie));
        }
        last_cookie = entry.cookie;
        if names.insert(entry.name.clone(), entry.ino).is_some() {
            wrong = Some(format!("{:?} is listed twice", entry.name));
        }
        ControlFlow::Continue(())
    })
    .map_err(|error| error.to_string())?;
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    if names.remove(&b"."[..]) != Some(ino) || names.remove(&b".."[..]).is_none() || count < 2 {
        return Err("the dots are not listed".to_owned());
    }
    Ok(names)
}

/// Returns the pool's view of one inode.
///
/// # Errors
/// The pool's error.
pub fn see(pool: &Pool, ino: Ino) -> Result<View, String> {
    let attr = pool.attr(ino).map_err(|error| error.to_string())?;
    let mut xattrs = BTreeMap::new();
    for name in pool.xattr_names(ino).map_err(|error| error.to_string())? {
        let value = pool.xattr(ino, &name).map_err(|error| error.to_string())?;
        xattrs.insert(name, value);
    }
    let target = match attr.kind {
        FileKind::Symlink => pool.read_symlink(ino).map_err(|error| error.to_string())?,
        _ => Vec::new(),
    };
    let read = attr.kind == FileKind::Regular && !xattrs.contains_key(&b"user.unread"[..]);
    let blocks = if read { blocks_of(pool, &attr)? } else { Vec::new() };
    Ok(View {
        ino: ino.0,
        kind: attr.kind,
        mode: attr.mode,
        owner: (attr.uid, attr.gid),
        rdev: attr.rdev,
        links: attr.link_count,
        size: attr.size_bytes,
        blocks,
        target,
        xattrs,
        domain: attr.domain,
        dedup: attr.dedup,
    })
}

/// Reads a file where the pool's `seek` reports data; the rest counts as holes.
fn blocks_of(pool: &Pool, attr: &Attr) -> Result<Vec<(u64, u64)>, String> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < attr.size_bytes {
        let data = match pool.seek(attr.ino, at, SeekTarget::Data) {
            Ok(data) => data,
            Err(error) if kind_of(&error) == "NoSuchOffset" => break,
            Err(error) => return Err(format!("seek: {error}")),
        };
        let hole = pool.seek(attr.ino, data, SeekTarget::Hole).map_err(|error| format!("seek: {error}"))?;
        if data % BLOCK != 0 || hole <= data {
            return Err(format!("data at {data}, hole at {hole}"));
        }
        let mut from = data;
        while from < hole {
            let length = (hole - from).min(READ_BLOCKS * BLOCK);
            let mut bytes = vec![0; usize::try_from(length).expect("at most 64 blocks")];
            let got = pool.read(attr.ino, from, &mut bytes).map_err(|error| format!("read at {from}: {error}"))?;
            if got != bytes.len() {
                return Err(format!("read at {from} of {length} bytes gave {got} in a file of {}", attr.size_bytes));
            }
            bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
            for (index, block) in (from / BLOCK..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
                found.push((index, digest(block)));
            }
            from += length;
        }
        at = hole;
    }
    Ok(found)
}

/// Returns the first difference between two trees, as text.
pub fn difference(seen: &Tree, expected: &Tree) -> Option<String> {
    for (path, view) in expected {
        match seen.get(path) {
            None => return Some(format!("`{path}` is missing")),
            Some(found) if found != view => return Some(format!("`{path}` is {found:?}, expected {view:?}")),
            Some(_) => {}
        }
    }
    seen.keys().find(|path| !expected.contains_key(*path)).map(|path| format!("`{path}` should not be there"))
}

/// Checks that the pool's own numbers add up.
///
/// # Errors
/// The problem.
pub fn check_sums(pool: &Pool) -> Result<(), String> {
    let stat = pool.stat().map_err(|error| error.to_string())?;
    let apparent = stat.zero_bytes
        + stat.unique_bytes
        + stat.shared_bytes
        + stat.saved_by_blocks_bytes
        + stat.saved_by_clones_bytes;
    let device = stat.metadata_fixed_bytes
        + stat.metadata_dynamic_bytes
        + stat.unique_bytes
        + stat.shared_bytes
        + stat.freeing_bytes
        + stat.free_bytes;
    if apparent != stat.apparent_bytes || device != stat.device_bytes {
        return Err(format!("apparent sums up to {apparent}, device to {device}: {stat:?}"));
    }
    Ok(())
}

/// Runs the pool's checker on the device.
///
/// # Errors
/// Its findings.
pub fn check_clean(device: &dyn BlockDevice) -> Result<(), String> {
    let options = CheckOptions { memory_bytes: 64 << 20, verify_data: false, ..CheckOptions::default() };
    let report = check(device, &options, &NoProgress).map_err(|error| format!("the check failed: {error}"))?;
    if report.is_clean() { Ok(()) } else { Err(format!("{} problems: {:?}", report.problems_total, report.problems)) }
}
