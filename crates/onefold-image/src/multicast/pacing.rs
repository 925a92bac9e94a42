//! The pace of a sender: token buckets that are empty when it begins.
//!
//! The sending thread may get the processor too late for its packets. A bucket that has room for one burst then loses
//! the rest, and the sender stays below its rate. So it makes up for a short delay, slowly: a second bucket has room
//! for more, and the first one fills a little faster.

use std::num::NonZeroU64;
use std::time::Duration;

use super::rules::{Rule, follows};

/// Maximum number of packets that a sender sends at once.
pub const BURST_PACKETS_MAX: usize = 32;
/// Longest delay that a sender makes up for.
pub(super) const DELAY_MAX: Duration = Duration::from_millis(4);
/// Divisor for the share of the rate by which it is faster meanwhile.
const FASTER_DIVISOR: u32 = 8;
/// A sender that wakes up for each packet does little else. So it waits for some, and for no more than this time.
const WAIT_PACKETS: usize = BURST_PACKETS_MAX / 2;
const WAIT_MAX: Duration = Duration::from_millis(1);

/// A limit on bytes per second, with bursts of at most [`BURST_PACKETS_MAX`] packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacing {
    bytes_per_second: NonZeroU64,
    packet_bytes: usize,
    /// Time that a burst takes at this rate.
    burst: Duration,
    /// The same at the rate of a sender that makes up for a delay.
    spaced_burst: Duration,
    /// Time at which everything that was sent is paid for.
    paid_at: Duration,
    /// The same at the rate of a sender that makes up for a delay.
    spaced_at: Duration,
}

impl Pacing {
    /// Returns a limit for packets of at most `packet_bytes`, from `now` on.
    pub(super) fn new(bytes_per_second: NonZeroU64, packet_bytes: usize, now: Duration) -> Pacing {
        let burst = burst_time(packet_bytes, bytes_per_second);
        let spaced_burst = spaced_burst_time(packet_bytes, bytes_per_second);
        Pacing { bytes_per_second, packet_bytes, burst, spaced_burst, paid_at: now, spaced_at: now }
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
        let rescaled = |at: Duration, room: Duration| {
            let saved = now.saturating_sub(at).min(room);
            now.saturating_sub(scaled(saved)).saturating_add(scaled(at.saturating_sub(now)))
        };
        self.paid_at = rescaled(self.paid_at, self.delay_max());
        self.spaced_at = rescaled(self.spaced_at, self.spaced_burst);
        self.burst = burst_time(self.packet_bytes, bytes_per_second);
        self.spaced_burst = spaced_burst_time(self.packet_bytes, bytes_per_second);
        self.bytes_per_second = bytes_per_second;
    }

    /// Returns when the next packet may be sent.
    pub(super) fn due(&self) -> Duration {
        if follows(Rule::Paced) { self.paid_at.max(self.spaced_at) } else { Duration::ZERO }
    }

    /// Returns when it is worth while to send: several packets are due, or the next one has waited a little.
    pub(super) fn worthwhile(&self) -> Duration {
        self.due() + time_of((WAIT_PACKETS - 1) * self.packet_bytes, self.bytes_per_second).min(WAIT_MAX)
    }

    /// Counts a packet that is sent now. What was not used for longer than a delay is lost.
    pub(super) fn pay(&mut self, bytes: usize, now: Duration) {
        let time = time_of(bytes, self.bytes_per_second);
        let start = |at: Duration, room| at.max(now.saturating_sub(room));
        self.paid_at = start(self.paid_at, self.delay_max()).saturating_add(time);
        self.spaced_at = start(self.spaced_at, self.spaced_burst).saturating_add(faster(time));
    }

    /// Returns the longest time that the sender makes up for. At low rates, a burst takes longer than any delay.
    fn delay_max(&self) -> Duration {
        self.burst.max(DELAY_MAX)
    }
}

/// Returns the time that a burst takes, from its first packet to its last.
fn burst_time(packet_bytes: usize, bytes_per_second: NonZeroU64) -> Duration {
    time_of((BURST_PACKETS_MAX - 1) * packet_bytes, bytes_per_second)
}

/// Returns the time of a burst for a sender that makes up for a delay. The sum of the times of its packets, so that the
/// last one is due after any pause.
fn spaced_burst_time(packet_bytes: usize, bytes_per_second: NonZeroU64) -> Duration {
    let packets = u32::try_from(BURST_PACKETS_MAX - 1).unwrap_or(u32::MAX);
    faster(time_of(packet_bytes, bytes_per_second)).saturating_mul(packets)
}

/// Returns the time that a sender which makes up for a delay takes instead of this one.
fn faster(time: Duration) -> Duration {
    time - time / (FASTER_DIVISOR + 1)
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
        sent_at(100_000, times_ms)
    }

    fn sent_at(rate: u64, times_ms: &[u64]) -> Vec<usize> {
        let mut pacing = Pacing::new(NonZeroU64::new(rate).unwrap(), 100, Duration::ZERO);
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
        for rate in [400_000, 1_000_000, 7_654_321, 10_000_000, 100_000_000, 999_999_937] {
            assert_eq!(sent_at(rate, &[1000, 5000]), [BURST_PACKETS_MAX; 2], "{rate}");
        }
    }

    #[test]
    fn a_sender_makes_up_for_a_short_delay_a_little_faster() {
        let microseconds = Duration::from_micros;
        // A packet is due each 10 microseconds.
        let mut pacing = Pacing::new(NonZeroU64::new(100_000_000).unwrap(), 1000, Duration::ZERO);
        let mut sent = |now: Duration| {
            let mut count = 0;
            while count < BURST_PACKETS_MAX && pacing.due() <= now {
                pacing.pay(1000, now);
                count += 1;
            }
            count
        };
        let each = |sent: &mut dyn FnMut(Duration) -> usize, times: std::ops::Range<u64>| {
            times.map(|time| sent(microseconds(100 * time))).sum::<usize>()
        };
        assert_eq!(each(&mut sent, 0..100), 991);
        assert_eq!(sent(microseconds(11_900)), BURST_PACKETS_MAX, "it was late by two milliseconds");
        let (faster, rest) = (each(&mut sent, 120..220), each(&mut sent, 220..420));
        assert!((1100..=1130).contains(&faster), "{faster}");
        assert_eq!(991 + BURST_PACKETS_MAX + faster + rest, 4191, "as if it had not been late");
        assert_eq!(sent(microseconds(100_000)), BURST_PACKETS_MAX);
        let later = each(&mut sent, 1001..2000);
        assert!((9990 + 350..=9990 + 401).contains(&(later + BURST_PACKETS_MAX)), "no more than that: {later}");
    }

    #[test]
    fn it_is_worth_while_to_send_when_several_packets_are_due() {
        let worthwhile = |rate| Pacing::new(NonZeroU64::new(rate).unwrap(), 1000, Duration::ZERO).worthwhile();
        assert_eq!(worthwhile(100_000_000), Duration::from_micros(150));
        assert_eq!(worthwhile(1_000_000), WAIT_MAX);
    }
}
