//! Stamps of files, as marks have them.

use onefold_block::Timestamp;
use onefold_substrate::FileStat;

/// Values that change with each change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Length in bytes.
    pub length: u64,
    /// When its content last changed.
    pub modified: Timestamp,
    /// When anything about it last changed. Setting the time above also changes this one, which nobody can set.
    pub changed: Timestamp,
}

impl Stamp {
    /// Length of its encoding, in bytes.
    pub(super) const BYTES: usize = 32;

    /// Returns the stamp of a file.
    #[must_use]
    pub fn of(stat: &FileStat) -> Stamp {
        Stamp { length: stat.length, modified: stat.modified, changed: stat.changed }
    }

    /// Returns the bytes of the stamp, as they are in marks.
    pub(super) fn encode(&self) -> [u8; Stamp::BYTES] {
        let mut bytes = [0; Stamp::BYTES];
        bytes[..8].copy_from_slice(&self.length.to_le_bytes());
        for (at, time) in [(8, self.modified), (20, self.changed)] {
            bytes[at..at + 8].copy_from_slice(&time.seconds.to_le_bytes());
            bytes[at + 8..at + 12].copy_from_slice(&time.nanoseconds.to_le_bytes());
        }
        bytes
    }

    /// Returns the stamp of these bytes.
    pub(super) fn decode(bytes: &[u8; Stamp::BYTES]) -> Stamp {
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let time = |at: usize| {
            let nanoseconds = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().expect("four bytes"));
            Timestamp { seconds: long(at).cast_signed(), nanoseconds }
        };
        Stamp { length: long(0), modified: time(8), changed: time(20) }
    }
}
