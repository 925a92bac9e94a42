//! One client: its requests, one after another, until it disconnects or violates the protocol.

use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use onefold_pool::Progress;
use parking_lot::Mutex;

use super::message::{ControlAnswer, ControlReply, ControlRequest, FailureKind};
use super::peer::Peer;
use super::served::ServedPool;
use super::verbs::{RequestFailure, run};
use super::wire::{LineReader, ReceivedLine, WireError, send_line};

/// Maximum length of a request, in bytes with its newline. Requests hold no names: their files are sent as open files.
const REQUEST_BYTES_MAX: usize = 4096;

/// Maximum time for a client to send a request, and to be silent before it.
const REQUEST_PATIENCE: Duration = Duration::from_secs(30);

/// Maximum time for a client to leave replies unread.
const REPLY_PATIENCE: Duration = Duration::from_secs(10);

/// Minimum time between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Serves the client behind `stream`.
///
/// # Errors
/// When the connection breaks or the client violates the protocol.
pub(super) fn serve(stream: &UnixStream, peer: Peer, served: &ServedPool) -> Result<(), WireError> {
    stream.set_write_timeout(Some(REPLY_PATIENCE)).map_err(WireError::Io)?;
    let daemon_uid = rustix::process::geteuid().as_raw();
    let mut lines = LineReader::new(REQUEST_BYTES_MAX);
    loop {
        let (request, files) = match next_request(&mut lines, stream) {
            Ok(next) => next,
            Err(WireError::Closed) => return Ok(()),
            Err(error) => {
                // After a line that is too long or unreadable, the start of the next one is unknown.
                let message = error.to_string();
                send_line(stream, &ControlReply::Failed { kind: FailureKind::BadRequest, message }, &[])?;
                return Err(error);
            }
        };
        let _answering = served.ending.answer();
        let result = if peer.may(&request, daemon_uid) {
            run(served, &request, files, &ProgressLines::new(stream, served))
        } else {
            Err(RequestFailure::new(
                FailureKind::NotPermitted,
                "only root and the user who mounted or serves the pool may do that",
            ))
        };
        send_result(stream, result)?;
    }
}

/// Sends the reason to a client that is not served.
///
/// # Errors
/// When the client does not listen.
pub(super) fn refuse(stream: &UnixStream) -> Result<(), WireError> {
    stream.set_write_timeout(Some(REPLY_PATIENCE)).map_err(WireError::Io)?;
    let message = "too many clients at once".to_owned();
    send_line(stream, &ControlReply::Failed { kind: FailureKind::TooManyClients, message }, &[])
}

fn next_request(
    lines: &mut LineReader,
    stream: &UnixStream,
) -> Result<(ControlRequest, Vec<std::os::fd::OwnedFd>), WireError> {
    let ReceivedLine { bytes, files } = lines.next_within(stream, REQUEST_PATIENCE)?;
    Ok((serde_json::from_slice(&bytes).map_err(WireError::NotUnderstood)?, files))
}

fn send_result(stream: &UnixStream, result: Result<ControlAnswer, RequestFailure>) -> Result<(), WireError> {
    let mut reply = match result {
        Ok(answer) => ControlReply::Done { answer },
        Err(RequestFailure { kind, message }) => ControlReply::Failed { kind, message },
    };
    loop {
        match send_line(stream, &reply, &[]) {
            Err(WireError::TooLong { .. }) if shorten(&mut reply) => {}
            sent => return sent,
        }
    }
}

/// Drops half of a reply's list. Its counts stay correct.
fn shorten(reply: &mut ControlReply) -> bool {
    let ControlReply::Done { answer: ControlAnswer::Scrub { report } } = reply else { return false };
    let keep = report.problems.len() / 2;
    let shortened = keep < report.problems.len();
    report.problems.truncate(keep);
    shortened
}

/// Sends progress to a client. Stops the work once the client has stopped listening or the daemon has ended its doors.
struct ProgressLines<'a> {
    stream: &'a UnixStream,
    served: &'a ServedPool,
    last: Mutex<Instant>,
}

impl ProgressLines<'_> {
    fn new<'a>(stream: &'a UnixStream, served: &'a ServedPool) -> ProgressLines<'a> {
        ProgressLines { stream, served, last: Mutex::new(Instant::now()) }
    }
}

impl Progress for ProgressLines<'_> {
    fn update(&self, done: u64, total: u64) -> ControlFlow<()> {
        if self.served.ending.is_reached() {
            return ControlFlow::Break(());
        }
        let mut last = self.last.lock();
        if last.elapsed() < PROGRESS_INTERVAL {
            return ControlFlow::Continue(());
        }
        *last = Instant::now();
        match send_line(self.stream, &ControlReply::Progress { done, total }, &[]) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{LINE_BYTES_MAX, ScrubProblem, ScrubReport};
    use super::*;

    fn problem(bytes: usize) -> ScrubProblem {
        ScrubProblem { structure: "data".into(), block: Some(1), files: vec!["x".repeat(bytes)], what: "bad".into() }
    }

    #[test]
    fn a_report_too_long_for_a_line_loses_problems_but_not_their_count() {
        let (one, other) = UnixStream::pair().unwrap();
        let report =
            ScrubReport { problems: vec![problem(LINE_BYTES_MAX / 3); 8], problems_total: 8, ..ScrubReport::default() };
        let reader = std::thread::spawn(move || {
            let mut lines = LineReader::new(LINE_BYTES_MAX);
            lines.next(&other).unwrap().decode::<ControlReply>().unwrap()
        });
        send_result(&one, Ok(ControlAnswer::Scrub { report })).unwrap();
        let ControlReply::Done { answer: ControlAnswer::Scrub { report } } = reader.join().unwrap() else {
            panic!("a report")
        };
        assert_eq!((report.problems.len(), report.problems_total), (2, 8));
    }

    #[test]
    fn a_single_message_too_long_for_a_line_is_an_error_and_no_endless_loop() {
        let (one, _other) = UnixStream::pair().unwrap();
        let failure = RequestFailure::new(FailureKind::Failed, "x".repeat(LINE_BYTES_MAX));
        assert!(matches!(send_result(&one, Err(failure)), Err(WireError::TooLong { .. })));
    }
}
