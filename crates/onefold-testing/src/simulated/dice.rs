//! Random decisions.

use std::time::Duration;

/// A seeded generator (SplitMix64) without a lock: every step uses it several times.
#[derive(Clone, Debug)]
pub(super) struct Dice {
    state: u64,
}

impl Dice {
    /// Returns the dice of a seed. Another purpose under the same seed has other dice.
    pub(super) fn new(seed: u64, purpose: u64) -> Dice {
        let mut dice = Dice { state: seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93) };
        dice.state = dice.next();
        dice
    }

    /// Returns the next 64 bits.
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, or 0 when `bound` is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// Returns an index below `bound`, or 0 when `bound` is 0.
    pub(super) fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("below a length")
    }

    /// Returns true with this probability in a million.
    pub(super) fn happens(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// Returns true once in this many times on average.
    pub(super) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns a time above zero and at most `max`, in nanoseconds.
    pub(super) fn time_ns(&mut self, max: Duration) -> u64 {
        1 + self.below(nanoseconds(max))
    }
}

/// Returns a time in nanoseconds.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_again_and_purposes_differ() {
        let draw = |seed, purpose| {
            let mut dice = Dice::new(seed, purpose);
            [dice.next(), dice.next(), dice.below(10)]
        };
        assert_eq!(draw(1, 1), draw(1, 1));
        assert_ne!(draw(1, 1), draw(1, 2));
        assert_ne!(draw(1, 1), draw(2, 1));
        assert_eq!(Dice::new(1, 1).below(0), 0);
        assert!(!Dice::new(1, 1).happens(0));
    }
}
