//! All regions: the directory, and the cells to which it points.

use super::arena::{CellArena, CellAt, MovedCell};
use super::directory::{RegionDirectory, RegionPlace};

/// The words of every region, by its number. A region without words is empty.
#[derive(Debug)]
pub(super) struct Regions {
    directory: RegionDirectory,
    arena: CellArena,
    bytes_max: u64,
}

impl Regions {
    /// Returns one empty region. All regions together never take more than `bytes_max` of memory, unless even an empty
    /// set does.
    pub(super) fn new(bytes_max: u64) -> Regions {
        let directory = RegionDirectory::new();
        let arena = CellArena::new(bytes_max.saturating_sub(directory.memory_bytes()));
        Regions { directory, arena, bytes_max }
    }

    /// Returns the number of regions.
    pub(super) fn len(&self) -> usize {
        self.directory.len()
    }

    /// Returns the memory held, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.directory.memory_bytes() + self.arena.memory_bytes()
    }

    /// Returns the number of regions with words, according to the arena.
    pub(super) fn cell_count(&self) -> usize {
        self.arena.cell_count()
    }

    /// Returns the region that holds `key`.
    pub(super) fn locate(&self, key: u64) -> RegionPlace {
        self.directory.locate(key)
    }

    /// Returns the region that the next split divides; its other half becomes region [`Regions::len`].
    pub(super) fn next_to_split(&self) -> RegionPlace {
        self.directory.next_to_split()
    }

    /// Returns a region's words, and spare ones of its cell; `None` if it is empty.
    pub(super) fn words(&self, region: u32) -> Option<&[u64]> {
        self.directory.cell(region).map(|at| self.arena.words(at))
    }

    /// Returns a region's words for changing all but its number.
    pub(super) fn words_mut(&mut self, region: u32) -> Option<&mut [u64]> {
        self.directory.cell(region).map(|at| self.arena.words_mut(at))
    }

    /// Ensures that a region has at least `words` words, keeping its present ones, and returns them. Returns `None`,
    /// without effect, if the memory limit is reached.
    pub(super) fn reserve(&mut self, region: u32, words: usize) -> Option<&mut [u64]> {
        let at = match self.directory.cell(region) {
            None => {
                let at = self.arena.allocate(region, words)?;
                self.directory.set(region, Some(at));
                at
            }
            Some(at) if self.arena.words(at).len() >= words => at,
            Some(at) => self.relocate(region, at, words)?,
        };
        Some(self.arena.words_mut(at))
    }

    /// Frees a region's words beyond `words`, unless they are too few to be worth a move or there is no memory to move
    /// to.
    pub(super) fn shrink(&mut self, region: u32, words: usize) {
        if let Some(at) = self.directory.cell(region)
            && self.arena.is_roomy(at, words)
        {
            // Staying in too large a cell is not a failure.
            let _ = self.relocate(region, at, words);
        }
    }

    /// Makes a region empty.
    pub(super) fn free(&mut self, region: u32) {
        if let Some(at) = self.directory.cell(region) {
            self.directory.set(region, None);
            let moved = self.arena.free(at);
            self.follow(moved);
        }
    }

    /// Adds an empty region; returns false if the memory limit is reached.
    pub(super) fn push(&mut self) -> bool {
        let directory_bytes = self.directory.memory_bytes_after_push();
        if directory_bytes + self.arena.memory_bytes() > self.bytes_max {
            return false;
        }
        self.directory.push();
        self.arena.limit(self.bytes_max - directory_bytes);
        true
    }

    /// Removes the last region, with its content.
    pub(super) fn pop(&mut self) {
        let last = u32::try_from(self.directory.len() - 1).expect("regions have numbers");
        self.free(last);
        self.directory.pop();
    }

    fn relocate(&mut self, region: u32, from: CellAt, words: usize) -> Option<CellAt> {
        let to = self.arena.allocate(region, words)?;
        self.arena.copy(from, to);
        self.directory.set(region, Some(to));
        let moved = self.arena.free(from);
        self.follow(moved);
        // The new cell itself may have moved into the hole that the old one left.
        self.directory.cell(region)
    }

    fn follow(&mut self, moved: Option<MovedCell>) {
        if let Some(MovedCell { owner, to }) = moved {
            self.directory.set(owner, Some(to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::random::SeededRandom;

    #[test]
    fn regions_keep_their_words_through_every_change_of_size() {
        let random = SeededRandom::new(1);
        let mut regions = Regions::new(u64::MAX);
        let mut contents: Vec<Vec<u64>> = vec![Vec::new()];
        let below = |bound: usize| usize::try_from(random.below(bound as u64)).unwrap();
        let any_of = |contents: &Vec<Vec<u64>>| u32::try_from(below(contents.len())).unwrap();
        for _ in 0..30_000 {
            let number = any_of(&contents);
            let content = &mut contents[number as usize];
            match below(20) {
                0 => {
                    regions.free(number);
                    content.clear();
                }
                1 if regions.len() < 200 => {
                    assert!(regions.push());
                    contents.push(Vec::new());
                }
                2 if regions.len() > 1 && below(3) == 0 => {
                    regions.pop();
                    contents.pop();
                }
                action if action < 10 => {
                    content.truncate((content.len() / 2).max(usize::from(!content.is_empty())));
                    regions.shrink(number, content.len());
                }
                _ => {
                    let limit = if below(50) == 0 { 6000 } else { 90 };
                    content.resize(content.len() + 1 + below(limit), random.next_u64());
                    let words = regions.reserve(number, content.len()).unwrap();
                    content[0] = words[0];
                    words[..content.len()].copy_from_slice(content);
                }
            }
            let used = contents.iter().filter(|content| !content.is_empty()).count();
            assert_eq!(regions.cell_count(), used);
            for probe in [number, any_of(&contents)] {
                let Some(content) = contents.get(probe as usize) else { continue };
                match regions.words(probe) {
                    None => assert!(content.is_empty()),
                    Some(words) => assert_eq!(words[..content.len()], content[..]),
                }
            }
        }
    }
}
