//! Memory of the maps of a disk: one budget from which all readers of the disk draw.
//!
//! The larger structures of a map have as many rows as their draw can hold. Blocks without a row count as allocated, so
//! a small budget costs free bytes, but never data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Default budget of maps.
const DEFAULT_BYTES: usize = 256 << 20;
/// Number of rows that a list gets memory for at once at least, if it may have so many.
const ROWS_MIN: usize = 64;

/// Bytes of memory that maps may take. Clones draw from the same bytes.
#[derive(Clone, Debug)]
pub struct Budget {
    shared: Arc<BudgetState>,
}

#[derive(Debug)]
struct BudgetState {
    left_bytes: AtomicUsize,
    is_short: AtomicBool,
    has_too_many: AtomicBool,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new(DEFAULT_BYTES)
    }
}

impl Budget {
    /// Returns a budget of `bytes`.
    #[must_use]
    pub fn new(bytes: usize) -> Budget {
        let (is_short, has_too_many) = (AtomicBool::new(false), AtomicBool::new(false));
        Budget { shared: Arc::new(BudgetState { left_bytes: AtomicUsize::new(bytes), is_short, has_too_many }) }
    }

    /// Draws `wanted_bytes`, or the rest of the budget if that is less. The bytes return to the budget when the draw is
    /// dropped.
    #[must_use]
    pub fn draw(&self, wanted_bytes: usize) -> Draw {
        let left = &self.shared.left_bytes;
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left - left.min(wanted_bytes)));
        Draw { budget: self.clone(), bytes: taken.unwrap_or_else(|left| left).min(wanted_bytes), wanted_bytes }
    }

    /// Records that a map would be more exact with more memory.
    pub fn note_short(&self) {
        self.shared.is_short.store(true, Ordering::Relaxed);
    }

    /// Records that a structure of a map has no room for more rows than `rows`.
    pub fn note_full(&self, rows: Rows) {
        if rows.is_capped {
            self.shared.has_too_many.store(true, Ordering::Relaxed);
        } else {
            self.note_short();
        }
    }

    /// Returns whether a map has more pieces than are kept with any amount of memory. More of it then counts as
    /// allocated.
    #[must_use]
    pub fn has_too_many(&self) -> bool {
        self.shared.has_too_many.load(Ordering::Relaxed)
    }

    /// Returns whether a map would be more exact with more memory. More of it then counts as allocated.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.shared.is_short.load(Ordering::Relaxed)
    }
}

/// Bytes that were drawn from a budget.
#[derive(Debug)]
pub struct Draw {
    budget: Budget,
    bytes: usize,
    wanted_bytes: usize,
}

/// Capacity of a structure of a map in rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Maximum number of rows.
    pub max: usize,
    /// Whether more memory would not raise the maximum.
    is_capped: bool,
}

impl Draw {
    /// Returns how many rows of `row_bytes` fit into one of `parts` equal parts of the draw, at most `rows_max`.
    #[must_use]
    pub fn rows(&self, parts: usize, row_bytes: usize, rows_max: usize) -> Rows {
        let fitting = self.bytes / parts.max(1) / row_bytes.max(1);
        Rows { max: fitting.min(rows_max), is_capped: fitting >= rows_max || self.bytes >= self.wanted_bytes }
    }

    /// Returns all but `bytes` to the budget.
    pub fn shrink(&mut self, bytes: usize) {
        let back = self.bytes.saturating_sub(bytes);
        self.bytes -= back;
        self.budget.shared.left_bytes.fetch_add(back, Ordering::Relaxed);
    }
}

impl Drop for Draw {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

/// Appends a row to a list of at most `rows_max`. The list grows by doubling, as every list does, but never takes
/// memory for more rows than that.
pub(crate) fn push_row<T>(rows: &mut Vec<T>, row: T, rows_max: usize) {
    if rows.len() == rows.capacity() {
        rows.reserve_exact(rows.len().max(ROWS_MIN).min(rows_max.saturating_sub(rows.len())).max(1));
    }
    rows.push(row);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_never_exceed_the_budget_and_return_what_they_took() {
        let budget = Budget::new(100);
        let mut first = budget.draw(70);
        let second = budget.clone().draw(70);
        assert_eq!((first.bytes, second.bytes), (70, 30));
        assert_eq!([first.rows(2, 7, 100), first.rows(2, 7, 3), second.rows(0, 0, 9)].map(|rows| rows.max), [5, 3, 9]);
        first.shrink(90);
        first.shrink(20);
        assert_eq!(budget.draw(1000).bytes, 50);
        drop((first, second));
        assert_eq!(budget.draw(1000).bytes, 100);
        assert!(!budget.is_short());
        budget.clone().note_short();
        assert!(budget.is_short());
    }

    #[test]
    fn lists_take_no_memory_for_more_rows_than_they_may_have() {
        for rows_max in [0, 1, 63, 64, 65, 100, 1000] {
            let mut rows = Vec::new();
            for row in 0..rows_max {
                push_row(&mut rows, row, rows_max);
                assert!(rows.capacity() <= rows_max, "{rows_max}");
            }
            assert!(rows.iter().copied().eq(0..rows_max));
        }
    }

    #[test]
    fn more_memory_is_asked_for_only_where_it_makes_room() {
        let budget = Budget::new(100);
        let (whole, rest) = (budget.draw(70), budget.draw(70));
        for (rows, is_capped) in [
            (rest.rows(1, 7, 5), false),
            (rest.rows(1, 7, 4), true),
            (whole.rows(2, 7, 5), true),
            (whole.rows(2, 7, 6), true),
        ] {
            let noted = Budget::new(0);
            noted.note_full(rows);
            assert_eq!((noted.has_too_many(), noted.is_short()), (is_capped, !is_capped), "{rows:?}");
        }
    }
}
