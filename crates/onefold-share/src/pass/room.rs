//! Whether there is room for the records that sharing takes: looked at before it fails, as guests' writes would fail
//! with it.
//!
//! Each piece of a file that lies by itself has a record in the file system, and each shared block another one. While a
//! pass takes them, guests want some of their own, for copies of what they overwrite.

use onefold_substrate::Substrate;

use crate::room::left_for_others;

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
        RecordsRoom { least: left_for_others(total), calls: 0 }
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
