//! `$UpCase`: the upper case of every 16-bit unit, which decides which names are equal.
//!
//! The table is read in parts. Most names need only the first one, and opening a volume looks up one name.

use std::cmp::Ordering;
use std::sync::OnceLock;

use super::Ntfs;
use super::stream::Stream;
use crate::bytes::Bytes;

/// Record of the table.
const RECORD: u64 = 10;
/// Bytes of a whole table.
const BYTES: usize = 1 << 17;
/// Bytes of a part: the first one has Latin, Greek, Cyrillic, Hebrew and Arabic.
const PART_BYTES: usize = 4096;
const PARTS: usize = BYTES / PART_BYTES;

/// The parts of a table that were needed so far, in their stored form.
#[derive(Debug, Default)]
pub(super) struct UpperCase {
    parts: [OnceLock<Vec<u8>>; PARTS],
}

/// Reads the parts of a table.
pub(super) trait ReadPart {
    /// Returns part `number`. Units past its end are their own upper case.
    fn read_part(&self, number: usize) -> Vec<u8>;
}

/// A table whose missing parts are read on demand.
#[derive(Clone, Copy)]
pub(super) struct UpperCaseTable<'t> {
    known: &'t UpperCase,
    source: &'t dyn ReadPart,
}

impl<'t> UpperCaseTable<'t> {
    /// Returns the table from `source`, with the parts that are `known`.
    pub(super) fn new(known: &'t UpperCase, source: &'t dyn ReadPart) -> UpperCaseTable<'t> {
        UpperCaseTable { known, source }
    }

    /// Compares two names without regard to case.
    pub(super) fn compare(self, one: impl Iterator<Item = u16>, other: impl Iterator<Item = u16>) -> Ordering {
        one.map(|unit| self.of(unit)).cmp(other.map(|unit| self.of(unit)))
    }

    fn of(self, unit: u16) -> u16 {
        let at = 2 * usize::from(unit);
        let number = at / PART_BYTES;
        let part = self.known.parts.get(number).map(|part| part.get_or_init(|| self.source.read_part(number)));
        part.and_then(|part| Bytes(part).le16(at % PART_BYTES)).unwrap_or(unit)
    }
}

/// The parts of a volume's table. A part that cannot be read is that of ASCII, which is damage.
impl ReadPart for Ntfs<'_> {
    fn read_part(&self, number: usize) -> Vec<u8> {
        let read = |stream: &Stream| {
            let mut part = vec![0; PART_BYTES];
            let length = stream.read(self.mft.clusters(), (number * PART_BYTES) as u64, &mut part).ok()?;
            part.truncate(length);
            Some(part)
        };
        let stored = stream(self).as_ref().and_then(read);
        stored.unwrap_or_else(|| {
            self.damage.note(self.mft.damage(RECORD, "it has no table of upper case"));
            part_of_ascii(number)
        })
    }
}

/// Returns the stream with the table; `None` if it cannot be one.
fn stream(ntfs: &Ntfs<'_>) -> Option<Stream> {
    let is_table = |stream: &Stream| {
        let is_plain = !stream.coding.is_compressed() && !stream.coding.is_encrypted();
        let has_length = (1..=BYTES as u64).contains(&stream.size_bytes);
        is_plain && has_length && stream.broken.is_none()
    };
    ntfs.system_stream(RECORD).ok().flatten().filter(is_table)
}

/// Returns a part of a table for ASCII only.
fn part_of_ascii(number: usize) -> Vec<u8> {
    if number > 0 {
        return Vec::new();
    }
    (0..128_u8).flat_map(|byte| [byte.to_ascii_uppercase(), 0]).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A table, and the parts of it that were read.
    struct Recorder {
        table: Vec<u8>,
        read: Mutex<Vec<usize>>,
    }

    impl Recorder {
        fn new(table: Vec<u8>) -> Recorder {
            Recorder { table, read: Mutex::default() }
        }
    }

    impl ReadPart for Recorder {
        fn read_part(&self, number: usize) -> Vec<u8> {
            self.read.lock().unwrap().push(number);
            self.table.iter().copied().skip(number * PART_BYTES).take(PART_BYTES).collect()
        }
    }

    fn bytes(units: &[u16]) -> Vec<u8> {
        units.iter().flat_map(|unit| unit.to_le_bytes()).collect()
    }

    fn compare(table: UpperCaseTable<'_>, one: &str, other: &str) -> Ordering {
        table.compare(one.encode_utf16(), other.encode_utf16())
    }

    #[test]
    fn a_table_decides_which_names_are_equal() {
        let (known, ascii) = (UpperCase::default(), Recorder::new(part_of_ascii(0)));
        let ascii = UpperCaseTable::new(&known, &ascii);
        assert_eq!(compare(ascii, "Straße", "sTRAßE"), Ordering::Equal);
        assert_eq!(compare(ascii, "ä", "Ä"), Ordering::Greater);
        assert_eq!(compare(ascii, "_", "a"), Ordering::Greater);
        let mut table: Vec<u16> = (0..=u16::MAX).collect();
        table[0xe4] = 0xc4;
        let (known, table) = (UpperCase::default(), Recorder::new(bytes(&table)));
        let table = UpperCaseTable::new(&known, &table);
        assert_eq!(compare(table, "ä", "Ä"), Ordering::Equal);
        assert_eq!(compare(table, "a", "A"), Ordering::Greater);
    }

    #[test]
    fn each_part_is_read_once_and_only_when_a_name_needs_it() {
        let table: Vec<u16> = (0..=u16::MAX).map(|unit| unit / 2).collect();
        let (known, source) = (UpperCase::default(), Recorder::new(bytes(&table)));
        let table = UpperCaseTable::new(&known, &source);
        let upper = |unit: u16| table.of(unit);
        assert_eq!([0x61, 0x7ff, 0x61].map(upper), [0x30, 0x3ff, 0x30]);
        assert_eq!(*source.read.lock().unwrap(), [0]);
        assert_eq!([u16::MAX, 0x800, 0xfffe].map(upper), [0x7fff, 0x400, 0x7fff]);
        assert_eq!(*source.read.lock().unwrap(), [0, 31, 1]);
    }

    #[test]
    fn units_past_the_end_are_their_own_upper_case() {
        let table: Vec<u16> = (0..0x801).map(|_| 7).collect();
        let (known, source) = (UpperCase::default(), Recorder::new(bytes(&table)));
        let table = UpperCaseTable::new(&known, &source);
        assert_eq!([0x7ff, 0x800, 0x801, u16::MAX].map(|unit| table.of(unit)), [7, 7, 0x801, u16::MAX]);
    }
}
