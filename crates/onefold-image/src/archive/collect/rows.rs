//! Rows by which needed units and the tables of packs are sorted and joined.

use std::io;

use onefold_sort::Row;

use crate::UnitName;
use crate::archive::ArchiveError;
use crate::archive::collect::read::Span;
use crate::format::pack::{TableEntry, UNIT_BYTES_MAX};

/// Low bits of the second word of a row, which hold the stored length of a unit.
const STORED_BITS: u32 = 21;
const STORED_MASK: u64 = (1 << STORED_BITS) - 1;
const _: () = assert!((UNIT_BYTES_MAX as u64) < STORED_MASK);

/// The beginning of a unit's name, 107 bits. Different units with the same key count as copies of each other until
/// their complete names are compared, which is before any copy is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnitPrefix([u64; 2]);

/// A unit in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LocatedUnit {
    /// Number of the pack.
    pub(super) pack: u32,
    pub(super) span: Span,
}

impl UnitPrefix {
    pub(super) fn of(name: &UnitName) -> UnitPrefix {
        let word = |at: usize| name.0[at..at + 8].iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        UnitPrefix([word(0), word(8) & !STORED_MASK])
    }

    /// Returns the row of a needed unit.
    pub(super) fn row(self) -> Row {
        [self.0[0], self.0[1], 0]
    }

    /// Returns the key of a row that [`UnitPrefix::row`] or [`table_row`] made.
    pub(super) fn of_row(row: Row) -> UnitPrefix {
        UnitPrefix([row[0], row[1] & !STORED_MASK])
    }
}

/// Returns the row of a table's entry. Rows of copies come one after the other, the shortest first.
pub(super) fn table_row(pack: u32, entry: &TableEntry) -> Row {
    let key = UnitPrefix::of(&entry.name);
    [key.0[0], key.0[1] | u64::from(entry.stored_bytes), place(pack, entry.offset)]
}

fn place(pack: u32, offset: u32) -> u64 {
    u64::from(pack) << 32 | u64::from(offset)
}

impl LocatedUnit {
    /// Returns the unit of a row that [`table_row`] made.
    pub(super) fn of_table_row(row: Row) -> LocatedUnit {
        LocatedUnit::of_words(row[2], row[1])
    }

    /// Returns a row that sorts by the unit's place and says its key.
    pub(super) fn row(self, key: UnitPrefix) -> Row {
        [place(self.pack, self.span.offset), key.0[0], key.0[1] | u64::from(self.span.stored_bytes)]
    }

    /// Returns unit and key of a row that [`LocatedUnit::row`] made.
    pub(super) fn of_row(row: Row) -> (LocatedUnit, UnitPrefix) {
        (LocatedUnit::of_words(row[0], row[2]), UnitPrefix([row[1], row[2] & !STORED_MASK]))
    }

    /// Returns a row that sorts by the unit's place and says where else it is.
    pub(super) fn row_beside(self, other: LocatedUnit) -> Row {
        let lengths = u64::from(self.span.stored_bytes) << 32 | u64::from(other.span.stored_bytes);
        [place(self.pack, self.span.offset), lengths, place(other.pack, other.span.offset)]
    }

    /// Returns both units of a row that [`LocatedUnit::row_beside`] made.
    pub(super) fn of_row_beside(row: Row) -> (LocatedUnit, LocatedUnit) {
        (LocatedUnit::of_words(row[0], row[1] >> 32), LocatedUnit::of_words(row[2], row[1]))
    }

    fn of_words(place: u64, stored_bytes: u64) -> LocatedUnit {
        let stored_bytes = u32::try_from(stored_bytes & STORED_MASK).expect("21 bits fit");
        let offset = u32::try_from(place & u64::from(u32::MAX)).expect("32 bits fit");
        LocatedUnit { pack: u32::try_from(place >> 32).expect("32 bits fit"), span: Span { offset, stored_bytes } }
    }
}

/// A needed unit in the tables: one of its copies and the copy that stays, or nothing if no table has the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    Copy { unit: LocatedUnit, kept: LocatedUnit },
    Nowhere,
}

/// Looks needed units up in the tables, both sorted. A unit that is needed several times counts once. Of several copies
/// the shortest one is kept.
pub(super) fn join(
    needed: impl IntoIterator<Item = io::Result<Row>>,
    tables: impl IntoIterator<Item = io::Result<Row>>,
    each: &mut dyn FnMut(UnitPrefix, Match) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let mut tables = tables.into_iter();
    let mut table = tables.next().transpose().map_err(temporary)?;
    let mut last = None;
    for need in needed {
        let key = UnitPrefix::of_row(need.map_err(temporary)?);
        if last.replace(key) == Some(key) {
            continue;
        }
        let mut kept = None;
        while let Some(row) = table
            && UnitPrefix::of_row(row) <= key
        {
            if UnitPrefix::of_row(row) == key {
                let unit = LocatedUnit::of_table_row(row);
                each(key, Match::Copy { unit, kept: *kept.get_or_insert(unit) })?;
            }
            table = tables.next().transpose().map_err(temporary)?;
        }
        if kept.is_none() {
            each(key, Match::Nowhere)?;
        }
    }
    Ok(())
}

/// Returns the error of a sort whose rows do not fit into memory.
pub(super) fn temporary(source: io::Error) -> ArchiveError {
    ArchiveError::System { what: "room for temporary files", source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u8) -> UnitName {
        UnitName([number; 32])
    }

    fn entry(number: u8, offset: u32, stored_bytes: u32) -> TableEntry {
        TableEntry { name: name(number), offset, stored_bytes, plain_bytes: UNIT_BYTES_MAX }
    }

    #[test]
    fn rows_keep_what_they_are_made_of() {
        for (pack, number, offset, stored_bytes) in [(0, 0, 64, 1), (u32::MAX, 255, u32::MAX, UNIT_BYTES_MAX)] {
            let located = LocatedUnit { pack, span: Span { offset, stored_bytes } };
            let row = table_row(pack, &entry(number, offset, stored_bytes));
            let key = UnitPrefix::of(&name(number));
            assert_eq!((UnitPrefix::of_row(row), LocatedUnit::of_table_row(row)), (key, located));
            assert_eq!(LocatedUnit::of_row(located.row(key)), (located, key));
            let other = LocatedUnit { pack: 7, span: Span { offset: 9, stored_bytes: 11 } };
            assert_eq!(LocatedUnit::of_row_beside(located.row_beside(other)), (located, other));
            assert_eq!(LocatedUnit::of_row_beside(other.row_beside(located)), (other, located));
            assert_eq!(UnitPrefix::of_row(key.row()), key);
        }
    }

    #[test]
    fn needed_units_are_found_with_all_their_copies_the_shortest_first() {
        let mut tables: Vec<Row> = Vec::new();
        for (pack, number, stored_bytes) in [(0, 1, 30), (1, 1, 20), (2, 1, 25), (0, 2, 5), (1, 4, 7)] {
            tables.push(table_row(pack, &entry(number, 64 + pack, stored_bytes)));
        }
        tables.sort_unstable();
        let needed = [1, 1, 3, 4, 5].map(|number| Ok(UnitPrefix::of(&name(number)).row()));
        let mut found = Vec::new();
        join(needed, tables.into_iter().map(Ok), &mut |key, matched| {
            let number = (1..6).find(|number| UnitPrefix::of(&name(*number)) == key).unwrap();
            found.push(match matched {
                Match::Copy { unit, kept } => (number, Some((unit.pack, kept.pack, unit.span.stored_bytes))),
                Match::Nowhere => (number, None),
            });
            Ok(())
        })
        .unwrap();
        let copies = [(1, Some((1, 1, 20))), (1, Some((2, 1, 25))), (1, Some((0, 1, 30)))];
        assert_eq!(found[..3], copies);
        assert_eq!(found[3..], [(3, None), (4, Some((1, 1, 7))), (5, None)]);
    }
}
