//! Write logs: which blocks of a file were written, and with what. Notes that may be stale, lost or there twice.
//! Merge requests have the same format, as a kind of their own.
//!
//! The subject is the file's number. Each frame but the last holds runs, in order of their blocks and apart:
//!
//! | bytes   | field   | notes                                        |
//! |---------|---------|----------------------------------------------|
//! | 0..5    | block   | first block of the run, little-endian        |
//! | 5..7    | count   | blocks, at least 1                           |
//! | 7..     | digests | one of 12 bytes for each block; zeros where the block is zero |
//!
//! The last frame holds the number of blocks in all, 8 bytes. So a log of 1 MiB tells of about 340 MiB that were written in
//! sequence, and of 215 MiB that were written block by block (DeDe, section 3.1: 150 MB).

use std::io;

use onefold_block::Substrate;

use super::record::{Frame, PAYLOAD_BYTES_MAX, RecordHeader, RecordKind, RecordReader, RecordWriter};
use super::{Digest, FileBlock, FileNo, FormatError};

const RUN_HEADER_BYTES: usize = 7;

/// One written block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The block.
    pub block: FileBlock,
    /// Its content then; none where it was zero.
    pub digest: Option<Digest>,
}

/// Who says that a block has a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogKind {
    /// Somebody who saw it written, or read it: what the index said of the block before is no longer so.
    Log,
    /// A host that could not share in the file itself, and knows of the block from the index.
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

/// No content has this digest but one in 2^96: it stands for a zero block, which has none.
const ZERO: Digest = Digest([0; Digest::BYTES]);

/// Writes a log.
pub struct LogWriter<'a, S: Substrate> {
    record: RecordWriter<'a, S>,
    payload: Vec<u8>,
    /// Where the run that may go on has its header, its first block and its length so far.
    run: Option<(usize, u64, u16)>,
    last: Option<FileBlock>,
    blocks: u64,
}

impl<'a, S: Substrate> LogWriter<'a, S> {
    /// Begins the log of a file, or a merge request, in an empty one.
    #[must_use]
    pub fn new(substrate: &'a S, log: S::File, kind: LogKind, identity: [u8; 16], file: FileNo) -> LogWriter<'a, S> {
        let header = RecordHeader { kind: kind.record(), identity, subject: u64::from(file.0) };
        let record = RecordWriter::new(substrate, log, &header);
        LogWriter { record, payload: Vec::with_capacity(PAYLOAD_BYTES_MAX), run: None, last: None, blocks: 0 }
    }

    /// Adds a block.
    ///
    /// # Errors
    /// No space; those of the device.
    ///
    /// # Panics
    /// When the block does not come after the one before.
    pub fn push(&mut self, written: Written) -> io::Result<()> {
        assert!(self.last.is_none_or(|last| last < written.block), "{:?} after {:?}", written.block, self.last);
        assert!(written.block.0 < FileBlock::LIMIT, "{:?}", written.block);
        self.last = Some(written.block);
        self.blocks += 1;
        if self.payload.len() + RUN_HEADER_BYTES + Digest::BYTES > PAYLOAD_BYTES_MAX {
            self.flush()?;
        }
        let goes_on =
            self.run.filter(|&(_, first, count)| first + u64::from(count) == written.block.0 && count < u16::MAX);
        let (at, first, count) = goes_on.unwrap_or((self.payload.len(), written.block.0, 0));
        if count == 0 {
            self.payload.extend_from_slice(&first.to_le_bytes()[..5]);
            self.payload.extend_from_slice(&[0, 0]);
        }
        self.payload[at + 5..at + 7].copy_from_slice(&(count + 1).to_le_bytes());
        self.payload.extend_from_slice(&written.digest.unwrap_or(ZERO).0);
        self.run = Some((at, first, count + 1));
        Ok(())
    }

    /// Ends the log and makes it durable. Returns how many blocks it tells of.
    ///
    /// # Errors
    /// As [`LogWriter::push`].
    pub fn finish(mut self) -> io::Result<u64> {
        self.flush()?;
        self.record.finish(&self.blocks.to_le_bytes())?;
        Ok(self.blocks)
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

/// Reads a log to its end and hands each block on, in order. Returns the file that it is of.
///
/// # Errors
/// As [`FormatError`] says; what was handed on before was in the log. The error of `each` is `E`.
pub fn read_log<S: Substrate, E: From<FormatError>>(
    substrate: &S,
    log: S::File,
    kind: LogKind,
    identity: &[u8; 16],
    mut each: impl FnMut(FileNo, Written) -> Result<(), E>,
) -> Result<FileNo, E> {
    let mut record = RecordReader::open(substrate, log, kind.record(), Some(identity))?;
    let file = u32::try_from(record.subject()).map_err(|_| FormatError::Damaged("there is no such file number"))?;
    let mut next = 0;
    let mut blocks: u64 = 0;
    while let Some(frame) = record.next_frame()? {
        let mut payload = match frame {
            Frame::Inner(payload) => payload,
            Frame::Last(payload) if payload == blocks.to_le_bytes() => break,
            Frame::Last(_) => return Err(FormatError::Damaged("it has not as many blocks as it says").into()),
        };
        while !payload.is_empty() {
            let run = decode_run(payload, next)?;
            payload = run.rest;
            next = run.first + run.digests.len() as u64;
            blocks += run.digests.len() as u64;
            for (block, bytes) in (run.first..).zip(run.digests) {
                let digest = Some(Digest(*bytes)).filter(|digest| *digest != ZERO);
                each(FileNo(file), Written { block: FileBlock(block), digest })?;
            }
        }
    }
    Ok(FileNo(file))
}

struct Run<'a> {
    first: u64,
    digests: &'a [[u8; Digest::BYTES]],
    rest: &'a [u8],
}

fn decode_run(bytes: &[u8], next: u64) -> Result<Run<'_>, FormatError> {
    const CUT: FormatError = FormatError::Damaged("a run of blocks ends too early");
    let (header, rest) = bytes.split_first_chunk::<RUN_HEADER_BYTES>().ok_or(CUT)?;
    let [a, b, c, d, e, low, high] = *header;
    let first = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
    let count = u16::from_le_bytes([low, high]);
    let (digests, rest) = rest.split_at_checked(usize::from(count) * Digest::BYTES).ok_or(CUT)?;
    let digests = digests.as_chunks().0;
    if count == 0 || first < next || first + u64::from(count) > FileBlock::LIMIT {
        return Err(FormatError::Damaged("a run of blocks is out of order"));
    }
    Ok(Run { first, digests, rest })
}
