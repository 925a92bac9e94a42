//! Lines with open files, in and out of a Unix socket, bounded on both sides.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::message::LINE_BYTES_MAX;

/// Maximum number of open files with one line.
pub(super) const FILES_MAX: usize = 2;

/// Number of bytes requested from the socket at a time.
const RECEIVE_BYTES: usize = 8192;

/// Why a line could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The peer closed the connection between two lines.
    #[error("the other side closed the connection")]
    Closed,
    /// The peer closed the connection within a line.
    #[error("the other side closed the connection within a line")]
    Cut,
    /// A line is too long.
    #[error("a line is longer than {bytes_max} bytes")]
    TooLong {
        /// The maximum length.
        bytes_max: usize,
    },
    /// More than [`FILES_MAX`] open files came with a line.
    #[error("more than {FILES_MAX} open files came with a line")]
    TooManyFiles,
    /// A line is not what is expected at this place.
    #[error("a line cannot be understood: {0}")]
    NotUnderstood(#[source] serde_json::Error),
    /// The socket failed, or the peer was silent for too long.
    #[error("the socket failed")]
    Io(#[source] std::io::Error),
}

/// A received line, with its open files.
#[derive(Debug)]
pub(super) struct ReceivedLine {
    pub(super) bytes: Vec<u8>,
    pub(super) files: Vec<OwnedFd>,
}

impl ReceivedLine {
    /// Returns the message in the line.
    pub(super) fn decode<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        serde_json::from_slice(&self.bytes).map_err(WireError::NotUnderstood)
    }
}

/// Splits the data from a socket into lines.
#[derive(Debug)]
pub(super) struct LineReader {
    line_bytes_max: usize,
    received: VecDeque<u8>,
    files: Vec<OwnedFd>,
}

impl LineReader {
    /// Returns a reader of lines of at most `line_bytes_max` bytes.
    pub(super) fn new(line_bytes_max: usize) -> LineReader {
        LineReader { line_bytes_max, received: VecDeque::new(), files: Vec::new() }
    }

    /// Waits for the next line, however long that takes. Open files that arrived before its end belong to it.
    ///
    /// # Errors
    /// [`WireError::Closed`] at an orderly end; after any other error the connection is unusable.
    pub(super) fn next(&mut self, stream: &UnixStream) -> Result<ReceivedLine, WireError> {
        self.next_until(stream, None)
    }

    /// Like [`LineReader::next`], but the whole line must arrive within `patience`.
    pub(super) fn next_within(&mut self, stream: &UnixStream, patience: Duration) -> Result<ReceivedLine, WireError> {
        self.next_until(stream, Some(Instant::now() + patience))
    }

    /// Like [`LineReader::next`], but the whole line must arrive before `deadline`.
    pub(super) fn next_before(&mut self, stream: &UnixStream, deadline: Instant) -> Result<ReceivedLine, WireError> {
        self.next_until(stream, Some(deadline))
    }

    fn next_until(&mut self, stream: &UnixStream, deadline: Option<Instant>) -> Result<ReceivedLine, WireError> {
        // Bytes before this place are known to hold no newline, so each byte is examined once.
        let mut searched = 0;
        loop {
            let end = self.received.iter().skip(searched).position(|&byte| byte == b'\n').map(|at| searched + at + 1);
            match end {
                Some(end) if end <= self.line_bytes_max => {
                    let bytes = self.received.drain(..end).collect();
                    return Ok(ReceivedLine { bytes, files: std::mem::take(&mut self.files) });
                }
                None if self.received.len() < self.line_bytes_max => {}
                _ => return Err(WireError::TooLong { bytes_max: self.line_bytes_max }),
            }
            searched = self.received.len();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(WireError::Io(std::io::ErrorKind::TimedOut.into()));
            }
            // Set even without a limit: the previous line may have had one.
            stream.set_read_timeout(left).map_err(WireError::Io)?;
            self.receive(stream)?;
        }
    }

    fn receive(&mut self, stream: &UnixStream) -> Result<(), WireError> {
        let mut bytes = [0; RECEIVE_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message = loop {
            let mut into = [IoSliceMut::new(&mut bytes)];
            match recvmsg(stream, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(message) => break message,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(WireError::Io(errno.into())),
            }
        };
        for item in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = item {
                self.files.extend(files);
            }
        }
        if self.files.len() > FILES_MAX || message.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
            return Err(WireError::TooManyFiles);
        }
        match message.bytes {
            0 if self.received.is_empty() => Err(WireError::Closed),
            0 => Err(WireError::Cut),
            count => {
                self.received.extend(&bytes[..count]);
                Ok(())
            }
        }
    }
}

/// Sends `message` as one line, together with `files`.
///
/// # Errors
/// [`WireError::TooLong`] with no byte sent; after any other error the connection is unusable.
pub(super) fn send_line<T: Serialize>(
    stream: &UnixStream,
    message: &T,
    files: &[BorrowedFd<'_>],
) -> Result<(), WireError> {
    if files.len() > FILES_MAX {
        return Err(WireError::TooManyFiles);
    }
    let mut line = serde_json::to_vec(message).map_err(WireError::NotUnderstood)?;
    line.push(b'\n');
    if line.len() > LINE_BYTES_MAX {
        return Err(WireError::TooLong { bytes_max: LINE_BYTES_MAX });
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(WireError::TooManyFiles);
    }
    let mut rest = line.as_slice();
    while !rest.is_empty() {
        match sendmsg(stream, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL) {
            Ok(count) => {
                rest = &rest[count..];
                // The files were sent with the first bytes.
                control.clear();
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(WireError::Io(errno.into())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use super::super::message::{ControlReply, ControlRequest};
    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    fn files_with(contents: &[&str]) -> Vec<File> {
        contents
            .iter()
            .map(|content| {
                let mut file = tempfile::tempfile().unwrap();
                file.write_all(content.as_bytes()).unwrap();
                std::io::Seek::rewind(&mut file).unwrap();
                file
            })
            .collect()
    }

    #[test]
    fn lines_and_their_files_arrive_together_and_in_order() {
        let (one, other) = pair();
        let files = files_with(&["source", "target"]);
        send_line(&one, &ControlRequest::Clone, &[files[0].as_fd(), files[1].as_fd()]).unwrap();
        send_line(&one, &ControlRequest::Stat, &[]).unwrap();
        drop(one);

        let mut lines = LineReader::new(4096);
        let line = lines.next(&other).unwrap();
        assert_eq!(line.decode::<ControlRequest>().unwrap(), ControlRequest::Clone);
        let contents: Vec<String> =
            line.files.into_iter().map(|file| std::io::read_to_string(File::from(file)).unwrap()).collect();
        assert_eq!(contents, ["source", "target"]);
        let line = lines.next(&other).unwrap();
        assert_eq!(line.decode::<ControlRequest>().unwrap(), ControlRequest::Stat);
        assert!(line.files.is_empty());
        assert!(matches!(lines.next(&other), Err(WireError::Closed)));
    }

    #[test]
    fn a_line_may_come_in_pieces_and_several_at_once() {
        let (mut one, other) = pair();
        let mut lines = LineReader::new(4096);
        let reader = std::thread::spawn(move || (0..3).map(|_| lines.next(&other).unwrap().bytes).collect::<Vec<_>>());
        for piece in ["a", "b", "\ncd\n", "\n"] {
            one.write_all(piece.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(reader.join().unwrap(), [b"ab\n".to_vec(), b"cd\n".to_vec(), b"\n".to_vec()]);
    }

    #[test]
    fn a_line_without_end_is_refused_at_its_limit() {
        for length in [100, 101, 10_000] {
            let (mut one, other) = pair();
            one.write_all(&vec![b'x'; length]).unwrap();
            one.write_all(b"\n").unwrap();
            let error = LineReader::new(100).next(&other).unwrap_err();
            assert!(matches!(error, WireError::TooLong { bytes_max: 100 }), "{length}: {error}");
        }
        let (mut one, other) = pair();
        one.write_all(&[b'x'; 99]).unwrap();
        one.write_all(b"\n").unwrap();
        assert_eq!(LineReader::new(100).next(&other).unwrap().bytes.len(), 100);
    }

    #[test]
    fn a_line_that_is_cut_off_is_told_from_an_orderly_end() {
        let (mut one, other) = pair();
        one.write_all(b"{\"verb\"").unwrap();
        drop(one);
        assert!(matches!(LineReader::new(4096).next(&other), Err(WireError::Cut)));
    }

    #[test]
    fn a_client_that_dribbles_runs_out_of_patience() {
        let (mut one, other) = pair();
        let writer = std::thread::spawn(move || {
            // Each byte resets a plain read timeout; the whole line must not take longer.
            while one.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let error = LineReader::new(1 << 20).next_within(&other, Duration::from_millis(100)).unwrap_err();
        assert!(matches!(error, WireError::Io(_)), "{error}");
        drop(other);
        writer.join().unwrap();
    }

    #[test]
    fn more_files_than_any_request_takes_are_refused() {
        let (one, other) = pair();
        let files = files_with(&["a", "b"]);
        let both = [files[0].as_fd(), files[1].as_fd()];
        let three = [files[0].as_fd(), files[1].as_fd(), files[0].as_fd()];
        assert!(matches!(send_line(&one, &ControlRequest::Clone, &three), Err(WireError::TooManyFiles)));

        // Two batches of files before the end of one line.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        for _ in 0..2 {
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&both)));
            sendmsg(&one, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL).unwrap();
        }
        assert!(matches!(LineReader::new(4096).next(&other), Err(WireError::TooManyFiles)));
    }

    #[test]
    fn lines_that_are_no_request_are_errors() {
        let deep = "[".repeat(3000);
        let hostile = [
            "",
            "null",
            "7",
            "\"stat\"",
            "{}",
            "[]",
            "{\"verb\":null}",
            "{\"verb\":\"format\"}",
            "{\"verb\":7}",
            "{\"verb\":\"scrub\",\"bytes_per_second\":-1}",
            "{\"verb\":\"scrub\",\"bytes_per_second\":1e400}",
            "{\"verb\":\"stat\"",
            "{\"verb\":\"stat\"} {\"verb\":\"umount\"}",
            "\u{0}",
            &deep,
        ];
        for text in hostile {
            let line = ReceivedLine { bytes: text.as_bytes().to_vec(), files: Vec::new() };
            assert!(matches!(line.decode::<ControlRequest>(), Err(WireError::NotUnderstood(_))), "{text}");
        }
        let line = ReceivedLine { bytes: vec![0xff, 0xfe, b'\n'], files: Vec::new() };
        assert!(line.decode::<ControlRequest>().is_err());
    }

    #[test]
    fn arbitrary_bytes_never_panic_a_decoder() {
        use onefold_block::random::SeededRandom;
        let random = SeededRandom::new(1);
        let letters = b"{}[]\":,verbstaumon-0123456789\\u \xff\x00";
        for _ in 0..20_000 {
            let bytes = (0..random.below(60))
                .map(|_| letters[usize::try_from(random.below(letters.len() as u64)).unwrap()])
                .collect();
            let line = ReceivedLine { bytes, files: Vec::new() };
            let _ = line.decode::<ControlRequest>();
            let _ = line.decode::<ControlReply>();
        }
    }

    #[test]
    fn a_reader_that_stops_reading_ends_the_writer() {
        let (one, mut other) = pair();
        one.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        let request = "x".repeat(LINE_BYTES_MAX - 3);
        let error = send_line(&one, &request, &[]).unwrap_err();
        assert!(matches!(error, WireError::Io(_)), "{error}");
        let mut some = [0; 10];
        other.read_exact(&mut some).unwrap();
    }
}
