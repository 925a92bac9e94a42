//! A token bucket that keeps one number: the time at which everything taken is paid for.

use std::num::NonZeroU64;
use std::time::Duration;

use parking_lot::Mutex;

/// Time whose share of the rate may be taken at once after a pause. Covers sleeps that last too long.
pub const BURST: Duration = Duration::from_millis(100);

/// Taking costs time, and a taker waits until the previous one was paid for. Any thread may take.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    paid_at: Mutex<Duration>,
}

impl Bucket {
    /// Returns when more may be taken.
    pub(super) fn paid_at(&self) -> Duration {
        *self.paid_at.lock()
    }

    /// Takes an amount with this cost in time.
    pub(super) fn take(&self, now: Duration, cost: Duration) {
        take(&mut self.paid_at.lock(), now, cost);
    }

    /// Takes what costs so much time, where all is paid for that was taken before. Of several threads that wait for
    /// that, one takes. Returns how long there is to wait; zero where it was taken.
    pub(super) fn take_if_paid(&self, now: Duration, cost: Duration) -> Duration {
        let mut paid_at = self.paid_at.lock();
        let left = paid_at.saturating_sub(now);
        if left.is_zero() {
            take(&mut paid_at, now, cost);
        }
        left
    }
}

fn take(paid_at: &mut Duration, now: Duration, cost: Duration) {
    *paid_at = (*paid_at).max(now.saturating_sub(BURST)).saturating_add(cost);
}

/// Returns how long this many bytes take at a rate.
pub(super) fn time_of(bytes: u64, per_second: NonZeroU64) -> Duration {
    let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(per_second.get());
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}
