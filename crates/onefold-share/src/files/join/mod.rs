//! Step 3 of the paper, first half: sorting brings files that are believed equal together, and they become runs.
//!
//! In a group of files that are believed equal, the first in the order of rows is the source of all others. Files of a
//! common volume come first, then files without gaps before others, files that share on the host before others, and
//! files in fewer pieces before others. Of equal ones, that of the image with the lowest number comes first. The first
//! file of another image is their second source (`second`). So the number of runs grows with the number of files, not
//! with its square, and all hosts choose alike.

mod candidates;
mod rows;

use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_sort::Merge;

pub(super) use self::candidates::Candidates;
pub(super) use self::rows::IMAGES_MAX;
use self::rows::{Instance, Part};
use super::tier::{Label, Tier};
use crate::format::guest::Piece;
use crate::format::{FileBlock, FileNo};
use crate::pass::{ContentKey, FilePlace, FinderRun, RunSorter};

/// Maximum number of pieces of a source that are kept in memory. Blocks behind them have no source: only a hostile
/// guest has so many pieces.
const SOURCE_PIECES_MAX: usize = 1 << 16;
/// Number of rows between two checks whether the work is to end.
const ROWS_AT_ONCE: u32 = 1 << 12;

/// Result of a join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JoinReport {
    /// Bytes of runs, which are believed equal to others.
    pub(super) believed: [u64; Tier::ALL.len()],
    /// Bytes that are believed equal to others, but lie at another offset within a block.
    pub(super) misaligned: u64,
}

/// Joins candidates in the order of their rows, and hands the runs to `runs`. `images` are the numbers of the images,
/// in order. `go_on` is called from time to time, and ends the work with an error.
///
/// # Errors
/// Errors of temporary files, and of `go_on`.
pub(super) fn join<E: From<io::Error>>(
    rows: Merge,
    images: &[FileNo],
    runs: &mut SourceRuns,
    go_on: &mut dyn FnMut() -> Result<(), E>,
) -> Result<JoinReport, E> {
    let mut group = Group {
        images,
        first: SourceFile::default(),
        second: SourceFile::default(),
        is_misaligned: false,
        key: None,
        joined: JoinReport::default(),
    };
    let mut left = ROWS_AT_ONCE;
    for row in rows {
        left -= 1;
        if left == 0 {
            go_on()?;
            left = ROWS_AT_ONCE;
        }
        let (instance, part) = rows::parts(row?);
        group.enter(&instance);
        match part {
            Part::Head(key) => group.key = ContentKey::new(key),
            Part::Piece(piece) => group.add_piece(&instance, piece, runs)?,
        }
    }
    Ok(group.joined)
}

/// Runs with the sources of their groups, in any order.
#[derive(Debug)]
pub(super) struct SourceRuns {
    /// Runs with the best source of the group.
    pub(super) first: RunSorter,
    /// Runs with the best source of another image, for blocks that the first source turns out not to hold.
    pub(super) second: RunSorter,
}

/// A file of a group that is a source of others.
#[derive(Debug, Default)]
struct SourceFile {
    instance: Option<Instance>,
    /// Pieces in the order of the content. None overlaps the next.
    pieces: Vec<Piece>,
}

impl SourceFile {
    fn begin(&mut self, instance: Option<Instance>) {
        self.instance = instance;
        self.pieces.clear();
    }

    fn add(&mut self, piece: Piece) {
        let begins = self.pieces.last().map_or(0, |last| last.content + last.count);
        if piece.content >= begins && self.pieces.len() < SOURCE_PIECES_MAX {
            self.pieces.push(piece);
        }
    }

    /// Calls `add` with the runs from this source into a piece of a file of another image or place, with the blocks of
    /// each.
    fn each_run(
        &self,
        images: &[FileNo],
        key: ContentKey,
        target: &Instance,
        piece: Piece,
        mut add: impl FnMut(&FinderRun, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let image = |rank: u32| images.get(usize::try_from(rank).ok()?).copied();
        let Some(source_file) = self.instance.and_then(|source| image(source.image)) else { return Ok(()) };
        let Some(file) = image(target.image) else { return Ok(()) };
        let end = piece.content + piece.count;
        let first = self.pieces.partition_point(|other| other.content + other.count <= piece.content);
        for other in self.pieces.get(first..).unwrap_or_default() {
            if other.content >= end {
                break;
            }
            let from = piece.content.max(other.content);
            let count = end.min(other.content + other.count) - from;
            let place = |file, of: &Piece| FilePlace { file, block: FileBlock(of.block + (from - of.content)) };
            if let Some(run) = FinderRun::between(place(source_file, other), place(file, &piece), count, key) {
                add(&run, count)?;
            }
        }
        Ok(())
    }
}

/// The files that are believed equal and lie in one phase, as far as rows were read.
struct Group<'a> {
    images: &'a [FileNo],
    first: SourceFile,
    /// The first file that lies in another image.
    second: SourceFile,
    /// Whether files before this group hold the same content in another phase.
    is_misaligned: bool,
    /// The key of the current file's content.
    key: Option<ContentKey>,
    joined: JoinReport,
}

impl Group<'_> {
    /// Begins the file of the next row. The first file of a group is its source.
    fn enter(&mut self, instance: &Instance) {
        match self.first.instance {
            Some(first) if (first.content, first.phase) == (instance.content, instance.phase) => {
                if self.second.instance.is_none() && instance.image != first.image {
                    self.second.begin(Some(*instance));
                }
            }
            before => {
                // A file with the same content in another phase than the first file cannot share with it.
                self.is_misaligned = before.is_some_and(|before| before.content == instance.content);
                self.key = None;
                self.first.begin(Some(*instance));
                self.second.begin(None);
            }
        }
    }

    /// Adds a piece of the current file: to a source, and to the runs into other files.
    fn add_piece(&mut self, instance: &Instance, piece: Piece, runs: &mut SourceRuns) -> io::Result<()> {
        let Group { images, first, second, is_misaligned, key, joined } = self;
        if first.instance == Some(*instance) {
            if *is_misaligned {
                joined.misaligned = joined.misaligned.saturating_add(piece.count * BLOCK_BYTES_U64);
            }
            first.add(piece);
            return Ok(());
        }
        let Some(key) = *key else { return Ok(()) };
        first.each_run(images, key, instance, piece, |run, count| {
            if let Some(sum) = Label::of_key(key).and_then(|label| joined.believed.get_mut(label.tier.index())) {
                *sum = sum.saturating_add(count * BLOCK_BYTES_U64);
            }
            runs.first.push(run)
        })?;
        if second.instance == Some(*instance) {
            second.add(piece);
            return Ok(());
        }
        second.each_run(images, key, instance, piece, |run, _| runs.second.push(run))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use onefold_block::random::SeededRandom;

    use super::*;
    use crate::pass::{RunBatch, Source};

    const IMAGES: [FileNo; 4] = [FileNo(3), FileNo(5), FileNo(8), FileNo(9)];

    fn label(package: u32) -> Label {
        Label { tier: Tier::Digest, package }
    }

    fn joined(add: impl FnOnce(&mut Candidates)) -> (Vec<FinderRun>, JoinReport) {
        let (first, _, joined) = joined_twice(add);
        (first, joined)
    }

    /// Returns the runs with first sources, and those with second ones.
    fn joined_twice(add: impl FnOnce(&mut Candidates)) -> (Vec<FinderRun>, Vec<FinderRun>, JoinReport) {
        let folder = Path::new("/var/tmp");
        let mut candidates = Candidates::new(folder, 1 << 16);
        add(&mut candidates);
        let sorter = || RunSorter::new(folder, 1 << 16);
        let mut runs = SourceRuns { first: sorter(), second: sorter() };
        let mut go_on = || Ok::<(), io::Error>(());
        let joined = join(candidates.finish().unwrap(), &IMAGES, &mut runs, &mut go_on).unwrap();
        let [first, second] = [runs.first, runs.second].map(|sorter| {
            let (mut sorted, mut runs) = (sorter.finish().unwrap(), Vec::new());
            while let Some(run) = sorted.next_run().unwrap() {
                runs.push(run);
            }
            runs
        });
        (first, second, joined)
    }

    fn piece(content: u64, block: u64, count: u64) -> Piece {
        Piece { content, block, count }
    }

    fn told(run: &FinderRun) -> (u32, u64, u32, u64, u64) {
        let Source::File(source) = run.source() else { panic!("{run:?}") };
        let target = run.target();
        (source.file.0, source.block.0, target.file.0, target.block.0, run.count())
    }

    /// A new image in one piece would take files away from others that share them.
    #[test]
    fn files_that_share_already_are_better_sources() {
        let (runs, _) = joined(|candidates| {
            candidates.add(0, 7, label(1), (0, 10), &[piece(0, 100, 10)], false).unwrap();
            candidates.add(1, 7, label(1), (0, 10), &[piece(0, 300, 5), piece(5, 400, 5)], true).unwrap();
            candidates.add(2, 7, label(1), (0, 10), &[piece(0, 500, 9)], true).unwrap();
        });
        let sources: Vec<u32> = runs.iter().map(|run| told(run).0).collect();
        assert!(!sources.is_empty() && sources.iter().all(|source| *source == 5), "{sources:?}");
    }

    #[test]
    fn the_file_in_the_fewest_pieces_is_the_source_and_of_equal_ones_that_of_the_first_image() {
        let (runs, found) = joined(|candidates| {
            candidates.add(0, 7, label(1), (0, 10), &[piece(0, 100, 4), piece(4, 200, 6)], false).unwrap();
            candidates.add(2, 7, label(1), (0, 10), &[piece(0, 500, 10)], false).unwrap();
            candidates.add(1, 7, label(2), (0, 10), &[piece(0, 300, 10)], false).unwrap();
            // A file that equals no other.
            candidates.add(1, 8, label(2), (0, 2), &[piece(0, 900, 2)], false).unwrap();
        });
        let told: Vec<_> = runs.iter().map(told).collect();
        assert_eq!(told, [(5, 300, 3, 100, 4), (5, 304, 3, 200, 6), (5, 300, 8, 500, 10)]);
        assert_eq!(found, JoinReport { believed: [20 * BLOCK_BYTES_U64, 0, 0, 0], misaligned: 0 });
        assert_eq!(runs.iter().map(|run| Label::of_key(run.key()).unwrap().package).collect::<Vec<_>>(), [1, 1, 1]);
    }

    /// The second source is in another image than the first one, which may be a liar's.
    #[test]
    fn a_group_has_a_second_source_of_another_image() {
        let (first, second, _) = joined_twice(|candidates| {
            for (image, block) in [(0, 100), (0, 200), (1, 300), (2, 400), (3, 500)] {
                candidates.add(image, 7, label(1), (0, 10), &[piece(0, block, 10)], false).unwrap();
            }
            candidates.add(0, 8, label(1), (0, 10), &[piece(0, 600, 10)], false).unwrap();
            candidates.add(1, 8, label(1), (0, 10), &[piece(0, 700, 10)], false).unwrap();
        });
        let told = |runs: &[FinderRun]| runs.iter().map(told).collect::<Vec<_>>();
        let expected = [(3, 100, 3, 200, 10), (3, 100, 5, 300, 10), (3, 600, 5, 700, 10), (3, 100, 8, 400, 10)];
        assert_eq!(told(&first), [&expected[..], &[(3, 100, 9, 500, 10)]].concat());
        assert_eq!(told(&second), [(5, 300, 8, 400, 10), (5, 300, 9, 500, 10)]);
    }

    #[test]
    fn a_preferred_image_is_the_source_whatever_the_pieces_of_its_files() {
        let (runs, _) = joined(|candidates| {
            candidates.prefer(2);
            candidates.add(0, 7, label(1), (0, 10), &[piece(0, 100, 10)], true).unwrap();
            candidates.add(2, 7, label(0), (0, 10), &[piece(0, 500, 4), piece(4, 600, 6)], false).unwrap();
        });
        assert_eq!(runs.iter().map(told).collect::<Vec<_>>(), [(8, 500, 3, 100, 4), (8, 600, 3, 104, 6)]);
    }

    #[test]
    fn a_file_with_a_gap_is_a_source_only_if_all_have_one() {
        let (runs, _) = joined(|candidates| {
            candidates.add(0, 7, label(1), (0, 10), &[piece(0, 100, 4)], false).unwrap();
            candidates.add(1, 7, label(1), (0, 10), &[piece(0, 300, 5), piece(5, 400, 5)], false).unwrap();
        });
        assert_eq!(runs.iter().map(told).collect::<Vec<_>>(), [(5, 300, 3, 100, 4)]);
    }

    #[test]
    fn files_in_another_phase_are_counted_and_share_among_themselves() {
        let (runs, found) = joined(|candidates| {
            candidates.add(0, 7, label(1), (0, 9), &[piece(0, 100, 9)], false).unwrap();
            candidates.add(1, 7, label(1), (3, 9), &[piece(0, 300, 8)], false).unwrap();
            candidates.add(2, 7, label(1), (3, 9), &[piece(0, 400, 8)], false).unwrap();
        });
        assert_eq!(runs.iter().map(told).collect::<Vec<_>>(), [(5, 300, 8, 400, 8)]);
        assert_eq!(found, JoinReport { believed: [8 * BLOCK_BYTES_U64, 0, 0, 0], misaligned: 8 * BLOCK_BYTES_U64 });
    }

    /// However files are split into pieces, each run names equal blocks of one content. Each block of a target that a
    /// source has is named once.
    #[test]
    fn runs_are_those_that_a_naive_join_finds() {
        for seed in 0..200 {
            let random = SeededRandom::new(seed);
            let mut files = Vec::new();
            for ordinal in 0..12 {
                let (mut pieces, mut content) = (Vec::new(), random.below(3));
                for number in 0..1 + random.below(4) {
                    // Longer than one row.
                    let count = 1 + random.below(if number == 0 { 3000 } else { 5 });
                    pieces.push(piece(content, 10_000 * (ordinal * 8 + number), count));
                    content += count + random.below(2) * random.below(3);
                }
                let image = u32::try_from(random.below(4)).unwrap();
                files.push((image, random.below(3), random.below(2), content, pieces));
            }
            let (runs, _) = joined(|candidates| {
                for (image, content, phase, blocks, pieces) in &files {
                    candidates.add(*image, *content, label(1), (*phase, *blocks), pieces, false).unwrap();
                }
            });
            let places = |pieces: &[Piece]| -> BTreeMap<u64, u64> {
                let blocks = pieces.iter().flat_map(|one| (0..one.count).map(|at| (one.content + at, one.block + at)));
                blocks.collect()
            };
            let mut expected = BTreeMap::new();
            for (content, phase) in (0..3).flat_map(|content| (0..2).map(move |phase| (content, phase))) {
                let mut group: Vec<_> = files
                    .iter()
                    .filter(|file| (file.1, file.2) == (content, phase))
                    .map(|file| {
                        let blocks = file.4.iter().map(|one| one.count).sum::<u64>();
                        let rank = file.4.len() as u64 + if blocks + u64::from(phase > 0) < file.3 { 512 } else { 0 };
                        (rank, file.0, places(&file.4))
                    })
                    .collect();
                // Files of one image are in the order in which they were added.
                group.sort_by_key(|(rank, image, _)| (*rank, *image));
                let Some((_, source_image, source)) = group.first().cloned() else { continue };
                for (_, image, target) in &group[1..] {
                    for (content, block) in target {
                        if let Some(from) = source.get(content) {
                            let (from_file, file) = (IMAGES[source_image as usize].0, IMAGES[*image as usize].0);
                            expected.insert((file, *block), (from_file, *from));
                        }
                    }
                }
            }
            let mut found = BTreeMap::new();
            for run in &runs {
                let (from_file, from, file, block, count) = told(run);
                for at in 0..count {
                    assert_eq!(found.insert((file, block + at), (from_file, from + at)), None, "{seed}");
                }
            }
            assert!(found == expected, "{seed}: {} {}", found.len(), expected.len());
        }
    }
}
