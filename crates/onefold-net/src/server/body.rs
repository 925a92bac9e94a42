//! Bodies of answers. Each holds its share of the memory for answers until it has been sent.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc::Receiver;

use super::room::AnswerRoom;

/// A body in memory.
pub(super) struct Pieces {
    pieces: VecDeque<Bytes>,
    left_bytes: u64,
    /// Gives the memory back when the body is dropped.
    _room: AnswerRoom,
}

impl Pieces {
    /// Returns a body of these pieces.
    pub(super) fn new(pieces: impl Iterator<Item = Bytes>, room: AnswerRoom) -> Pieces {
        let pieces: VecDeque<Bytes> = pieces.collect();
        Pieces { left_bytes: pieces.iter().map(|piece| piece.len() as u64).sum(), pieces, _room: room }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = self.pieces.pop_front();
        self.left_bytes -= next.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}

/// A body that is read while it is sent.
pub(super) struct Stream {
    /// Pieces, at last an error if reading fails: that ends the connection, so the client knows.
    pub(super) pieces: Receiver<io::Result<Bytes>>,
    /// Bytes that are still to come.
    pub(super) left_bytes: u64,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.pieces.poll_recv(context).map(|next| {
            let piece = next?;
            if let Ok(piece) = &piece {
                self.left_bytes = self.left_bytes.saturating_sub(piece.len() as u64);
            }
            Some(piece.map(Frame::data))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left_bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}
