//! The status of a watch. Only the watch writes it, in place; anybody may read it. Nothing depends on it.
//!
//! The subject is zero. One frame, the last:
//!
//! | bytes   | field      | notes                                                               |
//! |---------|------------|---------------------------------------------------------------------|
//! | 0..4    | process    | its number on its host                                              |
//! | 4       | phase      | [`WatchPhase`]                                                      |
//! | 5       | -          | zero                                                                |
//! | 6..8    | host       | length of the host's name, at most 255                              |
//! | 8..10   | trouble    | length of the last failure, at most 1024; 0 if work succeeded since |
//! | 10..12  | -          | zero                                                                |
//! | 12..16  | interval   | seconds between two looks: a watch with an older `updated` hangs    |
//! | 16..24  | updated    | seconds since 1970, signed                                          |
//! | 24..32  | owned      | images whose locks it keeps, because they are open on its host      |
//! | 32..40  | waiting    | approximate number of blocks in logs that wait for a pass           |
//! | 40..48  | passes     | completed since the watch began                                     |
//! | 48..56  | passed     | when the last one ended: seconds since 1970, signed; 0 if none did  |
//! | 56..64  | shared     | by all of them, in bytes                                            |
//! | 64..72  | freed      | of that, in bytes                                                   |
//! | 72..    |            | the host's name and the trouble, as UTF-8                           |
//!
//! A process that reads it during a write finds a wrong checksum, and reads it again.

use onefold_substrate::Substrate;

use super::FormatError;
use super::record::{Frame, RecordHeader, RecordKind, RecordReader, RecordWriter};

const FIXED_BYTES: usize = 72;
const HOST_BYTES_MAX: usize = 255;
const TROUBLE_BYTES_MAX: usize = 1024;

/// The current activity of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WatchPhase {
    /// It waits for files to change.
    #[default]
    Waiting,
    /// It waits for one of its windows.
    OutsideWindows,
    /// It waits for the load of its host to fall.
    LoadTooHigh,
    /// It reads changes.
    Scanning,
    /// It shares.
    Sharing,
}

impl WatchPhase {
    const ALL: [WatchPhase; 5] = [
        WatchPhase::Waiting,
        WatchPhase::OutsideWindows,
        WatchPhase::LoadTooHigh,
        WatchPhase::Scanning,
        WatchPhase::Sharing,
    ];

    fn code(self) -> u8 {
        match self {
            WatchPhase::Waiting => 0,
            WatchPhase::OutsideWindows => 1,
            WatchPhase::LoadTooHigh => 2,
            WatchPhase::Scanning => 3,
            WatchPhase::Sharing => 4,
        }
    }
}

/// The status of a watch, and its work since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchStatus {
    /// Its process number on its host.
    pub process: u32,
    /// The name of its host.
    pub host: String,
    /// Its activity.
    pub phase: WatchPhase,
    /// Seconds between two of its looks.
    pub interval_seconds: u32,
    /// When it wrote this, in seconds since 1970.
    pub updated: i64,
    /// Images whose locks it keeps, because they are open for writing on its host.
    pub owned: u64,
    /// Approximate number of blocks in logs that wait for a pass.
    pub waiting_blocks: u64,
    /// Number of completed passes.
    pub passes: u64,
    /// When the last of them ended, in seconds since 1970; 0 before the first.
    pub last_pass: i64,
    /// Bytes that they shared.
    pub shared_bytes: u64,
    /// Bytes that they freed, as maps show.
    pub freed_bytes: u64,
    /// The last failure, if nothing succeeded since.
    pub trouble: Option<String>,
}

impl WatchStatus {
    /// Writes the status over the previous one. Returns the file.
    ///
    /// # Errors
    /// No space; errors of the device.
    pub fn write<S: Substrate>(&self, substrate: &S, file: S::File, identity: [u8; 16]) -> std::io::Result<S::File> {
        let header = RecordHeader { kind: RecordKind::Watch, identity, subject: 0 };
        Ok(RecordWriter::new(substrate, file, &header).finish(&self.encode())?.0)
    }

    /// Reads a status.
    ///
    /// # Errors
    /// See [`FormatError`]; `Damaged` also while it is being written.
    pub fn read<S: Substrate>(substrate: &S, file: S::File, identity: &[u8; 16]) -> Result<WatchStatus, FormatError> {
        let mut reader = RecordReader::open(substrate, file, RecordKind::Watch, Some(identity))?;
        let Some(Frame::Last(payload)) = reader.next_frame()? else {
            return Err(FormatError::Damaged("it has more than one frame"));
        };
        WatchStatus::decode(payload)
    }

    fn encode(&self) -> Vec<u8> {
        let host = cut(&self.host, HOST_BYTES_MAX);
        let trouble = cut(self.trouble.as_deref().unwrap_or_default(), TROUBLE_BYTES_MAX);
        let mut bytes = Vec::with_capacity(FIXED_BYTES + host.len() + trouble.len());
        bytes.extend_from_slice(&self.process.to_le_bytes());
        bytes.extend_from_slice(&[self.phase.code(), 0]);
        for text in [host, trouble] {
            bytes.extend_from_slice(&u16::try_from(text.len()).expect("cut above").to_le_bytes());
        }
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend_from_slice(&self.interval_seconds.to_le_bytes());
        bytes.extend_from_slice(&self.updated.to_le_bytes());
        for number in [self.owned, self.waiting_blocks, self.passes] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.last_pass.to_le_bytes());
        for number in [self.shared_bytes, self.freed_bytes] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(host.as_bytes());
        bytes.extend_from_slice(trouble.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<WatchStatus, FormatError> {
        const CUT: FormatError = FormatError::Damaged("its length is wrong");
        let (fixed, texts) = bytes.split_first_chunk::<FIXED_BYTES>().ok_or(CUT)?;
        let word = |at: usize| usize::from(u16::from_le_bytes([fixed[at], fixed[at + 1]]));
        let half = |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().expect("eight bytes"));
        let (host, trouble) = texts.split_at_checked(word(6)).ok_or(CUT)?;
        if trouble.len() != word(8) || host.len() > HOST_BYTES_MAX || trouble.len() > TROUBLE_BYTES_MAX {
            return Err(CUT);
        }
        let text = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes).map_err(|_| FormatError::Damaged("its text is none"))?;
            Ok::<String, FormatError>(text.to_owned())
        };
        let phase = WatchPhase::ALL.into_iter().find(|phase| phase.code() == fixed[4]);
        Ok(WatchStatus {
            process: half(0),
            host: text(host)?,
            phase: phase.ok_or(FormatError::Damaged("its phase is none of those that there are"))?,
            interval_seconds: half(12),
            updated: long(16).cast_signed(),
            owned: long(24),
            waiting_blocks: long(32),
            passes: long(40),
            last_pass: long(48).cast_signed(),
            shared_bytes: long(56),
            freed_bytes: long(64),
            trouble: Some(text(trouble)?).filter(|text| !text.is_empty()),
        })
    }
}

/// Returns the longest beginning of a text that has at most `bytes_max` bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> WatchStatus {
        WatchStatus {
            process: u32::MAX,
            host: "höst".to_owned(),
            phase: WatchPhase::Sharing,
            interval_seconds: 60,
            updated: -1,
            owned: 2,
            waiting_blocks: 3,
            passes: 4,
            last_pass: 5,
            shared_bytes: u64::MAX,
            freed_bytes: 6,
            trouble: Some("the disk is full".to_owned()),
        }
    }

    #[test]
    fn a_status_survives_its_encoding() {
        for status in [status(), WatchStatus::default()] {
            assert_eq!(WatchStatus::decode(&status.encode()).unwrap(), status);
        }
        for phase in WatchPhase::ALL {
            let status = WatchStatus { phase, ..status() };
            assert_eq!(WatchStatus::decode(&status.encode()).unwrap().phase, phase);
        }
    }

    #[test]
    fn the_layout_is_that_of_the_table() {
        let bytes = status().encode();
        assert_eq!(bytes[..16], [0xff, 0xff, 0xff, 0xff, 4, 0, 5, 0, 16, 0, 0, 0, 60, 0, 0, 0]);
        assert_eq!((bytes[16], bytes[24], bytes[32], bytes[40], bytes[48]), (0xff, 2, 3, 4, 5));
        assert_eq!((bytes[56], bytes[64], &bytes[72..77]), (0xff, 6, "höst".as_bytes()));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = WatchStatus { host: "ö".repeat(200), trouble: Some("ö".repeat(600)), ..status() };
        let decoded = WatchStatus::decode(&long.encode()).unwrap();
        assert_eq!((decoded.host.len(), decoded.trouble.unwrap().len()), (254, 1024));
    }

    #[test]
    fn a_damaged_status_is_refused() {
        let bytes = status().encode();
        for length in 0..bytes.len() {
            assert!(WatchStatus::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        for (at, value) in [(4, 5), (6, 0xff), (7, 0xff), (8, 0), (9, 4), (73, 0xff)] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            assert!(WatchStatus::decode(&damaged).is_err(), "byte {at} is {value}");
        }
    }
}
