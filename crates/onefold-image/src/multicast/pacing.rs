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
    packet_bytes: usize,
    /// Time that a burst takes at this rate.
    burst: Duration,
    /// Time at which everything that was sent is paid for.
    paid_at: Duration,
}

impl Pacing {
    /// Returns a limit for packets of at most `packet_bytes`, from `now` on.
    pub(super) fn new(bytes_per_second: NonZeroU64, packet_bytes: usize, now: Duration) -> Pacing {
        let burst = burst_time(packet_bytes, bytes_per_second);
        Pacing { bytes_per_second, packet_bytes, burst, paid_at: now }
    }

    /// Changes the rate, which counts from now on. The bytes that a pause has saved stay as many.
    pub(super) fn set_rate(&mut self, bytes_per_second: NonZeroU64, now: Duration) {
        if bytes_per_second == self.bytes_per_second {
            return;
        }
        let before = u128::from(self.bytes_per_second.get());
        let scaled = |time: Duration| {
            let nanoseconds = time.as_nanos().saturating_mul(before) / u128::from(bytes_per_second.get());
            Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
        };
        let saved = now.saturating_sub(self.paid_at).min(self.burst);
        let owed = self.paid_at.saturating_sub(now);
        self.paid_at = now.saturating_sub(scaled(saved)).saturating_add(scaled(owed));
        self.burst = burst_time(self.packet_bytes, bytes_per_second);
        self.bytes_per_second = bytes_per_second;
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

/// Returns the time that a pause may make up for.
fn burst_time(packet_bytes: usize, bytes_per_second: NonZeroU64) -> Duration {
    time_of((BURST_PACKETS_MAX - 1) * packet_bytes, bytes_per_second)
}

/// Returns the time that bytes take at a rate.
pub(super) fn time_of(bytes: usize, bytes_per_second: NonZeroU64) -> Duration {
    let nanoseconds = bytes as u128 * 1_000_000_000 / u128::from(bytes_per_second.get());
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends packets as fast as it may, at the times given, and returns how many went at each of them.
    fn sent(times_ms: &[u64]) -> Vec<usize> {
        let mut pacing = Pacing::new(NonZeroU64::new(100_000).unwrap(), 100, Duration::ZERO);
        let count = |time: &u64| {
            let now = Duration::from_millis(*time);
            let mut count = 0;
            while pacing.due() <= now {
                pacing.pay(100, now);
                count += 1;
            }
            count
        };
        times_ms.iter().map(count).collect()
    }

    #[test]
    fn the_rate_holds_from_the_first_packet_on() {
        assert_eq!(sent(&[0, 1, 2, 3]), [1, 1, 1, 1]);
        assert_eq!(sent(&[0, 10, 20]), [1, 10, 10]);
    }

    #[test]
    fn a_pause_allows_one_burst() {
        assert_eq!(sent(&[1000, 1001, 5000]), [BURST_PACKETS_MAX, 1, BURST_PACKETS_MAX]);
    }
}
