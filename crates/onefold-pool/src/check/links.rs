//! Names and inodes: checks that each entry leads to an inode, and that each inode has the right number of names.

use onefold_block::BlockNo;

use super::context::Context;
use super::findings::CheckFindings;
use super::inodes::TreeContent;
use super::reader::CheckError;
use crate::attr::{FileKind, Ino};
use crate::format::items::{self, DirItem, ItemKind};
use crate::format::state::Field;
use crate::tree::{self, TreeFinding};

/// Checks links, parents and reachability.
pub(super) fn check(context: &mut Context<'_>, listed: &TreeContent) -> Result<(), CheckError> {
    let root = BlockNo(context.field(Field::TreeRoot));
    let mut names = vec![0_u32; listed.inodes.len()];
    let (findings, meter) = (&mut context.findings, &mut context.meter);
    tree::check(&mut context.tree, root, &mut |finding| match finding {
        TreeFinding::Page { .. } => meter.advance(0),
        TreeFinding::Item { key, value } => {
            if items::item_kind(&key) == Some(ItemKind::DirEntry)
                && let Some(item) = DirItem::decode(value)
            {
                entry(findings, listed, &mut names, Ino(key.ino), &item);
            }
            Ok(())
        }
        // Reported by the first walk.
        TreeFinding::Damage(_) | TreeFinding::Unreadable { error: CheckError::Unusable(_), .. } => Ok(()),
        TreeFinding::Unreadable { error, .. } => Err(error),
    })?;
    check_inodes(&mut context.findings, listed, &names);
    check_orphans(&mut context.findings, listed);
    check_reachable(&mut context.findings, listed, &names);
    Ok(())
}

fn entry(findings: &mut CheckFindings, listed: &TreeContent, names: &mut [u32], directory: Ino, item: &DirItem) {
    let shown = String::from_utf8_lossy(&item.name);
    let Ok(at) = listed.inodes.binary_search_by_key(&item.ino, |known| known.ino) else {
        let what = format!("the entry {shown:?} of the directory leads to inode {}, which does not exist", item.ino);
        findings.tell_of(directory, "directory", None, what);
        return;
    };
    names[at] = names[at].saturating_add(1);
    let child = listed.inodes[at];
    if child.kind != item.kind {
        let what = format!("it is a {:?}, but its entry in the directory says {:?}", child.kind, item.kind);
        findings.tell_of(item.ino, "directory", None, what);
    }
    if child.kind == FileKind::Directory && child.parent != directory.0 {
        let what =
            format!("the directory lies in inode {directory}, but its parent is recorded as inode {}", child.parent);
        findings.tell_of(item.ino, "directory", None, what);
    }
    // A directory may begin a domain of its own.
    let other_domain = listed.find(directory).is_some_and(|parent| parent.domain != child.domain);
    if child.kind != FileKind::Directory && other_domain {
        findings.tell_of(item.ino, "directory", None, "it belongs to another sharing domain than its directory");
    }
}

fn check_inodes(findings: &mut CheckFindings, listed: &TreeContent, names: &[u32]) {
    match listed.find(Ino::ROOT) {
        None => findings.tell("directory", None, "the root directory is missing"),
        Some(root) if root.kind != FileKind::Directory || root.parent != Ino::ROOT.0 || root.links == 0 => {
            findings.tell_of(Ino::ROOT, "directory", None, "the root is not a valid directory");
        }
        Some(_) => {}
    }
    for (known, &names) in listed.inodes.iter().zip(names) {
        let expected = match (known.kind, known.links) {
            _ if known.ino == Ino::ROOT => 0,
            (FileKind::Directory, 0) => 0,
            (FileKind::Directory, _) => 1,
            (_, links) => links,
        };
        if names == 0 && expected > 0 {
            findings.tell_of(known.ino, "inode", None, "no directory has an entry for it: it cannot be reached");
        } else if names != expected {
            let what = format!("link count {expected}, expected {names} by the directory entries that lead to it");
            findings.tell_of(known.ino, "inode", None, what);
        }
        if known.links == 0 && listed.orphans.binary_search(&known.ino).is_err() {
            let what = "it has no name and is not on the list of files to remove: its space is never freed";
            findings.tell_of(known.ino, "orphan list", None, what);
        }
    }
}

fn check_orphans(findings: &mut CheckFindings, listed: &TreeContent) {
    for &ino in &listed.orphans {
        match listed.find(ino) {
            None => findings.tell_of(ino, "orphan list", None, "it is to be removed, but does not exist"),
            Some(known) if known.links > 0 => {
                findings.tell_of(ino, "orphan list", None, "it is to be removed, but has names");
            }
            Some(_) => {}
        }
    }
}

/// The state of the path up from a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathState {
    Unknown,
    /// On the path that is being followed.
    Followed,
    /// It ends at the root, or at a reported problem.
    Ends,
    Loops,
}

/// Finds directories that lie below themselves.
fn check_reachable(findings: &mut CheckFindings, listed: &TreeContent, names: &[u32]) {
    let mut ways = vec![PathState::Unknown; listed.inodes.len()];
    let mut chain = Vec::new();
    for start in 0..listed.inodes.len() {
        if listed.inodes[start].kind != FileKind::Directory {
            continue;
        }
        let mut at = start;
        let end = loop {
            match ways[at] {
                PathState::Unknown => {}
                PathState::Followed => break PathState::Loops,
                known => break known,
            }
            ways[at] = PathState::Followed;
            chain.push(at);
            let known = listed.inodes[at];
            if known.ino == Ino::ROOT || known.links == 0 || names[at] == 0 {
                break PathState::Ends;
            }
            match listed.inodes.binary_search_by_key(&known.parent, |known| known.ino.0) {
                Ok(parent) if listed.inodes[parent].kind == FileKind::Directory => at = parent,
                _ => break PathState::Ends,
            }
        };
        for at in chain.drain(..) {
            ways[at] = end;
            if end == PathState::Loops {
                let ino = listed.inodes[at].ino;
                findings.tell_of(
                    ino,
                    "directory",
                    None,
                    "the directory lies below itself: it cannot be reached from the root",
                );
            }
        }
    }
}
