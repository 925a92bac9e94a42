//! Distribution of how often blocks repeat, for a curve like DeDe's Figure 6.

/// Contents by their number of places, in classes that double: 1, 2, 3 to 4, 5 to 8, and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repeats {
    classes: [u64; Repeats::CLASSES],
    max: u64,
}

impl Default for Repeats {
    fn default() -> Repeats {
        Repeats { classes: [0; Repeats::CLASSES], max: 0 }
    }
}

impl Repeats {
    const CLASSES: usize = 65;

    /// Adds a content with `places` places.
    pub(crate) fn add(&mut self, places: u64) {
        self.classes[class(places)] += 1;
        self.max = self.max.max(places);
    }

    /// Returns the number of places of the most repeated content.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// Returns pairs of a number of places and the number of contents in at most this many, up to the class of the
    /// largest.
    pub(crate) fn at_most(&self) -> Vec<(u64, u64)> {
        if self.max == 0 {
            return Vec::new();
        }
        let mut sum = 0;
        let classes = self.classes.iter().take(class(self.max) + 1).enumerate();
        classes
            .map(|(class, count)| {
                sum += count;
                (1_u64.checked_shl(u32::try_from(class).unwrap_or(64)).unwrap_or(u64::MAX), sum)
            })
            .collect()
    }
}

/// Returns the class of a number: the exponent of the smallest power of two that is not below it.
pub(crate) fn class(number: u64) -> usize {
    number.checked_next_power_of_two().map_or(64, |power| power.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_power_of_two_ends_a_class() {
        for (number, expected) in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1 << 20, 20), ((1 << 20) + 1, 21)] {
            assert_eq!(class(number), expected, "{number}");
        }
        assert_eq!(class(u64::MAX), 64);
    }

    #[test]
    fn the_curve_ends_with_all_contents() {
        let mut repeats = Repeats::default();
        assert_eq!(repeats.at_most(), []);
        for places in [1, 1, 2, 3, 9] {
            repeats.add(places);
        }
        assert_eq!(repeats.at_most(), [(1, 2), (2, 3), (4, 4), (8, 4), (16, 5)]);
        assert_eq!(repeats.max(), 9);
    }
}
