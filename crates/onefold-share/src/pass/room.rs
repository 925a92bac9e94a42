//! Checks whether there is space for the records that sharing takes. The check comes before sharing fails, because
//! guests' writes would fail with it.
//!
//! Each separate piece of a file has a record in the file system, and each shared block another one. While a pass takes
//! them, guests want some of their own, for copies of blocks that they overwrite.

use onefold_substrate::Substrate;

use crate::room::left_for_others;

/// Number of calls between two checks. Each takes a few hundred bytes of records, a few thousand at worst.
const CALLS_BETWEEN: u32 = 512;

/// Checks the space from time to time.
#[derive(Debug)]
pub(super) struct RecordsRoom {
    least: u64,
    calls: u32,
}

impl RecordsRoom {
    pub(super) fn new<S: Substrate>(substrate: &S) -> RecordsRoom {
        // If the space is not known, the file system reports it when it is full.
        let total = substrate.room().map_or(0, |room| room.total);
        RecordsRoom { least: left_for_others(total), calls: 0 }
    }

    /// Returns how much space is left, if that is too little. To be asked before each call that takes records.
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
