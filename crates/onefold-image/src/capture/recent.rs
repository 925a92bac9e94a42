//! The units that a capture itself has stored. Threads consult it to decide whether to compress a unit.

use std::collections::HashSet;

use parking_lot::RwLock;

use crate::UnitName;

/// Bytes of memory for a unit: an entry of the table, which is half empty after it has grown.
const ENTRY_BYTES: usize = 2 * (size_of::<UnitName>() + 1);

/// Recently stored units. A unit that is missing here is compressed again, but not stored again.
#[derive(Debug)]
pub(super) struct RecentUnits {
    units: RwLock<HashSet<UnitName>>,
    units_max: usize,
}

impl RecentUnits {
    /// Returns an empty set that takes at most about `memory_bytes`.
    pub(super) fn new(memory_bytes: usize) -> RecentUnits {
        RecentUnits { units: RwLock::default(), units_max: (memory_bytes / ENTRY_BYTES).max(1) }
    }

    /// Adds a unit. Clears the set first if it is full.
    pub(super) fn add(&self, name: UnitName) {
        let mut units = self.units.write();
        if units.len() >= self.units_max {
            units.clear();
        }
        units.insert(name);
    }

    /// Removes all units.
    pub(super) fn clear(&self) {
        self.units.write().clear();
    }

    /// Returns whether a unit is in the set.
    pub(super) fn has(&self, name: &UnitName) -> bool {
        self.units.read().contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_set_begins_anew() {
        let recent = RecentUnits::new(10 * ENTRY_BYTES);
        let name = |byte: u8| UnitName([byte; 32]);
        (0..15).for_each(|byte| recent.add(name(byte)));
        let found: Vec<u8> = (0..20).filter(|byte| recent.has(&name(*byte))).collect();
        assert_eq!(found, [10, 11, 12, 13, 14]);
    }
}
