//! A sliding window over sequence numbers: it tells packets that came before from new ones.

/// Numbers that the window remembers below the highest one. A network that reorders packets more than that loses them.
const WINDOW: u64 = 4096;
const WORD_BITS: u64 = u64::BITS as u64;
/// One word more than the window has, so that a word is cleared before its numbers are in the window again.
const WORDS: usize = 65;
const _: () = assert!(WORDS as u64 == WINDOW / WORD_BITS + 1);

/// Which of the last sequence numbers of one sender have come.
#[derive(Debug)]
pub(crate) struct ReplayWindow {
    /// One bit for each number; a number's word is the number of its 64s, modulo the count of words.
    words: [u64; WORDS],
    /// One more than the highest number that has come.
    end: u64,
}

/// How a sequence number relates to those that have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// It has not come before.
    New,
    /// It has come before.
    Repeated,
    /// It is so old that nothing is known.
    Old,
}

impl ReplayWindow {
    /// Returns a window in which no number has come.
    pub(crate) fn new() -> ReplayWindow {
        ReplayWindow { words: [0; WORDS], end: 0 }
    }

    /// Returns whether a number is new. Changes nothing: a packet that is not authentic must not move the window.
    pub(crate) fn freshness(&self, sequence: u64) -> Freshness {
        if sequence >= self.end {
            Freshness::New
        } else if self.end - sequence > WINDOW {
            Freshness::Old
        } else {
            let (word, bit) = place(sequence);
            if self.words[word] & bit == 0 { Freshness::New } else { Freshness::Repeated }
        }
    }

    /// Notes that the packet with a new number has come and is authentic. A leap costs the same as a step.
    pub(crate) fn note(&mut self, sequence: u64) {
        if sequence >= self.end {
            // Words between the highest number's and the new one's; none if both have the same.
            let first = self.end.div_ceil(WORD_BITS);
            let count = (sequence / WORD_BITS + 1).saturating_sub(first).min(WORDS as u64);
            for number in 0..count {
                let (word, _) = place(sequence - number * WORD_BITS);
                self.words[word] = 0;
            }
            self.end = sequence.saturating_add(1);
        }
        let (word, bit) = place(sequence);
        self.words[word] |= bit;
    }
}

/// Returns the word and the bit of a number.
fn place(sequence: u64) -> (usize, u64) {
    let word = usize::try_from(sequence / WORD_BITS % WORDS as u64).unwrap_or(0);
    (word, 1 << (sequence % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use onefold_block::random::SeededRandom;

    use super::*;

    /// The naive reference: all numbers that have come.
    #[test]
    fn the_window_agrees_with_a_set_of_all_numbers() {
        for seed in 0..20 {
            let random = SeededRandom::new(seed);
            let (mut window, mut known, mut highest) = (ReplayWindow::new(), HashSet::new(), 0);
            let mut next = 0;
            for _ in 0..4000 {
                let sequence = match random.below(10) {
                    0 => next + random.below(3 * WINDOW),
                    1..=3 => u64::saturating_sub(next, random.below(2 * WINDOW)),
                    _ => next,
                };
                let expected = match known.contains(&sequence) {
                    _ if !known.is_empty() && sequence + WINDOW <= highest => Freshness::Old,
                    true => Freshness::Repeated,
                    false => Freshness::New,
                };
                assert_eq!(window.freshness(sequence), expected, "seed {seed}, {sequence} after {highest}");
                if expected == Freshness::New {
                    window.note(sequence);
                    known.insert(sequence);
                    highest = highest.max(sequence);
                    next = next.max(sequence + 1);
                }
            }
        }
    }

    #[test]
    fn the_last_number_of_all_is_no_special_case() {
        let mut window = ReplayWindow::new();
        for sequence in [0, u64::MAX - 1] {
            assert_eq!(window.freshness(sequence), Freshness::New);
            window.note(sequence);
            assert_eq!(window.freshness(sequence), Freshness::Repeated);
        }
        assert_eq!(window.freshness(0), Freshness::Old);
        assert_eq!(window.freshness(u64::MAX - 2), Freshness::New);
    }
}
