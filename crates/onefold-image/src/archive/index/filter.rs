//! Filters: most units that a run does not have cost no read, because its filter says so.
//!
//! A filter is a row of lines of 64 bytes. The beginning of a prefix selects the line, and five bits in it are set. So
//! a run, which is sorted, fills its filter from the first line to the last, and a smaller filter comes from a larger
//! one by joining neighbouring lines.

/// Bytes of a line: one of the processor's cache.
pub(super) const LINE_BYTES: usize = 64;
/// Bits of a new filter for each unit.
const UNIT_BITS: u64 = 8;
/// Number of bits that a unit sets.
const PROBES: u32 = 5;
/// A filter can be halved this often.
pub(super) const HALVINGS_MAX: u32 = 6;

/// A part of a filter.
pub(super) type Line = [u64; LINE_BYTES / 8];

/// Returns the number of lines for a run of so many units.
pub(super) fn lines_for(units: u64) -> u64 {
    (units * UNIT_BITS).div_ceil(8 * LINE_BYTES as u64).max(1).next_multiple_of(1 << HALVINGS_MAX)
}

/// Returns which of the lines has a prefix.
pub(super) fn line_of(prefix: u64, lines: u64) -> u64 {
    u64::try_from((u128::from(prefix) * u128::from(lines)) >> 64).expect("less than the number of lines")
}

/// Calls `each` with the word and the bit of each place that a prefix has in its line.
fn places(prefix: u64, mut each: impl FnMut(usize, u64)) {
    let mut mixed = (prefix ^ (prefix >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..PROBES {
        let word = usize::try_from(mixed >> 61).expect("three bits");
        each(word, 1 << ((mixed >> 55) & 63));
        mixed <<= 9;
    }
}

/// Adds a prefix to its line.
pub(super) fn set(line: &mut Line, prefix: u64) {
    places(prefix, |word, bit| line[word] |= bit);
}

/// A filter in memory. One without lines knows nothing.
#[derive(Debug, Default)]
pub(super) struct Filter {
    lines: Vec<Line>,
}

impl Filter {
    /// Returns a filter of so many lines, which joins as many neighbouring ones as `halvings` says.
    pub(super) fn with_room_for(lines: u64, halvings: u32) -> Filter {
        let lines = usize::try_from(lines >> halvings.min(HALVINGS_MAX)).unwrap_or(0);
        Filter { lines: vec![Line::default(); lines] }
    }

    /// Adds a line of the complete filter.
    pub(super) fn add(&mut self, number: u64, halvings: u32, line: &Line) {
        let at = usize::try_from(number >> halvings.min(HALVINGS_MAX)).unwrap_or(usize::MAX);
        if let Some(into) = self.lines.get_mut(at) {
            into.iter_mut().zip(line).for_each(|(into, bits)| *into |= bits);
        }
    }

    /// Returns whether the run may have the prefix.
    pub(super) fn may_have(&self, prefix: u64) -> bool {
        let at = line_of(prefix, self.lines.len() as u64);
        let Some(line) = usize::try_from(at).ok().and_then(|at| self.lines.get(at)) else {
            return true;
        };
        let mut has = true;
        places(prefix, |word, bit| has &= line[word] & bit != 0);
        has
    }

    /// Returns its memory.
    pub(super) fn bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns numbers as keyed digests have them.
    fn prefixes(from: u64, count: u64) -> impl Iterator<Item = u64> {
        (from..from + count).map(|number| {
            let digest = blake3::hash(&number.to_le_bytes());
            u64::from_be_bytes(*digest.as_bytes().first_chunk().unwrap())
        })
    }

    #[test]
    fn a_filter_has_all_its_units_and_few_others_and_smaller_ones_have_more_others() {
        let count = 20_000;
        let lines = lines_for(count);
        let mut complete = vec![Line::default(); usize::try_from(lines).unwrap()];
        for prefix in prefixes(0, count) {
            set(&mut complete[usize::try_from(line_of(prefix, lines)).unwrap()], prefix);
        }
        let mut before = 0.0;
        for (halvings, share_max) in [(0, 0.04), (1, 0.25), (2, 0.75), (HALVINGS_MAX, 1.0)] {
            let mut filter = Filter::with_room_for(lines, halvings);
            (0_u64..).zip(&complete).for_each(|(number, line)| filter.add(number, halvings, line));
            assert_eq!(filter.bytes(), (complete.len() * LINE_BYTES) >> halvings);
            assert!(prefixes(0, count).all(|prefix| filter.may_have(prefix)));
            let others = prefixes(count, 50_000).filter(|prefix| filter.may_have(*prefix)).count();
            let share = others as f64 / 50_000.0;
            assert!(share <= share_max && share > before, "halved {halvings} times: {share}");
            before = share - 0.01;
        }
        assert!(Filter::default().may_have(7), "a filter that is not there knows nothing");
    }
}
