//! The tables of the packs that had the last units.
//!
//! An image that is captured again has its units in almost the same order, and packs have them in that order. So the
//! table of a pack that had the last units probably has the next ones, and the index is only asked where that ends. As
//! the names are complete in a table, it is proof.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::StoredUnit;
use super::tables::{Table, entry_at};
use crate::{ObjectId, UnitName};

/// Maximum number of tables: one for each image that threads read at once, and some for units between.
const TABLES_MAX: usize = 8;
/// Maximum number of units in all tables.
const UNITS_MAX: usize = 256 << 10;

/// The tables that had the last units.
#[derive(Debug, Default)]
pub(super) struct RecentTables {
    inner: Mutex<RecentState>,
}

#[derive(Debug)]
struct RecentState {
    /// Maximum memory of all tables, in bytes.
    bytes_max: usize,
    tables: VecDeque<FollowedTable>,
    /// Packs that had a unit according to the index. A table is worth following from the second unit on.
    asked: VecDeque<ObjectId>,
}

#[derive(Debug)]
struct FollowedTable {
    pack: ObjectId,
    table: Table,
    /// Offsets of units by the prefixes of their names.
    offsets: HashMap<u64, u32>,
}

impl Default for RecentState {
    fn default() -> RecentState {
        RecentState { bytes_max: usize::MAX, tables: VecDeque::new(), asked: VecDeque::new() }
    }
}

impl RecentState {
    /// Drops tables until the others are within their bounds.
    fn make_room(&mut self) {
        self.tables.truncate(TABLES_MAX);
        let sum =
            |tables: &VecDeque<FollowedTable>, of: fn(&FollowedTable) -> usize| tables.iter().map(of).sum::<usize>();
        while sum(&self.tables, |followed| followed.table.len()) > UNITS_MAX
            || sum(&self.tables, FollowedTable::memory_bytes) > self.bytes_max
        {
            self.tables.pop_back();
        }
    }
}

impl FollowedTable {
    fn new(pack: ObjectId, table: &Table) -> FollowedTable {
        let offsets = table.iter().map(|entry| (entry.name.prefix(), entry.offset)).collect();
        FollowedTable { pack, table: Arc::clone(table), offsets }
    }

    /// Returns the memory that it takes. The cache of tables may have dropped the table.
    fn memory_bytes(&self) -> usize {
        // A map has a byte beside each bucket, and an eighth of the buckets stays empty.
        let buckets = self.offsets.capacity() + self.offsets.capacity() / 7;
        size_of_val(&self.table[..]) + buckets * (size_of::<(u64, u32)>() + 1)
    }
}

impl RecentTables {
    /// Limits the memory for the tables, in bytes.
    pub(super) fn limit(&self, bytes_max: usize) {
        let mut inner = self.inner.lock();
        inner.bytes_max = bytes_max;
        inner.make_room();
    }

    /// Returns the memory that the tables take.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.inner.lock().tables.iter().map(FollowedTable::memory_bytes).sum()
    }

    /// Returns where a unit is stored, if one of the tables has it in a pack that `holds` lets in.
    pub(super) fn find(&self, name: &UnitName, holds: impl Fn(ObjectId) -> bool) -> Option<StoredUnit> {
        let inner = self.inner.lock();
        let prefix = name.prefix();
        inner.tables.iter().find_map(|FollowedTable { pack, table, offsets }| {
            let entry = entry_at(table, *offsets.get(&prefix)?).filter(|entry| entry.name == *name)?;
            holds(*pack).then_some(StoredUnit {
                pack: *pack,
                offset: entry.offset,
                stored_bytes: entry.stored_bytes,
                plain_bytes: entry.plain_bytes,
            })
        })
    }

    /// Notes that the index had to be asked for a unit of a pack with this table.
    pub(super) fn note(&self, pack: ObjectId, table: &Table) {
        let mut inner = self.inner.lock();
        let is_long = table.len() > UNITS_MAX || size_of_val(&table[..]) > inner.bytes_max;
        if is_long || inner.tables.iter().any(|followed| followed.pack == pack) {
            return;
        }
        if !inner.asked.contains(&pack) {
            inner.asked.push_front(pack);
            inner.asked.truncate(TABLES_MAX);
            return;
        }
        inner.asked.retain(|asked| *asked != pack);
        inner.tables.push_front(FollowedTable::new(pack, table));
        inner.make_room();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriterId;
    use crate::format::pack::TableEntry;

    fn pack(number: u8) -> ObjectId {
        ObjectId { writer: WriterId([1; 16]), random: [number; 8] }
    }

    fn table(number: u8, units: u32) -> Table {
        let entry = |at: u32| {
            let mut name = [number; 32];
            name[..4].copy_from_slice(&at.to_le_bytes());
            TableEntry { name: UnitName(name), offset: 64 + 20 * at, stored_bytes: 3, plain_bytes: 5 }
        };
        Arc::new((0..units).map(entry).collect())
    }

    #[test]
    fn the_second_unit_of_a_pack_makes_its_others_known_while_the_pack_counts() {
        let followed = RecentTables::default();
        let units = table(1, 100);
        followed.note(pack(1), &units);
        assert_eq!(followed.find(&units[5].name, |_| true), None);
        followed.note(pack(1), &units);
        for unit in units.iter() {
            let found = followed.find(&unit.name, |_| true).unwrap();
            assert_eq!((found.pack, found.offset, found.stored_bytes), (pack(1), unit.offset, 3));
            assert_eq!(followed.find(&unit.name, |_| false), None, "the pack was retired");
        }
        let mut other = units[5].name;
        other.0[31] ^= 1;
        assert_eq!(followed.find(&other, |_| true), None, "only the prefix is the same");
    }

    #[test]
    fn tables_stay_within_their_bounds_the_oldest_goes_first() {
        let followed = RecentTables::default();
        let follow = |number: u8, units: u32| {
            let table = table(number, units);
            (0..2).for_each(|_| followed.note(pack(number), &table));
            move |followed: &RecentTables| followed.find(&table[1].name, |_| true).is_some()
        };
        let known: Vec<_> = (0..10).map(|number| follow(number, 10)).collect();
        let still: Vec<bool> = known.iter().map(|known| known(&followed)).collect();
        assert_eq!(still, [vec![false; 2], vec![true; 8]].concat());
        let large = follow(100, 200 << 10);
        assert!(large(&followed) && known[9](&followed));
        let other = follow(101, 100 << 10);
        assert!(other(&followed) && !large(&followed) && !known[9](&followed));
        let too_large = follow(102, (256 << 10) + 1);
        assert!(!too_large(&followed) && other(&followed));
        // Each unit takes some 80 bytes, with its entry in the table.
        assert!((60..110).contains(&(followed.memory_bytes() / (100 << 10))), "{}", followed.memory_bytes());
        followed.limit(1 << 20);
        assert!(!other(&followed));
        let within: Vec<_> = (110..120).map(|number| follow(number, 3000)).collect();
        let still = within.iter().filter(|known| known(&followed)).count();
        assert!((3..=6).contains(&still) && within[9](&followed), "{still}");
        assert!(followed.memory_bytes() <= 1 << 20, "{}", followed.memory_bytes());
    }
}
