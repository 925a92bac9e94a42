//! Memory for answers: a bounded amount in total, of which one address gets at most a half. So a client that takes no
//! answer keeps no other one waiting.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory is counted in such steps.
const STEP_BYTES: usize = 1 << 10;
/// Divisor for the share of one address.
const CLIENT_SHARE: usize = 2;

/// All of the memory for answers.
#[derive(Debug)]
pub(super) struct Room {
    free: Arc<Semaphore>,
    steps: usize,
    /// The rest of the share of each address. Those without an answer are dropped when another one comes.
    clients: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

/// Memory for one answer, which is given back when this is dropped.
#[derive(Debug)]
pub(super) struct AnswerRoom {
    of_client: OwnedSemaphorePermit,
    of_all: OwnedSemaphorePermit,
}

impl Room {
    /// Returns so much memory for answers.
    pub(super) fn new(bytes: usize) -> Room {
        let steps = (bytes / STEP_BYTES).clamp(CLIENT_SHARE, Semaphore::MAX_PERMITS);
        Room { free: Arc::new(Semaphore::new(steps)), steps, clients: Mutex::default() }
    }

    /// Waits for memory for an answer of so many bytes. One that is longer than a client's share gets all of that.
    ///
    /// The client's share comes first: only answers that the share has room for wait for one another.
    pub(super) async fn take(&self, client: IpAddr, bytes: usize) -> AnswerRoom {
        let steps = u32::try_from(self.steps(bytes)).unwrap_or(u32::MAX);
        let acquire = |semaphore: Arc<Semaphore>| async move {
            semaphore.acquire_many_owned(steps).await.expect("the semaphore is never closed")
        };
        let of_client = acquire(self.share(client)).await;
        AnswerRoom { of_client, of_all: acquire(Arc::clone(&self.free)).await }
    }

    /// Takes more memory for an answer, which is so many bytes long in total, if it is free now. Returns whether it is.
    pub(super) fn grow(&self, room: &mut AnswerRoom, bytes: usize) -> bool {
        let missing = self.steps(bytes).saturating_sub(room.of_all.num_permits());
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        let more = |permit: &OwnedSemaphorePermit| Arc::clone(permit.semaphore()).try_acquire_many_owned(missing);
        let (Ok(of_client), Ok(of_all)) = (more(&room.of_client), more(&room.of_all)) else { return false };
        room.of_client.merge(of_client);
        room.of_all.merge(of_all);
        true
    }

    /// Returns how many steps an answer takes: not more than a client's share.
    fn steps(&self, bytes: usize) -> usize {
        bytes.div_ceil(STEP_BYTES).clamp(1, self.steps / CLIENT_SHARE)
    }

    /// Returns what a client may still have.
    fn share(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut clients = self.clients.lock();
        if let Some(share) = clients.get(&client).and_then(Weak::upgrade) {
            return share;
        }
        clients.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.steps / CLIENT_SHARE));
        clients.insert(client, Arc::downgrade(&share));
        share
    }
}

impl AnswerRoom {
    /// Gives back what an answer of so many bytes does not need.
    pub(super) fn shrunk(mut self, bytes: usize) -> AnswerRoom {
        let needed = bytes.div_ceil(STEP_BYTES).max(1);
        for permit in [&mut self.of_client, &mut self.of_all] {
            drop(permit.split(permit.num_permits().saturating_sub(needed)));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Returns memory that is there without waiting.
    fn now(room: &Room, client: u8, bytes: usize) -> Option<AnswerRoom> {
        match pin!(room.take([192, 0, 2, client].into(), bytes)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(taken) => Some(taken),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_client_leaves_half_of_the_memory_to_others() {
        let room = Room::new(1 << 20);
        let first = now(&room, 1, 300 << 10).unwrap();
        assert!(now(&room, 1, 300 << 10).is_none(), "its share is used up");
        let others = [now(&room, 2, 512 << 10).unwrap(), now(&room, 3, 200 << 10).unwrap()];
        assert!(now(&room, 4, 100 << 10).is_none(), "all of it is used up");
        drop(others);
        let first = first.shrunk(100 << 10);
        let second = now(&room, 1, 400 << 10).unwrap();
        assert!(now(&room, 1, 20 << 10).is_none());
        drop((first, second));
        assert_eq!(room.free.available_permits(), 1 << 10);
        assert!(now(&room, 5, 1 << 30).is_some(), "a long answer gets the whole share");
        assert_eq!(room.clients.lock().len(), 1, "clients without an answer are forgotten");
    }

    #[test]
    fn an_answer_grows_by_memory_that_is_free() {
        let room = Room::new(1 << 20);
        let (mut first, second) = (now(&room, 1, 100 << 10).unwrap(), now(&room, 1, 300 << 10).unwrap());
        assert!(room.grow(&mut first, 212 << 10));
        assert!(!room.grow(&mut first, 213 << 10), "its share is used up");
        drop(second);
        let others = [now(&room, 2, 512 << 10).unwrap(), now(&room, 3, 300 << 10).unwrap()];
        assert!(!room.grow(&mut first, 213 << 10), "all of it is used up");
        drop(others);
        assert!(room.grow(&mut first, 1 << 30), "a long answer gets the whole share");
        assert!(now(&room, 1, 1).is_none());
        drop(first);
        assert_eq!(room.free.available_permits(), 1 << 10);
    }
}
