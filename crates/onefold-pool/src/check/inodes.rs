//! The first walk over the names tree: its pages, every item, and a list of the inodes.

use onefold_block::BlockNo;

use super::context::{Context, ensure_fits};
use super::findings::CheckFindings;
use super::items::InodeItems;
use super::reader::CheckError;
use crate::attr::{FileKind, Ino};
use crate::format::inode::Inode;
use crate::format::items::{self, FilterRun, ItemKind, ReclaimItem};
use crate::format::state::Field;
use crate::names::NameHash;
use crate::names::inodes::blocks_spanned;
use crate::tree::{self, Key, TreeFinding};

/// The properties of an inode that concern its names.
#[derive(Clone, Copy, Debug)]
pub(super) struct InodeLinks {
    pub(super) ino: Ino,
    pub(super) parent: u64,
    /// Link count in the inode.
    pub(super) links: u32,
    pub(super) domain: u16,
    pub(super) kind: FileKind,
}

/// The content of the names tree.
#[derive(Debug, Default)]
pub(super) struct TreeContent {
    /// All valid inodes, ascending.
    pub(super) inodes: Vec<InodeLinks>,
    /// The orphan list, ascending.
    pub(super) orphans: Vec<Ino>,
    /// The reclaim list, ascending by node.
    pub(super) reclaimed: Vec<ReclaimItem>,
    /// Runs of free blocks that hold the saved filter.
    pub(super) filter_runs: Vec<FilterRun>,
    /// Number of entries of the reclaim list.
    pub(super) reclaim_count: u64,
    /// Sum of the blocks in the lengths of files.
    pub(super) apparent_blocks: u64,
    /// Sum of the blocks mapped by files.
    pub(super) logical_blocks: u64,
}

impl TreeContent {
    /// Returns the inode of this number.
    pub(super) fn find(&self, ino: Ino) -> Option<&InodeLinks> {
        self.inodes.binary_search_by_key(&ino, |known| known.ino).ok().map(|at| &self.inodes[at])
    }
}

struct Lister<'c> {
    findings: &'c mut CheckFindings,
    names: NameHash,
    next_ino: u64,
    next_reclaim: u64,
    memory_bytes: u64,
    listed: TreeContent,
    current: Option<InodeItems>,
    inodes_checked: u64,
}

/// Walks the whole tree.
pub(super) fn check(context: &mut Context<'_>) -> Result<TreeContent, CheckError> {
    let root = BlockNo(context.field(Field::TreeRoot));
    let mut lister = Lister {
        names: NameHash::new(&context.superblock.key),
        next_ino: context.field(Field::NextIno),
        next_reclaim: context.field(Field::NextReclaim),
        findings: &mut context.findings,
        memory_bytes: context.memory_bytes,
        listed: TreeContent::default(),
        current: None,
        inodes_checked: 0,
    };
    let mut is_incomplete = false;
    let meter = &mut context.meter;
    tree::check(&mut context.tree, root, &mut |finding| match finding {
        TreeFinding::Page { .. } => meter.advance(0),
        TreeFinding::Item { key, value } => lister.item(&key, value),
        TreeFinding::Damage(error) => {
            is_incomplete = true;
            let tree::TreeError::Corrupt { page, what } = error else { return Ok(()) };
            lister.findings.tell("names tree", Some(page), what.to_string());
            Ok(())
        }
        TreeFinding::Unreadable { page, error: CheckError::Unusable(what) } => {
            is_incomplete = true;
            lister.findings.tell("names tree", Some(page), format!("{what}: the files and names in it are lost"));
            Ok(())
        }
        TreeFinding::Unreadable { error, .. } => Err(error),
    })?;
    lister.end_current();
    let Lister { mut listed, inodes_checked, .. } = lister;
    listed.reclaimed.sort_unstable_by_key(|item| item.node);
    context.is_incomplete |= is_incomplete;
    context.findings.lost_names |= is_incomplete;
    context.inodes_checked = inodes_checked;
    Ok(listed)
}

impl Lister<'_> {
    fn item(&mut self, key: &Key, value: &[u8]) -> Result<(), CheckError> {
        let Some(kind) = items::item_kind(key) else {
            let what = format!("an item of unknown kind {} belongs to inode {}", key.kind, key.ino);
            self.findings.tell("names tree", None, what);
            return Ok(());
        };
        match kind {
            ItemKind::Orphan => self.orphan(Ino(key.sub), value),
            ItemKind::Reclaim => self.reclaim(key.sub, value),
            ItemKind::FilterRun => self.filter_run(value),
            ItemKind::Inode | ItemKind::DirEntry | ItemKind::Xattr | ItemKind::Symlink => {
                let ino = Ino(key.ino);
                if self.current.as_ref().is_none_or(|current| current.ino() != ino) {
                    self.end_current();
                }
                let current = self.current.get_or_insert_with(|| InodeItems::new(ino));
                if let Some(inode) = current.take(kind, key, value, &self.names, self.findings) {
                    self.inode(&inode);
                }
            }
        }
        let listed = &self.listed;
        ensure_fits(listed.inodes.len(), size_of::<InodeLinks>(), self.memory_bytes / 4, self.memory_bytes)?;
        let others = listed.orphans.len() + listed.reclaimed.len() * 2 + listed.filter_runs.len() * 3;
        ensure_fits(others, 8, self.memory_bytes / 16, self.memory_bytes)
    }

    fn end_current(&mut self) {
        if let Some(current) = self.current.take() {
            current.finish(self.findings);
        }
    }

    fn inode(&mut self, inode: &Inode) {
        self.inodes_checked += 1;
        let attr = &inode.attr;
        if attr.ino.0 >= self.next_ino {
            let what = format!("its number {} has not been assigned yet", attr.ino.0);
            self.findings.tell_of(attr.ino, "inode", None, what);
        }
        if attr.kind == FileKind::Regular {
            self.listed.apparent_blocks += blocks_spanned(attr.size_bytes);
            self.listed.logical_blocks += inode.mapped;
        }
        self.listed.inodes.push(InodeLinks {
            ino: attr.ino,
            parent: inode.parent,
            links: attr.link_count,
            domain: attr.domain,
            kind: attr.kind,
        });
    }

    fn orphan(&mut self, ino: Ino, value: &[u8]) {
        if !value.is_empty() {
            self.findings.tell_of(ino, "orphan list", None, "its entry in the orphan list makes no sense");
        }
        self.listed.orphans.push(ino);
    }

    fn reclaim(&mut self, number: u64, value: &[u8]) {
        self.listed.reclaim_count += 1;
        if number >= self.next_reclaim {
            self.findings.tell(
                "reclaim list",
                None,
                format!("entry {number} has a number that has not been assigned yet"),
            );
        }
        match ReclaimItem::decode(value) {
            Some(item) => self.listed.reclaimed.push(item),
            None => self.findings.tell("reclaim list", None, format!("entry {number} makes no sense")),
        }
    }

    fn filter_run(&mut self, value: &[u8]) {
        match FilterRun::decode(value) {
            Some(run) => self.listed.filter_runs.push(run),
            None => self.findings.tell("saved filter", None, "the place of a saved filter makes no sense"),
        }
    }
}
