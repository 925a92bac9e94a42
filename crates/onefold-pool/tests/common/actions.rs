//! Random actions on a pool and on the reference, with their results compared.

use onefold_block::BLOCK_BYTES;
use onefold_pool::{
    AllocateMode, Attr, Dedup, Durability, FileKind, Ino, NewFile, Pool, PoolError, RangePair, RenameMode,
};
use onefold_pool::{SeekTarget, SetAttr, ShareOutcome, XattrMode};

use super::reference::{ExpectedResult, ROOT, Reference};
use super::{Dice, dedup_value, kind_of, new_file, read_as_doors_do, regular, text, write_as_doors_do};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Number of places in a leaf of a file map.
const LEAF: u64 = 508;

/// Options for a run of actions.
#[derive(Clone, Debug)]
pub struct Habits {
    /// Number of letters in the alphabet of block contents.
    pub letters: u64,
    /// Maximum number of blocks in a write.
    pub write_blocks: u64,
    /// Number of blocks in all files together from which on actions only make them smaller.
    pub blocks_max: u64,
    /// Whether files reach up to 8 TiB.
    pub far_offsets: bool,
    /// Whether dedup is switched off for some files.
    pub dedup_switched: bool,
    /// Whether the pool shares at all.
    pub pool_dedup: Dedup,
    /// Whether some directories have a sharing domain of their own.
    pub domains: bool,
    /// Whether space is reserved.
    pub reserve: bool,
}

/// A pool and its expected state.
pub struct Pair<'a> {
    pub pool: &'a Pool,
    pub reference: &'a mut Reference,
    pub dice: &'a Dice,
    pub habits: &'a Habits,
    /// The actions so far, as text; the last one is in progress.
    pub story: &'a mut Vec<String>,
    /// Called between the operations of an action that consists of several.
    pub between: &'a mut dyn FnMut(&Reference),
    /// Set when durability was promised.
    pub promised: bool,
}

fn compare<T: std::fmt::Debug>(got: Result<T, PoolError>, expected: ExpectedResult<()>) -> Option<T> {
    match (got, expected) {
        (Ok(value), Ok(())) => Some(value),
        (Err(error), Err(kind)) if kind_of(&error) == kind => None,
        (got, expected) => panic!("the pool gave {got:?}, expected {expected:?}"),
    }
}

impl Pair<'_> {
    fn between(&mut self) {
        (self.between)(self.reference);
    }

    fn tell(&mut self, what: String) {
        self.story.push(what);
    }

    /// Does one random action.
    pub fn act(&mut self) {
        let crowded = self.reference.mapped_blocks() > self.habits.blocks_max;
        match self.dice.below(if crowded { 14 } else { 42 }) {
            0..4 => self.remove(),
            4..6 => self.truncate(),
            6..8 => self.allocate(true),
            8 => self.read(),
            9..11 => self.rename(),
            11 => self.set_attributes(),
            12..14 => self.share_range(),
            14..17 => self.create(),
            17 => self.create_unnamed(),
            18 => self.link(),
            19..26 => self.write(),
            26..29 => self.read(),
            29 => self.truncate(),
            30..32 => self.allocate(false),
            32..34 => self.clone_file(),
            34..37 => self.clone_range(),
            37 => self.seek(),
            38 => self.set_attributes(),
            39 => self.extended_attribute(),
            40 => self.lookup(),
            _ => self.list_while_changing(),
        }
    }

    fn file(&self) -> Option<u64> {
        let files = self.reference.alive(|node| node.kind == FileKind::Regular);
        (!files.is_empty()).then(|| *self.dice.pick(&files))
    }

    fn any(&self) -> u64 {
        *self.dice.pick(&self.reference.alive(|_| true))
    }

    fn directory(&self) -> u64 {
        let all = self.reference.alive(|node| node.kind == FileKind::Directory);
        // Now and then an inode that does not fit.
        if self.dice.one_in(30) { self.any() } else { *self.dice.pick(&all) }
    }

    fn name(&self) -> Vec<u8> {
        match self.dice.below(60) {
            0 => vec![b'x'; 255],
            1 => vec![b'x'; 256],
            2 => self.dice.pick(&[&b"."[..], b"..", b"", b"a/b", b"a\0b"]).to_vec(),
            _ => format!("n{}", self.dice.below(12)).into_bytes(),
        }
    }

    /// Returns a directory and a name, which exists more often than not.
    fn place(&self) -> (u64, Vec<u8>) {
        let parent = self.directory();
        let names: Vec<&Vec<u8>> = self.reference.node(parent).entries.keys().collect();
        if names.is_empty() || self.dice.one_in(4) {
            (parent, self.name())
        } else {
            (parent, (*self.dice.pick(&names)).clone())
        }
    }

    fn offset(&self) -> u64 {
        let block = match self.dice.below(10) {
            0..4 => self.dice.below(12),
            4..6 => self.dice.below(40),
            6 => LEAF * (1 + self.dice.below(3)) - self.dice.below(4),
            7 => LEAF * self.dice.below(4),
            8 if self.habits.far_offsets => LEAF * LEAF * (1 + self.dice.below(9)) - self.dice.below(3),
            9 if self.habits.far_offsets => (8 << 40) / BLOCK - 1 - self.dice.below(700),
            _ => self.dice.below(LEAF * 3),
        };
        block * BLOCK + if self.dice.one_in(3) { self.dice.below(BLOCK) } else { 0 }
    }

    fn length(&self) -> u64 {
        let blocks = match self.dice.below(8) {
            0..4 => 1 + self.dice.below(3),
            4..7 => 1 + self.dice.below(20),
            _ => 1 + self.dice.below(self.habits.write_blocks),
        };
        blocks * BLOCK - if self.dice.one_in(3) { self.dice.below(BLOCK) } else { 0 }
    }

    /// Called after a hold was taken: returns it, or keeps it as a handle.
    fn held(&mut self, attr: &Attr) {
        if self.dice.one_in(4) {
            self.reference.node_mut(attr.ino.0).holds += 1;
        } else {
            self.pool.release(attr.ino, 1);
        }
        self.forget();
    }

    /// Returns some holds, and lets the reference forget inodes that nothing keeps.
    fn forget(&mut self) {
        let held = self.reference.alive(|node| node.holds > 0);
        if held.len() > 6 || (!held.is_empty() && self.dice.one_in(6)) {
            let ino = *self.dice.pick(&held);
            let holds = self.reference.node(ino).holds;
            self.pool.release(Ino(ino), holds);
            self.reference.node_mut(ino).holds = 0;
        }
        self.reference.forget_orphans();
    }

    fn create(&mut self) {
        let (parent, name) = (self.directory(), self.name());
        let kind = *self.dice.pick(&[
            FileKind::Regular,
            FileKind::Regular,
            FileKind::Regular,
            FileKind::Directory,
            FileKind::Symlink,
            FileKind::Fifo,
            FileKind::CharDevice,
        ]);
        let mode = *self.dice.pick(&[0o644, 0o600, 0o777, 0o4755, 0o2775]);
        let new = NewFile { mode, rdev: 0x0801, uid: 7, ..new_file(kind) };
        self.tell(format!("create {kind:?} {name:?} in {parent}"));
        let can = self.reference.can_create(parent, &name);
        if kind == FileKind::Symlink {
            let target = vec![b't'; 1 + self.dice.index(4095)];
            let got = self.pool.create_symlink(Ino(parent), &name, &target, new.uid, new.gid);
            if let Some(attr) = compare(got, can) {
                let new = NewFile { mode: 0o777, umask: 0, ..new };
                self.reference.create(parent, &name, &new, attr.ino.0);
                self.reference.node_mut(attr.ino.0).target = target;
                self.held(&attr);
            }
            return;
        }
        if let Some(attr) = compare(self.pool.create_file(Ino(parent), &name, &new), can) {
            self.reference.create(parent, &name, &new, attr.ino.0);
            self.between();
            if kind == FileKind::Directory && self.habits.domains && self.dice.one_in(2) {
                let domain = self.dice.below(3);
                let value = domain.to_string();
                self.pool
                    .set_xattr(attr.ino, b"user.onefold.domain", value.as_bytes(), XattrMode::Either)
                    .expect("is empty");
                self.reference.node_mut(attr.ino.0).domain = u16::try_from(domain).expect("below 3");
            }
            self.held(&attr);
        }
    }

    fn create_unnamed(&mut self) {
        let parent = *self.dice.pick(&self.reference.alive(|node| node.kind == FileKind::Directory && node.links > 0));
        self.tell(format!("create an unnamed file in {parent}"));
        let attr = self.pool.create_unnamed(Ino(parent), &regular()).expect("there is room");
        self.reference.create_inode(parent, &regular(), attr.ino.0);
        let node = self.reference.node_mut(attr.ino.0);
        node.links = 0;
        node.holds = 1;
    }

    fn link(&mut self) {
        let (ino, parent, name) = (self.any(), self.directory(), self.name());
        self.tell(format!("link {ino} as {name:?} in {parent}"));
        let got = self.pool.link(Ino(ino), Ino(parent), &name);
        let expected = self.reference.link(ino, parent, &name);
        if let Some(attr) = compare(got, expected) {
            self.held(&attr);
        }
    }

    fn remove(&mut self) {
        let (parent, name) = self.place();
        let of_directory = self.dice.one_in(3);
        self.tell(format!("remove {name:?} from {parent}, of_directory {of_directory}"));
        let expected = if of_directory && name == b".." {
            Err("NotEmpty")
        } else {
            self.reference.remove(parent, &name, of_directory)
        };
        let got = if of_directory {
            self.pool.remove_directory(Ino(parent), &name)
        } else {
            self.pool.unlink(Ino(parent), &name)
        };
        compare(got, expected);
        self.forget();
    }

    fn rename(&mut self) {
        let ((from, name), (to, new_name)) = (self.place(), self.place());
        let mode =
            *self.dice.pick(&[RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]);
        self.tell(format!("rename {name:?} in {from} to {new_name:?} in {to}, {mode:?}"));
        let expected = self.reference.rename(from, &name, to, &new_name, mode);
        compare(self.pool.rename(Ino(from), &name, Ino(to), &new_name, mode), expected);
        self.forget();
    }

    fn write(&mut self) {
        let ino = if self.dice.one_in(40) { Some(self.any()) } else { self.file() };
        let Some(ino) = ino else { return self.create() };
        let offset = if self.dice.one_in(300) { (16 << 40) - self.dice.below(5000) } else { self.offset() };
        let length = usize::try_from(self.length()).expect("a small write");
        let bytes = text(self.dice, length, self.habits.letters);
        let durability = if self.dice.one_in(10) { Durability::Now } else { Durability::Later };
        self.tell(format!("write {length} bytes at {offset} of {ino}, {durability:?}"));
        let expected = self.reference.write(ino, offset, &bytes);
        let done = if self.dice.one_in(3) {
            compare(self.pool.write(Ino(ino), offset, &bytes, durability), expected)
        } else {
            compare(write_as_doors_do(self.pool, Ino(ino), offset, &bytes, durability), expected)
        };
        self.promised |= done.is_some() && durability == Durability::Now && !bytes.is_empty();
    }

    fn read(&mut self) {
        let Some(ino) = self.file() else { return };
        let (offset, length) = (self.offset(), self.length());
        self.tell(format!("read {length} bytes at {offset} of {ino}"));
        let mut bytes = vec![0xaa; usize::try_from(length).expect("a small read")];
        let got = read_as_doors_do(self.pool, Ino(ino), offset, &mut bytes).expect("reads");
        let node = self.reference.node(ino);
        let expected = length.min(node.size.saturating_sub(offset));
        assert_eq!(got as u64, expected, "bytes read of a file of {}", node.size);
        assert!(bytes[..got] == node.get(offset, expected)[..], "content at {offset}");
    }

    fn truncate(&mut self) {
        let Some(ino) = self.file() else { return };
        let size = self.reference.node(ino).size;
        let bytes = match self.dice.below(6) {
            0 => 0,
            1 => size / 2,
            2 => size.saturating_sub(self.dice.below(9000)),
            3 => size + self.dice.below(9000),
            4 if self.dice.one_in(20) => (16 << 40) + 1,
            _ => self.offset(),
        };
        self.tell(format!("truncate {ino} to {bytes}"));
        let expected = self.reference.truncate(ino, bytes);
        let change = SetAttr { size_bytes: Some(bytes), ..SetAttr::default() };
        compare(self.pool.set_attr(Ino(ino), &change), expected);
    }

    fn allocate(&mut self, only_punch: bool) {
        let Some(ino) = self.file() else { return };
        let (offset, length) = (self.offset(), self.length());
        let reserving =
            [AllocateMode::Extend, AllocateMode::KeepSize, AllocateMode::ZeroRange, AllocateMode::ZeroRangeKeepSize];
        let mode =
            if only_punch || !self.habits.reserve { AllocateMode::PunchHole } else { *self.dice.pick(&reserving) };
        self.tell(format!("{mode:?} {length} bytes at {offset} of {ino}"));
        self.pool.allocate(Ino(ino), offset, length, mode).expect("there is room");
        let node = self.reference.node_mut(ino);
        node.may_reserve |= mode != AllocateMode::PunchHole;
        let end = offset + length;
        let zeroed =
            matches!(mode, AllocateMode::PunchHole | AllocateMode::ZeroRange | AllocateMode::ZeroRangeKeepSize);
        let (first, last) = (offset.next_multiple_of(BLOCK), end / BLOCK * BLOCK);
        // The edges are written, then the blocks between them are freed: three operations.
        let pieces =
            if first > last { [(offset, end), (0, 0), (0, 0)] } else { [(offset, first), (last, end), (first, last)] };
        for (from, to) in pieces.into_iter().filter(|(from, to)| zeroed && from < to) {
            self.reference.node_mut(ino).zero(from, to);
            self.between();
        }
        let node = self.reference.node_mut(ino);
        if matches!(mode, AllocateMode::Extend | AllocateMode::ZeroRange) {
            node.size = node.size.max(offset + length);
        }
    }

    fn clone_file(&mut self) {
        let Some(source) = self.file() else { return };
        let parent = *self.dice.pick(&self.reference.alive(|node| node.kind == FileKind::Directory && node.links > 0));
        let target = if self.dice.one_in(8) {
            self.file().unwrap_or(source)
        } else {
            let name = self.name();
            self.tell(format!("create {name:?} in {parent} for a clone"));
            let can = self.reference.can_create(parent, &name);
            let Some(attr) = compare(self.pool.create_file(Ino(parent), &name, &regular()), can) else { return };
            self.reference.create(parent, &name, &regular(), attr.ino.0);
            self.between();
            self.held(&attr);
            attr.ino.0
        };
        self.tell(format!("clone {source} to {target}"));
        // Returning a hold may have removed the source; a target with reserved places looks empty but is not.
        if !self.reference.nodes.contains_key(&source) || self.reference.node(target).may_reserve {
            return;
        }
        let expected = self.reference.clone_file(source, target);
        compare(self.pool.clone_file(Ino(source), Ino(target)), expected);
    }

    fn clone_range(&mut self) {
        let Some((source, target)) = self.file().zip(self.file()) else { return };
        let (mut from, mut to, mut bytes) = (self.offset(), self.offset(), self.length());
        match self.dice.below(4) {
            0 => (from, to, bytes) = (from / BLOCK * BLOCK, to / BLOCK * BLOCK, bytes.next_multiple_of(BLOCK)),
            1 => {
                let leaf = LEAF * BLOCK;
                (from, to) = (from / leaf % 3 * leaf, to / leaf % 3 * leaf);
                bytes = leaf * (1 + self.dice.below(3));
            }
            2 => bytes = self.reference.node(source).size.saturating_sub(from),
            _ => {}
        }
        bytes = bytes.min(8 << 20);
        let size = self.reference.node(source).size;
        let whole = bytes.min(size.saturating_sub(from));
        self.tell(format!("clone {bytes} bytes at {from} of {source} to {to} of {target}"));
        let got = self.pool.clone_range(RangePair {
            source: Ino(source),
            source_offset: from,
            target: Ino(target),
            target_offset: to,
            bytes,
        });
        if source == target && whole > 0 && from < to + whole && to < from + whole {
            compare(got, Err("Invalid"));
            return;
        }
        let done = got.expect("clones");
        assert!(done <= whole && (done > 0 || whole == 0), "{done} of {whole} bytes are cloned");
        // Each piece that lies in one leaf of both maps is a separate operation.
        let mut at = 0;
        while at < done {
            let until = |offset: u64| LEAF * BLOCK - (offset + at) % (LEAF * BLOCK);
            let piece = (done - at).min(until(from)).min(until(to));
            self.reference.copy(source, from + at, target, to + at, piece);
            self.between();
            at += piece;
        }
    }

    /// Compares and shares two ranges, mostly equal ones. Whatever the result, all files read as before.
    fn share_range(&mut self) {
        let Some((source, mut target)) = self.file().zip(self.file()) else { return };
        let (mut from, mut to) = (self.offset() / BLOCK, self.offset() / BLOCK);
        let mut blocks = 1 + self.dice.below(40);
        let stored: Vec<u64> = self.reference.node(source).blocks.keys().copied().collect();
        if !stored.is_empty() && !self.dice.one_in(6) {
            from = *self.dice.pick(&stored);
            (target, to) = *self.dice.pick(&self.reference.places_of(source, from));
            let equal = (0..=self.dice.below(600))
                .take_while(|at| self.reference.block(source, from + at) == self.reference.block(target, to + at));
            // Now and then one too many.
            blocks = equal.count() as u64 + u64::from(self.dice.one_in(8));
        }
        self.tell(format!("share {blocks} blocks at {from} of {source} with those at {to} of {target}"));
        let (one, other) = (self.reference.node(source), self.reference.node(target));
        let is_off = |dedup| dedup == Dedup::Off;
        let expected = if source == target && from.abs_diff(to) < blocks {
            Err("Invalid")
        } else if one.domain != other.domain {
            Err("CrossDomain")
        } else if is_off(one.dedup) || is_off(other.dedup) || is_off(self.habits.pool_dedup) {
            Err("NotPermitted")
        } else {
            Ok(())
        };
        let are_within = (from + blocks) * BLOCK <= one.size && (to + blocks) * BLOCK <= other.size;
        let is_equal = are_within
            && (0..blocks).all(|at| self.reference.block(source, from + at) == self.reference.block(target, to + at));
        let got = self.pool.share_range(RangePair {
            source: Ino(source),
            source_offset: from * BLOCK,
            target: Ino(target),
            target_offset: to * BLOCK,
            bytes: blocks * BLOCK,
        });
        if let Some(outcome) = compare(got, expected) {
            assert_eq!(outcome != ShareOutcome::Differ, is_equal, "{outcome:?}");
        }
    }

    fn seek(&mut self) {
        let Some(ino) = self.file() else { return };
        let offset = self.offset();
        let data = self.dice.one_in(2);
        self.tell(format!("seek in {ino} from {offset}, data {data}"));
        let expected = self.reference.node(ino).seek(offset, data);
        let target = if data { SeekTarget::Data } else { SeekTarget::Hole };
        let got = self.pool.seek(Ino(ino), offset, target);
        if let Some(got) = compare(got, expected.map(|_| ())) {
            assert_eq!(Ok(got), expected);
        }
    }

    fn set_attributes(&mut self) {
        let ino = self.any();
        let mode = u16::try_from(self.dice.below(0o10000)).expect("12 bits");
        let uid = self.dice.one_in(2).then_some(77);
        self.tell(format!("set mode {mode:o} and owner {uid:?} of {ino}"));
        let change = SetAttr { mode: Some(mode), uid, ..SetAttr::default() };
        let attr = self.pool.set_attr(Ino(ino), &change).expect("exists");
        let node = self.reference.node_mut(ino);
        node.mode = mode;
        node.uid = uid.unwrap_or(node.uid);
        assert_eq!((attr.mode, attr.uid), (node.mode, node.uid));
    }

    fn extended_attribute(&mut self) {
        let ino = self.any();
        if self.habits.dedup_switched && self.dice.one_in(2) {
            let dedup = *self.dice.pick(&[Dedup::On, Dedup::Off]);
            self.tell(format!("dedup {dedup:?} for {ino}"));
            let set = self.pool.set_xattr(Ino(ino), b"user.onefold.dedup", dedup_value(dedup), XattrMode::Either);
            set.expect("is allowed");
            self.reference.node_mut(ino).dedup = dedup;
            return;
        }
        let name = format!("user.a{}", self.dice.below(4)).into_bytes();
        if self.dice.one_in(3) {
            self.tell(format!("remove attribute {name:?} of {ino}"));
            let expected = self.reference.node_mut(ino).xattrs.remove(&name).map(|_| ()).ok_or("NoAttribute");
            compare(self.pool.remove_xattr(Ino(ino), &name), expected);
            return;
        }
        let longest = if self.dice.one_in(5) { 65_536 } else { 40 };
        let value = vec![b'v'; self.dice.index(longest + 1)];
        let mode = *self.dice.pick(&[XattrMode::Either, XattrMode::Create, XattrMode::Replace]);
        self.tell(format!("set attribute {name:?} of {ino} to {} bytes, {mode:?}", value.len()));
        let xattrs = &mut self.reference.node_mut(ino).xattrs;
        let expected = match (xattrs.contains_key(&name), mode) {
            (true, XattrMode::Create) => Err("Exists"),
            (false, XattrMode::Replace) => Err("NoAttribute"),
            _ => Ok(()),
        };
        if expected.is_ok() {
            xattrs.insert(name.clone(), value.clone());
        }
        compare(self.pool.set_xattr(Ino(ino), &name, &value, mode), expected);
    }

    fn lookup(&mut self) {
        let (parent, name) = self.place();
        self.tell(format!("look up {name:?} in {parent}"));
        let node = self.reference.node(parent);
        let expected = match &name[..] {
            _ if name.len() > 255 => Err("NameTooLong"),
            b"" | b"a/b" | b"a\0b" => Err("Invalid"),
            b"." if node.links == 0 => Err("NotFound"),
            b"." => Ok(parent),
            _ if node.kind != FileKind::Directory => Err("NotADirectory"),
            b".." if parent == ROOT => Ok(ROOT),
            b".." => Ok(node.parent),
            _ => node.entries.get(&name).copied().ok_or("NotFound"),
        };
        // The parent of a removed directory may itself be gone.
        let expected = expected.and_then(|ino| self.reference.nodes.get(&ino).map(|_| ino).ok_or("NotFound"));
        if let Some(attr) = compare(self.pool.lookup(Ino(parent), &name), expected.map(|_| ())) {
            assert_eq!(Ok(attr.ino.0), expected);
            self.held(&attr);
        }
    }

    /// Lists a directory in pieces, with changes in between: an entry that exists all the time is listed exactly once.
    fn list_while_changing(&mut self) {
        let all = self.reference.alive(|node| node.kind == FileKind::Directory && node.links > 0);
        let parent = *self.dice.pick(&all);
        self.tell(format!("list {parent} in pieces"));
        let before = self.reference.node(parent).entries.clone();
        let mut seen: Vec<Vec<u8>> = Vec::new();
        let (mut cookie, mut left) = (0, 1);
        while left > 0 {
            left = 0;
            let piece = 1 + self.dice.below(4);
            let listed = self.pool.read_directory(Ino(parent), cookie, &mut |entry| {
                if left == piece {
                    return std::ops::ControlFlow::Break(());
                }
                left += 1;
                cookie = entry.cookie;
                seen.push(entry.name.clone());
                std::ops::ControlFlow::Continue(())
            });
            listed.expect("lists");
            match self.dice.below(3) {
                0 => self.remove(),
                1 => self.create(),
                _ => {}
            }
            self.between();
            if !self.reference.nodes.contains_key(&parent) {
                return;
            }
        }
        let after = &self.reference.node(parent).entries;
        for (name, ino) in before.iter().filter(|(name, ino)| after.get(*name) == Some(ino)) {
            let times = seen.iter().filter(|seen| *seen == name).count();
            assert_eq!(times, 1, "{name:?} (inode {ino}) was there all the time");
        }
    }
}
