//! Whether there is room for the records that sharing takes: looked at before it fails, as guests' writes would fail
//! with it.
//!
//! Each piece of a file that lies by itself has a record in the file system, and each shared block another one. While a
//! pass takes them, guests want some of their own, for copies of what they overwrite.

use onefold_substrate::Substrate;

/// Of all room, the part that is left for others, and its bounds in bytes.
const LEFT_PART: u64 = 1024;
const LEFT_LEAST: u64 = 4 << 20;
const LEFT_MOST: u64 = 64 << 20;
/// Of a file system so small that the least would be much of it.
const LEFT_SMALL_PART: u64 = 50;
/// Calls between two looks. Each takes a few hundred bytes of records, a few thousand at worst.
const CALLS_BETWEEN: u32 = 512;

/// Looks now and then.
#[derive(Debug)]
pub(super) struct RecordsRoom {
    least: u64,
    calls: u32,
}

impl RecordsRoom {
    pub(super) fn new<S: Substrate>(substrate: &S) -> RecordsRoom {
        // Where it is not told, the file system says so when it is full.
        let total = substrate.room().map_or(0, |room| room.total);
        RecordsRoom { least: least(total), calls: 0 }
    }

    /// To be asked before each call that takes records: returns how much is left if that is too little.
    pub(super) fn lacks<S: Substrate>(&mut self, substrate: &S) -> Option<u64> {
        if self.calls > 0 {
            self.calls -= 1;
            return None;
        }
        let left = substrate.room_for_records().ok()?;
        if left < self.least {
            return Some(left);
        }
        self.calls = CALLS_BETWEEN;
        None
    }
}

fn least(total: u64) -> u64 {
    (total / LEFT_PART).clamp(LEFT_LEAST, LEFT_MOST).min(total / LEFT_SMALL_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_part_of_all_room_is_left_for_others() {
        let mib = |bytes: u64| bytes << 20;
        for (total, expected) in [(mib(1 << 30), 64), (mib(16 << 10), 16), (mib(320), 4), (mib(50), 1), (0, 0)] {
            assert_eq!(least(total), mib(expected), "{total}");
        }
    }
}
