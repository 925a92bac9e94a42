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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_the_unit_that_fits() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(4096), "4.00 KiB");
        assert_eq!(human((2 << 30) - 1), "1.99 GiB");
        assert_eq!(human(u64::MAX), "16383.99 PiB");
    }
}
