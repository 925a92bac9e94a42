//! Maps of files: the places of blocks, and whether they are shared already. Maps are only hints.

use std::collections::BTreeMap;
use std::io;

use onefold_substrate::{MappedExtent, Substrate};

/// Maximum number of extents of a file that are kept at once: 2 MiB of them. Further ones are asked for again.
const WINDOW_MAX: usize = 1 << 15;

/// Maximum number of extents that are kept of a file with accesses in any order, including empty answers: about 2 MiB
/// of them.
const SCATTERED_MAX: usize = 1 << 15;

/// A part of a file's map.
#[derive(Debug)]
pub(crate) struct Extents {
    extents: Vec<MappedExtent>,
    /// The extents cover everything from here.
    from: u64,
    to: u64,
    /// Minimum number of extents that are asked for at once.
    window: usize,
}

/// The map at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappedStretch {
    /// Place on the device, in bytes; `None` if it is not known or there is no data.
    pub place: Option<u64>,
    /// Number of bytes from here on that are consecutive on the device, or a hole.
    pub length: u64,
    /// Whether there is written data here.
    pub is_data: bool,
    /// Whether nothing is allocated here.
    pub is_hole: bool,
    /// Whether other files refer to it.
    pub is_shared: bool,
}

impl Extents {
    /// Returns an empty part, which [`Extents::at`] fills.
    #[must_use]
    pub(crate) fn new() -> Extents {
        Extents { extents: Vec::new(), from: 0, to: 0, window: WINDOW_MAX }
    }

    /// Does the same as [`Extents::new`], but keeps only the extents of one answer: for offsets in any order, or a map
    /// that changes.
    #[must_use]
    pub(crate) fn narrow() -> Extents {
        Extents { window: 1, ..Extents::new() }
    }

    /// Returns the map of a whole file of bounded size, such as an arena file.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn load<S: Substrate>(substrate: &S, file: &S::File) -> io::Result<Extents> {
        let mut extents = Extents::new();
        extents.fill(substrate, file, 0, usize::MAX)?;
        Ok(extents)
    }

    /// Returns only the part of a map between two offsets.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn between<S: Substrate>(substrate: &S, file: &S::File, from: u64, end: u64) -> io::Result<Extents> {
        let mut part = Extents { from, to: from, ..Extents::narrow() };
        while part.to < end {
            let mut more = substrate.extents_up_to(file, part.to, end)?;
            let next = more.last().map(MappedExtent::end).filter(|next| *next > part.to);
            // Behind the last extent is a hole.
            let next = next.unwrap_or(end).min(end);
            more.iter_mut().for_each(|extent| *extent = cut(extent, part.to, next));
            part.extents.extend(more.into_iter().filter(|extent| extent.length > 0));
            part.to = next;
        }
        part.extents.sort_unstable_by_key(|extent| extent.offset);
        Ok(part)
    }

    /// Has the file system asked anew about a range, as far as this part has it: it has changed by what was done. A
    /// part that gets too many extents by that ends earlier; so this is for maps of which [`Extents::at`] is asked.
    pub(crate) fn renew<S: Substrate>(&mut self, substrate: &S, file: &S::File, from: u64, end: u64) {
        let (from, end) = (from.max(self.from), end.min(self.to));
        if from >= end {
            return;
        }
        let Ok(part) = Extents::between(substrate, file, from, end) else {
            // Nothing is known any more.
            self.extents.clear();
            self.to = self.from;
            return;
        };
        self.put(part.extents, from, end);
    }

    /// Puts extents in place of all that this part has of a range.
    fn put(&mut self, part: Vec<MappedExtent>, from: u64, end: u64) {
        // With a neighbour on each side: what lies side by side is one extent again.
        let first = self.extents.partition_point(|extent| extent.end() < from);
        let behind = self.extents.partition_point(|extent| extent.offset <= end).max(first);
        let old = self.extents.get(first..behind).unwrap_or_default();
        let before = old.iter().map(|extent| cut(extent, 0, from));
        let after = old.iter().map(|extent| cut(extent, end, u64::MAX));
        let mut new: Vec<MappedExtent> = Vec::new();
        for extent in before.chain(part).chain(after).filter(|extent| extent.length > 0) {
            match new.last_mut().filter(|last| is_next(last, &extent)) {
                Some(last) => last.length += extent.length,
                None => new.push(extent),
            }
        }
        self.extents.splice(first..behind, new);
        if self.extents.len() > WINDOW_MAX {
            self.extents.truncate(WINDOW_MAX);
            self.to = self.end();
        }
    }

    /// Returns all extents.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &MappedExtent> {
        self.extents.iter()
    }

    /// Returns the end of the last extent, in bytes.
    #[must_use]
    pub(crate) fn end(&self) -> u64 {
        self.extents.last().map_or(0, MappedExtent::end)
    }

    /// Returns the map at an offset of the file. Cheap if offsets only rise.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn at<S: Substrate>(&mut self, substrate: &S, file: &S::File, offset: u64) -> io::Result<MappedStretch> {
        if offset < self.from || offset >= self.to {
            self.fill(substrate, file, offset, self.window)?;
        }
        Ok(self.look(offset))
    }

    /// Returns the map at an offset, for a map that was loaded completely.
    #[must_use]
    pub(crate) fn look(&self, offset: u64) -> MappedStretch {
        let next = self.extents.partition_point(|extent| extent.end() <= offset);
        match self.extents.get(next) {
            Some(extent) if extent.offset <= offset => MappedStretch {
                place: extent.place.map(|place| place + (offset - extent.offset)),
                length: extent.end() - offset,
                is_data: !extent.is_unwritten,
                is_hole: false,
                is_shared: extent.is_shared,
            },
            other => {
                let end = other.map_or(self.to, |extent| extent.offset);
                let length = end.saturating_sub(offset).max(1);
                MappedStretch { place: None, length, is_data: false, is_hole: true, is_shared: false }
            }
        }
    }

    /// Asks for the map from an offset on until it ends or there are enough extents.
    fn fill<S: Substrate>(&mut self, substrate: &S, file: &S::File, from: u64, max: usize) -> io::Result<()> {
        self.extents.clear();
        (self.from, self.to) = (from, from);
        while self.extents.len() < max {
            let more = substrate.extents(file, self.to)?;
            // A map that does not advance, as a broken file system may give, has ended.
            let Some(end) = more.last().map(MappedExtent::end).filter(|end| *end > self.to) else {
                self.to = u64::MAX;
                break;
            };
            let to = self.to;
            self.extents.extend(more.into_iter().filter(|extent| extent.end() > to && extent.length > 0));
            self.to = end;
        }
        // Look-ups rely on their order.
        self.extents.sort_unstable_by_key(|extent| extent.offset);
        Ok(())
    }
}

/// Returns the part of an extent between two offsets, of length 0 if there is none.
fn cut(extent: &MappedExtent, from: u64, end: u64) -> MappedExtent {
    let offset = extent.offset.max(from);
    let place = extent.place.map(|place| place.saturating_add(offset - extent.offset));
    MappedExtent { offset, place, length: extent.end().min(end).saturating_sub(offset), ..*extent }
}

/// Tells whether an extent goes on where another one ends, in the file and on the device.
fn is_next(last: &MappedExtent, extent: &MappedExtent) -> bool {
    let place = last.place.map(|place| place.saturating_add(last.length));
    let are_alike = (last.is_shared, last.is_unwritten) == (extent.is_shared, extent.is_unwritten);
    are_alike && last.end() == extent.offset && place.is_some() && place == extent.place
}

/// Parts of a file's map, for offsets in any order: each answer of the file system is kept, so that it is asked for
/// once.
#[derive(Debug, Default)]
pub(crate) struct ScatteredExtents {
    /// Answers by their first offset.
    answers: BTreeMap<u64, Extents>,
    /// Number of extents of all answers, plus one for each answer.
    kept: usize,
}

impl ScatteredExtents {
    /// Returns the map at an offset of the file, as it was when the file system was asked.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn at<S: Substrate>(&mut self, substrate: &S, file: &S::File, offset: u64) -> io::Result<MappedStretch> {
        let known = self.answers.range(..=offset).next_back().filter(|(_, answer)| offset < answer.to);
        if let Some((_, answer)) = known {
            return Ok(answer.look(offset));
        }
        let mut answer = Extents::narrow();
        let placed = answer.at(substrate, file, offset)?;
        let more = answer.extents.len() + 1;
        if self.kept + more > SCATTERED_MAX {
            self.forget();
        }
        self.kept += more;
        self.answers.insert(offset, answer);
        Ok(placed)
    }

    /// Asks the file system again about a range that was changed.
    pub(crate) fn renew<S: Substrate>(&mut self, substrate: &S, file: &S::File, from: u64, end: u64) {
        for answer in self.answers.range_mut(..end).map(|(_, answer)| answer).filter(|answer| answer.to > from) {
            let before = answer.extents.len();
            answer.renew(substrate, file, from, end);
            self.kept = (self.kept + answer.extents.len()).saturating_sub(before);
        }
        if self.kept > SCATTERED_MAX {
            self.forget();
        }
    }

    /// Drops all answers, so that the file system is asked again.
    fn forget(&mut self) {
        *self = ScatteredExtents::default();
    }
}

/// Calls `each` with all extents of a file, in order.
///
/// # Errors
/// Errors of the device; errors of `each`, which end it.
pub(crate) fn each_extent<S: Substrate, E: From<io::Error>>(
    substrate: &S,
    file: &S::File,
    mut each: impl FnMut(&MappedExtent) -> Result<(), E>,
) -> Result<(), E> {
    let mut next = 0;
    loop {
        let extents = substrate.extents(file, next)?;
        // A map that does not advance has ended.
        let Some(end) = extents.last().map(MappedExtent::end).filter(|end| *end > next) else { return Ok(()) };
        extents.iter().try_for_each(&mut each)?;
        next = end;
    }
}

impl Default for Extents {
    fn default() -> Self {
        Extents::new()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use onefold_block::random::SeededRandom;
    use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
    use onefold_substrate::{Access, Files, Sharing};
    use onefold_testing::simulated::{HostNo, SimulatedFileSystem, SimulationOptions};

    use super::*;

    #[test]
    fn scattered_extents_say_what_the_map_says_and_ask_once_for_each_answer() {
        const BLOCKS: u64 = 40;
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..SimulationOptions::default() });
        // Data with holes between, so that there are many extents.
        for first in (0..BLOCKS).step_by(3) {
            file_system.write_image(HostNo(0), "image", first * BLOCK_BYTES_U64, &[7; BLOCK_BYTES]).unwrap();
        }
        let substrate = file_system.observe().substrate;
        let file = substrate.open(Path::new("image"), Access::Read).unwrap();
        let (random, mut scattered) = (SeededRandom::new(3), ScatteredExtents::default());
        let mut asked = 0;
        for _ in 0..400 {
            let offset = random.below(BLOCKS) * BLOCK_BYTES_U64;
            let (before, expected) = (scattered.kept, Extents::narrow().at(&substrate, &file, offset).unwrap());
            assert_eq!(scattered.at(&substrate, &file, offset).unwrap(), expected, "{offset}");
            asked += u64::from(scattered.kept > before);
        }
        assert!((1..=BLOCKS).contains(&asked) && scattered.kept <= SCATTERED_MAX, "{asked}");
        assert!(substrate.extents(&file, 0).is_ok());
        scattered.forget();
        assert_eq!(scattered.kept, 0);
    }

    #[test]
    fn a_map_of_which_each_block_changes_keeps_its_bound_and_joins_what_lies_side_by_side() {
        const BLOCKS: u64 = 200_000;
        let extent = |block: u64, place: u64, count: u64| MappedExtent {
            offset: block * BLOCK_BYTES_U64,
            place: Some(place * BLOCK_BYTES_U64),
            length: count * BLOCK_BYTES_U64,
            is_shared: false,
            is_unwritten: false,
        };
        let whole = || {
            let one = extent(0, BLOCKS, BLOCKS);
            Extents { to: one.end(), extents: vec![one], ..Extents::new() }
        };
        // Each second block lies elsewhere after it was shared.
        let mut map = whole();
        for block in (0..BLOCKS).step_by(2) {
            let moved = extent(block, block / 2, 1);
            map.put(vec![moved], moved.offset, moved.end());
            assert!(map.extents.len() <= WINDOW_MAX, "{block}: {}", map.extents.len());
        }
        assert_eq!((map.extents.len(), map.to), (WINDOW_MAX, map.end()));
        assert_eq!(map.look(2 * BLOCK_BYTES_U64).place, Some(BLOCK_BYTES_U64));
        // All blocks go one by one to places side by side, the last first.
        let mut map = whole();
        for block in (0..BLOCKS).rev() {
            let moved = extent(block, 3 * BLOCKS + block, 1);
            map.put(vec![moved], moved.offset, moved.end());
            assert!(map.extents.len() <= 2, "{block}: {}", map.extents.len());
        }
        assert_eq!(map.extents, [extent(0, 3 * BLOCKS, BLOCKS)]);
        // What is alike, but for its place or whether it is shared, stays apart.
        let shared = MappedExtent { is_shared: true, ..extent(5, 3 * BLOCKS + 5, 1) };
        map.put(vec![shared], shared.offset, shared.end());
        assert_eq!(map.extents.len(), 3);
    }

    #[test]
    fn scattered_extents_that_grow_as_they_are_renewed_are_forgotten() {
        let options = SimulationOptions { images: 0, ..SimulationOptions::default() };
        let file_system = SimulatedFileSystem::new(&options);
        let write = |block: u64| {
            file_system.write_image(HostNo(0), "image", block * BLOCK_BYTES_U64, &[7; BLOCK_BYTES]).unwrap();
        };
        [0, 3].into_iter().for_each(write);
        let substrate = file_system.observe().substrate;
        let file = substrate.open(Path::new("image"), Access::Read).unwrap();
        let mut scattered = ScatteredExtents::default();
        scattered.at(&substrate, &file, 0).unwrap();
        // As though others had filled it.
        scattered.kept = SCATTERED_MAX;
        write(1);
        scattered.renew(&substrate, &file, BLOCK_BYTES_U64, 2 * BLOCK_BYTES_U64);
        assert!(scattered.answers.is_empty() && scattered.kept == 0, "{}", scattered.kept);
    }

    /// Whatever is written meanwhile: a map whose changed ranges are renewed is the map that the file system has.
    #[test]
    fn a_renewed_map_says_what_the_file_system_says() {
        const BLOCKS: u64 = 30;
        for seed in 0..100 {
            let random = SeededRandom::new(seed);
            let options = SimulationOptions { images: 0, ..SimulationOptions::default() };
            let file_system = SimulatedFileSystem::new(&options);
            let write = |block: u64| {
                file_system.write_image(HostNo(0), "image", block * BLOCK_BYTES_U64, &[7; BLOCK_BYTES]).unwrap();
            };
            (0..BLOCKS).filter(|_| random.below(3) > 0).for_each(write);
            write(BLOCKS - 1);
            let substrate = file_system.observe().substrate;
            let file = substrate.open(Path::new("image"), Access::Read).unwrap();
            let mut whole = Extents::load(&substrate, &file).unwrap();
            let mut scattered = ScatteredExtents::default();
            for _ in 0..10 {
                let (from, count) = (random.below(BLOCKS), 1 + random.below(5));
                scattered.at(&substrate, &file, random.below(BLOCKS) * BLOCK_BYTES_U64).unwrap();
                (from..(from + count).min(BLOCKS)).filter(|_| random.below(2) > 0).for_each(write);
                let [from, end] = [from, from + count].map(|block| block * BLOCK_BYTES_U64);
                whole.renew(&substrate, &file, from, end);
                scattered.renew(&substrate, &file, from, end);
                let part = Extents::between(&substrate, &file, from, end).unwrap();
                let now = Extents::load(&substrate, &file).unwrap();
                for offset in (0..BLOCKS).map(|block| block * BLOCK_BYTES_U64) {
                    let what = |placed: MappedStretch| (placed.place, placed.is_data, placed.is_hole, placed.is_shared);
                    assert_eq!(what(whole.look(offset)), what(now.look(offset)), "{seed}: {offset}");
                    let placed = scattered.at(&substrate, &file, offset).unwrap();
                    assert_eq!(what(placed), what(now.look(offset)), "{seed}: {offset}");
                    if (from..end).contains(&offset) {
                        assert_eq!(what(part.look(offset)), what(now.look(offset)), "{seed}: {offset}");
                    }
                }
            }
        }
    }
}
