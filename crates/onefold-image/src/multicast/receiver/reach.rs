//! Whether multicast arrives: when a machine turns to HTTP, when it comes back, and when it joins again.

use std::time::Duration;

use onefold_block::random::Random;

use super::requests::drawn;
use crate::multicast::timing::{PROBE_MIN, REJOIN_MIN, SILENCE};

/// Why a machine turns to HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpReason {
    /// No packet has arrived since the machine joined.
    NothingArrives,
    /// Packets arrived before, and do not any more.
    Silence,
    /// Packets arrive, but for long none of a chunk that the machine lacks.
    NoSymbols,
    /// This machine loses far more packets than the others, so the server does not send for it any more.
    Excluded,
    /// Packets arrive, and no request of this machine reaches the server.
    Unheard,
    /// A new session waits for other machines before it sends chunks, and this one has begun in an earlier session.
    Waiting,
}

/// A step against silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReachStep {
    /// Chunks are to be fetched over HTTP.
    UseHttp(HttpReason),
    /// The machine is to join again.
    Join,
    /// The server is to be asked for a sign of life.
    Probe,
}

/// Whether multicast arrives.
#[derive(Debug)]
pub(super) struct Reach {
    /// Time of the last packet, or of the join.
    last: Duration,
    has_heard: bool,
    /// Whether the machine has turned to HTTP.
    is_http: bool,
    /// Time of the next attempt to be heard, or to join again.
    retry: Option<Duration>,
}

impl Reach {
    /// Returns the state of a machine before it has joined.
    pub(super) fn new(now: Duration) -> Reach {
        Reach { last: now, has_heard: false, is_http: false, retry: None }
    }

    /// Notes that the machine has joined, so that packets are expected.
    pub(super) fn joined(&mut self, now: Duration) {
        self.last = now;
        self.retry = None;
    }

    /// Notes a packet. Returns whether the machine returns to multicast with it.
    pub(super) fn hear(&mut self, now: Duration) -> bool {
        self.last = now;
        self.has_heard = true;
        self.retry = None;
        std::mem::take(&mut self.is_http)
    }

    /// Notes a packet of another session: the server has probably started again.
    pub(super) fn hear_other(&mut self, now: Duration, random: &dyn Random) {
        let retry = now + drawn(REJOIN_MIN / 2, random);
        let is_silent = now.saturating_sub(self.last) > SILENCE / 3;
        if is_silent && self.has_heard && self.retry.is_none_or(|at| at > retry + REJOIN_MIN / 2) {
            self.retry = Some(retry);
        }
    }

    /// Returns what is to be done now.
    pub(super) fn step(&mut self, now: Duration, random: &dyn Random) -> Option<ReachStep> {
        let shortest = if self.has_heard { REJOIN_MIN } else { PROBE_MIN };
        if let Some(retry) = self.retry {
            if now < retry {
                return None;
            }
            self.retry = Some(now + shortest + drawn(shortest, random));
            return Some(if self.has_heard { ReachStep::Join } else { ReachStep::Probe });
        }
        if now < self.last + SILENCE {
            return None;
        }
        // A machine that has heard the server joins at once, in case it has started again.
        let first = if self.has_heard { drawn(REJOIN_MIN / 2, random) } else { shortest + drawn(shortest, random) };
        self.retry = Some(now + first);
        let reason = if self.has_heard { HttpReason::Silence } else { HttpReason::NothingArrives };
        (!std::mem::replace(&mut self.is_http, true)).then_some(ReachStep::UseHttp(reason))
    }

    /// Returns when [`Self::step`] may have another result.
    pub(super) fn next(&self) -> Duration {
        self.retry.unwrap_or(self.last + SILENCE)
    }

    /// Returns whether the machine has turned to HTTP.
    pub(super) fn is_http(&self) -> bool {
        self.is_http
    }

    /// Returns whether the machine has just joined, or hears packets.
    pub(super) fn is_expecting(&self) -> bool {
        self.retry.is_none()
    }
}
