//! The consecutive items of one inode: the inode itself, directory entries, attributes, link target.

use super::findings::CheckFindings;
use crate::attr::{FileKind, Ino};
use crate::format::inode::{Inode, MapRoot};
use crate::format::items::{self, CHUNK_BYTES, DirItem, ItemKind};
use crate::names::{NameHash, xattr};
use crate::tree::Key;

/// An attribute whose chunks are being read.
struct PartialAttribute {
    /// Hash and number: the key without the chunk.
    place: u64,
    next_chunk: u64,
    bytes_missing: usize,
}

/// Entries of a directory whose names have the same hash.
#[derive(Default)]
struct HashGroup {
    first_cookie: u64,
    names: Vec<Vec<u8>>,
}

/// The state of the inode whose items are being read.
pub(super) struct InodeItems {
    ino: Ino,
    inode: Option<Inode>,
    entries: u64,
    subdirectories: u64,
    target_bytes: u64,
    target_chunks: u64,
    attribute: Option<PartialAttribute>,
    same_hash: HashGroup,
    has_strays: bool,
}

impl InodeItems {
    pub(super) fn new(ino: Ino) -> InodeItems {
        InodeItems {
            ino,
            inode: None,
            entries: 0,
            subdirectories: 0,
            target_bytes: 0,
            target_chunks: 0,
            attribute: None,
            same_hash: HashGroup::default(),
            has_strays: false,
        }
    }

    pub(super) fn ino(&self) -> Ino {
        self.ino
    }

    /// Takes the next item in key order. Returns the inode if the item is one.
    pub(super) fn take(
        &mut self,
        kind: ItemKind,
        key: &Key,
        value: &[u8],
        names: &NameHash,
        findings: &mut CheckFindings,
    ) -> Option<Inode> {
        match kind {
            ItemKind::Inode => return self.take_inode(value, findings),
            ItemKind::DirEntry => self.take_entry(key.sub, value, names, findings),
            ItemKind::Xattr => self.take_attribute(key.sub, value, findings),
            ItemKind::Symlink => self.take_target(key.sub, value, findings),
            ItemKind::Orphan | ItemKind::Reclaim | ItemKind::FilterRun => {}
        }
        None
    }

    fn take_inode(&mut self, value: &[u8], findings: &mut CheckFindings) -> Option<Inode> {
        let Some(inode) = Inode::decode(self.ino, value) else {
            findings.tell_of(self.ino, "inode", None, "the inode makes no sense");
            // Its other items are not reported as strays: the problem of their inode is already reported.
            self.has_strays = true;
            return None;
        };
        let is_directory = inode.attr.kind == FileKind::Directory;
        if inode.attr.kind != FileKind::Regular
            && (inode.map != MapRoot::EMPTY || inode.mapped != 0 || inode.reserved_blocks != 0)
        {
            findings.tell_of(self.ino, "inode", None, "it is not a regular file, yet it has a file map");
        }
        if !is_directory && inode.parent != 0 {
            findings.tell_of(self.ino, "inode", None, "it is not a directory, yet it has a parent");
        }
        if !matches!(inode.attr.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink)
            && inode.attr.size_bytes != 0
        {
            findings.tell_of(self.ino, "inode", None, "a file without content has a length");
        }
        self.inode = Some(inode.clone());
        Some(inode)
    }

    fn is(&self, kind: FileKind) -> bool {
        self.inode.as_ref().is_some_and(|inode| inode.attr.kind == kind)
    }

    /// Reports, once, items that belong to no inode, or to one of another kind.
    fn tell_stray(&mut self, structure: &'static str, what: &str, findings: &mut CheckFindings) {
        if !std::mem::replace(&mut self.has_strays, true) {
            findings.tell_of(self.ino, structure, None, what);
        }
    }

    fn take_entry(&mut self, cookie: u64, value: &[u8], names: &NameHash, findings: &mut CheckFindings) {
        self.entries += 1;
        if !self.is(FileKind::Directory) {
            self.tell_stray("directory", "it has directory entries, yet it is not a directory", findings);
        }
        let Some(item) = DirItem::decode(value) else {
            findings.tell_of(self.ino, "directory", None, "an entry of the directory makes no sense");
            return;
        };
        if item.kind == FileKind::Directory {
            self.subdirectories += 1;
        }
        let shown = String::from_utf8_lossy(&item.name);
        if item.name.iter().any(|byte| matches!(byte, b'/' | 0)) || item.name == b"." || item.name == b".." {
            findings.tell_of(
                self.ino,
                "directory",
                None,
                format!("the directory has an entry of the impossible name {shown:?}"),
            );
        }
        let (first, last) = items::dir_cookies(names.of(&item.name));
        if !(first..=last).contains(&cookie) {
            let what = format!("the entry {shown:?} of the directory lies where no look-up finds it");
            findings.tell_of(self.ino, "directory", None, what);
        }
        if self.same_hash.first_cookie != first {
            self.same_hash = HashGroup { first_cookie: first, names: Vec::new() };
        }
        if self.same_hash.names.contains(&item.name) {
            findings.tell_of(
                self.ino,
                "directory",
                None,
                format!("the directory has two entries of the name {shown:?}"),
            );
        }
        self.same_hash.names.push(item.name);
    }

    fn take_attribute(&mut self, sub: u64, value: &[u8], findings: &mut CheckFindings) {
        if self.inode.is_none() {
            self.tell_stray("attribute", "it has attributes, but no inode", findings);
        }
        let (place, chunk) = (sub >> 8, sub & 0xff);
        if chunk == 0 {
            self.end_attribute(findings);
            let Some((name, length, first)) =
                items::xattr_split(value).filter(|(_, length, first)| first.len() <= *length)
            else {
                findings.tell_of(self.ino, "attribute", None, "an extended attribute makes no sense");
                return;
            };
            if xattr::hash(name) >> 16 != sub >> 16 {
                let what = format!("the attribute {:?} lies where no look-up finds it", String::from_utf8_lossy(name));
                findings.tell_of(self.ino, "attribute", None, what);
            }
            self.attribute = Some(PartialAttribute { place, next_chunk: 1, bytes_missing: length - first.len() });
            return;
        }
        match &mut self.attribute {
            Some(attribute)
                if attribute.place == place
                    && attribute.next_chunk == chunk
                    && value.len() <= attribute.bytes_missing =>
            {
                attribute.next_chunk += 1;
                attribute.bytes_missing -= value.len();
            }
            _ => findings.tell_of(self.ino, "attribute", None, "a piece of an extended attribute belongs to none"),
        }
    }

    fn end_attribute(&mut self, findings: &mut CheckFindings) {
        if self.attribute.take().is_some_and(|attribute| attribute.bytes_missing > 0) {
            findings.tell_of(self.ino, "attribute", None, "the value of an extended attribute is cut short");
        }
    }

    fn take_target(&mut self, chunk: u64, value: &[u8], findings: &mut CheckFindings) {
        if !self.is(FileKind::Symlink) {
            self.tell_stray("symbolic link", "it has a link target, yet it is not a symbolic link", findings);
        }
        let follows = chunk == self.target_chunks && self.target_bytes == chunk * CHUNK_BYTES as u64;
        if !follows || value.is_empty() {
            findings.tell_of(self.ino, "symbolic link", None, "a piece of the link's target is out of place");
        }
        self.target_chunks += 1;
        self.target_bytes += value.len() as u64;
    }

    /// Ends the inode: checks what shows only when all of its items have been read.
    pub(super) fn finish(mut self, findings: &mut CheckFindings) {
        self.end_attribute(findings);
        let Some(inode) = &self.inode else { return };
        let size = inode.attr.size_bytes;
        match inode.attr.kind {
            FileKind::Symlink if size != self.target_bytes || size == 0 || size > crate::SYMLINK_BYTES_MAX as u64 => {
                let what = format!("the link's target has {} bytes, the inode says {size}", self.target_bytes);
                findings.tell_of(self.ino, "symbolic link", None, what);
            }
            FileKind::Directory => {
                if size != self.entries {
                    let what = format!("the directory has {} entries, its inode says {size}", self.entries);
                    findings.tell_of(self.ino, "directory", None, what);
                }
                let links = u64::from(inode.attr.link_count);
                if links != 0 && links != 2 + self.subdirectories {
                    let what =
                        format!("link count {links}, expected {} by its subdirectories", 2 + self.subdirectories);
                    findings.tell_of(self.ino, "inode", None, what);
                }
                if links == 0 && self.entries != 0 {
                    findings.tell_of(self.ino, "directory", None, "the directory was removed, yet it has entries");
                }
            }
            _ => {}
        }
    }
}
