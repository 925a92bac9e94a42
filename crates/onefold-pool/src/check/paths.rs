//! Finds the paths of affected files by a separate walk, so that a check of a sound pool pays nothing for them.

use std::collections::{BTreeMap, BTreeSet};

use onefold_block::BlockNo;

use super::context::Context;
use super::findings::{FILES_MAX, FilePlace};
use super::reader::{CheckError, MetadataReader};
use super::trace;
use crate::attr::Ino;
use crate::format::inode::Inode;
use crate::format::items::{self, DirItem, ItemKind};
use crate::format::state::Field;
use crate::tree::{self, TreeFinding};

/// Maximum number of directories in a path; a longer one is a loop.
const DEPTH_MAX: usize = 1000;
/// Maximum number of directories that are looked up.
const ANCESTORS_MAX: usize = 1 << 18;

/// One name of an inode.
struct InodeName {
    parent: Ino,
    name: Vec<u8>,
}

/// All names of the wanted inodes.
type InodeNames = BTreeMap<Ino, Vec<InodeName>>;

/// Adds to all problems the paths of their affected files.
pub(super) fn name_files(context: &mut Context<'_>) {
    trace::add_files(context);
    let hit: BTreeSet<Ino> = context.findings.found.iter().flat_map(|found| found.inos.iter().copied()).collect();
    if hit.is_empty() {
        return;
    }
    let root = BlockNo(context.field(Field::TreeRoot));
    let mut names = InodeNames::new();
    find_names(&mut context.tree, root, &hit, &mut names);
    let above = ancestors(&mut context.tree, root, &names);
    find_names(&mut context.tree, root, &above, &mut names);
    for found in &mut context.findings.found {
        found.problem.files = found.inos.iter().flat_map(|ino| paths(*ino, &names)).take(FILES_MAX).collect();
        let place = |(ino, offset): &(Ino, u64)| {
            let file = paths(*ino, &names).into_iter().next()?;
            Some(FilePlace { file, offset: *offset })
        };
        found.problem.places = found.places.iter().filter_map(place).collect();
    }
}

/// Finds the names of each of `wanted`.
fn find_names(reader: &mut MetadataReader<'_>, root: BlockNo, wanted: &BTreeSet<Ino>, names: &mut InodeNames) {
    // Names in damaged parts of the tree stay unknown.
    let _ = tree::check(reader, root, &mut |finding| -> Result<(), CheckError> {
        if let TreeFinding::Item { key, value } = finding
            && items::item_kind(&key) == Some(ItemKind::DirEntry)
            && let Some(item) = DirItem::decode(value)
            && wanted.contains(&item.ino)
        {
            let of_file = names.entry(item.ino).or_default();
            if of_file.len() < FILES_MAX {
                of_file.push(InodeName { parent: Ino(key.ino), name: item.name });
            }
        }
        Ok(())
    });
}

/// Returns the directories above all files with names.
fn ancestors(reader: &mut MetadataReader<'_>, root: BlockNo, names: &InodeNames) -> BTreeSet<Ino> {
    let mut above = BTreeSet::new();
    for name in names.values().flatten() {
        let mut at = name.parent;
        while at != Ino::ROOT && above.len() < ANCESTORS_MAX && above.insert(at) {
            let Ok(Some(value)) = tree::get(reader, root, &items::inode_key(at)) else { break };
            let Some(inode) = Inode::decode(at, &value) else { break };
            at = Ino(inode.parent);
        }
    }
    above
}

/// Returns all paths of an inode.
fn paths(ino: Ino, names: &InodeNames) -> Vec<String> {
    match names.get(&ino) {
        _ if ino == Ino::ROOT => vec!["/".to_owned()],
        Some(own) => own.iter().map(|name| path(name, names)).collect(),
        None => vec![format!("inode {ino}")],
    }
}

fn path(name: &InodeName, names: &InodeNames) -> String {
    let mut parts: Vec<String> = vec![String::from_utf8_lossy(&name.name).into_owned()];
    let mut at = name.parent;
    while at != Ino::ROOT && parts.len() < DEPTH_MAX {
        // A directory has one name.
        let Some(name) = names.get(&at).and_then(|names| names.first()) else {
            parts.push(format!("inode {at}"));
            parts.reverse();
            return parts.join("/");
        };
        parts.push(String::from_utf8_lossy(&name.name).into_owned());
        at = name.parent;
    }
    parts.push(String::new());
    parts.reverse();
    parts.join("/")
}
