//! Reads a file frame by frame.

use onefold_substrate::Substrate;

use super::{
    BUFFER_BYTES, FRAME_HEADER_BYTES, HEADER_BYTES, LAST, PAYLOAD_BYTES_MAX, RecordHeader, RecordKind, checksum,
};
use crate::format::FormatError;

/// Size of the first read. Marks are no longer, and filling a megabyte with zeros for each of them would cost more than
/// reading them.
const FIRST_BYTES: usize = 8 << 10;
/// Distance that the disk is asked to read ahead.
const AHEAD_BYTES: u64 = 4 << 20;

/// Reads a file of the state folder from its beginning to its end.
pub(crate) struct RecordReader<'a, S: Substrate> {
    substrate: &'a S,
    file: S::File,
    header: RecordHeader,
    buffer: Vec<u8>,
    /// Number of bytes in the buffer.
    filled: usize,
    /// Number of these bytes that were returned.
    taken: usize,
    /// Offset of the next read.
    offset: u64,
    /// Offset up to which the disk was asked to read ahead.
    prefetched: u64,
    frames: u64,
    is_last_read: bool,
}

/// A payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// A payload before the last one.
    Inner(&'a [u8]),
    /// The last one.
    Last(&'a [u8]),
}

impl<'a, S: Substrate> RecordReader<'a, S> {
    /// Begins to read a file that should be of this kind and of the state folder with this UUID.
    ///
    /// # Errors
    /// See [`FormatError`].
    pub(crate) fn open(
        substrate: &'a S,
        file: S::File,
        kind: RecordKind,
        identity: Option<&[u8; 16]>,
    ) -> Result<RecordReader<'a, S>, FormatError> {
        let header = RecordHeader { kind, identity: [0; 16], subject: 0 };
        let mut reader = RecordReader {
            substrate,
            file,
            header,
            buffer: Vec::new(),
            filled: 0,
            taken: 0,
            offset: 0,
            prefetched: 0,
            frames: 0,
            is_last_read: false,
        };
        let header = reader.bytes(HEADER_BYTES)?.try_into().expect("the requested number of bytes");
        let header = RecordHeader::decode(header, kind)?;
        if identity.is_some_and(|identity| *identity != header.identity) {
            return Err(FormatError::Foreign);
        }
        reader.header = header;
        Ok(reader)
    }

    /// Returns the subject in the header.
    #[must_use]
    pub(crate) fn subject(&self) -> u64 {
        self.header.subject
    }

    /// Returns the UUID of the state folder that the file belongs to.
    #[must_use]
    pub(crate) fn identity(&self) -> [u8; 16] {
        self.header.identity
    }

    /// Returns the next frame; `None` behind the last.
    ///
    /// # Errors
    /// See [`FormatError`].
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FormatError> {
        if self.is_last_read {
            return Ok(None);
        }
        let header: [u8; FRAME_HEADER_BYTES] =
            self.bytes(FRAME_HEADER_BYTES)?.try_into().expect("the requested number of bytes");
        let [a, b, c, d, e, f, g, h] = header;
        let (length, expected) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let is_last = length & LAST != 0;
        let length = usize::try_from(length & !LAST).unwrap_or(usize::MAX);
        if length > PAYLOAD_BYTES_MAX {
            return Err(FormatError::Damaged("a frame is longer than any can be"));
        }
        let number = self.frames;
        self.frames += 1;
        self.is_last_read = is_last;
        let payload = self.bytes(length)?;
        if checksum(number, payload) != expected {
            return Err(FormatError::Damaged("a frame's checksum is wrong"));
        }
        Ok(Some(if is_last { Frame::Last(payload) } else { Frame::Inner(payload) }))
    }

    /// Returns the next bytes of the file.
    fn bytes(&mut self, count: usize) -> Result<&[u8], FormatError> {
        if self.filled - self.taken < count {
            self.buffer.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
            let room = if self.offset == 0 { FIRST_BYTES } else { BUFFER_BYTES };
            // Grows only once: filling it with zeros each time would cost as much as some of the work on it.
            self.buffer.resize(self.buffer.len().max(room).max(count), 0);
            let read = self.substrate.read_at(&self.file, self.offset, &mut self.buffer[self.filled..])?;
            self.filled += read;
            self.offset += read as u64;
            self.prefetch();
        }
        if self.filled - self.taken < count {
            return Err(FormatError::Damaged("it ends too early"));
        }
        let bytes = &self.buffer[self.taken..self.taken + count];
        self.taken += count;
        Ok(bytes)
    }

    /// Lets the disk read ahead during the work on the bytes that were read. Where asking does nothing, the kernel
    /// reads ahead by itself.
    fn prefetch(&mut self) {
        // If the buffer was not filled, the file ends; and a short file was read as a whole.
        if self.filled < BUFFER_BYTES {
            return;
        }
        let from = self.prefetched.max(self.offset);
        let to = self.offset + AHEAD_BYTES;
        self.substrate.prefetch(&self.file, from, to - from);
        self.prefetched = to;
    }
}
