//! The answers of a connection, which has several at once by HTTP/2.
//!
//! Each answer takes memory until it has been sent, and the client decides how fast each one goes. So an answer that
//! stands still is noticed by itself, however busy the others of its connection are, or whatever requests follow it.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::body::owned;

/// Maximum length of a piece that is given to the connection at once, which keeps it until the client takes it.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// The answers that are under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers(Arc<Mutex<Vec<Weak<AnswerProgress>>>>);

/// Time of the last progress of an answer, while it is the client's turn. Each piece keeps it until it has been sent.
#[derive(Debug)]
struct AnswerProgress(Mutex<Option<Instant>>);

/// The body of one of the answers.
struct AnswerBody {
    body: Body,
    /// Bytes of `body` that are still to be given to the connection.
    rest: Bytes,
    progress: Arc<AnswerProgress>,
}

impl Answers {
    /// Adds an answer. Returns its body.
    pub(super) fn add(&self, body: Body) -> Body {
        let progress = Arc::new(AnswerProgress(Mutex::new(Some(Instant::now()))));
        let mut answers = self.0.lock();
        answers.retain(|answer| answer.strong_count() > 0);
        answers.push(Arc::downgrade(&progress));
        Body::new(AnswerBody { body, rest: Bytes::new(), progress })
    }

    /// Returns whether the client has taken no piece of an answer for so long.
    pub(super) fn has_stalled(&self, limit: Duration, now: Instant) -> bool {
        let is_stalled = |answer: &Weak<AnswerProgress>| {
            answer.upgrade().is_some_and(|answer| answer.0.lock().is_some_and(|since| now - since >= limit))
        };
        self.0.lock().iter().any(is_stalled)
    }
}

impl AnswerBody {
    /// Returns the next piece of what has been read.
    fn piece(&mut self) -> Frame<Bytes> {
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES_MAX));
        Frame::data(owned(piece, &self.progress))
    }
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => {
                    // The client waits for the archive.
                    *self.progress.0.lock() = None;
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                Poll::Ready(other) => return Poll::Ready(other),
            }
        }
        *self.progress.0.lock() = Some(Instant::now());
        Poll::Ready(Some(Ok(self.piece())))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        match hint.exact() {
            Some(exact) => hint.set_exact(exact + rest),
            None => hint.set_lower(hint.lower() + rest),
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn next(body: &mut Body) -> Option<Bytes> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        match Pin::new(body).poll_frame(&mut context) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
            _ => None,
        }
    }

    #[test]
    fn an_answer_comes_in_short_pieces_and_whole() {
        let content = Bytes::from((0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect::<Vec<u8>>());
        let mut body = Answers::default().add(Body::from(content.clone()));
        let mut received = Vec::new();
        assert_eq!(body.size_hint().exact(), Some(200_000));
        while let Some(piece) = next(&mut body) {
            assert!(piece.len() <= PIECE_BYTES_MAX);
            received.extend_from_slice(&piece);
            assert_eq!(body.size_hint().exact(), Some(200_000 - received.len() as u64));
        }
        assert!(body.is_end_stream() && received == content);
    }

    /// The connection drops the body then.
    #[test]
    fn an_answer_stalls_while_its_last_piece_has_not_been_sent() {
        let answers = Answers::default();
        let mut body = answers.add(vec![1; 5].into());
        let last = next(&mut body).unwrap();
        assert!(body.is_end_stream());
        drop(body);
        let later = Instant::now() + LIMIT;
        assert!(answers.has_stalled(LIMIT, later));
        drop(last);
        assert!(!answers.has_stalled(LIMIT, later), "it has been sent");
    }

    #[test]
    fn an_answer_stalls_by_itself_unless_the_server_has_to_read() {
        let answers = Answers::default();
        let (mut busy, idle) = (answers.add(vec![1; 1 << 20].into()), answers.add(vec![2; 1 << 20].into()));
        let later = Instant::now() + LIMIT;
        assert!(!answers.has_stalled(LIMIT, later - Duration::from_secs(5)));
        assert!(next(&mut busy).is_some());
        assert!(answers.has_stalled(LIMIT, later), "one of them moves, and the other one does not");
        drop(idle);
        assert!(!answers.has_stalled(LIMIT + Duration::from_secs(5), later));
        drop(busy);
        let (_sender, pieces) = tokio::sync::mpsc::channel(1);
        let mut waiting = answers.add(Body::new(super::super::body::Stream { pieces, left_bytes: 5 }));
        assert!(next(&mut waiting).is_none());
        assert!(!answers.has_stalled(LIMIT, later + LIMIT), "the archive does not answer");
    }
}
