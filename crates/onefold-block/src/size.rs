//! Sizes in readable form.

const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];

/// Returns `bytes` in the largest unit that keeps it at or above one, with two decimals.
#[must_use]
pub fn human(bytes: u64) -> String {
    match (1..=UNITS.len()).rev().find(|power| bytes >> (10 * power) != 0) {
        None => format!("{bytes} B"),
        Some(power) => {
            let hundredths = (u128::from(bytes) * 100) >> (10 * power);
            format!("{}.{:02} {}", hundredths / 100, hundredths % 100, UNITS[power - 1])
        }
    }
}

/// Returns `part` of `whole` as a percentage with one decimal, rounded to the nearest.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    let whole = u128::from(whole.max(1));
    let tenths = (u128::from(part) * 2000 + whole) / (2 * whole);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_to_the_nearest_tenth() {
        let cases = [((1, 4), "25.0 %"), ((2, 3), "66.7 %"), ((1, 2000), "0.1 %"), ((1, 2001), "0.0 %")];
        for ((part, whole), text) in cases {
            assert_eq!(percent(part, whole), text);
        }
        assert_eq!(percent(u64::MAX, u64::MAX), "100.0 %");
        assert_eq!(percent(0, 0), "0.0 %");
    }

    #[test]
    fn sizes_are_told_in_the_unit_that_fits() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(4096), "4.00 KiB");
        assert_eq!(human((2 << 30) - 1), "1.99 GiB");
        assert_eq!(human(u64::MAX), "16383.99 PiB");
    }
}
