//! The session of a machine: how it joins one, its packets, and those that did not come.

use std::time::Duration;

use super::requests::RequestTimer;
use super::{HttpReason, Receiver, ReceiverAction, ReceiverCounts};
use crate::format::multicast::JoinReply;
use crate::multicast::timing::{UNHEARD_FOR, UNHEARD_REQUESTS};

/// A machine reports losses of more than one in 200 packets, once 256 were sent.
const LOSS_PACKETS: u64 = 256;
const LOSS_DIVISOR: u64 = 200;

/// The session that a machine has joined.
#[derive(Debug)]
pub(super) struct SessionState {
    pub(super) reply: JoinReply,
    pub(super) timer: RequestTimer,
    /// Lowest and highest sequence number that arrived, and how many did; 0 before the first.
    pub(super) first: u64,
    pub(super) highest: u64,
    pub(super) received: u64,
    /// Sequence number of the last request.
    pub(super) requests: u64,
    /// Time of the first request under this number.
    pub(super) first_request: Option<Duration>,
    /// Packets that had arrived, and that had been sent, at the last request.
    pub(super) reported: (u64, u64),
}

impl Receiver {
    /// Takes the reply to a join. A reply for another image is ignored.
    pub fn joined(&mut self, reply: JoinReply, now: Duration) {
        self.pass(now);
        if reply.chunks as usize != self.states.len() {
            return;
        }
        let mut timer = RequestTimer::joined(reply.machines, self.now, &*self.random);
        match &self.session {
            Some(before) => timer.continue_wait(&before.timer),
            None => self.progress.wait(self.now),
        }
        // A machine that has begun does not wait for others.
        let waits_in_vain = reply.waits_for > 0 && !timer.is_waiting();
        let (mut first, mut highest, mut received) = (0, 0, 0);
        let (mut requests, mut first_request) = (0, None);
        match self.session.take() {
            Some(before) if (before.reply.session, before.reply.epoch) == (reply.session, reply.epoch) => {
                // Without TLS somebody on the way may have changed the reply.
                if (before.reply.symbol_bytes, before.reply.repairs) != (reply.symbol_bytes, reply.repairs) {
                    self.assemblies.begin_session(reply.symbol_bytes, reply.repairs);
                }
                (first, highest, received) = (before.first, before.highest, before.received);
                // The same number has the same key, under which no sequence number comes again.
                if before.reply.client == reply.client {
                    (requests, first_request) = (before.requests, before.first_request);
                }
            }
            _ => {
                timer.forget_beacons();
                self.assemblies.begin_session(reply.symbol_bytes, reply.repairs);
            }
        }
        let reported = (0, 0);
        let session = SessionState { reply, timer, first, highest, received, requests, first_request, reported };
        self.session = Some(session);
        self.reach.joined(self.now);
        self.end_exclusion();
        if waits_in_vain {
            self.progress.stall();
            if !self.reach.is_http() {
                self.actions.push_back(ReceiverAction::UseHttp(HttpReason::Waiting));
            }
        }
    }
}

impl SessionState {
    /// Counts a packet.
    pub(super) fn note(&mut self, sequence: u64, counts: &mut ReceiverCounts) {
        let before = self.expected();
        self.first = if self.first == 0 { sequence } else { self.first.min(sequence) };
        self.highest = self.highest.max(sequence);
        self.received += 1;
        counts.received += 1;
        counts.expected = counts.expected.saturating_add(self.expected().saturating_sub(before));
    }

    /// Returns how many machines share what is sent: those that lack chunks, or all that the session waits for.
    pub(super) fn sharing_machines(&self) -> u32 {
        let awaited = if self.timer.is_waiting() { self.reply.waits_for } else { 0 };
        self.timer.machines().max(awaited)
    }

    /// Returns whether the server has missed requests that should have arrived long ago.
    pub(super) fn has_requested_in_vain(&self, now: Duration) -> bool {
        let is_long = self.first_request.is_some_and(|first| now.saturating_sub(first) >= UNHEARD_FOR);
        is_long && self.requests >= UNHEARD_REQUESTS
    }

    /// Returns how many packets were sent while the machine listened.
    pub(super) fn expected(&self) -> u64 {
        if self.first == 0 { 0 } else { (self.highest - self.first).saturating_add(1) }
    }

    /// Notes a request, which reports the losses so far.
    pub(super) fn begin_report(&mut self, now: Duration) {
        self.requests += 1;
        self.first_request.get_or_insert(now);
        self.reported = (self.received, self.expected());
    }

    /// Returns whether more packets have been lost since the last request than the server takes for none.
    pub(super) fn has_losses(&self) -> bool {
        let (received, expected) = self.reported;
        let expected = self.expected().saturating_sub(expected);
        let lost = expected.saturating_sub(self.received.saturating_sub(received));
        expected >= LOSS_PACKETS && lost > expected / LOSS_DIVISOR
    }
}
