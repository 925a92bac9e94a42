//! Directories: records of 32 bytes in the order of creation.
//!
//! | bytes | field |
//! |---|---|
//! | 0..11 | DOS name; first byte 0: no further record; 0xe5: deleted |
//! | 11 | attributes |
//! | 12 | case of the DOS name |
//! | 13, 14..16, 16..18 | creation: units of 10 ms, time, date |
//! | 18..20, 22..24, 24..26 | date of the last access; time and date of the last change |
//! | 20..22, 26..28 | first cluster: high half (FAT32), low half |
//! | 28..32 | length in bytes |
//!
//! A time has units of two seconds in bits 0 to 4, minutes in 5 to 10, hours in 11 to 15. A date has the day in bits 0
//! to 4, the month in 5 to 8, and the year from 1980 in 9 to 15. Both are local times of the guest, and are treated as
//! UTC.

use super::name::ShortName;
use crate::bytes::Bytes;
use crate::filesystem::{FileKind, FileStat, FileSystemKind, Timestamp};

/// Length of a record.
pub(super) const RECORD_BYTES: usize = 32;
/// Maximum length of a directory.
pub(super) const DIRECTORY_BYTES_MAX: u64 = 65536 * RECORD_BYTES as u64;

const READ_ONLY: u8 = 0x01;
const VOLUME_LABEL: u8 = 0x08;
const DIRECTORY: u8 = 0x10;
const LONG_NAME: u8 = 0x0f;
const ATTRIBUTES: u8 = 0x3f;
const DELETED: u8 = 0xe5;

/// Kind of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// The end of the directory.
    End,
    /// Not in use.
    Deleted,
    /// A part of a long name.
    LongName,
    /// The label of the volume.
    Label(Vec<u8>),
    /// The directory itself, or its parent.
    Dots,
    /// A file.
    File(FileRecord),
}

/// The record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileRecord {
    pub(super) short: ShortName,
    pub(super) is_directory: bool,
    is_read_only: bool,
    /// 0 if the file has none.
    pub(super) first_cluster: u32,
    pub(super) size_bytes: u32,
    modified: Timestamp,
    accessed: Timestamp,
    created: Timestamp,
}

impl Record {
    /// Decodes a record of 32 bytes.
    pub(super) fn decode(record: Bytes<'_>, kind: FileSystemKind) -> Option<Record> {
        let attributes = record.u8(11)? & ATTRIBUTES;
        let name: [u8; 11] = record.array(0)?;
        Some(match name[0] {
            0 => Record::End,
            DELETED => Record::Deleted,
            _ if attributes == LONG_NAME => Record::LongName,
            _ if attributes & VOLUME_LABEL != 0 => Record::Label(name.to_vec()),
            _ if name == *b".          " || name == *b"..         " => Record::Dots,
            _ => Record::File(FileRecord::decode(record, kind, attributes)?),
        })
    }
}

impl FileRecord {
    fn decode(record: Bytes<'_>, kind: FileSystemKind, attributes: u8) -> Option<FileRecord> {
        let high = if kind == FileSystemKind::Fat32 { record.le16(20)? } else { 0 };
        Some(FileRecord {
            short: ShortName::decode(record)?,
            is_directory: attributes & DIRECTORY != 0,
            is_read_only: attributes & READ_ONLY != 0,
            first_cluster: u32::from(high) << 16 | u32::from(record.le16(26)?),
            size_bytes: record.le32(28)?,
            modified: timestamp(record.le16(24)?, record.le16(22)?, 0),
            accessed: timestamp(record.le16(18)?, 0, 0),
            created: timestamp(record.le16(16)?, record.le16(14)?, record.u8(13)?),
        })
    }

    /// Returns the metadata of the file; `size_bytes` is its length, which records of directories do not contain.
    pub(super) fn stat(&self, size_bytes: u64, cluster_bytes: u64) -> FileStat {
        let writable = if self.is_read_only { 0o555 } else { 0o755 };
        FileStat {
            mode: writable,
            modified: self.modified,
            changed: self.modified,
            accessed: self.accessed,
            created: (self.created != Timestamp::default()).then_some(self.created),
            ..plain_stat(
                if self.is_directory { FileKind::Directory } else { FileKind::Regular },
                size_bytes,
                cluster_bytes,
            )
        }
    }
}

/// Returns the metadata of a file without a record, such as the root directory.
pub(super) fn plain_stat(kind: FileKind, size_bytes: u64, cluster_bytes: u64) -> FileStat {
    FileStat {
        kind,
        mode: 0o755,
        user: 0,
        group: 0,
        links: 1,
        size_bytes,
        allocated_bytes: size_bytes.next_multiple_of(cluster_bytes),
        modified: Timestamp::default(),
        changed: Timestamp::default(),
        accessed: Timestamp::default(),
        created: None,
        device: None,
        generation: 0,
        encoding: None,
    }
}

/// Returns a time, with `hundredths` added to it. Without a date it is in 1970.
fn timestamp(date: u16, time: u16, hundredths: u8) -> Timestamp {
    if date == 0 {
        return Timestamp::default();
    }
    let (day, month, year) = (i64::from(date & 31), i64::from((date >> 5) & 15), 1980 + i64::from(date >> 9));
    let (seconds, minutes, hours) = (i64::from(time & 31) * 2, i64::from((time >> 5) & 63), i64::from(time >> 11));
    let of_day = hours * 3600 + minutes * 60 + seconds + i64::from(hundredths / 100);
    Timestamp {
        seconds: days_since_1970(year, month, day) * 86400 + of_day,
        nanoseconds: u32::from(hundredths % 100) * 10_000_000,
    }
}

/// Returns the number of days from 1970 to a date from 1980 on. For an invalid month or day, it is a few days off.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    const BEFORE_MONTH: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let month = month.clamp(1, 12);
    let leap_days = (year - 1969) / 4 - i64::from(year > 2100);
    let is_leap = year % 4 == 0 && year != 2100;
    let before = usize::try_from(month - 1).ok().and_then(|at| BEFORE_MONTH.get(at)).unwrap_or(&0);
    (year - 1970) * 365 + leap_days + before + i64::from(is_leap && month > 2) + day.max(1) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // Seconds in the output of `date --date=... +%s`.
        for ((year, month, day), seconds) in [
            ((1980, 1, 1), 315_532_800),
            ((1984, 2, 29), 446_860_800),
            ((2000, 3, 1), 951_868_800),
            ((2024, 12, 31), 1_735_603_200),
            ((2100, 3, 1), 4_107_542_400),
            ((2107, 12, 31), 4_354_732_800),
        ] {
            assert_eq!(days_since_1970(year, month, day) * 86400, seconds, "{year}-{month}-{day}");
        }
        let moment = timestamp(44 << 9 | 2 << 5 | 29, 12 << 11 | 30 << 5 | 29, 150);
        assert_eq!((moment.seconds, moment.nanoseconds), (1_709_209_859, 500_000_000));
        assert_eq!(timestamp(0, 5, 5), Timestamp::default());
    }

    #[test]
    fn any_record_is_decoded_or_refused() {
        for byte in 0..=255 {
            let record = [byte; 32];
            assert!(Record::decode(Bytes(&record), FileSystemKind::Fat32).is_some());
            assert!(Record::decode(Bytes(&record[..11]), FileSystemKind::Fat32).is_none());
        }
    }
}
