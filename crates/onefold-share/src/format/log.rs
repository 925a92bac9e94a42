//! Write logs: the written blocks of a file, and their contents. The notes may be stale, lost or repeated.
//! Merge requests have the same format, as a kind of their own.
//!
//! The subject is the file's number. Each frame but the last holds disjoint runs, in order of their blocks:
//!
//! | bytes   | field   | notes                                        |
//! |---------|---------|----------------------------------------------|
//! | 0..5    | block   | first block of the run, little-endian        |
//! | 5..7    | count   | blocks, at least 1; the top bit is set if no digests follow: the blocks were changed, and their content is not known |
//! | 7..10   | more    | only if no digests follow: bits 15 to 38 of the count, so that one run can cover all blocks of a file |
//! | 7..     | digests | otherwise: one of 12 bytes for each block; zeros if the block is zero |
//!
//! The last frame holds the number of blocks in all, 8 bytes. So a log of 1 MiB covers about 340 MiB that were
//! written in sequence, or 215 MiB that were written block by block (DeDe, section 3.1: 150 MB).
//!
//! | version | |
//! |---------|-|
//! | 3       | digests are made with the key of the file's domain; earlier versions are dropped |
//! | 2       | runs without digests |
//! | 1       | all runs have digests |

use std::collections::VecDeque;
use std::io;

use onefold_substrate::Substrate;

use super::record::{Frame, PAYLOAD_BYTES_MAX, RecordHeader, RecordKind, RecordReader, RecordWriter};
use super::{FileBlock, FileNo, FingerprintPrefix, FormatError};

const RUN_HEADER_BYTES: usize = 7;
/// Flag in the count of a run: no digests follow.
const CHANGED: u16 = 1 << 15;
/// Maximum number of blocks of a run with digests, and mask of the count's low bits in a run without.
const RUN_BLOCKS_MAX: u16 = CHANGED - 1;
const CHANGED_BLOCKS_MAX: u64 = (1 << 39) - 1;
/// Number of bits of a count before those that only a run without digests has.
const COUNT_BITS: u32 = 15;
const MORE_BYTES: usize = 3;
const _: () =
    assert!(PAYLOAD_BYTES_MAX / FingerprintPrefix::BYTES < CHANGED as usize, "no run with digests has the top bit");

/// One written block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenBlock {
    /// The block.
    pub block: FileBlock,
    /// Its content then; `None` if it was zero.
    pub digest: Option<FingerprintPrefix>,
}

/// The source of the statement that a block has a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogKind {
    /// A host that saw the block written, or read it: the index's earlier statement about the block no longer holds.
    Log,
    /// A host that could not share in the file itself, and knows the block from the index.
    Request,
}

impl LogKind {
    fn record(self) -> RecordKind {
        match self {
            LogKind::Log => RecordKind::Log,
            LogKind::Request => RecordKind::Request,
        }
    }
}

/// A note of a log about one block, or about several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A block was written, and its content is known.
    Written(WrittenBlock),
    /// Blocks were changed, and their content is not known. Earlier knowledge of them no longer holds.
    Changed {
        /// The first block.
        first: FileBlock,
        /// The number of blocks, at least one.
        count: u64,
    },
}

impl Note {
    /// Returns its first block, and its number of blocks.
    #[must_use]
    pub fn blocks(&self) -> (FileBlock, u64) {
        match *self {
            Note::Written(WrittenBlock { block, .. }) => (block, 1),
            Note::Changed { first, count } => (first, count),
        }
    }
}

impl From<WrittenBlock> for Note {
    fn from(written: WrittenBlock) -> Note {
        Note::Written(written)
    }
}

/// Stands for a zero block, which has no digest. A content has this digest with a probability of 2^-96.
const ZERO: FingerprintPrefix = FingerprintPrefix([0; FingerprintPrefix::BYTES]);

/// Writes a log.
pub struct LogWriter<'a, S: Substrate> {
    record: RecordWriter<'a, S>,
    payload: Vec<u8>,
    /// The place of the open run's header, its first block, and its length so far.
    run: Option<(usize, u64, u16)>,
    /// The block behind the last one.
    next: u64,
    blocks: u64,
}

impl<'a, S: Substrate> LogWriter<'a, S> {
    /// Begins the log of a file, or a merge request, in an empty one.
    #[must_use]
    pub fn new(substrate: &'a S, log: S::File, kind: LogKind, identity: [u8; 16], file: FileNo) -> LogWriter<'a, S> {
        let header = RecordHeader { kind: kind.record(), identity, subject: u64::from(file.0) };
        let record = RecordWriter::new(substrate, log, &header);
        LogWriter { record, payload: Vec::with_capacity(PAYLOAD_BYTES_MAX), run: None, next: 0, blocks: 0 }
    }

    /// Adds a note.
    ///
    /// # Errors
    /// No space; errors of the device.
    ///
    /// # Panics
    /// If it has no block, a block that does not come after the previous ones, or a block that no file has.
    pub fn push(&mut self, note: Note) -> io::Result<()> {
        let (first, count) = match note {
            Note::Written(written) => (written.block.0, 1),
            Note::Changed { first, count } => (first.0, count),
        };
        assert!(count > 0 && first >= self.next, "{note:?} after block {}", self.next);
        assert!(count <= FileBlock::LIMIT && first <= FileBlock::LIMIT - count, "{note:?}");
        self.next = first + count;
        self.blocks += count;
        match note {
            Note::Written(written) => self.push_written(written),
            Note::Changed { .. } => self.push_changed(first, count),
        }
    }

    fn push_written(&mut self, written: WrittenBlock) -> io::Result<()> {
        self.make_room(RUN_HEADER_BYTES + FingerprintPrefix::BYTES)?;
        let goes_on =
            self.run.filter(|&(_, first, count)| first + u64::from(count) == written.block.0 && count < RUN_BLOCKS_MAX);
        let (at, first, count) = goes_on.unwrap_or((self.payload.len(), written.block.0, 0));
        if count == 0 {
            self.push_header(first, 0);
        }
        self.payload[at + 5..at + 7].copy_from_slice(&(count + 1).to_le_bytes());
        self.payload.extend_from_slice(&written.digest.unwrap_or(ZERO).0);
        self.run = Some((at, first, count + 1));
        Ok(())
    }

    fn push_changed(&mut self, mut first: u64, mut count: u64) -> io::Result<()> {
        while count > 0 {
            self.make_room(RUN_HEADER_BYTES + MORE_BYTES)?;
            let part = count.min(CHANGED_BLOCKS_MAX);
            let low = u16::try_from(part & u64::from(RUN_BLOCKS_MAX)).expect("masked to 15 bits");
            self.push_header(first, low | CHANGED);
            self.payload.extend_from_slice(&(part >> COUNT_BITS).to_le_bytes()[..MORE_BYTES]);
            (first, count) = (first + part, count - part);
        }
        self.run = None;
        Ok(())
    }

    fn push_header(&mut self, first: u64, count: u16) {
        self.payload.extend_from_slice(&first.to_le_bytes()[..5]);
        self.payload.extend_from_slice(&count.to_le_bytes());
    }

    fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        if self.payload.len() + bytes > PAYLOAD_BYTES_MAX { self.flush() } else { Ok(()) }
    }

    /// Ends the log and makes it durable. Returns its number of blocks, and its length in bytes.
    ///
    /// # Errors
    /// As [`LogWriter::push`].
    pub fn finish(mut self) -> io::Result<(u64, u64)> {
        self.flush()?;
        let (_, bytes) = self.record.finish(&self.blocks.to_le_bytes())?;
        Ok((self.blocks, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.payload.is_empty() {
            self.record.frame(&self.payload)?;
        }
        self.payload.clear();
        self.run = None;
        Ok(())
    }
}

/// Reads a log to its end and calls `each` with each note, in order of the blocks. Returns the file that the log is of.
///
/// # Errors
/// See [`FormatError`]; the notes passed on before were in the log. An error of `each` is an `E`.
pub fn read_log<S: Substrate, E: From<FormatError>>(
    substrate: &S,
    log: S::File,
    kind: LogKind,
    identity: &[u8; 16],
    mut each: impl FnMut(FileNo, Note) -> Result<(), E>,
) -> Result<FileNo, E> {
    read_log_runs(substrate, log, kind, identity, |file, run| run.notes().try_for_each(|note| each(file, note)))
}

/// Does the same as [`read_log`], but calls `each` with consecutive blocks. Quicker where blocks have much in common.
///
/// # Errors
/// As [`read_log`].
pub(crate) fn read_log_runs<S: Substrate, E: From<FormatError>>(
    substrate: &S,
    log: S::File,
    kind: LogKind,
    identity: &[u8; 16],
    mut each: impl FnMut(FileNo, LogRun<'_>) -> Result<(), E>,
) -> Result<FileNo, E> {
    let mut reader = LogReader::open(substrate, log, kind, identity)?;
    let file = reader.file;
    while reader.next_runs(|run| each(file, run))? {}
    Ok(file)
}

/// Reads a log note by note.
pub struct LogReader<'a, S: Substrate> {
    record: RecordReader<'a, S>,
    file: FileNo,
    /// The notes of a frame that were not returned yet.
    ahead: VecDeque<Note>,
    /// The block behind the last one that was decoded.
    next: u64,
    blocks: u64,
    is_at_end: bool,
}

impl<'a, S: Substrate> LogReader<'a, S> {
    /// Begins to read a log.
    ///
    /// # Errors
    /// See [`FormatError`].
    pub fn open(
        substrate: &'a S,
        log: S::File,
        kind: LogKind,
        identity: &[u8; 16],
    ) -> Result<LogReader<'a, S>, FormatError> {
        let record = RecordReader::open(substrate, log, kind.record(), Some(identity))?;
        let file = u32::try_from(record.subject()).map_err(|_| FormatError::Damaged("there is no such file number"))?;
        Ok(LogReader { record, file: FileNo(file), ahead: VecDeque::new(), next: 0, blocks: 0, is_at_end: false })
    }

    /// Returns the file that the log is of.
    #[must_use]
    pub fn file(&self) -> FileNo {
        self.file
    }

    /// Returns the next note, in order of the blocks; `None` behind the last.
    ///
    /// # Errors
    /// See [`FormatError`]; the notes returned before were in the log.
    pub(crate) fn next_note(&mut self) -> Result<Option<Note>, FormatError> {
        while self.ahead.is_empty() {
            let mut ahead = std::mem::take(&mut self.ahead);
            let is_more = self.next_runs(|run| -> Result<(), FormatError> {
                ahead.extend(run.notes());
                Ok(())
            })?;
            self.ahead = ahead;
            if !is_more {
                break;
            }
        }
        Ok(self.ahead.pop_front())
    }

    /// Calls `each` with the runs of the next frame. Returns false behind the last.
    fn next_runs<E: From<FormatError>>(
        &mut self,
        mut each: impl FnMut(LogRun<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        if self.is_at_end {
            return Ok(false);
        }
        let mut payload = match self.record.next_frame()? {
            Some(Frame::Inner(payload)) => payload,
            Some(Frame::Last(payload)) if payload == self.blocks.to_le_bytes() => {
                self.is_at_end = true;
                return Ok(false);
            }
            _ => return Err(FormatError::Damaged("it has not as many blocks as it says").into()),
        };
        while !payload.is_empty() {
            let (run, rest) = decode_run(payload, self.next)?;
            payload = rest;
            self.next = run.first.0 + run.count;
            self.blocks += run.count;
            each(run)?;
        }
        Ok(true)
    }
}

/// Consecutive blocks of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogRun<'a> {
    /// The first block.
    pub first: FileBlock,
    /// Number of blocks, at least one.
    pub count: u64,
    /// The written contents, zeros for a zero block. `None` if they are not known.
    digests: Option<&'a [[u8; FingerprintPrefix::BYTES]]>,
}

impl<'a> LogRun<'a> {
    /// Returns the written blocks; `None` if their contents are not known.
    #[must_use]
    pub fn written(&self) -> Option<impl Iterator<Item = WrittenBlock> + use<'a>> {
        let blocks = self.first.0..;
        Some(blocks.zip(self.digests?).map(|(block, bytes)| {
            let digest = Some(FingerprintPrefix(*bytes)).filter(|digest| *digest != ZERO);
            WrittenBlock { block: FileBlock(block), digest }
        }))
    }

    /// Returns the notes about the blocks.
    pub(crate) fn notes(&self) -> impl Iterator<Item = Note> + use<'a> {
        let LogRun { first, count, digests } = *self;
        let changed = digests.is_none().then_some(Note::Changed { first, count });
        self.written().into_iter().flatten().map(Note::Written).chain(changed)
    }
}

/// Returns the first run of a payload, and the rest of the payload.
fn decode_run(bytes: &[u8], next: u64) -> Result<(LogRun<'_>, &[u8]), FormatError> {
    const CUT: FormatError = FormatError::Damaged("a run of blocks ends too early");
    let (header, rest) = bytes.split_first_chunk::<RUN_HEADER_BYTES>().ok_or(CUT)?;
    let [a, b, c, d, e, low, high] = *header;
    let first = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
    let told = u16::from_le_bytes([low, high]);
    let is_changed = told & CHANGED != 0;
    let (more, rest) = if is_changed { rest.split_at_checked(MORE_BYTES).ok_or(CUT)? } else { (&[][..], rest) };
    let more = more.iter().rev().fold(0, |more, byte| more << 8 | u64::from(*byte));
    let count = more << COUNT_BITS | u64::from(told & !CHANGED);
    if count == 0 || first < next || first + count > FileBlock::LIMIT {
        return Err(FormatError::Damaged("a run of blocks is out of order"));
    }
    if is_changed {
        return Ok((LogRun { first: FileBlock(first), count, digests: None }, rest));
    }
    let (digests, rest) = rest.split_at_checked(usize::from(told) * FingerprintPrefix::BYTES).ok_or(CUT)?;
    Ok((LogRun { first: FileBlock(first), count, digests: Some(digests.as_chunks().0) }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::random::SeededRandom;
    use onefold_substrate::{Access, Files};
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};
    use std::path::Path;

    const UUID: [u8; 16] = [7; 16];

    #[test]
    fn runs_have_the_bytes_that_the_table_says() {
        let run = [9, 8, 7, 6, 5, 2, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 44];
        let (decoded, rest) = decode_run(&run, 0).unwrap();
        assert_eq!((decoded.first, decoded.count, rest), (FileBlock(0x05_0607_0809), 2, &[44][..]));
        assert_eq!(decoded.digests, Some(&[[1; 12], [0; 12]][..]));
        let run = [9, 8, 7, 6, 5, 0x34, 0x92, 0x02, 0x01, 0x03, 44];
        let (decoded, rest) = decode_run(&run, 0x05_0607_0809).unwrap();
        assert_eq!((decoded.first, decoded.count), (FileBlock(0x05_0607_0809), 0x03_0102 << 15 | 0x1234));
        assert_eq!(rest, [44]);
        assert_eq!(decoded.digests, None);
    }

    #[test]
    fn runs_that_cannot_be_are_refused() {
        let refused = |bytes: &[u8], next| decode_run(bytes, next).is_err();
        assert!(refused(&[1, 0, 0, 0, 0, 1, 0x80, 0, 0, 0], 2), "out of order");
        assert!(refused(&[1, 0, 0, 0, 0, 0, 0x80, 0, 0, 0], 0) && refused(&[1, 0, 0, 0, 0, 0, 0], 0), "no blocks");
        assert!(refused(&[0xff, 0xff, 0xff, 0xff, 0x7f, 2, 0x80, 0, 0, 0], 0), "behind all blocks");
        assert!(refused(&[2, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff], 0), "behind all blocks");
        assert!(refused(&[1, 0, 0, 0, 0, 1, 0x80, 0, 0], 0), "cut");
        assert!(refused(&[1, 0, 0, 0, 0, 1, 0, 1, 1], 0) && refused(&[1, 0, 0], 0), "cut");
    }

    /// Writes a log of these notes and reads it again.
    fn there_and_back(notes: &[Note]) -> Vec<Note> {
        let file_system = SimulatedFileSystem::new(&SimulationOptions::default());
        let substrate = file_system.observe().substrate;
        let path = Path::new("log");
        let mut writer = LogWriter::new(&substrate, substrate.create(path).unwrap(), LogKind::Log, UUID, FileNo(5));
        notes.iter().for_each(|note| writer.push(*note).unwrap());
        writer.finish().unwrap();
        let mut read = Vec::new();
        let log = substrate.open(path, Access::Read).unwrap();
        let each = |file, note| -> Result<(), FormatError> {
            assert_eq!(file, FileNo(5));
            read.push(note);
            Ok(())
        };
        assert_eq!(read_log(&substrate, log, LogKind::Log, &UUID, each).unwrap(), FileNo(5));
        read
    }

    /// Splits notes into blocks: long runs come back in parts.
    fn by_block(notes: &[Note]) -> Vec<(u64, Option<Option<FingerprintPrefix>>)> {
        let each = |note: &Note| match *note {
            Note::Written(written) => vec![(written.block.0, Some(written.digest))],
            Note::Changed { first, count } => (first.0..first.0 + count).map(|block| (block, None)).collect(),
        };
        notes.iter().flat_map(each).collect()
    }

    #[test]
    fn notes_survive_their_encoding() {
        let random = SeededRandom::new(4);
        for _ in 0..20 {
            let (mut next, mut notes) = (random.below(3), Vec::new());
            for _ in 0..random.below(9000) {
                next += if random.below(5) == 0 { random.below(1 << 20) } else { random.below(4) / 3 };
                let byte = u8::try_from(1 + random.below(200)).unwrap();
                let digest = Some(FingerprintPrefix([byte; 12])).filter(|_| random.below(4) > 0);
                let (note, count) = match random.below(20) {
                    0 => {
                        let count = 1 + random.below(3);
                        (Note::Changed { first: FileBlock(next), count }, count)
                    }
                    _ => (WrittenBlock { block: FileBlock(next), digest }.into(), 1),
                };
                notes.push(note);
                next += count;
            }
            assert_eq!(by_block(&there_and_back(&notes)), by_block(&notes));
        }
        for (first, count) in [(1, 1 << 15), (3, 100_000), (0, FileBlock::LIMIT - 1), (FileBlock::LIMIT - 1, 1)] {
            let long = [Note::Changed { first: FileBlock(first), count }];
            assert_eq!(there_and_back(&long), long);
        }
        let all = [Note::Changed { first: FileBlock(0), count: FileBlock::LIMIT }];
        assert_eq!(there_and_back(&all).len(), 2, "all blocks that there can be are two runs");
    }
}
