//! The pace of a sender: a token bucket that is empty when it begins.

use std::num::NonZeroU64;
use std::time::Duration;

use super::rules::{Rule, follows};

/// Maximum number of packets that a sender sends at once.
pub const BURST_PACKETS_MAX: usize = 32;

/// A limit on bytes per second, with bursts of at most [`BURST_PACKETS_MAX`] packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacing {
    bytes_per_second: NonZeroU64,
    /// Time that a burst takes at this rate.
    burst: Duration,
    /// Time at which everything that was sent is paid for.
    paid_at: Duration,
}

impl Pacing {
    /// Returns a limit for packets of at most `packet_bytes`, from `now` on.
    pub(super) fn new(bytes_per_second: NonZeroU64, packet_bytes: usize, now: Duration) -> Pacing {
        let burst = time_of((BURST_PACKETS_MAX - 1) * packet_bytes, bytes_per_second);
        Pacing { bytes_per_second, burst, paid_at: now }
    }

    /// Returns when the next packet may be sent.
    pub(super) fn due(&self) -> Duration {
        if follows(Rule::Paced) { self.paid_at } else { Duration::ZERO }
    }

    /// Counts a packet that is sent now. What was not used for longer than a burst is lost.
    pub(super) fn pay(&mut self, bytes: usize, now: Duration) {
        let start = self.paid_at.max(now.saturating_sub(self.burst));
        self.paid_at = start.saturating_add(time_of(bytes, self.bytes_per_second));
    }
}

/// Returns the time that bytes take at a rate.
pub(super) fn time_of(bytes: usize, bytes_per_second: NonZeroU64) -> Duration {
    let nanoseconds = bytes as u128 * 1_000_000_000 / u128::from(bytes_per_second.get());
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}
