//! Finds the contents that two images hold, as their packages say.
//!
//! Only digests and lengths are sorted, so that memory is bounded. Those of an unchanged image come from the record of
//! an earlier run, so that the cost of one more image does not grow with the number of the others.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use onefold_block::BLOCK_BYTES_U64;
use onefold_sort::{Row, SortWriter};
use onefold_substrate::Substrate;

use super::CommonError;
use super::addition::ADDITIONS_MAX;
use super::contents::ContentId;
use super::growth::{GrowOptions, GrowReport, visit};
use crate::files::identify::IdentifyError;
use crate::files::kept::known_packages;
use crate::format::guest::{KeptClaim, KeptGuest, PhasedPieces, Piece};
use crate::scan::ListedFile;
use crate::state::State;

/// Approximate memory of a wanted content, in bytes.
const WANTED_BYTES: usize = 32;
/// Fraction of the memory for the record of one image.
const KEPT_PART_OF_MEMORY: usize = 16;

/// Key of the numbers of contents: no guest can find two contents with one number.
pub(super) type NumberKey = [u8; 16];

/// Returns a number for a content.
pub(super) fn number_of(key: &NumberKey, id: &ContentId) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, id).hash(&mut hasher);
    hasher.finish()
}

/// Contents that two images claim to hold and that are not in the volume.
pub(super) struct RepeatedContents {
    pub(super) numbers: HashSet<u64>,
    /// For each image, whether it may hold one of these contents in whole blocks.
    pub(super) holders: Vec<bool>,
}

/// Finds the contents that two images claim to hold and that are not in the volume.
///
/// # Errors
/// Errors of temporary files and of the state folder, and when the work is to end.
pub(super) fn held_twice<S: Substrate>(
    state: &State<'_, S>,
    growing: &GrowOptions<'_>,
    (images, key): (&[ListedFile], &NumberKey),
    has: &dyn Fn(&ContentId) -> bool,
    report: &mut GrowReport,
) -> Result<RepeatedContents, CommonError> {
    let temporary = |error| CommonError::io(growing.temporary_folder, error);
    let mut rows = SortWriter::new(growing.temporary_folder, growing.memory_bytes / 2);
    for (image, listed) in (0_u64..).zip(images) {
        let mut pushed = Ok(());
        let mut claim = |digest, length, may_be_whole| {
            let id = (digest, length);
            if pushed.is_ok() && !has(&id) {
                pushed = rows.push([number_of(key, &id), image, u64::from(may_be_whole)]);
            }
        };
        if let Some(guest) = known_packages(state, listed, growing.memory_bytes / KEPT_PART_OF_MEMORY)? {
            each_content(&guest, &mut claim);
        } else {
            let mut wants = |digest, length| {
                claim(digest, length, true);
                false
            };
            match visit(state.substrate(), growing, listed, &mut wants, &mut |_| ()) {
                Ok(()) => {}
                Err(IdentifyError::Stopped(error)) => return Err(error.into()),
                Err(error) => report.failed.push((listed.path.clone(), error.to_string())),
            }
        }
        pushed.map_err(temporary)?;
        growing.pace.boundary().map_err(|stopped| CommonError::State(stopped.into()))?;
    }
    let wanted_max = (growing.memory_bytes / 4 / WANTED_BYTES).min(ADDITIONS_MAX);
    RepeatedContents::of(rows.finish().map_err(temporary)?, images.len(), wanted_max).map_err(temporary)
}

impl RepeatedContents {
    /// Finds the contents in rows, which are in order. A row has the number of a content, an image, and whether the
    /// image may hold the content in whole blocks.
    fn of(
        rows: impl Iterator<Item = io::Result<Row>>,
        images: usize,
        wanted_max: usize,
    ) -> io::Result<RepeatedContents> {
        let mut held = RepeatedContents { numbers: HashSet::new(), holders: vec![false; images] };
        // The last row of the first image that claims the content.
        let mut first: Option<Row> = None;
        for row in rows {
            let row = row?;
            match first {
                Some(first) if first[0] == row[0] && first[1] != row[1] => held.add(row[0], [first, row], wanted_max),
                _ => first = Some(row),
            }
        }
        Ok(held)
    }

    fn add(&mut self, number: u64, rows: [Row; 2], wanted_max: usize) {
        if self.numbers.len() < wanted_max {
            self.numbers.insert(number);
        }
        if !self.numbers.contains(&number) {
            return;
        }
        for [_, image, _] in rows.into_iter().filter(|[.., may_be_whole]| *may_be_whole != 0) {
            if let Some(holds) = usize::try_from(image).ok().and_then(|image| self.holders.get_mut(image)) {
                *holds = true;
            }
        }
    }
}

/// Calls `claim` with each content that an image claims to hold, from the record of the image: the digest, the length,
/// and whether the content lies in whole blocks.
fn each_content(guest: &KeptGuest, claim: &mut dyn FnMut([u8; 16], u64, bool)) {
    let visited = guest.files.each(&mut |file, pieces| {
        if let KeptClaim::Content(digest) = file.claim
            && file.size_bytes > 0
        {
            claim(digest, file.size_bytes, is_whole(pieces, file.size_bytes.div_ceil(BLOCK_BYTES_U64)));
        }
        Ok::<(), std::convert::Infallible>(())
    });
    let Ok(()) = visited;
}

/// Returns whether a file of this many blocks lies in whole blocks of the host, without a gap.
fn is_whole(pieces: &PhasedPieces, blocks: u64) -> bool {
    let mut next = 0;
    let are_ordered = pieces.phases().all(|(phase, pieces)| {
        let follows = |piece: &Piece| {
            let is_next = piece.content == next;
            next = piece.content.saturating_add(piece.count);
            is_next
        };
        phase == 0 && pieces.iter().all(follows)
    });
    are_ordered && next == blocks
}

#[cfg(test)]
mod tests {
    use onefold_guest::filesystem::Timestamp;

    use super::*;
    use crate::format::guest::KeptFile;

    #[test]
    fn a_content_is_wanted_that_two_images_hold_and_those_are_visited_that_may_have_it_whole() {
        let held = |rows: &[Row], wanted_max| {
            let held = RepeatedContents::of(rows.iter().map(|row| Ok(*row)), 4, wanted_max).unwrap();
            let mut numbers: Vec<_> = held.numbers.into_iter().collect();
            numbers.sort_unstable();
            (numbers, held.holders)
        };
        // One image holds 5 twice. For 6 and 8, each holder is whole, or not.
        let rows = [
            [5, 0, 1],
            [5, 0, 1],
            [6, 1, 0],
            [6, 2, 0],
            [6, 2, 1],
            [6, 2, 1],
            [7, 0, 1],
            [8, 0, 0],
            [8, 1, 0],
            [8, 3, 0],
        ];
        assert_eq!(held(&rows, 9), (vec![6, 8], vec![false, false, true, false]));
        assert_eq!(held(&rows, 0), (vec![], vec![false; 4]));
        assert_eq!(held(&[[1, 1, 1], [1, 3, 1], [2, 0, 1], [2, 2, 1]], 1), (vec![1], vec![false, true, false, true]));
    }

    #[test]
    fn contents_of_a_kept_guest_are_those_that_may_enter_a_volume() {
        let mut guest = KeptGuest::default();
        let mut push = |claim, size_bytes, pieces: &[(u64, u64)]| {
            let time = Timestamp { seconds: 1, nanoseconds: 0 };
            let file = KeptFile {
                package: None,
                claim,
                tree: 0,
                system: 0,
                file: 1,
                generation: 0,
                size_bytes,
                modified: time,
                changed: time,
                created: None,
            };
            let mut phased = PhasedPieces::default();
            phased.0[0].extend(pieces.iter().map(|&(content, count)| Piece { content, block: 100 + content, count }));
            guest.files.push(&file, &phased);
        };
        push(KeptClaim::Content([1; 16]), 8000, &[(0, 1), (1, 1)]);
        push(KeptClaim::Content([2; 16]), 8000, &[(1, 1)]);
        push(KeptClaim::Digest([3; 16]), 8000, &[(0, 2)]);
        push(KeptClaim::Content([4; 16]), 0, &[]);
        push(KeptClaim::Path { path: 5, probes: None }, 8000, &[(0, 2)]);
        let mut contents = Vec::new();
        each_content(&guest, &mut |digest, length, is_whole| contents.push((digest[0], length, is_whole)));
        assert_eq!(contents, [(1, 8000, true), (2, 8000, false)]);
    }
}
