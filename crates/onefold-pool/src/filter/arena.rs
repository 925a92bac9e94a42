//! Memory for the regions: cells of a few sizes, packed without holes.
//!
//! Cells of one class have one size and are adjacent in slabs. When a cell is freed, the last cell of its class moves
//! into the hole. So at most one slab of each class is partly filled and memory never fragments, however regions grow
//! and shrink. Cells too large for the classes have a slab of their own.
//!
//! The first word of a cell begins with the number of its region ([`owner`]): the caller that frees a cell learns from
//! it which region's cell has moved.

use std::num::NonZeroU16;

/// Difference between cell sizes, in words: one cache line.
const STEP_WORDS: usize = 8;
/// Number of classes; the last one holds all larger cells.
const CLASSES: usize = 256;
const OWN_SLAB: usize = CLASSES - 1;
/// Maximum size of a cell that shares slabs with others, in words.
const SHARED_WORDS_MAX: usize = OWN_SLAB * STEP_WORDS;
/// Cells with a slab of their own grow in steps of this many words, less than 7 % of the smallest of them.
const OWN_STEP_WORDS: usize = 128;
/// Assumed overhead of the system's allocator per slab.
const SLAB_OVERHEAD_BYTES: usize = 16;
/// A class's list of slabs grows by this many places instead of doubling.
const LIST_STEP: usize = 16;
/// Number of empty slabs that are kept, so that a class that comes and goes need not ask the system each time.
const SPARE_SLABS: usize = 2;

/// Length of a slab in bytes; arenas below [`SMALL_ARENA_BYTES`] have shorter ones.
const SLAB_BYTES: usize = 64 << 10;
const SLAB_BYTES_SMALL: usize = 16 << 10;
const SMALL_ARENA_BYTES: u64 = 8 << 20;
const _: () = assert!(
    SHARED_WORDS_MAX * 8 + SLAB_OVERHEAD_BYTES <= SLAB_BYTES_SMALL,
    "a cell of every shared class fits the shorter slab"
);
const _: () = assert!(SLAB_BYTES / (STEP_WORDS * 8) <= u16::MAX as usize, "a cell's index fits its field");

/// Place of a cell. It changes when another cell of its class is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CellAt {
    slab: u32,
    cell: u16,
    /// One more than the index of the class, so that an absent cell takes no more memory than a present one.
    class_no: NonZeroU16,
}

impl CellAt {
    fn class(self) -> usize {
        usize::from(self.class_no.get()) - 1
    }
}

/// A cell that moved into the place of a freed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MovedCell {
    pub(super) owner: u32,
    pub(super) to: CellAt,
}

/// All cells.
///
/// Invariants: every slab of a class but the last is full; the last holds at least one cell; the counted memory is the
/// memory held.
#[derive(Debug)]
pub(super) struct CellArena {
    bytes_max: u64,
    classes: Vec<Class>,
    spares: Vec<Box<[u64]>>,
    slab_bytes: u64,
}

#[derive(Debug, Default)]
struct Class {
    slabs: Vec<Box<[u64]>>,
    /// Words of a cell; 0 if each has a slab of its own.
    cell_words: usize,
    /// Cells in the last slab; 0 only when there is no slab.
    cells_in_last: usize,
}

/// Returns the owner in a cell's first word.
pub(super) fn owner(cell: &[u64]) -> u32 {
    u32::try_from(cell[0] & u64::from(u32::MAX)).expect("masked to 32 bits")
}

impl Class {
    /// Returns the number of cells in a slab of this class.
    fn cells_of(&self, slab: &[u64]) -> usize {
        slab.len().checked_div(self.cell_words).unwrap_or(1)
    }

    /// Returns whether the next cell needs another slab.
    fn is_full(&self) -> bool {
        self.slabs.last().is_none_or(|slab| self.cells_in_last == self.cells_of(slab))
    }
}

impl CellArena {
    /// Returns an empty arena that never holds more than `bytes_max`.
    pub(super) fn new(bytes_max: u64) -> CellArena {
        let class = |index: usize| {
            let cell_words = if index == OWN_SLAB { 0 } else { (index + 1) * STEP_WORDS };
            Class { cell_words, ..Class::default() }
        };
        CellArena { bytes_max, classes: (0..CLASSES).map(class).collect(), spares: Vec::new(), slab_bytes: 0 }
    }

    /// Returns the memory held, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let lists: usize = self.classes.iter().map(|class| class.slabs.capacity() * size_of::<Box<[u64]>>()).sum();
        self.slab_bytes + (lists + self.classes.len() * size_of::<Class>()) as u64
    }

    /// Sets the maximum memory; memory already held stays.
    pub(super) fn limit(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
    }

    /// Returns a zeroed cell of at least `words` words for region `owner`, or `None` if the memory limit is reached.
    pub(super) fn allocate(&mut self, owner: u32, words: usize) -> Option<CellAt> {
        let class_index = class_for(words);
        if self.classes[class_index].is_full() {
            let slab_words = if class_index == OWN_SLAB { own_slab_words(words) } else { self.slab_words() };
            let slab = self.allocate_slab(slab_words)?;
            let class = &mut self.classes[class_index];
            if class.slabs.len() == class.slabs.capacity() {
                class.slabs.reserve_exact(LIST_STEP);
            }
            class.slabs.push(slab);
            class.cells_in_last = 0;
        }
        let class = &mut self.classes[class_index];
        let at = CellAt {
            slab: u32::try_from(class.slabs.len() - 1).expect("2^32 slabs are more than any memory"),
            cell: u16::try_from(class.cells_in_last).expect("asserted for the greatest slab"),
            class_no: u16::try_from(class_index + 1).ok().and_then(NonZeroU16::new).expect("there are fewer classes"),
        };
        class.cells_in_last += 1;
        let cell = self.words_mut(at);
        cell.fill(0);
        cell[0] = u64::from(owner);
        Some(at)
    }

    /// Frees a cell. If that moves another cell, the caller must update the moved cell's owner.
    pub(super) fn free(&mut self, at: CellAt) -> Option<MovedCell> {
        let class = &mut self.classes[at.class()];
        let last_slab = class.slabs.len() - 1;
        let last_cell = class.cells_in_last - 1;
        let hole = (at.slab as usize, usize::from(at.cell));
        let mut moved = None;
        if hole != (last_slab, last_cell) {
            if at.class() == OWN_SLAB {
                class.slabs.swap(hole.0, last_slab);
            } else {
                let words = class.cell_words;
                let (from, to) = (last_cell * words, hole.1 * words);
                let (before, after) = class.slabs.split_at_mut(last_slab);
                match before.get_mut(hole.0) {
                    Some(slab) => slab[to..to + words].copy_from_slice(&after[0][from..from + words]),
                    None => after[0].copy_within(from..from + words, to),
                }
            }
            moved = Some(at);
        }
        class.cells_in_last = last_cell;
        if last_cell == 0 {
            let slab = class.slabs.pop();
            class.cells_in_last = class.slabs.last().map_or(0, |slab| class.cells_of(slab));
            self.retire_slab(slab);
        }
        moved.map(|to| MovedCell { owner: owner(self.words(to)), to })
    }

    /// Returns a cell's words.
    pub(super) fn words(&self, at: CellAt) -> &[u64] {
        let class = &self.classes[at.class()];
        let slab = &class.slabs[at.slab as usize];
        match class.cell_words {
            0 => slab,
            words => &slab[usize::from(at.cell) * words..][..words],
        }
    }

    /// Returns a cell's words for changing all but the owner.
    pub(super) fn words_mut(&mut self, at: CellAt) -> &mut [u64] {
        let class = &mut self.classes[at.class()];
        let slab = &mut class.slabs[at.slab as usize];
        match class.cell_words {
            0 => slab,
            words => &mut slab[usize::from(at.cell) * words..][..words],
        }
    }

    /// Copies a cell's content, as much as fits, to another cell of the same owner.
    pub(super) fn copy(&mut self, from: CellAt, to: CellAt) {
        // The slab is removed from its class while both are borrowed: cells of different sizes share no slab.
        let words = self.words(from).len().min(self.words(to).len());
        let start = usize::from(from.cell) * self.classes[from.class()].cell_words;
        debug_assert!(from.class() != to.class() || from.class() == OWN_SLAB, "a cell that changes its size");
        let slab = std::mem::take(&mut self.classes[from.class()].slabs[from.slab as usize]);
        self.words_mut(to)[..words].copy_from_slice(&slab[start..start + words]);
        self.classes[from.class()].slabs[from.slab as usize] = slab;
    }

    /// Returns whether a cell for `words` words would be smaller than `at` by more than one step, so that a region that
    /// shrinks and grows a little stays where it is.
    pub(super) fn is_roomy(&self, at: CellAt, words: usize) -> bool {
        cell_words_for(cell_words_for(words) + 1) < self.words(at).len()
    }

    /// Returns the number of cells.
    pub(super) fn cell_count(&self) -> usize {
        let full = |class: &Class| class.slabs.iter().rev().skip(1).map(|slab| class.cells_of(slab)).sum::<usize>();
        self.classes.iter().map(|class| full(class) + class.cells_in_last).sum()
    }

    /// Returns the length of the next slab.
    fn slab_words(&self) -> usize {
        // A slab of s bytes wastes half a cell at its end (1 KiB per s), and half a slab in each of the twenty classes
        // in use: below 10 MiB, short slabs do better. Even longer ones would save 1 % of a large arena, but lose more:
        // the system's allocator can hardly use the holes of many slabs of a former length.
        let bytes = if self.slab_bytes < SMALL_ARENA_BYTES { SLAB_BYTES_SMALL } else { SLAB_BYTES };
        // The allocator's own bytes are part of the length, so that slabs fill whole pages.
        (bytes - SLAB_OVERHEAD_BYTES) / 8
    }

    fn allocate_slab(&mut self, words: usize) -> Option<Box<[u64]>> {
        while let Some(spare) = self.spares.pop() {
            if spare.len() == words {
                return Some(spare);
            }
            self.slab_bytes -= bytes_of(&spare);
        }
        let slab_bytes = (words * 8 + SLAB_OVERHEAD_BYTES) as u64;
        let list_bytes = (LIST_STEP * size_of::<Box<[u64]>>()) as u64;
        if self.memory_bytes() + slab_bytes + list_bytes > self.bytes_max {
            return None;
        }
        self.slab_bytes += slab_bytes;
        Some(vec![0; words].into_boxed_slice())
    }

    fn retire_slab(&mut self, slab: Option<Box<[u64]>>) {
        let Some(slab) = slab else { return };
        if slab.len() == self.slab_words() && self.spares.len() < SPARE_SLABS {
            self.spares.push(slab);
        } else {
            self.slab_bytes -= bytes_of(&slab);
        }
    }
}

fn bytes_of(slab: &[u64]) -> u64 {
    (slab.len() * 8 + SLAB_OVERHEAD_BYTES) as u64
}

fn class_for(words: usize) -> usize {
    if words > SHARED_WORDS_MAX { OWN_SLAB } else { words.div_ceil(STEP_WORDS).max(1) - 1 }
}

fn own_slab_words(words: usize) -> usize {
    words.next_multiple_of(OWN_STEP_WORDS)
}

fn cell_words_for(words: usize) -> usize {
    match class_for(words) {
        OWN_SLAB => own_slab_words(words),
        class => (class + 1) * STEP_WORDS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::random::SeededRandom;
    use std::collections::BTreeMap;

    #[test]
    fn cells_keep_their_content_while_others_come_move_and_go() {
        let random = SeededRandom::new(1);
        let mut arena = CellArena::new(u64::MAX);
        let mut cells: BTreeMap<u32, (CellAt, usize, u64)> = BTreeMap::new();
        for round in 0..20_000 {
            let name = u32::try_from(random.below(300)).unwrap();
            if let Some((at, _, _)) = cells.remove(&name) {
                if let Some(moved) = arena.free(at) {
                    cells.get_mut(&moved.owner).unwrap().0 = moved.to;
                }
            } else {
                let limit = if random.below(20) == 0 { 5000 } else { 400 };
                let words = 2 + usize::try_from(random.below(limit)).unwrap();
                let at = arena.allocate(name, words).unwrap();
                let content = random.next_u64();
                assert!(arena.words(at).len() >= words);
                assert!(arena.words(at)[1..].iter().all(|&word| word == 0), "a new cell is zeroed");
                arena.words_mut(at)[1..].fill(content);
                cells.insert(name, (at, words, content));
            }
            assert_eq!(arena.cell_count(), cells.len());
            if round % 50 == 0 {
                for (&name, &(at, words, content)) in &cells {
                    assert_eq!(owner(arena.words(at)), name);
                    assert!(arena.words(at).len() < words + OWN_STEP_WORDS);
                    assert!(arena.words(at)[1..].iter().all(|&word| word == content));
                }
            }
        }
        let held: usize =
            arena.classes.iter().flat_map(|class| &class.slabs).chain(&arena.spares).map(|s| s.len()).sum();
        let slabs = arena.classes.iter().map(|class| class.slabs.len()).sum::<usize>() + arena.spares.len();
        assert_eq!(arena.slab_bytes, (held * 8 + slabs * SLAB_OVERHEAD_BYTES) as u64);
    }

    #[test]
    fn memory_never_passes_its_limit_and_is_given_back() {
        let mut arena = CellArena::new(200 << 10);
        let cells: Vec<CellAt> = (0..).map_while(|owner| arena.allocate(owner, 100)).collect();
        assert!(cells.len() > 100, "{} cells of 800 bytes in 200 KiB", cells.len());
        assert!(arena.memory_bytes() <= 200 << 10);
        let empty = CellArena::new(0).memory_bytes();
        for _ in &cells {
            let last = CellAt { slab: 0, cell: 0, class_no: cells[0].class_no };
            arena.free(last);
        }
        assert_eq!(arena.cell_count(), 0);
        assert!(arena.memory_bytes() < empty + (3 + 1) * (17 << 10), "{}", arena.memory_bytes());
    }
}
