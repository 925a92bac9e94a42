//! A machine: its receiver, its disk, its clock, and its calls over HTTP.

use std::sync::Arc;
use std::time::Duration;

use onefold_block::random::SeededRandom;

use super::network::{Link, ReplayWindow};
use super::suspension::Suspension;
use crate::format::multicast::{ClientNumber, SessionId};
use crate::multicast::{Receiver, ReceiverCounts, ReceiverSettings, Settlement};

/// A machine.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) receiver: Receiver,
    pub(super) link: Link,
    pub(super) is_deaf: bool,
    pub(super) is_alive: bool,
    /// Counts starts: events of an earlier life do not concern a later one.
    pub(super) life: u32,
    /// The content of each chunk that was written.
    pub(super) disk: Vec<Option<Vec<u8>>>,
    /// Whether its disk had an earlier version of the image, with which it compares each chunk.
    pub(super) is_update: bool,
    pub(super) disk_bytes_per_second: u64,
    pub(super) disk_free_at: u64,
    pub(super) suspension: Suspension,
    /// Nanoseconds by which its clock is ahead.
    pub(super) clock_ahead: u64,
    /// The session whose packets it can open, and its number there.
    pub(super) session: Option<(SessionId, ClientNumber)>,
    pub(super) replays: ReplayWindow,
    pub(super) is_joining: bool,
    /// Whether it fetches chunks over HTTP, and whether one is under way.
    pub(super) is_http: bool,
    pub(super) is_fetching: bool,
    pub(super) finished_at: Option<u64>,
    /// Time of the next wake that counts.
    pub(super) wake: Option<u64>,
    /// Counts of its earlier lives.
    pub(super) former: Vec<ReceiverCounts>,
}

/// Returns a receiver that begins now.
pub(super) fn receiver(chunks: u32, memory_bytes: u64, seed: u64, now: Duration) -> Receiver {
    let settings = ReceiverSettings { chunks, memory_bytes: usize::try_from(memory_bytes).unwrap() };
    Receiver::new(settings, Arc::new(SeededRandom::new(seed)), now)
}

impl Machine {
    /// Returns the time on its clock.
    pub(super) fn clock(&self, now: u64) -> Duration {
        Duration::from_nanos(now + self.clock_ahead)
    }

    /// Begins another life with the same disk: chunks that are written there are not fetched again.
    pub(super) fn restart(&mut self, receiver: Receiver) {
        self.former.push(self.receiver.counts());
        self.receiver = receiver;
        self.life += 1;
        (self.is_alive, self.session, self.is_joining) = (true, None, false);
        (self.is_http, self.is_fetching, self.wake) = (false, false, None);
        (self.disk_free_at, self.suspension) = (0, Suspension::default());
        if self.is_update {
            return;
        }
        for chunk in 0..u32::try_from(self.disk.len()).unwrap() {
            if self.disk[chunk as usize].is_some() {
                assert_eq!(self.receiver.claim(chunk), Some(chunk));
                self.receiver.settle(chunk, Settlement::Present);
            }
        }
    }
}
