//! Writes a file frame by frame.

use std::io;

use onefold_substrate::Substrate;

use super::{BUFFER_BYTES, FRAME_HEADER_BYTES, LAST, PAYLOAD_BYTES_MAX, RecordHeader, checksum};

/// Amount of new data after which the disk is asked to write. So a long file is nearly durable when its last byte is
/// written, and the disk is busy meanwhile.
const WRITE_BACK_BYTES: u64 = 8 << 20;

/// Writes a file of the state folder from its beginning to its end.
pub(crate) struct RecordWriter<'a, S: Substrate> {
    substrate: &'a S,
    file: S::File,
    /// Bytes that were not written yet.
    buffer: Vec<u8>,
    /// Offset of these bytes.
    offset: u64,
    /// Offset up to which the disk was asked to write.
    written_back: u64,
    frames: u64,
}

impl<'a, S: Substrate> RecordWriter<'a, S> {
    /// Begins to write a file, which is empty.
    #[must_use]
    pub(crate) fn new(substrate: &'a S, file: S::File, header: &RecordHeader) -> RecordWriter<'a, S> {
        RecordWriter { substrate, file, buffer: header.encode().to_vec(), offset: 0, written_back: 0, frames: 0 }
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// No space; errors of the device.
    ///
    /// # Panics
    /// If the payload has more than [`PAYLOAD_BYTES_MAX`] bytes.
    pub(crate) fn frame(&mut self, payload: &[u8]) -> io::Result<()> {
        self.append(payload, 0)
    }

    /// Adds the last frame and makes all of it durable. Returns the file and its length.
    ///
    /// # Errors
    /// As [`RecordWriter::frame`].
    pub(crate) fn finish(mut self, payload: &[u8]) -> io::Result<(S::File, u64)> {
        self.append(payload, LAST)?;
        self.flush()?;
        self.substrate.sync(&self.file)?;
        Ok((self.file, self.offset))
    }

    fn append(&mut self, payload: &[u8], flag: u32) -> io::Result<()> {
        assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a frame of {} bytes", payload.len());
        if self.buffer.len() + FRAME_HEADER_BYTES + payload.len() > BUFFER_BYTES {
            self.flush()?;
        }
        let length = u32::try_from(payload.len()).expect("bounded above") | flag;
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer.extend_from_slice(&checksum(self.frames, payload).to_le_bytes());
        self.buffer.extend_from_slice(payload);
        self.frames += 1;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.substrate.write_at(&self.file, self.offset, &self.buffer)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        let ahead = self.offset - self.written_back;
        if ahead >= WRITE_BACK_BYTES {
            self.substrate.write_back(&self.file, self.written_back, ahead);
            self.written_back = self.offset;
        }
        Ok(())
    }
}
