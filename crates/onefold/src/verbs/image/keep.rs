//! Decides which versions of an image stay when old ones are removed.

use std::collections::HashSet;

use crate::calendar;
use crate::cli::image::KeepArgs;

const SECONDS_PER_DAY: i64 = 86_400;
/// Days from the Monday before 1970-01-01 to that day.
const DAYS_FROM_MONDAY: i64 = 3;

/// Returns the number of the period that a time in seconds lies in.
type Period = fn(i64) -> i64;

/// Returns which of the versions stay, whose times in seconds since 1970 are given from the newest to the oldest. Of
/// each day, week and month the newest version counts, in UTC; days without a version do not count.
pub(super) fn kept(keep: &KeepArgs, times: &[i64]) -> Vec<bool> {
    let mut kept: Vec<bool> = (0..times.len()).map(|age| age < keep.keep_last.unwrap_or(0)).collect();
    let periods: [(Option<usize>, Period); 3] =
        [(keep.keep_daily, day), (keep.keep_weekly, week), (keep.keep_monthly, month)];
    for (count, period) in periods {
        let mut seen = HashSet::new();
        for (kept, time) in kept.iter_mut().zip(times) {
            if seen.len() < count.unwrap_or(0) && seen.insert(period(*time)) {
                *kept = true;
            }
        }
    }
    kept
}

fn day(time: i64) -> i64 {
    time.div_euclid(SECONDS_PER_DAY)
}

fn week(time: i64) -> i64 {
    (day(time) + DAYS_FROM_MONDAY).div_euclid(7)
}

fn month(time: i64) -> i64 {
    let [year, month, ..] = calendar::parts(time);
    year * 12 + month
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(texts: &[&str]) -> Vec<i64> {
        texts.iter().map(|text| calendar::parse(text).unwrap()).collect()
    }

    fn keep(last: usize, daily: usize, weekly: usize, monthly: usize) -> KeepArgs {
        let some = |count| (count > 0).then_some(count);
        KeepArgs {
            keep_last: some(last),
            keep_daily: some(daily),
            keep_weekly: some(weekly),
            keep_monthly: some(monthly),
        }
    }

    #[test]
    fn the_newest_version_of_each_period_stays() {
        let times = times(&[
            "2026-11-26T22:00",
            "2026-11-26T08:00",
            "2026-11-24T08:00", // Tuesday of the same week
            "2026-11-23T00:00", // Monday
            "2026-11-22T23:59", // Sunday, the week before
            "2026-11-01T12:00",
            "2026-10-31T12:00",
            "2025-10-31T12:00",
        ]);
        let numbers = |keep: KeepArgs| {
            let kept = kept(&keep, &times);
            (0..times.len()).filter(|age| kept[*age]).collect::<Vec<_>>()
        };
        assert_eq!(numbers(keep(2, 0, 0, 0)), [0, 1]);
        assert_eq!(numbers(keep(0, 3, 0, 0)), [0, 2, 3]);
        assert_eq!(numbers(keep(0, 0, 2, 0)), [0, 4]);
        assert_eq!(numbers(keep(0, 0, 0, 3)), [0, 6, 7]);
        assert_eq!(numbers(keep(1, 2, 2, 2)), [0, 2, 4, 6]);
        assert_eq!(numbers(keep(100, 0, 0, 0)).len(), 8);
        assert!(numbers(keep(0, 0, 0, 0)).is_empty());
    }

    #[test]
    fn a_week_begins_on_monday_before_1970_too() {
        let weeks = times(&["1969-12-28", "1969-12-29", "1970-01-04", "1970-01-05"]);
        assert_eq!(weeks.into_iter().map(week).collect::<Vec<_>>(), [-1, 0, 0, 1]);
    }
}
