//! Writes a run, from its first entry to its last, in memory that hardly depends on its length.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::filter::{LINE_BYTES, Line, line_of, lines_for, set};
use super::run::{BLOCK_BYTES, BLOCK_ENTRIES, BLOCK_HEAD_BYTES, Head, IndexRun, RunError, RunPack, block_sum};
use crate::format::segment::IndexEntry;
use crate::{ArchiveId, ObjectId};

/// Length at which bytes are written.
const BUFFER_BYTES: usize = 256 << 10;

/// A run that is being written.
pub(super) struct RunWriter {
    file: File,
    head: Head,
    /// First prefix of each block.
    firsts: Vec<u64>,
    /// The last block, without its head.
    block: Vec<u8>,
    blocks: Part,
    line: Line,
    /// Number of the line.
    line_number: u64,
    filter: Part,
    /// Number of units of each pack.
    units: Vec<u32>,
}

/// A part of the file that grows, with its checksum.
struct Part {
    at: u64,
    bytes: Vec<u8>,
    sum: u32,
}

impl Part {
    fn new(at: u64) -> Part {
        Part { at, bytes: Vec::new(), sum: 0 }
    }

    fn push(&mut self, file: &File, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= BUFFER_BYTES { self.flush(file) } else { Ok(()) }
    }

    fn flush(&mut self, file: &File) -> io::Result<()> {
        self.sum = crc32c::crc32c_append(self.sum, &self.bytes);
        file.write_all_at(&self.bytes, self.at)?;
        self.at += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }
}

impl RunWriter {
    /// Begins a run of about `units` entries in so many packs, in an empty file.
    pub(super) fn new(file: File, archive: ArchiveId, units: u64, packs: usize) -> RunWriter {
        let lines = lines_for(units);
        let head = Head { archive, lines, blocks: 0, packs: packs as u64, units: 0, filter_sum: 0, tail_sum: 0 };
        let (blocks, filter) = (Part::new(head.blocks_at()), Part::new(BLOCK_BYTES as u64));
        let (firsts, block, line, units) = (Vec::new(), Vec::new(), Line::default(), vec![0; packs]);
        RunWriter { file, head, firsts, block, blocks, line, line_number: 0, filter, units }
    }

    /// Adds an entry, whose prefix is not less than that of the one before.
    pub(super) fn push(&mut self, entry: IndexEntry) -> io::Result<()> {
        self.end_lines(line_of(entry.prefix, self.head.lines))?;
        set(&mut self.line, entry.prefix);
        if self.block.is_empty() {
            self.firsts.push(entry.prefix);
        }
        self.block.extend_from_slice(&entry.to_bytes());
        self.head.units += 1;
        self.units[entry.pack as usize] += 1;
        if self.block.len() == BLOCK_ENTRIES * entry.to_bytes().len() { self.end_block() } else { Ok(()) }
    }

    /// Ends all lines before number `to`.
    fn end_lines(&mut self, to: u64) -> io::Result<()> {
        while self.line_number < to {
            let words = std::mem::take(&mut self.line);
            let mut bytes = [0; LINE_BYTES];
            bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
            self.filter.push(&self.file, &bytes)?;
            self.line_number += 1;
        }
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        let count = self.block.len() / crate::format::segment::ENTRY_BYTES;
        let mut content = u32::try_from(count).expect("few entries").to_le_bytes().to_vec();
        content.append(&mut self.block);
        content.resize(BLOCK_BYTES - BLOCK_HEAD_BYTES + 4, 0);
        let sum = block_sum(self.firsts.len() - 1, &content);
        self.blocks.push(&self.file, &sum.to_le_bytes())?;
        self.blocks.push(&self.file, &content)
    }

    /// Ends the run. `packs` are the packs that entries refer to, with the segments that named their units.
    pub(super) fn finish(mut self, packs: &[(ObjectId, Option<ObjectId>)]) -> Result<IndexRun, RunError> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        self.end_lines(self.head.lines)?;
        self.filter.flush(&self.file)?;
        self.blocks.flush(&self.file)?;
        self.head.blocks = self.firsts.len() as u64;
        self.head.filter_sum = self.filter.sum;
        let mut tail = Part::new(self.head.tail_at());
        for first in &self.firsts {
            tail.push(&self.file, &first.to_le_bytes())?;
        }
        for ((id, segment), units) in packs.iter().zip(&self.units) {
            let pack = RunPack { id: *id, segment: *segment, units: *units, is_used: false };
            tail.push(&self.file, &pack.encode())?;
        }
        tail.flush(&self.file)?;
        self.head.tail_sum = tail.sum;
        self.file.write_all_at(&self.head.encode(), 0)?;
        IndexRun::open(self.file, self.head.archive)
    }
}
