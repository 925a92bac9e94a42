//! The losses of one machine, by the counts in its requests.

use std::time::Duration;

use crate::format::multicast::Request;
use crate::multicast::rate::MILLION;

/// Packets after which the loss of a machine is known: one lost packet is no more than 0.5 %.
const WINDOW_PACKETS: u64 = 256;
/// Loss of a machine that slows others with its repairs.
const LARGE_LOSS: u32 = 50_000;

/// The losses of one machine. They are known once the machine has reported twice, and enough packets were sent between.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossWindow {
    start: Option<PacketCounts>,
    /// Lost packets of a million in the last complete window.
    loss: Option<u32>,
    /// Whether that window was complete before the rate rose last.
    is_old: bool,
    /// The ends of the first and the last window in a row with a large loss, if the last one had.
    large: Option<(Duration, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct PacketCounts {
    received: u64,
    expected: u64,
}

impl LossWindow {
    /// Takes the counts of a request. Those of a machine that has not seen the packet `since` do not count.
    pub(super) fn note(&mut self, request: &Request, since: u64, now: Duration) {
        let counts = PacketCounts { received: request.received, expected: request.expected };
        let Some(start) = self.start.filter(|start| start.received <= counts.received) else {
            self.start = (request.seen >= since).then_some(counts);
            return;
        };
        let expected = counts.expected.saturating_sub(start.expected);
        if expected < WINDOW_PACKETS {
            return;
        }
        let lost = expected.saturating_sub(counts.received - start.received);
        let loss = u128::from(lost) * u128::from(MILLION) / u128::from(expected);
        let loss = u32::try_from(loss).unwrap_or(MILLION);
        self.start = Some(counts);
        (self.loss, self.is_old) = (Some(loss), false);
        self.large = (loss > LARGE_LOSS).then(|| (self.large.map_or(now, |(first, _)| first), now));
    }

    /// Begins anew, with packets that are sent from now on.
    pub(super) fn begin_anew(&mut self) {
        *self = LossWindow::default();
    }

    /// Has the loss known again with the next request only.
    pub(super) fn forget(&mut self) {
        self.is_old = true;
    }

    /// Returns how long the machine has had a large loss, as far as it has reported.
    pub(super) fn large_for(&self) -> Option<Duration> {
        self.large.map(|(first, last)| last.saturating_sub(first))
    }

    /// Returns the lost packets of a million, if they are known.
    pub(super) fn loss(&self) -> Option<u32> {
        self.loss.filter(|_| !self.is_old)
    }

    /// Returns whether the last known loss is about as large as one that slows others.
    pub(super) fn is_large(&self) -> bool {
        self.loss.is_some_and(|loss| loss > LARGE_LOSS / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(seen: u64, received: u64, expected: u64) -> Request {
        Request { seen, received, expected, left: 1, ..Request::default() }
    }

    #[test]
    fn loss_is_that_of_packets_between_two_requests() {
        let mut window = LossWindow::default();
        let mut note = |request: Request, since| {
            window.note(&request, since, Duration::ZERO);
            window.loss()
        };
        assert_eq!(note(request(1000, 100, 1000), 1001), None, "it has seen no packet that counts");
        assert_eq!(note(request(1001, 100, 1001), 1001), None);
        assert_eq!(note(request(1200, 250, 1200), 1001), None, "too few packets");
        assert_eq!(note(request(1401, 496, 1401), 1001), Some(10_000));
        assert_eq!(note(request(1657, 751, 1657), 1001), Some(3_906), "one packet of 256");
        assert_eq!(note(request(1700, 0, 1), 1001), Some(3_906), "the machine has joined again");
        assert_eq!(note(request(u64::MAX, 1, u64::MAX), 1001), Some(999_999));
    }

    #[test]
    fn a_large_loss_lasts_from_window_to_window() {
        let mut window = LossWindow::default();
        let mut note = |second, received, expected| {
            window.note(&request(expected, received, expected), 0, Duration::from_secs(second));
            window.large_for().map(|time| time.as_secs())
        };
        assert_eq!(note(0, 0, 0), None);
        assert_eq!(note(1, 900, 1000), Some(0));
        assert_eq!(note(5, 1000, 1100), Some(0), "too few packets");
        assert_eq!(note(6, 1800, 2000), Some(5));
        assert_eq!(note(9, 2790, 3000), None);
        assert_eq!(note(10, 3690, 4000), Some(0));
    }
}
