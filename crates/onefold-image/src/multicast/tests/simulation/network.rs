//! The link from the server to one machine: losses, a queue, delays, duplicates. And what the seal drops.

use onefold_block::random::SeededRandom;

use super::options::NetworkOptions;

/// Length of the longest packet.
const PACKET_BYTES: u64 = 172;

/// Returns true with this chance in a million.
pub(super) fn happens(random: &SeededRandom, per_million: u64) -> bool {
    per_million > 0 && random.below(1_000_000) < per_million
}

/// The link of a machine. Times are in nanoseconds.
#[derive(Debug)]
pub(super) struct Link {
    options: NetworkOptions,
    bytes_per_second: u64,
    free_at: u64,
    /// Packets that the present burst still loses.
    burst: u64,
    cut_until: u64,
}

impl Link {
    pub(super) fn new(options: NetworkOptions, rate: u64) -> Link {
        Link { options, bytes_per_second: rate * options.link_percent / 100, free_at: 0, burst: 0, cut_until: 0 }
    }

    /// Cuts the machine off until a time.
    pub(super) fn cut(&mut self, until: u64) {
        self.cut_until = self.cut_until.max(until);
    }

    pub(super) fn is_cut(&self, now: u64) -> bool {
        now < self.cut_until
    }

    /// Returns when a packet arrives: never, once or twice.
    pub(super) fn arrivals(&mut self, bytes: usize, now: u64, random: &SeededRandom) -> Vec<u64> {
        let options = self.options;
        if self.burst == 0 && happens(random, options.burst) {
            self.burst = 1 + random.below(options.burst_packets_max);
        }
        let is_burst = self.burst > 0;
        self.burst = self.burst.saturating_sub(1);
        let takes = bytes as u64 * 1_000_000_000 / self.bytes_per_second;
        let waits = self.free_at.saturating_sub(now);
        let queue = options.queue_packets * PACKET_BYTES * 1_000_000_000 / self.bytes_per_second;
        if is_burst || self.is_cut(now) || happens(random, options.loss) || waits > queue {
            return Vec::new();
        }
        self.free_at = self.free_at.max(now) + takes;
        let copies = 1 + u64::from(happens(random, options.duplicates));
        let delay = |_| self.free_at + options.delay_ms * 1_000_000 + random.below(options.jitter_ms * 1_000_000 + 1);
        (0..copies).map(delay).collect()
    }
}

/// Drops packets that have come before, as the receiver of sealed packets does.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplayWindow {
    highest: u64,
    bits: [u64; 16],
}

impl ReplayWindow {
    pub(super) fn accepts(&mut self, sequence: u64) -> bool {
        let size = self.bits.len() as u64 * 64;
        if sequence + size <= self.highest {
            return false;
        }
        for passed in (self.highest + 1)..=sequence.min(self.highest + size) {
            let (word, bit) = Self::place(passed);
            self.bits[word] &= !bit;
        }
        self.highest = self.highest.max(sequence);
        let (word, bit) = Self::place(sequence);
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        is_new
    }

    fn place(sequence: u64) -> (usize, u64) {
        (usize::try_from(sequence / 64 % 16).unwrap(), 1 << (sequence % 64))
    }
}
