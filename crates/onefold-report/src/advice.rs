//! The recommendation at the end of a report.

use onefold_block::size::{human, percent};

use crate::analysis::Ways;
use crate::sampled_analysis::{Range, SampledWays};

/// Savings below this amount do not justify a change.
const WORTH_BYTES: u64 = 1 << 30;
/// Neither do savings below this percentage of the space that is used now.
const WORTH_PERCENT: u64 = 10;
/// From this part of a pool's savings on, sharing in place comes to about the same.
const SAME_PERCENT: u64 = 90;

/// Returns the recommendation, in a sentence or two.
pub(crate) fn advise(ways: &Ways) -> String {
    if ways.now_bytes == 0 && ways.pool_bytes == 0 {
        return "Nothing was found to store.".to_owned();
    }
    let saved = ways.now_bytes.saturating_sub(ways.pool_bytes);
    let less = percent(saved, ways.now_bytes);
    let (now, pool) = (human(ways.now_bytes), human(ways.pool_bytes));
    if saved == 0 {
        return format!("Leave them as they are: they take {now} now and would take {pool} in a pool.");
    }
    let would = format!("it would hold them in {pool}, {less} less than the {now} that they take now");
    if percent_of(saved, ways.now_bytes) < WORTH_PERCENT {
        return format!("Not worth a pool for the space alone: {would}.");
    }
    if saved < WORTH_BYTES {
        return format!("A pool would save {less}, but that is only {}: {pool} instead of {now}.", human(saved));
    }
    let sharing = ways.now_bytes.saturating_sub(ways.sharing_bytes);
    if percent_of(sharing, saved) >= SAME_PERCENT {
        return format!(
            "Either way the images take about {pool}, {less} less than the {now} that they take now. On XFS or Btrfs use \
             `onefold share run`, the files stay as they are; elsewhere use a pool."
        );
    }
    format!(
        "Use a pool: {would}. `onefold share run`, on XFS or Btrfs, would save {} of that{}.",
        percent(sharing, saved),
        if ways.sharing_bytes > ways.pool_bytes { ": only plain files share there" } else { "" }
    )
}

/// Returns the recommendation that a sample supports: only statements that hold for all of its ranges.
pub(crate) fn advise_by_sample(ways: &SampledWays) -> String {
    let (now, pool) = (ways.now_bytes, ways.pool_bytes);
    if now == 0 && pool.high == 0 {
        return "Nothing was found to store.".to_owned();
    }
    let saved = Range {
        low: now.saturating_sub(pool.high),
        best: now.saturating_sub(pool.best),
        high: now.saturating_sub(pool.low),
    };
    let would = format!(
        "it would hold them in {} to {}, {} to {} less than the {} that they take now",
        human(pool.low),
        human(pool.high),
        percent(saved.low, now).trim_end_matches(" %"),
        percent(saved.high, now),
        human(now)
    );
    if saved.high == 0 {
        return format!("Leave them as they are: they take {} now and would take no less in a pool.", human(now));
    }
    if percent_of(saved.high, now) < WORTH_PERCENT {
        return format!("Not worth a pool for the space alone: {would}.");
    }
    if percent_of(saved.low, now) < WORTH_PERCENT {
        return format!("This sample does not tell whether a pool is worth it: {would}. Read more of them, or all.");
    }
    if saved.high < WORTH_BYTES {
        return format!("A pool would save at most {}: {would}.", human(saved.high));
    }
    if saved.low < WORTH_BYTES {
        return format!("A pool would save {} to {}: {would}.", human(saved.low), human(saved.high));
    }
    format!("Use a pool: {would}.")
}

fn percent_of(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * 100 / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(now_gib: u64, pool_gib: u64, sharing_gib: u64) -> String {
        let gib = |count: u64| count << 30;
        advise(&Ways {
            now_bytes: gib(now_gib),
            pool_bytes: gib(pool_gib),
            sharing_bytes: gib(sharing_gib),
            ..Ways::default()
        })
    }

    #[test]
    fn the_advice_follows_the_numbers() {
        let same = advice(100, 20, 21);
        assert!(
            same.starts_with("Either way the images take about 20.00 GiB, 80.0 % less than the 100.00 GiB"),
            "{same}"
        );
        assert!(same.contains("On XFS or Btrfs use `onefold share run`"), "{same}");
        let pool = advice(100, 20, 60);
        assert!(pool.starts_with("Use a pool: it would hold them in 20.00 GiB, 80.0 % less"), "{pool}");
        assert!(pool.contains("50.0 % of that: only plain files"), "{pool}");
        assert!(advice(100, 95, 95).starts_with("Not worth a pool"));
        assert!(advice(100, 101, 101).starts_with("Leave them"));
        assert!(advice(0, 0, 0).starts_with("Nothing"));
        let small = advise(&Ways { now_bytes: 1 << 20, pool_bytes: 1 << 10, ..Ways::default() });
        assert!(small.starts_with("A pool would save 99.9 %, but that is only 1023.00 KiB"), "{small}");
    }

    #[test]
    fn a_sample_advises_only_what_all_of_its_range_supports() {
        let advice_of_mib = |now: u64, low: u64, high: u64| {
            let pool_bytes = Range { low: low << 20, best: low << 20, high: high << 20 };
            advise_by_sample(&SampledWays { now_bytes: now << 20, pool_bytes, ..SampledWays::default() })
        };
        let advice =
            |now_gib: u64, low_gib: u64, high_gib: u64| advice_of_mib(now_gib << 10, low_gib << 10, high_gib << 10);
        assert_eq!(
            advice(100, 20, 40),
            "Use a pool: it would hold them in 20.00 GiB to 40.00 GiB, 60.0 to 80.0 % less than the 100.00 GiB that they take now."
        );
        assert!(advice(100, 20, 95).starts_with("This sample does not tell"));
        assert!(advice(100, 92, 96).starts_with("Not worth a pool"));
        assert!(advice(100, 100, 200).starts_with("Leave them"));
        assert!(advice(2, 0, 1).starts_with("Use a pool"));
        let small = advice_of_mib(2000, 1500, 1600);
        assert!(small.starts_with("A pool would save at most 500.00 MiB: it would hold"), "{small}");
        let perhaps = advice_of_mib(3000, 1500, 2600);
        assert!(perhaps.starts_with("A pool would save 400.00 MiB to 1.46 GiB: it would hold"), "{perhaps}");
        assert!(advice(0, 0, 0).starts_with("Nothing"));
    }
}
