//! Bodies of answers. Each holds its share of the memory for answers until it has been sent.
//!
//! A connection drops a body once it has the last piece, which may be long before the client takes that piece. So the
//! pieces themselves hold the memory.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc::Receiver;

use super::room::AnswerRoom;

/// A piece of an answer, and an owner that lives at least as long as it.
struct OwnedPiece<T> {
    bytes: Bytes,
    _owner: Arc<T>,
}

impl<T> AsRef<[u8]> for OwnedPiece<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns a piece that keeps its owner until the connection has sent it, or gives it up.
pub(super) fn owned<T: Send + Sync + 'static>(piece: Bytes, owner: &Arc<T>) -> Bytes {
    Bytes::from_owner(OwnedPiece { bytes: piece, _owner: Arc::clone(owner) })
}

/// A body in memory.
pub(super) struct Pieces {
    /// The room is given back when the last one is dropped.
    pieces: VecDeque<Bytes>,
    left_bytes: u64,
}

impl Pieces {
    /// Returns a body of these pieces.
    pub(super) fn new(pieces: impl Iterator<Item = Bytes>, room: AnswerRoom) -> Pieces {
        let room = Arc::new(room);
        let pieces: VecDeque<Bytes> = pieces.map(|piece| owned(piece, &room)).collect();
        Pieces { left_bytes: pieces.iter().map(|piece| piece.len() as u64).sum(), pieces }
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::pin::pin;
    use std::task::Waker;

    use super::super::room::Room;
    use super::*;

    /// Returns the result of a future that need not wait.
    fn now<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_room_is_given_back_with_the_last_piece() {
        const SHARE_BYTES: usize = 512 << 10;
        let (room, client) = (Room::new(2 * SHARE_BYTES), IpAddr::from([192, 0, 2, 1]));
        let taken = now(room.take(client, SHARE_BYTES)).unwrap();
        let mut body = Pieces::new([Bytes::from_static(b"one"), Bytes::from_static(b"two")].into_iter(), taken);
        let mut sent = Vec::new();
        while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            sent.push(frame.unwrap().into_data().unwrap());
        }
        assert!(sent == ["one", "two"] && body.is_end_stream());
        drop(body);
        let mut last = sent.pop().unwrap();
        drop(sent);
        let rest = last.split_off(2);
        drop(last);
        assert!(now(room.take(client, 1)).is_none(), "a part of the last piece is still to be sent");
        drop(rest);
        assert!(now(room.take(client, SHARE_BYTES)).is_some());
    }
}
