//! Decisions drawn from bytes.

use onefold_block::Random;
use onefold_block::random::SeededRandom;

/// Bytes from which decisions are drawn in sequence. Once they are used up, every further decision is 0, so that a
/// fuzzer can shorten an input.
#[derive(Clone, Debug)]
pub struct Choices<'a> {
    rest: &'a [u8],
}

impl<'a> Choices<'a> {
    /// Returns the decisions that `bytes` hold.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices { rest: bytes }
    }

    /// Returns whether only zeros are left.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes up to `count` bytes unchanged.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Takes all remaining bytes.
    pub fn take_rest(&mut self) -> &'a [u8] {
        self.take(self.rest.len())
    }

    /// Takes a number of `bytes` bytes, at most 8.
    fn little(&mut self, bytes: usize) -> u64 {
        self.take(bytes).iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// Takes a byte.
    pub fn byte(&mut self) -> u8 {
        self.little(1).to_le_bytes()[0]
    }

    /// Takes any number.
    pub fn number(&mut self) -> u64 {
        self.little(8)
    }

    /// Takes a number below `bound`, or 0 if `bound` is 0. Small bounds consume one byte, larger ones more.
    pub fn below(&mut self, bound: u64) -> u64 {
        let bytes = if bound <= 1 << 8 {
            1
        } else if bound <= 1 << 16 {
            2
        } else {
            8
        };
        let number = self.little(bytes);
        if bound == 0 { 0 } else { number % bound }
    }

    /// Takes an index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a length")
    }

    /// Takes an element of `all`, which is not empty.
    pub fn one_of<'b, T>(&mut self, all: &'b [T]) -> &'b T {
        &all[self.index(all.len())]
    }
}

/// Returns the input of a seed: up to 400 bytes.
#[must_use]
pub fn seeded_bytes(seed: u64) -> Vec<u8> {
    let random = SeededRandom::new(seed);
    let mut bytes = vec![0; usize::try_from(random.below(401)).expect("below 401")];
    random.fill(&mut bytes).expect("a seeded generator does not fail");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_follow_the_bytes_and_are_zero_after_them() {
        let mut choices = Choices::new(&[7, 1, 2, 9]);
        assert_eq!((choices.byte(), choices.below(1000)), (7, 0x0201));
        assert_eq!((choices.below(10), choices.is_used_up()), (9, true));
        assert_eq!((choices.byte(), choices.number(), choices.below(5), choices.below(0)), (0, 0, 0, 0));
    }
}
