//! Where contents lie in a volume, and whether they match their digests.

use std::path::Path;

use md5::{Digest as _, Md5};
use onefold_block::{BLOCK_BYTES, BLOCK_BYTES_U64};
use onefold_guest::filesystem::ExtentKind;
use onefold_substrate::Substrate;

use super::CommonError;
use super::commands::PlacedContent;
use super::contents::ContentId;
use super::volume::{places_of, with_volume};
use crate::format::guest::Piece;
use crate::pace::ReadPace;

/// Size of one read, in bytes.
const READ_BYTES: usize = 1 << 20;

/// Returns the places of files of a volume; `None` for a file that is not there as it should be. `paths` come with
/// lengths.
pub(super) fn places<'p, S: Substrate>(
    substrate: &S,
    file: &S::File,
    volume: &Path,
    paths: impl Iterator<Item = (&'p str, u64)>,
    kind: ExtentKind,
) -> Result<Vec<Option<Vec<PlacedContent>>>, CommonError> {
    with_volume(substrate, file, volume, |tree, reader| {
        paths.map(|(path, length)| places_of(tree, reader, path, length.div_ceil(BLOCK_BYTES_U64), kind)).collect()
    })
}

/// Returns the parts of a content that are consecutive both in the image and in the volume, cut to at most `count_max`
/// blocks. A part is a block of the image, a block of the volume, and a number of blocks. Both lists have the whole
/// content in order.
pub(super) fn pairs(pieces: &[Piece], places: &[PlacedContent], count_max: u64) -> Vec<(u64, u64, u64)> {
    let (mut pieces, mut places) = (pieces.iter().copied(), places.iter().copied());
    let (mut piece, mut place) = (pieces.next(), places.next());
    let mut pairs = Vec::new();
    while let (Some(from), Some(into)) = (&mut piece, &mut place) {
        let count = from.count.min(into.count).min(count_max.max(1));
        pairs.push((from.block, into.block, count));
        from.block += count;
        from.count -= count;
        into.block += count;
        into.count -= count;
        if from.count == 0 {
            piece = pieces.next();
        }
        if into.count == 0 {
            place = places.next();
        }
    }
    pairs
}

/// Returns whether blocks of a volume hold a content, and zeros behind its end. Reads within the limit on reads.
///
/// # Errors
/// Errors of reading, and `Interrupted` if the work is to end.
pub(super) fn is_equal<S: Substrate>(
    substrate: &S,
    file: &S::File,
    places: &[PlacedContent],
    (digest, length): &ContentId,
    volume: &Path,
    pace: ReadPace<'_>,
) -> Result<bool, CommonError> {
    let mut hasher = Md5::new();
    let mut bytes = vec![0; READ_BYTES];
    let mut left = *length;
    for place in places {
        let mut offset = place.block.saturating_mul(BLOCK_BYTES_U64);
        let end = offset.saturating_add(place.count.saturating_mul(BLOCK_BYTES_U64));
        while offset < end {
            let at_once = usize::try_from(end - offset).unwrap_or(READ_BYTES).min(READ_BYTES);
            let Some(into) = bytes.get_mut(..at_once) else { return Ok(false) };
            pace.read(at_once as u64)?;
            let read = substrate.read_at(file, offset, into).map_err(|error| CommonError::io(volume, error))?;
            if read < at_once {
                return Ok(false);
            }
            let (content, behind) = into.split_at(usize::try_from(left).unwrap_or(at_once).min(at_once));
            if behind.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            hasher.update(content);
            left -= content.len() as u64;
            offset += at_once as u64;
        }
    }
    Ok(left == 0 && <[u8; 16]>::from(hasher.finalize()) == *digest)
}

/// Returns the consecutive parts of a text, each with its first block.
pub(super) fn each_part<'t>(places: &'t [PlacedContent], text: &'t [u8]) -> impl Iterator<Item = (u64, &'t [u8])> {
    places.iter().filter_map(|place| {
        let from = usize::try_from(place.content).ok()?.checked_mul(BLOCK_BYTES)?;
        let length = usize::try_from(place.count).ok()?.checked_mul(BLOCK_BYTES)?;
        Some((place.block, text.get(from..from.checked_add(length)?.min(text.len()))?))
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use onefold_block::Clock;
    use onefold_block::clock::ManualClock;
    use onefold_substrate::Files;
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

    use super::*;
    use crate::pace::{Limits, Pace, UncountedCpu, Wish};
    use crate::state::StateError;

    /// Regression: new content of a volume was read back at full speed, whatever the limit, and to its end, whatever
    /// the user wanted.
    #[test]
    fn contents_are_read_back_within_the_limit_on_reads_and_until_the_work_is_to_end() {
        const BYTES: u64 = 12 << 20;
        let file_system = SimulatedFileSystem::new(&SimulationOptions {
            images: 0,
            total_blocks: 1 << 14,
            ..SimulationOptions::default()
        });
        let substrate = file_system.observe().substrate;
        let path = Path::new("volume");
        let file = substrate.create(path).unwrap();
        let content: Vec<u8> = (0..BYTES).map(|at| at.to_le_bytes()[1]).collect();
        substrate.write_at(&file, BLOCK_BYTES_U64, &content).unwrap();
        let clock = ManualClock::starting_at(1000);
        let limits = Limits { read_bytes_per_second: NonZeroU64::new(1 << 20), ..Limits::default() };
        let pace = Pace::new(limits, &clock, &UncountedCpu, &|| Wish::GoOn);
        let places = [placed(0, 1, BYTES / BLOCK_BYTES_U64)];
        let id = (Md5::digest(&content).into(), BYTES);
        let began = clock.monotonic();
        assert!(is_equal(&substrate, &file, &places, &id, path, pace.reading()).unwrap());
        let took = clock.monotonic() - began;
        assert!(took > Duration::from_secs(9) && took < Duration::from_secs(13), "{took:?}");
        let ended = pace.stopped_by(&|| true);
        let outcome = is_equal(&substrate, &file, &places, &id, path, ended.reading());
        assert!(matches!(outcome, Err(CommonError::State(StateError::Interrupted))), "{outcome:?}");
    }

    fn placed(content: u64, block: u64, count: u64) -> PlacedContent {
        PlacedContent { content, block, count }
    }

    fn piece(content: u64, block: u64, count: u64) -> Piece {
        Piece { content, block, count }
    }

    #[test]
    fn parts_are_consecutive_in_image_and_volume() {
        let pieces = [piece(0, 100, 4), piece(4, 200, 6)];
        assert_eq!(pairs(&pieces, &[placed(0, 7, 10)], 100), [(100, 7, 4), (200, 11, 6)]);
        let places = [placed(0, 7, 1), placed(1, 50, 9)];
        assert_eq!(pairs(&pieces, &places, 100), [(100, 7, 1), (101, 50, 3), (200, 53, 6)]);
        assert_eq!(pairs(&[], &places, 100), []);
        assert_eq!(pairs(&pieces[1..], &[placed(0, 7, 6)], 4), [(200, 7, 4), (204, 11, 2)]);
    }

    #[test]
    fn a_text_is_cut_at_its_places() {
        let text = vec![1; 2 * BLOCK_BYTES + 5];
        let places = [placed(0, 9, 1), placed(1, 20, 2)];
        let parts: Vec<_> = each_part(&places, &text).map(|(block, part)| (block, part.len())).collect();
        assert_eq!(parts, [(9, BLOCK_BYTES), (20, BLOCK_BYTES + 5)]);
    }
}
