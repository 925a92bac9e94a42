//! An image as a stream on standard output: all bytes of the disk in order.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;

use onefold_disk::{Disk, DiskError, LongWork, Progress};

use crate::cli::Talk;
use crate::cli::values::OutputFormat;
use crate::failure::{Failure, Outcome};
use crate::progress::Meter;

/// Bytes that are read and written at once.
const PIECE_BYTES: usize = 1 << 20;

/// Standard output, which takes one raw image.
pub(crate) struct RawStream(());

impl RawStream {
    /// Returns the stream.
    ///
    /// # Errors
    /// When the output is a terminal, or something else than a raw image is wanted on it.
    pub(crate) fn open(format: Option<OutputFormat>, talk: Talk) -> Outcome<RawStream> {
        let cannot = || Failure::usage("cannot write an image to standard output");
        if talk.json {
            return Err(cannot().because_of("it is no JSON document"));
        }
        if format.is_some_and(|format| format != OutputFormat::Raw) {
            return Err(cannot().because_of("only a raw image can be written in order").hint("leave out --format"));
        }
        if io::stdout().is_terminal() {
            return Err(cannot()
                .because_of("it is a terminal")
                .hint("send it into a file with `>`, or to a program with `|`"));
        }
        Ok(RawStream(()))
    }

    /// Writes all bytes of `disk`.
    ///
    /// # Errors
    /// When the disk or the output fails. A reader that goes before it has all bytes is such a failure: it has half an
    /// image, and a shell tells no other way.
    pub(crate) fn write(self, disk: &dyn Disk, meter: &Meter) -> Outcome<()> {
        let mut out = io::stdout().lock();
        let written =
            write_all(disk, &mut out, &|progress| meter.show_bytes(progress.done_bytes, progress.total_bytes));
        meter.finish();
        written.map_err(StreamError::failure)
    }
}

/// Why a stream ends early.
#[derive(Debug)]
enum StreamError {
    Output(io::Error),
    Disk(DiskError),
}

impl StreamError {
    fn failure(self) -> Failure {
        match self {
            StreamError::Output(error) => {
                let failure = Failure::of_io("cannot write to standard output", &error);
                match error.kind() {
                    io::ErrorKind::BrokenPipe => {
                        failure.because_of("its reader has ended before it had the whole image")
                    }
                    _ => failure,
                }
            }
            StreamError::Disk(error) => error.into(),
        }
    }
}

/// Writes all bytes of `disk` in order. Holes are not read.
fn write_all(
    disk: &dyn Disk,
    out: &mut dyn Write,
    progress: &dyn Fn(Progress) -> ControlFlow<()>,
) -> Result<(), StreamError> {
    let total_bytes = disk.size_bytes();
    let (zeros, mut piece) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let (mut offset, mut data) = (0, 0..0);
    while offset < total_bytes {
        if progress(Progress { done_bytes: offset, total_bytes }).is_break() {
            return Err(StreamError::Disk(DiskError::Stopped(LongWork::Copying)));
        }
        if data.end <= offset {
            data = disk.next_data(offset).map_err(StreamError::Disk)?.unwrap_or(total_bytes..total_bytes);
        }
        let is_hole = offset < data.start;
        let end = if is_hole { data.start } else { data.end.min(total_bytes) };
        let count = usize::try_from(end - offset).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
        if is_hole {
            out.write_all(&zeros[..count]).map_err(StreamError::Output)?;
        } else {
            disk.read(offset, &mut piece[..count]).map_err(StreamError::Disk)?;
            out.write_all(&piece[..count]).map_err(StreamError::Output)?;
        }
        offset += count as u64;
    }
    out.flush().map_err(StreamError::Output)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::failure::Exit;

    /// A disk of threes in the given ranges, and of zeros elsewhere.
    struct Threes(Vec<Range<u64>>, u64);

    impl Disk for Threes {
        fn size_bytes(&self) -> u64 {
            self.1
        }

        fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
            let next = self.0.iter().find(|range| range.end > offset);
            Ok(next.map(|range| range.start.max(offset)..range.end))
        }

        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
            assert!(
                self.0.iter().any(|data| data.start <= offset && offset + into.len() as u64 <= data.end),
                "a hole is read"
            );
            into.fill(3);
            Ok(())
        }
    }

    #[test]
    fn all_bytes_come_in_order_and_holes_are_not_read() {
        let disk = Threes(vec![5..1000, 3_000_000..4_500_000], 5_000_001);
        let mut out = Vec::new();
        write_all(&disk, &mut out, &|_| ControlFlow::Continue(())).unwrap();
        assert_eq!(out.len(), 5_000_001);
        let is_data = |at: usize| disk.0.iter().any(|data| data.contains(&(at as u64)));
        assert!(out.iter().enumerate().all(|(at, byte)| *byte == if is_data(at) { 3 } else { 0 }));
    }

    #[test]
    fn a_reader_that_goes_early_is_a_failure() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        let cut = write_all(&Threes(std::iter::once(0..5).collect(), 5), &mut writer, &|_| ControlFlow::Continue(()))
            .unwrap_err();
        let failure = cut.failure();
        assert_eq!(failure.exit, Exit::Failed);
        assert!(failure.causes.iter().any(|cause| cause.contains("the whole image")), "{failure}");
    }

    #[test]
    fn an_interrupt_ends_it() {
        let stopped = write_all(&Threes(Vec::new(), 1), &mut Vec::new(), &|_| ControlFlow::Break(()));
        assert!(matches!(stopped, Err(StreamError::Disk(DiskError::Stopped(_)))), "{stopped:?}");
    }
}
