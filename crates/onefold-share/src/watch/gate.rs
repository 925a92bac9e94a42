//! Decides whether the watch may work at the moment: windows, load, and whether it was told to stop.

use std::cell::Cell;
use std::time::Duration;

use onefold_block::Clock;
use onefold_substrate::Machine;

use super::{WatchOptions, Windows};
use crate::format::watch::WatchPhase;
use crate::pace::Wish;

/// Interval at which the time of day is checked during work.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Fraction of a window, at its end, that is reserved for a pass.
const WINDOW_PART_FOR_PASS: u32 = 8;

pub(super) struct Gate<'a> {
    clock: &'a dyn Clock,
    machine: &'a dyn Machine,
    windows: &'a Windows,
    load_max: Option<f64>,
    stop: &'a dyn Fn() -> bool,
    /// When the time of day was last checked, and whether it was in a window.
    seen: Cell<Option<(Duration, bool)>>,
}

impl<'a> Gate<'a> {
    pub(super) fn new(
        clock: &'a dyn Clock,
        machine: &'a dyn Machine,
        options: &'a WatchOptions<'_>,
        stop: &'a dyn Fn() -> bool,
    ) -> Gate<'a> {
        Gate { clock, machine, windows: &options.windows, load_max: options.load_max, stop, seen: Cell::new(None) }
    }

    /// Returns the reason to wait before work may begin, if there is one. The watch's own work raises the load, so once
    /// it has begun, only the end of a window stops it.
    pub(super) fn closed(&self) -> Option<WatchPhase> {
        if !self.windows.contain(self.machine.time_of_day()) {
            return Some(WatchPhase::OutsideWindows);
        }
        let is_too_high = self.load_max.is_some_and(|max| self.machine.load().is_some_and(|load| load > max));
        is_too_high.then_some(WatchPhase::LoadTooHigh)
    }

    /// Returns whether the open window ends so soon that a pass should begin, which may take about `pass_time`.
    pub(super) fn is_closing(&self, pass_time: Duration) -> bool {
        let closes_in = self.windows.closes_in(self.machine.time_of_day());
        closes_in.is_some_and(|(left, all)| left <= (pass_time * 2).max(all / WINDOW_PART_FOR_PASS).min(all / 2))
    }

    /// Returns whether work that has begun goes on. Cheap.
    pub(super) fn wish(&self) -> Wish {
        if (self.stop)() {
            return Wish::StopNow;
        }
        if self.windows.are_always() {
            return Wish::GoOn;
        }
        let now = self.clock.monotonic();
        let is_within = match self.seen.get() {
            Some((at, is_within)) if now.saturating_sub(at) < LOOK_INTERVAL => is_within,
            _ => {
                let is_within = self.windows.contain(self.machine.time_of_day());
                self.seen.set(Some((now, is_within)));
                is_within
            }
        };
        if is_within { Wish::GoOn } else { Wish::StopSoon }
    }
}
