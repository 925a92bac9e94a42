//! Pauses after work that failed, or was left: each is twice as long as the last one, from a minute to a day.

use std::time::Duration;

use crate::format::reading::{PAUSE_MAX, PAUSE_MIN};

/// A pause until work is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryPause {
    length: Duration,
    /// A time of the monotonic clock.
    end: Duration,
}

impl RetryPause {
    /// Returns the pause after a failure at a time of the monotonic clock. It is longer than the last pause if that one
    /// was waited for.
    pub(crate) fn after(last: Option<RetryPause>, now: Duration) -> RetryPause {
        let [least, most] = [PAUSE_MIN, PAUSE_MAX].map(|seconds| Duration::from_secs(seconds.into()));
        let length = match last {
            None => least,
            Some(last) if last.is_over(now) => last.length.saturating_mul(2).min(most),
            Some(last) => last.length,
        };
        RetryPause { length, end: now.saturating_add(length) }
    }

    /// Returns whether the work may be tried again.
    pub(crate) fn is_over(self, now: Duration) -> bool {
        now >= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_that_are_waited_for_double_up_to_a_day_and_others_begin_anew() {
        let (mut last, mut now, mut lengths) = (None, Duration::from_secs(1000), Vec::new());
        for _ in 0..14 {
            let pause = RetryPause::after(last, now);
            assert!(!pause.is_over(pause.end - Duration::from_nanos(1)) && pause.is_over(pause.end));
            lengths.push((pause.end - now).as_secs());
            (last, now) = (Some(pause), pause.end);
        }
        assert_eq!(lengths[..4], [60, 120, 240, 480]);
        assert_eq!(lengths[11..], [86_400; 3]);
        let early = RetryPause::after(None, now);
        let next = RetryPause::after(Some(early), now + Duration::from_secs(59));
        assert_eq!((next.length, next.end), (early.length, early.end + Duration::from_secs(59)));
        assert!(!RetryPause::after(None, Duration::MAX - Duration::from_secs(1)).is_over(Duration::ZERO));
    }
}
