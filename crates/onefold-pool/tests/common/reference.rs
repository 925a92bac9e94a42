//! The naive reference: a file system of `BTreeMap`s, without sharing, journal or limits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onefold_block::BLOCK_BYTES;
use onefold_pool::{Dedup, FILE_BYTES_MAX, FileKind, NAME_BYTES_MAX, NewFile, RenameMode};

/// One block of a file.
pub type Content = Arc<[u8; BLOCK_BYTES]>;
/// A value, or the name of the error that the pool must return.
pub type ExpectedResult<T> = Result<T, &'static str>;

/// The root directory's number.
pub const ROOT: u64 = 1;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// One inode.
#[derive(Clone, Debug)]
pub struct Node {
    pub kind: FileKind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub links: u32,
    pub size: u64,
    /// Nonzero blocks, by their place in the file.
    pub blocks: BTreeMap<u64, Content>,
    pub target: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub entries: BTreeMap<Vec<u8>, u64>,
    pub parent: u64,
    pub domain: u16,
    pub dedup: Dedup,
    /// Whether places may be reserved: then the number of blocks is only a lower bound of `mapped_blocks`.
    pub may_reserve: bool,
    pub holds: u64,
}

/// The whole file system.
#[derive(Clone, Debug)]
pub struct Reference {
    pub nodes: BTreeMap<u64, Node>,
}

impl Reference {
    /// Returns a new, empty file system.
    pub fn new(dedup: Dedup) -> Reference {
        let root = NewFile { kind: FileKind::Directory, mode: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let mut root = Node::new(&root, ROOT, 0, dedup);
        root.links = 2;
        Reference { nodes: BTreeMap::from([(ROOT, root)]) }
    }

    /// Returns the node of this number, which exists.
    pub fn node(&self, ino: u64) -> &Node {
        self.nodes.get(&ino).unwrap_or_else(|| panic!("the reference has no inode {ino}"))
    }

    /// Returns the node of this number for changing.
    pub fn node_mut(&mut self, ino: u64) -> &mut Node {
        self.nodes.get_mut(&ino).unwrap_or_else(|| panic!("the reference has no inode {ino}"))
    }

    fn directory(&self, ino: u64) -> ExpectedResult<&Node> {
        let node = self.nodes.get(&ino).ok_or("NotFound")?;
        if node.kind == FileKind::Directory { Ok(node) } else { Err("NotADirectory") }
    }

    fn regular_mut(&mut self, ino: u64) -> ExpectedResult<&mut Node> {
        let node = self.nodes.get_mut(&ino).ok_or("NotFound")?;
        match node.kind {
            FileKind::Regular => Ok(node),
            FileKind::Directory => Err("IsADirectory"),
            _ => Err("Invalid"),
        }
    }

    /// Returns an error unless a new entry can be made.
    pub fn can_create(&self, parent: u64, name: &[u8]) -> ExpectedResult<()> {
        check_name(name)?;
        let directory = self.directory(parent)?;
        if directory.entries.contains_key(name) {
            return Err("Exists");
        }
        if directory.links == 0 { Err("NotFound") } else { Ok(()) }
    }

    /// Makes an entry and its inode, with the number that the pool has chosen.
    pub fn create(&mut self, parent: u64, name: &[u8], new: &NewFile, ino: u64) {
        self.create_inode(parent, new, ino);
        let directory = self.node_mut(parent);
        directory.entries.insert(name.to_vec(), ino);
        if new.kind == FileKind::Directory {
            directory.links += 1;
        }
    }

    /// Makes an inode without a name, with one link to come.
    pub fn create_inode(&mut self, parent: u64, new: &NewFile, ino: u64) {
        let above = self.node(parent);
        let mut node = Node::new(new, parent, above.domain, above.dedup);
        if above.mode & 0o2000 != 0 {
            node.gid = above.gid;
            if new.kind == FileKind::Directory {
                node.mode |= 0o2000;
            }
        }
        assert!(self.nodes.insert(ino, node).is_none(), "inode number {ino} was given twice");
    }

    /// Gives an inode another name.
    pub fn link(&mut self, ino: u64, parent: u64, name: &[u8]) -> ExpectedResult<()> {
        check_name(name)?;
        let node = self.nodes.get(&ino).ok_or("NotFound")?;
        let directory = self.directory(parent)?;
        if node.kind == FileKind::Directory {
            return Err("NotPermitted");
        }
        if directory.links == 0 {
            return Err("NotFound");
        }
        if directory.entries.contains_key(name) {
            return Err("Exists");
        }
        if node.domain != directory.domain {
            return Err("CrossDomain");
        }
        self.node_mut(ino).links += 1;
        self.node_mut(parent).entries.insert(name.to_vec(), ino);
        Ok(())
    }

    /// Removes a name; `of_directory` as in `rmdir`.
    pub fn remove(&mut self, parent: u64, name: &[u8], of_directory: bool) -> ExpectedResult<()> {
        check_name(name)?;
        let ino = *self.directory(parent)?.entries.get(name).ok_or("NotFound")?;
        let node = self.node(ino);
        match (node.kind == FileKind::Directory, of_directory) {
            (true, false) => return Err("IsADirectory"),
            (false, true) => return Err("NotADirectory"),
            (true, true) if !node.entries.is_empty() => return Err("NotEmpty"),
            _ => {}
        }
        self.take_out(parent, name);
        self.drop_link(ino);
        Ok(())
    }

    fn take_out(&mut self, parent: u64, name: &[u8]) -> u64 {
        let ino = self.node_mut(parent).entries.remove(name).expect("looked up before");
        if self.node(ino).kind == FileKind::Directory {
            self.node_mut(parent).links -= 1;
        }
        ino
    }

    fn put_in(&mut self, parent: u64, name: &[u8], ino: u64) {
        let is_directory = self.node(ino).kind == FileKind::Directory;
        let directory = self.node_mut(parent);
        directory.entries.insert(name.to_vec(), ino);
        if is_directory {
            directory.links += 1;
            self.node_mut(ino).parent = parent;
        }
    }

    fn drop_link(&mut self, ino: u64) {
        let node = self.node_mut(ino);
        node.links = if node.kind == FileKind::Directory { 0 } else { node.links - 1 };
    }

    /// Renames, as POSIX and `renameat2` define it.
    pub fn rename(&mut self, from: u64, name: &[u8], to: u64, new_name: &[u8], mode: RenameMode) -> ExpectedResult<()> {
        check_name(name)?;
        check_name(new_name)?;
        let moved = *self.directory(from)?.entries.get(name).ok_or("NotFound")?;
        let target = self.directory(to)?.entries.get(new_name).copied();
        if self.node(to).links == 0 {
            return Err("NotFound");
        }
        match (target, mode) {
            (Some(_), RenameMode::NoReplace) => return Err("Exists"),
            (None, RenameMode::Exchange) => return Err("NotFound"),
            (Some(target), _) if target == moved => return Ok(()),
            _ => {}
        }
        self.can_move(moved, from, to)?;
        let Some(target) = target else {
            self.take_out(from, name);
            self.put_in(to, new_name, moved);
            return Ok(());
        };
        if mode == RenameMode::Exchange {
            self.can_move(target, to, from)?;
            self.take_out(from, name);
            self.take_out(to, new_name);
            self.put_in(to, new_name, moved);
            self.put_in(from, name, target);
            return Ok(());
        }
        match (self.node(moved).kind == FileKind::Directory, self.node(target).kind == FileKind::Directory) {
            (true, false) => return Err("NotADirectory"),
            (false, true) => return Err("IsADirectory"),
            (true, true) if !self.node(target).entries.is_empty() => return Err("NotEmpty"),
            _ => {}
        }
        self.take_out(to, new_name);
        self.drop_link(target);
        self.take_out(from, name);
        self.put_in(to, new_name, moved);
        Ok(())
    }

    fn can_move(&self, moved: u64, from: u64, to: u64) -> ExpectedResult<()> {
        let domain_of = |ino| self.node(ino).domain;
        // A directory that begins a domain may move to another place where a domain can begin.
        if domain_of(from) != domain_of(to) && domain_of(moved) != domain_of(to) {
            return Err("CrossDomain");
        }
        let mut at = to;
        while self.node(moved).kind == FileKind::Directory && at != ROOT {
            if at == moved {
                return Err("Invalid");
            }
            at = self.node(at).parent;
        }
        Ok(())
    }

    /// Writes bytes.
    pub fn write(&mut self, ino: u64, offset: u64, from: &[u8]) -> ExpectedResult<()> {
        let end = offset.checked_add(from.len() as u64).filter(|&end| end <= FILE_BYTES_MAX).ok_or("FileTooLarge")?;
        if from.is_empty() {
            return Ok(());
        }
        let node = self.regular_mut(ino)?;
        node.put(offset, from);
        node.size = node.size.max(end);
        Ok(())
    }

    /// Sets the length.
    pub fn truncate(&mut self, ino: u64, size: u64) -> ExpectedResult<()> {
        if size > FILE_BYTES_MAX {
            return Err("FileTooLarge");
        }
        let node = self.regular_mut(ino)?;
        if size < node.size {
            node.zero(size, node.size);
        }
        node.size = size;
        Ok(())
    }

    /// Clones bytes between two ranges that were found valid.
    pub fn copy(&mut self, source: u64, source_offset: u64, target: u64, target_offset: u64, bytes: u64) {
        let reserve = self.node(source).may_reserve;
        let mut done = 0;
        while done < bytes {
            let piece = (bytes - done).min(BLOCK - (source_offset + done) % BLOCK);
            let piece = piece.min(BLOCK - (target_offset + done) % BLOCK);
            let from = self.node(source).get(source_offset + done, piece);
            self.node_mut(target).put(target_offset + done, &from);
            done += piece;
        }
        let node = self.node_mut(target);
        node.size = node.size.max(target_offset + bytes);
        node.may_reserve |= reserve;
    }

    /// Clones a whole file into an empty one.
    pub fn clone_file(&mut self, source: u64, target: u64) -> ExpectedResult<()> {
        if source == target {
            return Err("Invalid");
        }
        let from = self.regular_mut(source)?.clone();
        let to = self.regular_mut(target)?;
        if from.domain != to.domain {
            return Err("CrossDomain");
        }
        if to.size != 0 || !to.blocks.is_empty() {
            return Err("Invalid");
        }
        to.size = from.size;
        to.blocks = from.blocks;
        to.may_reserve |= from.may_reserve;
        Ok(())
    }

    /// Removes inodes that neither a name nor a hold keeps.
    pub fn forget_orphans(&mut self) {
        self.nodes.retain(|_, node| node.links > 0 || node.holds > 0);
    }

    /// Ends all holds, as a crash or a close does.
    pub fn drop_holds(&mut self) {
        for node in self.nodes.values_mut() {
            node.holds = 0;
        }
        self.forget_orphans();
    }

    /// Returns the numbers of all wanted nodes that can be reached by name or are held.
    pub fn alive(&self, wanted: impl Fn(&Node) -> bool) -> Vec<u64> {
        self.nodes.iter().filter(|(_, node)| wanted(node)).map(|(ino, _)| *ino).collect()
    }

    /// Returns a block of a file; `None` if it is zeros.
    pub fn block(&self, ino: u64, index: u64) -> Option<&[u8; BLOCK_BYTES]> {
        self.node(ino).blocks.get(&index).map(|block| &**block)
    }

    /// Returns all places with a block's content: files and places in them.
    pub fn places_of(&self, ino: u64, index: u64) -> Vec<(u64, u64)> {
        let content = self.block(ino, index);
        let files = self.nodes.iter().filter(|(_, node)| node.kind == FileKind::Regular);
        let places = files.flat_map(|(ino, node)| node.blocks.iter().map(move |(index, block)| (*ino, *index, block)));
        places.filter(|(_, _, block)| Some(&***block) == content).map(|(ino, index, _)| (ino, index)).collect()
    }

    /// Returns the number of distinct nonzero blocks, counted separately for each domain.
    pub fn distinct_blocks(&self) -> u64 {
        let files = self.nodes.values();
        let all = files.flat_map(|node| node.blocks.values().map(|block| (node.domain, &block[..])));
        all.collect::<BTreeSet<_>>().len() as u64
    }

    /// Returns the number of nonzero blocks, counted in each file.
    pub fn mapped_blocks(&self) -> u64 {
        self.nodes.values().map(|node| node.blocks.len() as u64).sum()
    }

    /// Returns the number of blocks in the lengths of all files.
    pub fn apparent_blocks(&self) -> u64 {
        let files = self.nodes.values().filter(|node| node.kind == FileKind::Regular);
        files.map(|node| node.size.div_ceil(BLOCK)).sum()
    }
}

impl Node {
    fn new(new: &NewFile, parent: u64, domain: u16, dedup: Dedup) -> Node {
        let is_directory = new.kind == FileKind::Directory;
        let is_device = matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice);
        Node {
            kind: new.kind,
            mode: new.mode & !new.umask & 0o7777,
            uid: new.uid,
            gid: new.gid,
            rdev: if is_device { new.rdev } else { 0 },
            links: if is_directory { 2 } else { 1 },
            size: 0,
            blocks: BTreeMap::new(),
            target: Vec::new(),
            xattrs: BTreeMap::new(),
            entries: BTreeMap::new(),
            parent,
            domain,
            dedup,
            may_reserve: false,
            holds: 0,
        }
    }

    /// Returns bytes of the file; holes are zeros.
    pub fn get(&self, offset: u64, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(length).expect("a test reads little")];
        let range = offset / BLOCK..(offset + length).div_ceil(BLOCK);
        for (&index, block) in self.blocks.range(range) {
            let from = (index * BLOCK).max(offset);
            let to = ((index + 1) * BLOCK).min(offset + length);
            let at = |place: u64, base: u64| usize::try_from(place - base).expect("within the buffer");
            bytes[at(from, offset)..at(to, offset)]
                .copy_from_slice(&block[at(from, index * BLOCK)..at(to, index * BLOCK)]);
        }
        bytes
    }

    fn put(&mut self, offset: u64, from: &[u8]) {
        let mut done = 0;
        while done < from.len() {
            let at = offset + done as u64;
            let within = usize::try_from(at % BLOCK).expect("below 4096");
            let length = (BLOCK_BYTES - within).min(from.len() - done);
            let mut block = self.blocks.get(&(at / BLOCK)).map_or([0; BLOCK_BYTES], |block| **block);
            block[within..within + length].copy_from_slice(&from[done..done + length]);
            if block == [0; BLOCK_BYTES] {
                self.blocks.remove(&(at / BLOCK));
            } else {
                self.blocks.insert(at / BLOCK, Arc::new(block));
            }
            done += length;
        }
    }

    /// Zeros bytes `offset..end`, wherever the file ends.
    pub fn zero(&mut self, offset: u64, end: u64) {
        let touched: Vec<u64> =
            self.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)).map(|(index, _)| *index).collect();
        for index in touched {
            let from = (index * BLOCK).max(offset);
            let to = ((index + 1) * BLOCK).min(end);
            let zeros = vec![0; usize::try_from(to - from).expect("at most a block")];
            self.put(from, &zeros);
        }
    }

    /// Returns the next data or hole at or after `offset`.
    pub fn seek(&self, offset: u64, data: bool) -> ExpectedResult<u64> {
        if offset >= self.size {
            return Err("NoSuchOffset");
        }
        let first = offset / BLOCK;
        if data {
            let (&index, _) = self.blocks.range(first..).next().ok_or("NoSuchOffset")?;
            let found = (index * BLOCK).max(offset);
            return if found < self.size { Ok(found) } else { Err("NoSuchOffset") };
        }
        let hole = (first..).zip(self.blocks.range(first..)).take_while(|(index, (at, _))| index == *at).count() as u64;
        Ok(((first + hole) * BLOCK).max(offset).min(self.size))
    }
}

fn check_name(name: &[u8]) -> ExpectedResult<()> {
    if name == b"." || name == b".." {
        return Err("Invalid");
    }
    if name.len() > NAME_BYTES_MAX {
        return Err("NameTooLong");
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) { Err("Invalid") } else { Ok(()) }
}
