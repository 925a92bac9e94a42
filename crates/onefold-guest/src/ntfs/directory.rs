//! Directories: lists all names, or finds one.
//!
//! A listing reads the blocks in their own order and each once, whatever the tree says. So a damaged tree costs only
//! the names of its damaged blocks. A search descends in the tree; if that is damaged, it lists.
//!
//! Any number of directories may name the same clusters, and an index block without names is valid in all of them. So a
//! listing makes the directory the owner of the clusters that it reads, and ends at a cluster of another owner.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use super::Ntfs;
use super::file::MftFile;
use super::index::{self, IndexEntry, IndexRoot, Node};
use super::mft::Mft;
use super::names::FileName;
use super::record::{BITMAP, INDEX_ALLOCATION, INDEX_ROOT, Reference};
use super::stream::Stream;
use super::upper_case::UpperCaseTable;
use crate::bytes::Bytes;
use crate::directory_owners::UNOWNED_BLOCKS;
use crate::error::{Damage, GuestError};
use crate::filesystem::{SEARCHED_BYTES_MAX, TOO_LONG_TO_SEARCH};

/// Name of the attributes of an index of names: `$I30` in UTF-16.
pub(super) const INDEX_OF_NAMES: &[u8] = b"$\0I\x003\x000\0";
const STRUCTURE: &str = "directory";
/// Maximum number of levels of an index. 64 levels would hold more names than a volume has bytes.
const LEVELS_MAX: u32 = 64;
/// Number of damaged blocks after which a directory is abandoned, because its map leads elsewhere.
const DAMAGED_BLOCKS_MAX: u32 = 64;
/// Bytes of one read of a directory's map of blocks.
const MAP_PIECE_BYTES: usize = 4096;
/// Upper bound of the blocks of a directory: a volume has at most 2^32 files, and each block has a name.
const BLOCKS_MAX: u64 = 1 << 32;

/// Called with each name and its file, until it breaks.
type NameVisit<'v> = dyn FnMut(Reference, FileName<'_>) -> ControlFlow<()> + 'v;

/// An open directory.
pub(super) struct Directory<'d> {
    number: u64,
    root: IndexRoot<'d>,
    blocks: Option<Stream>,
    map: Option<Stream>,
    mft: &'d Mft<'d>,
}

impl<'d> Directory<'d> {
    /// Opens the index of a directory.
    ///
    /// # Errors
    /// When it is not a directory, or its root is damaged.
    pub(super) fn open(file: &'d MftFile, mft: &'d Mft<'d>) -> Result<Directory<'d>, GuestError> {
        if !file.base.is_directory {
            return Err(GuestError::NotADirectory);
        }
        let number = file.base.number;
        let roots = file.attributes().filter(|(_, found)| found.is(INDEX_ROOT, INDEX_OF_NAMES));
        let root = roots.filter_map(|(_, found)| IndexRoot::decode(Bytes(found.value()?))).next();
        let root = root.ok_or_else(|| mft.damage(number, "the root of its index makes no sense"))?;
        let blocks = file.stream(INDEX_ALLOCATION, INDEX_OF_NAMES, mft)?;
        let map = file.stream(BITMAP, INDEX_OF_NAMES, mft)?;
        Ok(Directory { number, root, blocks, map, mft })
    }

    /// Calls `visit` with each name, until it breaks. Damaged blocks are recorded in `ntfs` and skipped. A block of
    /// another directory is recorded, and ends the listing.
    ///
    /// # Errors
    /// Those of the disk, and when too much is damaged.
    pub(super) fn each(&self, ntfs: &Ntfs<'_>, visit: &mut NameVisit<'_>) -> Result<(), GuestError> {
        self.each_before(BLOCKS_MAX, ntfs, visit)
    }

    /// As [`Directory::each`], up to block `end` of the index.
    fn each_before(&self, end: u64, ntfs: &Ntfs<'_>, visit: &mut NameVisit<'_>) -> Result<(), GuestError> {
        let mut visitor = Visitor { directory: self, ntfs, visit, visited: 0, damaged: 0 };
        let root = visitor.node(self.root.node, self.mft.place_of(self.number))?;
        if root.is_break() {
            return Ok(());
        }
        let Some(blocks) = &self.blocks else { return Ok(()) };
        let count = self.block_count(blocks).min(end);
        let mut first = 0;
        while first < count {
            let piece = match ntfs.damage.skip(self.map_piece(first))? {
                Some(piece) if piece.is_empty() || visitor.claim_map(first).is_break() => break,
                Some(piece) => piece,
                None => vec![0xff; MAP_PIECE_BYTES],
            };
            for (index, byte) in (first..).step_by(8).zip(piece) {
                let used =
                    (0..8).filter(|bit| byte >> bit & 1 == 1).map(|bit| index + bit).filter(|block| *block < count);
                for block in used {
                    if visitor.block(blocks, block)?.is_break() {
                        return Ok(());
                    }
                }
            }
            first += 8 * MAP_PIECE_BYTES as u64;
        }
        Ok(())
    }

    /// Returns the number of blocks of the index, used or not.
    fn block_count(&self, blocks: &Stream) -> u64 {
        blocks.solid_bytes(self.mft.clusters()) / u64::from(self.root.block_bytes)
    }

    /// Returns the part of the map of used blocks from block `first` on, which must be a multiple of eight. Without a
    /// map, all blocks count as used.
    fn map_piece(&self, first: u64) -> Result<Vec<u8>, GuestError> {
        let mut piece = vec![0xff; MAP_PIECE_BYTES];
        if let Some(map) = &self.map {
            let length = map.read(self.mft.clusters(), first / 8, &mut piece)?;
            piece.truncate(length);
        }
        Ok(piece)
    }

    /// Reads the block at byte `offset` of the index, whose number in the tree is `number`, into `block`.
    fn read_block(&self, blocks: &Stream, offset: u64, into: &mut [u8]) -> Result<(), GuestError> {
        let length = blocks.read(self.mft.clusters(), offset, into)?;
        if length == into.len() {
            Ok(())
        } else {
            Err(self.damage(blocks, offset, "a block lies behind its end").into())
        }
    }

    fn damage(&self, blocks: &Stream, offset: u64, problem: &'static str) -> Damage {
        let clusters = self.mft.clusters();
        match blocks.place_of(clusters.bytes, offset) {
            Some(place) => clusters.volume.damage(place, STRUCTURE, problem),
            None => self.mft.damage(self.number, problem),
        }
    }

    /// Returns the file of a name in UTF-16: of the very name, or else of one that differs in its case only.
    ///
    /// # Errors
    /// Those of the disk, and when the tree is damaged on the way.
    pub(super) fn find(&self, name: &[u16], upper: UpperCaseTable<'_>) -> Result<Option<Reference>, GuestError> {
        let mut search = Search { name, upper, directory: self.number, similar: None };
        let root_place = || self.mft.damage(self.number, "an entry makes no sense");
        let mut step = search.node(self.root.node).map_err(|_| root_place())?;
        let mut block = vec![0; usize::try_from(self.root.block_bytes).unwrap_or(0)];
        let unit = self.root.unit_bytes(self.mft.clusters().bytes);
        for _ in 0..LEVELS_MAX {
            let child = match step {
                Step::Found(reference) => return Ok(Some(reference)),
                Step::NotHere => return Ok(search.similar),
                Step::Child(child) => child,
            };
            let missing = || self.mft.damage(self.number, "a block of its index is missing");
            let (blocks, offset) = self.blocks.as_ref().zip(child.checked_mul(unit)).ok_or_else(missing)?;
            self.read_block(blocks, offset, &mut block)?;
            let node = index::decode_block(&mut block, child);
            let found = node.and_then(|node| search.node(node));
            step = found.map_err(|problem| self.damage(blocks, offset, problem))?;
        }
        Err(self.mft.damage(self.number, "its index has no end").into())
    }

    /// As [`Directory::find`], by going through all names.
    pub(super) fn find_slowly(&self, name: &[u16], ntfs: &Ntfs<'_>) -> Result<Option<Reference>, GuestError> {
        let (mut exact, mut similar, upper) = (None, None, ntfs.upper());
        let searched = SEARCHED_BYTES_MAX / u64::from(self.root.block_bytes);
        self.each_before(searched, ntfs, &mut |reference, found| {
            if found.units.iter().eq(name.iter().copied()) {
                exact = Some(reference);
                return ControlFlow::Break(());
            }
            if upper.compare(found.units.iter(), name.iter().copied()) == Ordering::Equal {
                similar = Some(reference);
            }
            ControlFlow::Continue(())
        })?;
        if exact.is_none() && self.blocks.as_ref().is_some_and(|blocks| self.block_count(blocks) > searched) {
            return Err(GuestError::Unsupported(TOO_LONG_TO_SEARCH));
        }
        Ok(exact.or(similar))
    }
}

/// A listing under way.
struct Visitor<'v> {
    directory: &'v Directory<'v>,
    ntfs: &'v Ntfs<'v>,
    visit: &'v mut NameVisit<'v>,
    /// Blocks that were read.
    visited: u64,
    damaged: u32,
}

impl Visitor<'_> {
    /// Makes the directory the owner of the part of its map that begins with block `first`. Breaks where that part lies
    /// in a hole, since a map has none, and where another directory is the owner.
    fn claim_map(&self, first: u64) -> ControlFlow<()> {
        let Some(map) = &self.directory.map else { return ControlFlow::Continue(()) };
        let place = map.place_of(self.directory.mft.clusters().bytes, first / 8);
        place.map_or(ControlFlow::Break(()), |place| self.claim(place, first / 8 / MAP_PIECE_BYTES as u64))
    }

    /// Makes the directory the owner of the cluster at `place`, unless fewer than [`UNOWNED_BLOCKS`] were `visited`
    /// before. If another directory is the owner, records that and breaks.
    fn claim(&self, place: u64, visited: u64) -> ControlFlow<()> {
        if visited < UNOWNED_BLOCKS {
            return ControlFlow::Continue(());
        }
        let clusters = self.directory.mft.clusters();
        let claimed = self.ntfs.directory_owners.lock().claim(place / clusters.bytes, self.directory.number);
        let Err(problem) = claimed else { return ControlFlow::Continue(()) };
        self.ntfs.damage.note(clusters.volume.damage(place, STRUCTURE, problem));
        ControlFlow::Break(())
    }

    /// Visits the names of a block.
    fn block(&mut self, blocks: &Stream, number: u64) -> Result<ControlFlow<()>, GuestError> {
        let (directory, block_bytes) = (self.directory, u64::from(self.directory.root.block_bytes));
        let offset = number * block_bytes;
        let place = blocks.place_of(directory.mft.clusters().bytes, offset);
        if place.is_some_and(|place| self.claim(place, self.visited).is_break()) {
            return Ok(ControlFlow::Break(()));
        }
        self.visited += 1;
        let place = place.unwrap_or(0);
        let mut block = vec![0; usize::try_from(block_bytes).unwrap_or(0)];
        match directory.read_block(blocks, offset, &mut block) {
            Err(GuestError::Damaged(damage)) => return self.skip(damage),
            outcome => outcome?,
        }
        let unit = directory.root.unit_bytes(directory.mft.clusters().bytes);
        match index::decode_block(&mut block, offset / unit) {
            Ok(node) => self.node(node, place),
            Err(problem) => self.skip_at(place, problem),
        }
    }

    /// Visits the names of a node at `place`.
    fn node(&mut self, node: Node<'_>, place: u64) -> Result<ControlFlow<()>, GuestError> {
        let (number, mut flow, mut is_foreign) = (self.directory.number, ControlFlow::Continue(()), false);
        let outcome = node.each(&mut |entry: IndexEntry<'_>| {
            let Some((reference, name)) = entry.file else { return ControlFlow::Continue(()) };
            is_foreign = name.parent.record() != number;
            if is_foreign {
                return ControlFlow::Break(());
            }
            flow = (self.visit)(reference, name);
            flow
        });
        match outcome {
            Ok(()) if is_foreign => self.skip_at(place, "it has names of another directory"),
            Ok(()) => Ok(flow),
            Err(problem) => self.skip_at(place, problem),
        }
    }

    fn skip_at(&mut self, place: u64, problem: &'static str) -> Result<ControlFlow<()>, GuestError> {
        self.skip(self.directory.mft.clusters().volume.damage(place, STRUCTURE, problem))
    }

    fn skip(&mut self, damage: Damage) -> Result<ControlFlow<()>, GuestError> {
        self.ntfs.damage.note(damage.clone());
        self.damaged += 1;
        if self.damaged > DAMAGED_BLOCKS_MAX { Err(damage.into()) } else { Ok(ControlFlow::Continue(())) }
    }
}

/// Result of comparing a name with a node.
enum Step {
    Found(Reference),
    NotHere,
    Child(u64),
}

/// A running search.
struct Search<'s> {
    name: &'s [u16],
    upper: UpperCaseTable<'s>,
    directory: u64,
    /// A file whose name differs only in case.
    similar: Option<Reference>,
}

impl Search<'_> {
    /// Compares the name with a node. Names are sorted without regard to case, and names that are equal in this order
    /// by units.
    fn node(&mut self, node: Node<'_>) -> Result<Step, &'static str> {
        let (mut step, mut is_foreign) = (Step::NotHere, false);
        node.each(&mut |entry| {
            let order = match entry.file {
                None => Ordering::Less,
                Some((reference, name)) => {
                    is_foreign |= name.parent.record() != self.directory;
                    self.compare(reference, name)
                }
            };
            step = match order {
                Ordering::Greater => return ControlFlow::Continue(()),
                Ordering::Equal => entry.file.map_or(Step::NotHere, |(reference, _)| Step::Found(reference)),
                Ordering::Less => entry.child.map_or(Step::NotHere, Step::Child),
            };
            ControlFlow::Break(())
        })?;
        if is_foreign { Err("it has names of another directory") } else { Ok(step) }
    }

    /// Compares the wanted name with one of the index.
    fn compare(&mut self, reference: Reference, found: FileName<'_>) -> Ordering {
        let wanted = || self.name.iter().copied();
        let order = self.upper.compare(wanted(), found.units.iter());
        if order.is_eq() {
            self.similar = Some(reference);
            return wanted().cmp(found.units.iter());
        }
        order
    }
}
