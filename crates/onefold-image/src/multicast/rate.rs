//! **Decides how fast a sender sends**, between a floor and a ceiling, by the losses that machines report.
//!
//! 1. The rate falls when a tenth of the machines lose more than 0.5 % of the packets: at least two machines, or the
//!    only one. It falls to a little less than these machines receive.
//! 2. It rises in steps while fewer machines lose so much, and in small steps near a rate that was too high.
//! 3. Loss that a lower rate does not reduce has another cause. Then the rate returns, and only more loss than that
//!    makes it fall again. A loss that has grown is no such loss, and no more than 20 % ever count as one.
//! 4. At the floor, a slightly higher rate is tried from time to time: a loss that does not rise with it has another
//!    cause, too.

use std::cmp::{Ordering, Reverse};
use std::num::NonZeroU64;

use super::rules::{Rule, follows};

/// Losses are counted in parts of this many packets.
pub(super) const MILLION: u32 = 1_000_000;
/// Loss that does not make the rate fall.
const LOSS_MAX: u32 = 5_000;
/// Largest loss of another cause, so that a rate that is too high is noticed beside any.
const USUAL_LOSS_MAX: u32 = 200_000;
/// Divisors for the shares of the rate: the lowest one that is left after a fall, a fall beyond the loss, and steps.
const FALL_DIVISOR_MAX: u64 = 4;
const MARGIN_DIVISOR: u64 = 16;
const STEP_DIVISOR: u64 = 8;
const SMALL_STEP_DIVISOR: u64 = 64;

/// The rate of a sender, in bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateControl {
    floor: u64,
    ceiling: u64,
    rate: u64,
    /// Loss that does not depend on the rate; at most [`USUAL_LOSS_MAX`].
    usual_loss: u32,
    /// The rate before the last fall, until the losses after it are known.
    fall: Option<RateLoss>,
    /// The floor, while a higher rate is tried.
    trial: Option<RateLoss>,
    /// The last rate that was too high.
    too_high: Option<u64>,
}

/// A rate, and the loss at that rate.
#[derive(Clone, Copy, Debug)]
struct RateLoss {
    rate: u64,
    loss: u32,
}

impl RateControl {
    /// Returns the control of a sender that begins at the ceiling.
    pub(super) fn new(floor: NonZeroU64, ceiling: NonZeroU64) -> RateControl {
        let (floor, ceiling) = (floor.get(), ceiling.get());
        RateControl { floor, ceiling, rate: ceiling, usual_loss: 0, fall: None, trial: None, too_high: None }
    }

    /// Returns the present rate.
    pub(super) fn rate(&self) -> NonZeroU64 {
        NonZeroU64::new(self.rate).unwrap_or(NonZeroU64::MIN)
    }

    /// Changes the ceiling. A sender that was not slowed by losses sends at the new one.
    pub(super) fn set_ceiling(&mut self, ceiling: NonZeroU64) {
        if ceiling.get() == self.ceiling {
            return;
        }
        let was_highest = self.rate == self.ceiling;
        self.ceiling = ceiling.get();
        self.rate = if was_highest { self.ceiling } else { self.rate.min(self.ceiling) };
        (self.fall, self.trial) = (None, None);
    }

    /// Returns whether the present rate is a trial, so that losses at the lower one before it do not count.
    pub(super) fn is_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// Changes the rate by the losses of the machines that have reported some since the last change. Returns how it
    /// has changed.
    pub(super) fn judge(&mut self, mut losses: Vec<u32>, machines: u32) -> Ordering {
        losses.sort_unstable_by_key(|loss| Reverse(*loss));
        let Some(loss) = losses.get(quorum(machines) - 1).copied() else { return Ordering::Equal };
        let before = self.rate;
        let fall = self.fall.take();
        if let Some(floor) = self.trial.take() {
            if 2 * u128::from(loss) > floor.sum_of_losses(before) {
                self.rate = floor.rate;
                return self.rate.cmp(&before);
            }
            self.usual_loss = loss.min(USUAL_LOSS_MAX);
        }
        if loss <= self.usual_loss + self.usual_loss / 2 + LOSS_MAX {
            self.usual_loss = self.usual_loss.min((7 * self.usual_loss + loss) / 8);
            self.rate = self.risen();
        } else if let Some(fall) = fall.filter(|fall| fall.is_in_vain(before, loss)) {
            (self.usual_loss, self.too_high) = (loss.min(USUAL_LOSS_MAX), None);
            self.rate = fall.rate;
        } else if before == self.floor && before < self.ceiling {
            self.trial = Some(RateLoss { rate: before, loss });
            self.rate = before.saturating_add((before / STEP_DIVISOR).max(1));
        } else if follows(Rule::RateFalls) {
            self.rate = self.fallen(loss);
            self.too_high = Some(before);
        }
        self.rate = self.rate.max(self.floor).min(self.ceiling);
        if self.rate < before {
            self.fall = Some(RateLoss { rate: before, loss });
        }
        self.rate.cmp(&before)
    }

    fn fallen(&self, loss: u32) -> u64 {
        let received = share(self.rate, MILLION - loss.min(MILLION));
        (received - received / MARGIN_DIVISOR).max(self.rate / FALL_DIVISOR_MAX)
    }

    fn risen(&self) -> u64 {
        let is_near = self.too_high.is_some_and(|rate| self.rate >= rate - rate / STEP_DIVISOR && self.rate < rate);
        let divisor = if is_near { SMALL_STEP_DIVISOR } else { STEP_DIVISOR };
        self.rate.saturating_add((self.rate / divisor).max(1))
    }
}

impl RateLoss {
    /// Returns whether the loss at a lower rate is nearer to this one than to that of links which let through as much
    /// as before. Links that lose clearly more than before have become worse.
    fn is_in_vain(self, rate: u64, loss: u32) -> bool {
        loss <= self.loss + self.loss / 4 + LOSS_MAX && 2 * u128::from(loss) > self.sum_of_losses(rate)
    }

    /// Returns the sum of this loss and of the one that links have at another rate if they let through as much. Half of
    /// it lies between loss that depends on the rate and loss that does not.
    fn sum_of_losses(self, rate: u64) -> u128 {
        let passed = share(self.rate, MILLION - self.loss.min(MILLION));
        let excess = u128::from(rate.saturating_sub(passed)) * u128::from(MILLION) / u128::from(rate.max(1));
        u128::from(self.loss) + excess
    }
}

/// Returns the number of machines whose losses make the rate fall: a tenth of all, and at least two of several.
pub(super) fn quorum(machines: u32) -> usize {
    let least = if machines <= 1 || !follows(Rule::FewDoNotSlow) { 1 } else { machines.div_ceil(10).max(2) };
    usize::try_from(least).unwrap_or(usize::MAX)
}

/// Returns so many parts of a million of a rate.
fn share(rate: u64, parts: u32) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(parts) / u128::from(MILLION)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(floor: u64, ceiling: u64) -> RateControl {
        RateControl::new(NonZeroU64::new(floor).unwrap(), NonZeroU64::new(ceiling).unwrap())
    }

    /// Lets one machine report the losses that a network causes at each rate, and returns the rates.
    fn rates(mut control: RateControl, rounds: usize, loss: impl Fn(u64) -> u32) -> Vec<u64> {
        let round = |_| {
            let loss = loss(control.rate);
            control.judge(vec![loss], 1);
            control.rate
        };
        (0..rounds).map(round).collect()
    }

    /// Returns the loss on a link that lets this rate through, and loses so many packets of a million besides.
    fn link(passes: u64, others: u32) -> impl Fn(u64) -> u32 {
        move |rate| {
            let excess = rate.saturating_sub(passes) * u64::from(MILLION) / rate;
            let excess = excess * u64::from(MILLION - others) / u64::from(MILLION);
            others + u32::try_from(excess).unwrap()
        }
    }

    #[test]
    fn the_rate_finds_that_of_a_narrow_link_and_stays_near_it() {
        for (passes, others) in [(60_000, 0), (60_000, 10_000), (5_000, 0), (95_000, 0), (30_000, 50_000)] {
            let rates = rates(control(1_000, 100_000), 200, link(passes, others));
            let late = &rates[100..];
            let mean = late.iter().sum::<u64>() / late.len() as u64;
            assert!(mean > passes * 8 / 10 && mean < passes * 105 / 100, "{passes}, {others}: {mean} {rates:?}");
            assert!(late.iter().all(|rate| *rate < passes * 5 / 4), "{passes}, {others}: {rates:?}");
        }
    }

    #[test]
    fn loss_of_another_cause_does_not_keep_the_rate_down() {
        for others in [6_000, 10_000, 50_000, 200_000] {
            let rates = rates(control(1_000, 100_000), 20, link(u64::MAX / 2_000_000, others));
            assert!(rates[0] < 100_000 && rates[1..].iter().all(|rate| *rate == 100_000), "{others}: {rates:?}");
        }
    }

    /// Other traffic may narrow a link between a fall and the report after it. The larger loss must not count as usual.
    #[test]
    fn a_link_that_becomes_narrower_after_a_fall_is_followed() {
        let mut control = control(1_000, 100_000);
        assert_eq!(control.judge(vec![link(50_000, 0)(100_000)], 1), Ordering::Less);
        let rates = rates(control, 100, link(12_500, 0));
        assert!(rates[1..].iter().all(|rate| *rate < 12_500 * 5 / 4), "{rates:?}");
    }

    /// One machine may report any loss. A few reports must not stop the control for the rest of the session.
    #[test]
    fn the_rate_follows_a_link_whatever_was_reported_before() {
        for loss in [210_000, 500_000, 900_000, MILLION] {
            let mut control = control(1_000, 100_000);
            (0..10).for_each(|_| _ = control.judge(vec![loss], 1));
            let rates = rates(control, 400, link(12_500, 0));
            assert!(rates[300..].iter().all(|rate| *rate < 12_500 * 2), "{loss}: {rates:?}");
        }
    }

    #[test]
    fn the_rate_rises_in_steps_to_the_ceiling_and_falls_no_lower_than_the_floor() {
        let mut control = control(30_000, 100_000);
        assert_eq!(control.judge(vec![900_000], 1), Ordering::Less);
        assert_eq!(control.rate().get(), 30_000);
        assert_eq!(control.judge(vec![670_000], 1), Ordering::Greater, "a higher rate is tried");
        assert_eq!(control.judge(vec![710_000], 1), Ordering::Less, "loss that rises with the rate is not usual");
        assert_eq!(control.rate().get(), 30_000);
        let rates = rates(control, 100, link(u64::MAX / 2_000_000, 0));
        assert!(rates.windows(2).all(|pair| pair[1] <= pair[0] + pair[0] / 8), "{rates:?}");
        assert_eq!(rates.last(), Some(&100_000));
    }

    /// Interference may bring the rate down to the floor. It must not stay there for a loss of another cause.
    #[test]
    fn the_rate_leaves_the_floor_when_a_link_is_well_again() {
        for others in [0, 10_000, 60_000, 150_000] {
            let mut control = control(1_000, 80_000);
            for _ in 0..5 {
                control.judge(vec![link(300, 0)(control.rate)], 1);
            }
            assert!(control.rate <= 1_125, "{control:?}");
            let rates = rates(control, 100, link(u64::MAX / 2_000_000, others));
            assert_eq!(rates.last(), Some(&80_000), "{others}: {rates:?}");
        }
    }

    #[test]
    fn a_link_that_is_narrower_than_the_floor_keeps_the_rate_near_it() {
        for (passes, others) in [(30_000, 0), (90_000, 0), (90_000, 20_000)] {
            let rates = rates(control(100_000, 8_000_000), 300, link(passes, others));
            assert!(rates[20..].iter().all(|rate| *rate <= 112_500), "{passes}, {others}: {rates:?}");
        }
    }

    /// Other sessions that begin and end change the ceiling again and again.
    #[test]
    fn the_rate_recovers_from_ceilings_that_change_beside_losses() {
        let mut control = control(1_000, 80_000);
        for round in 0..100 {
            control.judge(vec![60_000], 1);
            control.set_ceiling(NonZeroU64::new(if round % 2 == 0 { 40_000 } else { 80_000 }).unwrap());
        }
        let rates = rates(control, 100, link(u64::MAX / 2_000_000, 60_000));
        assert_eq!(rates.last(), Some(&80_000), "{rates:?}");
    }

    #[test]
    fn a_tenth_of_the_machines_and_at_least_two_of_several_make_the_rate_fall() {
        for (machines, lossy) in [(1, 1), (2, 2), (3, 2), (20, 2), (21, 3), (1000, 100)] {
            let losses = |count| (0..machines).map(|machine| if machine < count { 6_000 } else { 0 }).collect();
            assert_eq!(control(1, 100_000).judge(losses(lossy), machines), Ordering::Less, "{machines}");
            assert_eq!(control(1, 100_000).judge(losses(lossy - 1), machines), Ordering::Equal, "{machines}");
        }
        assert_eq!(control(1, 100_000).judge(vec![5_000], 1), Ordering::Equal, "0.5 % is not too much");
    }

    #[test]
    fn another_ceiling_counts_at_once() {
        let mut control = control(60_000, 100_000);
        for ceiling in [50_000, 100_000] {
            control.set_ceiling(NonZeroU64::new(ceiling).unwrap());
            assert_eq!(control.rate().get(), ceiling, "no losses have slowed the sender");
        }
        control.judge(vec![200_000], 1);
        let slowed = control.rate().get();
        control.set_ceiling(NonZeroU64::new(200_000).unwrap());
        assert_eq!(control.rate().get(), slowed);
    }
}
