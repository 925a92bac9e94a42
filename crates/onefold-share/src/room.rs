//! The space of a file system that other users need: guests' writes would fail if sharing and its notes took all of it.

/// Fraction of all space that is left for others, and its bounds in bytes.
const LEFT_PART: u64 = 1024;
const LEFT_LEAST: u64 = 4 << 20;
const LEFT_MOST: u64 = 64 << 20;
/// Fraction for a file system so small that the lower bound would be a large part of it.
const LEFT_SMALL_PART: u64 = 50;

/// Returns how many bytes of a file system of `total` bytes are left for others.
pub(crate) fn left_for_others(total: u64) -> u64 {
    (total / LEFT_PART).clamp(LEFT_LEAST, LEFT_MOST).min(total / LEFT_SMALL_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_part_of_all_room_is_left_for_others() {
        let mib = |bytes: u64| bytes << 20;
        for (total, expected) in [(mib(1 << 30), 64), (mib(16 << 10), 16), (mib(320), 4), (mib(50), 1), (0, 0)] {
            assert_eq!(left_for_others(total), mib(expected), "{total}");
        }
    }
}
