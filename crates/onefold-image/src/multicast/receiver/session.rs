//! The session of a machine: its packets, and those that did not come.

use super::ReceiverCounts;
use super::requests::RequestTimer;
use crate::format::multicast::JoinReply;

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
    /// Packets that had arrived, and that had been sent, at the last request.
    pub(super) reported: (u64, u64),
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

    /// Returns how many packets were sent while the machine listened.
    pub(super) fn expected(&self) -> u64 {
        if self.first == 0 { 0 } else { (self.highest - self.first).saturating_add(1) }
    }

    /// Notes that the losses so far are reported.
    pub(super) fn begin_report(&mut self) {
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
