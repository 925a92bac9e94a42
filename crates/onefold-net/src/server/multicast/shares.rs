//! The maximum rate of a server: images that are sent at the same time share it by their weights.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use parking_lot::Mutex;

use super::SESSIONS_MAX;

/// The maximum rate of a server, and the images that share it.
#[derive(Debug)]
pub(super) struct RateShares {
    bytes_per_second: NonZeroU64,
    /// Weight of the image that is sent to each group; 0 if there is none.
    weights: Mutex<[u32; SESSIONS_MAX as usize]>,
}

impl RateShares {
    pub(super) fn new(bytes_per_second: NonZeroU64) -> RateShares {
        RateShares { bytes_per_second, weights: Mutex::default() }
    }
}

/// The share of one image. It counts while the image is sent.
#[derive(Debug)]
pub(super) struct RateShare {
    shares: Arc<RateShares>,
    place: usize,
    weight: NonZeroU32,
}

impl RateShare {
    /// Returns the share of the image that is sent to a group.
    pub(super) fn new(shares: &Arc<RateShares>, place: u8, weight: NonZeroU32) -> RateShare {
        RateShare { shares: Arc::clone(shares), place: place.into(), weight }
    }

    /// Notes whether the image is being sent, and returns its maximum rate.
    pub(super) fn rate(&self, is_sent: bool) -> NonZeroU64 {
        let mut weights = self.shares.weights.lock();
        let Some(own) = weights.get_mut(self.place) else { return self.shares.bytes_per_second };
        *own = if is_sent { self.weight.get() } else { 0 };
        let others: u64 =
            weights.iter().enumerate().filter(|(at, _)| *at != self.place).map(|(_, weight)| u64::from(*weight)).sum();
        let weight = u64::from(self.weight.get());
        let rate = u128::from(self.shares.bytes_per_second.get()) * u128::from(weight) / u128::from(weight + others);
        u64::try_from(rate).ok().and_then(NonZeroU64::new).unwrap_or(NonZeroU64::MIN)
    }
}

impl Drop for RateShare {
    fn drop(&mut self) {
        if let Some(weight) = self.shares.weights.lock().get_mut(self.place) {
            *weight = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_share_the_rate_by_weight_while_they_are_sent() {
        let shares = Arc::new(RateShares::new(NonZeroU64::new(80).unwrap()));
        let share = |place, weight| RateShare::new(&shares, place, NonZeroU32::new(weight).unwrap());
        let (first, second) = (share(0, 1), share(1, 3));
        let rate = |share: &RateShare, is_sent| share.rate(is_sent).get();
        assert_eq!(rate(&first, true), 80);
        assert_eq!((rate(&second, false), rate(&first, true)), (60, 80), "the second image is not sent yet");
        assert_eq!((rate(&second, true), rate(&first, true)), (60, 20));
        let third = share(2, 4);
        assert_eq!((rate(&third, true), rate(&second, true), rate(&first, true)), (40, 30, 10));
        drop(third);
        assert_eq!(rate(&first, true), 20);
        drop(second);
        assert_eq!(rate(&first, true), 80);
        assert_eq!(share(3, u32::MAX).rate(true).get(), 79);
        let least = RateShare::new(&Arc::new(RateShares::new(NonZeroU64::MIN)), 0, NonZeroU32::MIN);
        assert_eq!(rate(&least, true), 1);
    }
}
