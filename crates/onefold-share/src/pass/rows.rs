//! The rows that a pass sorts, packed so that their order is the one that the next step wants.

use onefold_sort::Row;

use crate::format::entry::ContentPlace;
use crate::format::{FileBlock, FileNo, FingerprintPrefix, Slot};

/// Marks a word without a slot or block.
const NONE: u64 = u64::MAX;
/// Flag of a word that holds a block or a slot: it is a slot.
const IS_SLOT: u64 = 1 << 63;
/// Flag of the word that holds the block of a waiting place: only the index names the place, and no log.
const IS_OF_INDEX: u64 = 1 << 63;
/// Low bits of a block's number that do not fit beside a file's.
const LOW_BITS: u32 = 7;
const _: () = assert!(FileBlock::LIMIT == 1 << (32 + LOW_BITS), "a file and a block are 71 bits");

/// A content and a place where it was seen; in order of the content, then of the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeenContent {
    pub(super) digest: FingerprintPrefix,
    pub(super) file: FileNo,
    pub(super) block: FileBlock,
}

/// A block that is to be put into the arena; in order of the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) file: FileNo,
    pub(super) block: FileBlock,
    pub(super) digest: FingerprintPrefix,
}

/// A place that waits for a candidate of the same content; in order of the candidate, then of its own file and place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitingPlace {
    pub(super) of: CandidateKey,
    pub(super) file: FileNo,
    pub(super) block: FileBlock,
    /// Whether only the index names the place. The logs of other places are kept until a pass is complete.
    pub(super) is_of_index: bool,
}

/// Identifies a candidate: its place, and some bits of its digest, because logs may report two contents of one block.
/// In the order of the candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CandidateKey {
    file: FileNo,
    block: FileBlock,
    check: u32,
}

/// A block that is to share with a slot, or to become a hole; in order of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) file: FileNo,
    pub(super) block: FileBlock,
    /// `None` if it is to become a hole.
    pub(super) slot: Option<Slot>,
}

fn place_words(file: FileNo, block: FileBlock) -> (u64, u64) {
    (u64::from(file.0) << 32 | block.0 >> LOW_BITS, block.0 << (u64::BITS - LOW_BITS))
}

fn place_of(high: u64, low: u64) -> (FileNo, FileBlock) {
    let file = u32::try_from(high >> 32).expect("32 bits");
    (FileNo(file), FileBlock((high & u64::from(u32::MAX)) << LOW_BITS | low >> (u64::BITS - LOW_BITS)))
}

/// Returns the digest's first eight bytes and its last four.
fn digest_words(digest: FingerprintPrefix) -> (u64, u32) {
    let [.., i, j, k, l] = digest.0;
    (digest.first_word(), u32::from_be_bytes([i, j, k, l]))
}

fn digest_of(high: u64, low: u32) -> FingerprintPrefix {
    let mut bytes = [0; FingerprintPrefix::BYTES];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&low.to_be_bytes());
    FingerprintPrefix(bytes)
}

fn upper(word: u64) -> u32 {
    u32::try_from(word >> 32).expect("32 bits")
}

fn lower(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).expect("masked to 32 bits")
}

impl SeenContent {
    pub(super) fn row(self) -> Row {
        let (high, low) = digest_words(self.digest);
        [high, u64::from(low) << 32 | u64::from(self.file.0), self.block.0]
    }

    pub(super) fn of(row: Row) -> SeenContent {
        let digest = digest_of(row[0], upper(row[1]));
        SeenContent { digest, file: FileNo(lower(row[1])), block: FileBlock(row[2]) }
    }
}

impl Candidate {
    pub(super) fn row(self) -> Row {
        let (place_high, place_low) = place_words(self.file, self.block);
        let (high, low) = digest_words(self.digest);
        [place_high, place_low | u64::from(low), high]
    }

    pub(super) fn of(row: Row) -> Candidate {
        let (file, block) = place_of(row[0], row[1]);
        Candidate { file, block, digest: digest_of(row[2], lower(row[1])) }
    }
}

impl Candidate {
    /// Returns the key that identifies it.
    pub(super) fn key(self) -> CandidateKey {
        CandidateKey { file: self.file, block: self.block, check: digest_words(self.digest).1 >> LOW_BITS }
    }
}

impl WaitingPlace {
    pub(super) fn row(self) -> Row {
        let CandidateKey { file, block, check } = self.of;
        let (high, low) = place_words(file, block);
        let origin = if self.is_of_index { IS_OF_INDEX } else { 0 };
        [high, low | u64::from(check) << 32 | u64::from(self.file.0), self.block.0 | origin]
    }

    pub(super) fn of(row: Row) -> WaitingPlace {
        let (file, block) = place_of(row[0], row[1]);
        let of = CandidateKey { file, block, check: upper(row[1]) & (u32::MAX >> LOW_BITS) };
        let (block, is_of_index) = (FileBlock(row[2] & !IS_OF_INDEX), row[2] & IS_OF_INDEX != 0);
        WaitingPlace { of, file: FileNo(lower(row[1])), block, is_of_index }
    }
}

impl Target {
    pub(super) fn row(self) -> Row {
        let (high, low) = place_words(self.file, self.block);
        [high, low, self.slot.map_or(NONE, Slot::number)]
    }

    pub(super) fn of(row: Row) -> Target {
        let (file, block) = place_of(row[0], row[1]);
        Target { file, block, slot: Slot::from_number(row[2]) }
    }
}

/// A change of an entry of the index; in order of its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) digest: FingerprintPrefix,
    pub(super) step: Step,
}

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The content is no longer known to be there, or not by this name.
    Drop(ContentPlace),
    /// The content is there.
    Put(ContentPlace),
    /// The content was seen at this place, which agrees with the entry. If the entry has gone or changed by now, the
    /// place is to be looked at again.
    Agree(ContentPlace),
}

/// Position of the step in the word that holds a block or a slot.
const STEP_BITS: u32 = 61;
const _: () = assert!(FileBlock::LIMIT <= 1 << STEP_BITS && Slot::LIMIT <= 1 << STEP_BITS);

impl Change {
    pub(super) fn row(self) -> Row {
        let (step, place) = match self.step {
            Step::Drop(place) => (0, place),
            Step::Put(place) => (1, place),
            Step::Agree(place) => (2, place),
        };
        let (file, number) = match place {
            ContentPlace::Unique(file, block) => (u64::from(file.0), block.0),
            ContentPlace::Shared(slot) => (0, slot.number() | IS_SLOT),
        };
        let (high, low) = digest_words(self.digest);
        [high, u64::from(low) << 32 | file, number | step << STEP_BITS]
    }

    pub(super) fn of(row: Row) -> Change {
        let number = row[2] & ((1 << STEP_BITS) - 1);
        let place = match Slot::from_number(number) {
            Some(slot) if row[2] & IS_SLOT != 0 => ContentPlace::Shared(slot),
            _ => ContentPlace::Unique(FileNo(lower(row[1])), FileBlock(number)),
        };
        let step = match row[2] >> STEP_BITS & 3 {
            0 => Step::Drop(place),
            1 => Step::Put(place),
            _ => Step::Agree(place),
        };
        Change { digest: digest_of(row[0], upper(row[1])), step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::random::SeededRandom;

    fn digest(random: &SeededRandom) -> FingerprintPrefix {
        digest_of(random.next_u64(), lower(random.next_u64()))
    }

    fn places(random: &SeededRandom) -> (FileNo, FileBlock, Slot) {
        let (file, block) = (FileNo(lower(random.next_u64())), FileBlock(random.below(FileBlock::LIMIT)));
        (file, block, Slot::from_number(random.below(Slot::LIMIT)).unwrap())
    }

    #[test]
    fn rows_hold_all_that_is_packed_into_them() {
        let random = SeededRandom::new(1);
        for _ in 0..10_000 {
            let digest = digest(&random);
            let (file, block, slot) = places(&random);
            let seen = SeenContent { digest, file, block };
            assert_eq!(SeenContent::of(seen.row()), seen);
            let candidate = Candidate { file, block, digest };
            assert_eq!(Candidate::of(candidate.row()), candidate);
            let (other_file, other_block, _) = places(&random);
            for is_of_index in [false, true] {
                let other = WaitingPlace { of: candidate.key(), file: other_file, block: other_block, is_of_index };
                assert_eq!(WaitingPlace::of(other.row()), other);
            }
            for slot in [None, Some(slot)] {
                let target = Target { file, block, slot };
                assert_eq!(Target::of(target.row()), target);
            }
            let places = [ContentPlace::Unique(file, block), ContentPlace::Shared(slot)];
            for step in places.iter().flat_map(|place| [Step::Drop(*place), Step::Put(*place), Step::Agree(*place)]) {
                let change = Change { digest, step };
                assert_eq!(Change::of(change.row()), change);
            }
        }
    }

    #[test]
    fn rows_sort_as_their_steps_want_them() {
        let random = SeededRandom::new(2);
        for _ in 0..10_000 {
            let [one, other_one] = [(); 2].map(|()| {
                // Near each other, so that ties and carries happen.
                let file = FileNo(lower(random.below(2)));
                (file, FileBlock(127 + random.below(3)), digest_of(random.below(2), lower(random.below(2))))
            });
            let key = |(file, block, digest): (FileNo, FileBlock, FingerprintPrefix)| (file, block, digest);
            let candidate = |(file, block, digest)| Candidate { file, block, digest }.row();
            let place = |(file, block, _): (FileNo, FileBlock, FingerprintPrefix)| (file, block);
            assert_eq!(
                candidate(one)[..1].cmp(&candidate(other_one)[..1]).is_le(),
                place(one)
                    .0
                    .cmp(&place(other_one).0)
                    .then((place(one).1.0 >> 7).cmp(&(place(other_one).1.0 >> 7)))
                    .is_le()
            );
            if place(one) != place(other_one) {
                assert_eq!(candidate(one).cmp(&candidate(other_one)), place(one).cmp(&place(other_one)));
            }
            let of = |(file, block, digest)| Candidate { file, block, digest }.key();
            let other = |key| {
                WaitingPlace { of: of(key), file: FileNo(u32::MAX), block: FileBlock(0), is_of_index: true }.row()
            };
            if of(one) != of(other_one) {
                assert_eq!(other(one).cmp(&other(other_one)), of(one).cmp(&of(other_one)));
                assert_eq!(candidate(one).cmp(&candidate(other_one)), of(one).cmp(&of(other_one)));
            }
            let seen = |(file, block, digest)| SeenContent { digest, file, block }.row();
            let order = key(one).2.cmp(&key(other_one).2).then(place(one).cmp(&place(other_one)));
            assert_eq!(seen(one).cmp(&seen(other_one)), order);
        }
    }
}
