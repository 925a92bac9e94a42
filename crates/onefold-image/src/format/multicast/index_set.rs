//! Sets of numbers, as runs: chunks of an image, or symbols of a chunk.
//!
//! | field | type                                                                                               |
//! |-------|----------------------------------------------------------------------------------------------------|
//! | runs  | variable: their number                                                                             |
//! | run   | for each, variable: distance from the end of the previous run, or from 0; then length, from 1      |
//!
//! Runs are in order and do not touch, so a set has one form.

use crate::format::FormatError;
use crate::format::bytes::{Decoder, Encoder};

/// Minimum bytes of a run.
const RUN_BYTES_MIN: usize = 2;

/// A set of numbers below 2^32.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexSet {
    /// First number and end of each run, in order; no two touch.
    runs: Vec<(u32, u32)>,
}

impl IndexSet {
    /// Adds a number that is above all numbers of the set, and below 2^32 - 1. Other numbers are ignored.
    pub fn push(&mut self, number: u32) {
        let Some(end) = number.checked_add(1) else { return };
        match self.runs.last_mut() {
            Some((_, last_end)) if *last_end == number => *last_end = end,
            Some((_, last_end)) if *last_end > number => {}
            _ => self.runs.push((number, end)),
        }
    }

    /// Returns whether a number is in the set.
    #[must_use]
    pub fn contains(&self, number: u32) -> bool {
        let behind = self.runs.partition_point(|(start, _)| *start <= number);
        behind.checked_sub(1).and_then(|at| self.runs.get(at)).is_some_and(|(_, end)| number < *end)
    }

    /// Returns whether the set has no number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns how many numbers are in the set.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|(start, end)| u64::from(end - start)).sum()
    }

    /// Returns the numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|(start, end)| *start..*end)
    }

    /// Returns the first runs of the set. Their encoding has at most `bytes_max` bytes.
    #[must_use]
    pub fn within(&self, bytes_max: usize) -> IndexSet {
        // The count takes up to two bytes more than that of an empty set as long as datagrams have 64 KiB.
        let mut left = bytes_max.saturating_sub(3);
        let mut previous = 0;
        let fits = |(start, end): &&(u32, u32)| {
            let bytes = variable_bytes(start - previous) + variable_bytes(end - start);
            previous = *end;
            left.checked_sub(bytes).map(|rest| left = rest).is_some()
        };
        IndexSet { runs: self.runs.iter().take_while(fits).copied().collect() }
    }

    pub(super) fn encode(&self, encoder: &mut Encoder) {
        encoder.variable(self.runs.len() as u64);
        let mut previous = 0;
        for (start, end) in &self.runs {
            encoder.variable(u64::from(start - previous)).variable(u64::from(end - start));
            previous = *end;
        }
    }

    /// Takes a set of numbers below `limit`.
    pub(super) fn decode(decoder: &mut Decoder<'_>, limit: u32) -> Result<IndexSet, FormatError> {
        let count = decoder.variable()?;
        let count = decoder.there(count, RUN_BYTES_MIN)?;
        let mut runs = Vec::with_capacity(count);
        let mut previous = 0u64;
        for at in 0..count {
            let (distance, length) = (decoder.variable()?, decoder.variable()?);
            let start = previous.checked_add(distance).filter(|_| at == 0 || distance > 0);
            let start = start.and_then(|start| u32::try_from(start).ok());
            let end = start.and_then(|start| u32::try_from(length).ok()?.checked_add(start));
            let (Some(start), Some(end)) = (start, end.filter(|end| *end <= limit && length > 0)) else {
                return Err(decoder.wrong("a run of numbers is empty, out of order or out of bounds"));
            };
            runs.push((start, end));
            previous = end.into();
        }
        Ok(IndexSet { runs })
    }
}

impl FromIterator<u32> for IndexSet {
    /// Makes a set of ascending numbers.
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> IndexSet {
        let mut set = IndexSet::default();
        numbers.into_iter().for_each(|number| set.push(number));
        set
    }
}

/// Returns the length of a number with seven bits in each byte.
pub(super) fn variable_bytes(number: u32) -> usize {
    (32 - number.leading_zeros() as usize).div_ceil(7).max(1)
}
