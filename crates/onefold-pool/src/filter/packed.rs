//! Bit fields packed into arrays of 64-bit words.
//!
//! Bit `i` of an array is bit `i % 64` of word `i / 64`. Gaps require zeros after the bits in use.

/// Returns a word whose lowest `width` bits are set.
pub(super) const fn mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// Returns the last word of a bitmap of ones that ends before bit `end`, which is in that word.
pub(super) const fn mask_below(end: usize) -> u64 {
    mask(split(end).1)
}

/// Returns the number of words for `bits` bits.
pub(super) const fn words_for(bits: usize) -> usize {
    bits.div_ceil(64)
}

/// Returns the field of `width` bits, at most 64, that begins at bit `at`.
pub(super) fn get(words: &[u64], at: usize, width: u32) -> u64 {
    if width == 0 {
        return 0;
    }
    let (word, shift) = split(at);
    debug_assert!(shift + width <= 64 || word + 1 < words.len(), "{width} bits at {at} of {} words", words.len());
    // No processor can predict whether a field continues in the next word, so there is no branch for it. In two shifts,
    // since a single one by 64 would be invalid.
    let above = words.get(word + 1).copied().unwrap_or(0);
    (words[word] >> shift | above << 1 << (63 - shift)) & mask(width)
}

/// Replaces the field of `width` bits, at most 64, that begins at bit `at`; higher bits of `value` are ignored.
pub(super) fn put(words: &mut [u64], at: usize, width: u32, value: u64) {
    if width == 0 {
        return;
    }
    let (word, shift) = split(at);
    let value = value & mask(width);
    words[word] = words[word] & !(mask(width) << shift) | value << shift;
    if shift + width > 64 {
        let spill = shift + width - 64;
        words[word + 1] = words[word + 1] & !mask(spill) | value >> (width - spill);
    }
}

/// Writes the field of `width` bits, below 64, that begins at bit `at`; all bits from there on must still be zero.
pub(super) fn put_next(words: &mut [u64], at: usize, width: u32, value: u64) {
    debug_assert!(width < 64 && value & !mask(width) == 0, "{value:x} in {width} bits");
    let (word, shift) = split(at);
    if width > 0 {
        words[word] |= value << shift;
    }
    if shift + width > 64 {
        words[word + 1] |= value >> (64 - shift);
    }
}

/// Moves bits `at..end` up by `width`, and zeros `at..at + width`.
///
/// Every bit from `end` on must be zero, and `words` must reach to bit `end + width`.
pub(super) fn open_gap(words: &mut [u64], at: usize, width: usize, end: usize) {
    debug_assert!(at <= end && width > 0, "a gap of {width} at {at} of {end}");
    if at == end {
        return; // Nothing lies above, and what lies there is zero.
    }
    let (first, low_bits) = split(at);
    let (skip, shift) = split(width);
    let kept = words[first] & mask(low_bits);
    words[first] &= !mask(low_bits);
    if skip > 0 {
        words.copy_within(first..words_for(end), first + skip);
        words[first..first + skip].fill(0);
    }
    shift_up(&mut words[first + skip..words_for(end + width)], shift);
    words[first] |= kept;
}

/// Removes bits `at..at + width`: moves bits `at + width..end` down, and zeros `end - width..end`.
///
/// Every bit from `end` on must be zero.
pub(super) fn close_gap(words: &mut [u64], at: usize, width: usize, end: usize) {
    debug_assert!(width > 0 && at + width <= end, "a gap of {width} at {at} of {end}");
    let (first, low_bits) = split(at);
    let (skip, shift) = split(width);
    let used = words_for(end);
    let kept = words[first] & mask(low_bits);
    if skip > 0 {
        words.copy_within(first + skip..used, first);
        words[used - skip..used].fill(0);
    }
    shift_down(&mut words[first..used], shift);
    words[first] = words[first] & !mask(low_bits) | kept;
}

/// Number of words shifted at once. They are copied first: only from another place can the compiler shift several at a
/// time.
const BATCH: usize = 64;

/// Moves all bits up by `shift`, below 64; the highest ones are lost.
fn shift_up(words: &mut [u64], shift: u32) {
    if shift == 0 {
        return;
    }
    let mut from = [0; BATCH + 1];
    let mut end = words.len();
    while end > 1 {
        let start = end.saturating_sub(BATCH).max(1);
        from[..=end - start].copy_from_slice(&words[start - 1..end]);
        for ((to, low), high) in words[start..end].iter_mut().zip(&from).zip(&from[1..]) {
            *to = high << shift | low >> (64 - shift);
        }
        end = start;
    }
    words[0] <<= shift;
}

/// Moves all bits down by `shift`, below 64; the lowest ones are lost.
fn shift_down(words: &mut [u64], shift: u32) {
    if shift == 0 {
        return;
    }
    let mut from = [0; BATCH + 1];
    let mut start = 0;
    let last = words.len() - 1;
    while start < last {
        let end = last.min(start + BATCH);
        from[..=end - start].copy_from_slice(&words[start..=end]);
        for ((to, low), high) in words[start..end].iter_mut().zip(&from).zip(&from[1..]) {
            *to = low >> shift | high << (64 - shift);
        }
        start = end;
    }
    words[last] >>= shift;
}

/// Returns the position of the one bit that has exactly `rank` one bits before it.
///
/// # Panics
/// When there are at most `rank` one bits.
pub(super) fn select_one(words: &[u64], rank: usize) -> usize {
    let mut ones_left = rank;
    for (index, &word) in words.iter().enumerate() {
        let ones = word.count_ones() as usize;
        if ones_left < ones {
            let mut rest = word;
            for _ in 0..ones_left {
                rest &= rest - 1;
            }
            return index * 64 + rest.trailing_zeros() as usize;
        }
        ones_left -= ones;
    }
    panic!("a bitmap has fewer than {} one bits", rank + 1);
}

/// Returns the position of the first one bit at or after `at`.
///
/// # Panics
/// When there is none.
pub(super) fn next_one(words: &[u64], at: usize) -> usize {
    let (mut index, shift) = split(at);
    let mut word = words[index] & !mask(shift);
    while word == 0 {
        index += 1;
        word = words[index];
    }
    index * 64 + word.trailing_zeros() as usize
}

/// Splits a bit position into the word and the bit within it.
#[expect(clippy::cast_possible_truncation, reason = "the remainder of 64 is below 64")]
const fn split(at: usize) -> (usize, u32) {
    (at / 64, (at % 64) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::random::SeededRandom;

    /// Returns a bit array in its plainest form.
    fn bits_of(words: &[u64]) -> Vec<bool> {
        (0..words.len() * 64).map(|at| words[at / 64] >> (at % 64) & 1 == 1).collect()
    }

    /// Returns words whose first `bits` bits are random and whose others are zero.
    fn random_words(random: &SeededRandom, words: usize, bits: usize) -> Vec<u64> {
        let mut all: Vec<u64> = (0..words).map(|_| random.next_u64()).collect();
        for at in bits..words * 64 {
            all[at / 64] &= !(1 << (at % 64));
        }
        all
    }

    #[test]
    fn a_field_of_every_width_at_every_place_reads_back_and_leaves_its_neighbours() {
        let random = SeededRandom::new(1);
        for width in 0..=64_u32 {
            for at in 0..130_usize {
                if width < 64 {
                    let mut blank = vec![0; 4];
                    put_next(&mut blank, at, width, mask(width));
                    assert_eq!((0..256).filter(|&bit| get(&blank, bit, 1) == 1).count(), width as usize);
                    assert_eq!(get(&blank, at, width), mask(width), "width {width} at {at}");
                }
                let mut words = random_words(&random, 4, 256);
                let mut expected = bits_of(&words);
                let value = random.next_u64();
                put(&mut words, at, width, value);
                assert_eq!(get(&words, at, width), value & mask(width), "width {width} at {at}");
                for bit in 0..width as usize {
                    expected[at + bit] = value >> bit & 1 == 1;
                }
                assert_eq!(bits_of(&words), expected, "width {width} at {at}");
            }
        }
    }

    #[test]
    fn gaps_of_every_width_open_and_close_at_every_place() {
        let random = SeededRandom::new(2);
        for width in 1..=130_usize {
            for end in [0, 1, 63, 64, 65, 128, 190, 192, 511, 577, 640, 1500] {
                for at in (0..=end).filter(|at| at % 41 == 0 || end - at < 3 || at % 64 == 0) {
                    let original = random_words(&random, words_for(end + width), end);
                    let mut words = original.clone();
                    open_gap(&mut words, at, width, end);
                    let mut expected = bits_of(&original);
                    expected.truncate(end);
                    expected.splice(at..at, vec![false; width]);
                    expected.resize(words.len() * 64, false);
                    assert_eq!(bits_of(&words), expected, "width {width} at {at} of {end}");

                    for bit in at..at + width {
                        put(&mut words, bit, 1, random.next_u64());
                    }
                    close_gap(&mut words, at, width, end + width);
                    assert_eq!(words, original, "width {width} at {at} of {end}");
                }
            }
        }
    }

    #[test]
    fn every_one_bit_is_selected_by_its_rank_and_found_from_before_it() {
        let random = SeededRandom::new(3);
        for density in 1..=5 {
            let words: Vec<u64> =
                (0..20).map(|_| (0..density).fold(u64::MAX, |word, _| word & random.next_u64())).collect();
            let ones: Vec<usize> = (0..words.len() * 64).filter(|&at| get(&words, at, 1) == 1).collect();
            for (rank, &one) in ones.iter().enumerate() {
                assert_eq!(select_one(&words, rank), one);
                let after_previous = if rank == 0 { 0 } else { ones[rank - 1] + 1 };
                assert_eq!(next_one(&words, after_previous), one);
                assert_eq!(next_one(&words, one), one);
            }
        }
    }
}
