//! Times of day at which a watch may work, by the local clock. If the clock is put forward or back, windows move with
//! it, and the window into which the change falls is an hour shorter or longer.

use std::str::FromStr;
use std::time::Duration;

use onefold_substrate::MinuteOfDay;

const MINUTES_A_DAY: u16 = 24 * 60;

/// A part of each day, which may include midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    from: u16,
    /// The first minute behind it; for midnight, the number of the day's last minute plus one.
    to: u16,
}

/// Why a text is no window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// It is not two times.
    #[error("expected two times of day, such as 22:00-06:00")]
    NotAWindow,
    /// It ends when it begins.
    #[error("it ends when it begins; 00:00-24:00 is the whole day")]
    Empty,
}

impl FromStr for Window {
    type Err = WindowError;

    fn from_str(text: &str) -> Result<Window, WindowError> {
        let (from, to) = text.split_once('-').ok_or(WindowError::NotAWindow)?;
        let (from, to) = (minute(from.trim())?, minute(to.trim())?);
        if from == MINUTES_A_DAY {
            return Err(WindowError::NotAWindow);
        }
        if from == to {
            return Err(WindowError::Empty);
        }
        // A window that ends at 00:00 ends with its day.
        Ok(Window { from, to: if to == 0 { MINUTES_A_DAY } else { to } })
    }
}

/// Returns the minute in a text; 24:00 is the end of the day.
fn minute(text: &str) -> Result<u16, WindowError> {
    let is_number = |part: &str| (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let (hour, minute) = text.split_once(':').ok_or(WindowError::NotAWindow)?;
    if !is_number(hour) || minute.len() != 2 || !is_number(minute) {
        return Err(WindowError::NotAWindow);
    }
    match (hour.parse(), minute.parse()) {
        (Ok(24), Ok(0)) => Ok(MINUTES_A_DAY),
        (Ok(hour), Ok(minute)) => {
            MinuteOfDay::new(hour, minute).map(MinuteOfDay::since_midnight).ok_or(WindowError::NotAWindow)
        }
        _ => Err(WindowError::NotAWindow),
    }
}

impl Window {
    fn contains(self, at: MinuteOfDay) -> bool {
        let minute = at.since_midnight();
        if self.from < self.to {
            self.from <= minute && minute < self.to
        } else {
            minute >= self.from || minute < self.to
        }
    }

    /// Returns how many minutes after `at` it ends, if `at` is in it.
    fn minutes_left(self, at: MinuteOfDay) -> u16 {
        (self.to + MINUTES_A_DAY - at.since_midnight()) % MINUTES_A_DAY
    }

    /// Returns how many minutes after `at` it begins, less than a day.
    fn minutes_until(self, at: MinuteOfDay) -> u16 {
        (self.from + MINUTES_A_DAY - at.since_midnight()) % MINUTES_A_DAY
    }
}

/// All windows; an empty list means always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows(pub Vec<Window>);

impl Windows {
    /// Returns whether they cover every time.
    #[must_use]
    pub(crate) fn are_always(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a time is in one of them.
    #[must_use]
    pub fn contain(&self, at: MinuteOfDay) -> bool {
        self.are_always() || self.0.iter().any(|window| window.contains(at))
    }

    /// Returns how long the window of `at` stays open, and how long it is in all. The former is up to a minute too
    /// much, because the minute of `at` has begun already. `None` if no window has `at`, or if every time is in them.
    #[must_use]
    pub(crate) fn closes_in(&self, at: MinuteOfDay) -> Option<(Duration, Duration)> {
        let open = self.0.iter().filter(|window| window.contains(at)).max_by_key(|window| window.minutes_left(at))?;
        let minutes = |minutes: u16| Duration::from_secs(u64::from(minutes) * 60);
        let all = (open.to + MINUTES_A_DAY - open.from) % MINUTES_A_DAY;
        Some((minutes(open.minutes_left(at)), minutes(if all == 0 { MINUTES_A_DAY } else { all })))
    }

    /// Returns the time until a window opens: up to a minute less, because the minute of `at` has begun already. Zero
    /// if one is open; `None` if they cover every time.
    #[must_use]
    pub(crate) fn opens_in(&self, at: MinuteOfDay) -> Option<Duration> {
        if self.contain(at) {
            return (!self.are_always()).then_some(Duration::ZERO);
        }
        let minutes = self.0.iter().map(|window| window.minutes_until(at)).min()?;
        Some(Duration::from_secs(u64::from(minutes) * 60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> MinuteOfDay {
        of_day(minute(text).unwrap())
    }

    fn of_day(minute: u16) -> MinuteOfDay {
        MinuteOfDay::new(minute / 60, minute % 60).unwrap()
    }

    fn windows(texts: &[&str]) -> Windows {
        Windows(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    /// Every minute of the day is compared with a walk along the window, minute by minute.
    #[test]
    fn each_minute_is_in_a_window_or_not() {
        for (text, length) in [
            ("09:00-17:00", 480),
            ("22:00-06:00", 480),
            ("23:59-00:01", 2),
            ("00:00-24:00", 1440),
            ("00:00-00:01", 1),
            ("23:59-00:00", 1),
            ("23:59-24:00", 1),
            ("12:01-12:00", 1439),
        ] {
            let window: Window = text.parse().unwrap();
            let from = minute(text.split_once('-').unwrap().0).unwrap();
            let inside: Vec<u16> = (from..from + length).map(|minute| minute % MINUTES_A_DAY).collect();
            for minute in 0..MINUTES_A_DAY {
                assert_eq!(window.contains(of_day(minute)), inside.contains(&minute), "{text} at {minute}");
            }
        }
    }

    #[test]
    fn the_next_window_is_the_nearest_one_over_midnight_too() {
        let windows = windows(&["01:30-02:00", "12:00-13:00"]);
        for (time, minutes) in [("00:00", 90), ("02:00", 600), ("11:59", 1), ("13:00", 750), ("23:59", 91)] {
            assert_eq!(windows.opens_in(at(time)), Some(Duration::from_secs(minutes * 60)), "{time}");
        }
        for time in ["01:30", "01:59", "12:00"] {
            assert!(windows.contain(at(time)));
            assert_eq!(windows.opens_in(at(time)), Some(Duration::ZERO), "{time}");
        }
        assert!(!windows.contain(at("02:00")));
    }

    #[test]
    fn a_window_tells_when_it_closes_over_midnight_too() {
        let windows = windows(&["22:00-06:00", "05:00-07:00", "12:00-12:01"]);
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        for (time, left, all) in [("22:00", 480, 480), ("23:59", 361, 480), ("04:59", 61, 480), ("05:30", 90, 120)] {
            assert_eq!(windows.closes_in(at(time)), Some((minutes(left), minutes(all))), "{time}");
        }
        assert_eq!(windows.closes_in(at("08:00")), None);
        assert_eq!(Windows::default().closes_in(at("08:00")), None);
        let day = Windows(vec!["00:00-24:00".parse().unwrap()]);
        assert_eq!(day.closes_in(at("00:00")).unwrap().1, minutes(1440));
    }

    #[test]
    fn without_windows_it_is_always_time() {
        let always = Windows::default();
        assert!(always.contain(at("00:00")) && always.contain(at("23:59")));
        assert_eq!(always.opens_in(at("12:00")), None);
    }

    #[test]
    fn what_is_no_window_is_refused() {
        for text in [
            "",
            "-",
            "22:00",
            "22-6",
            "22:00-",
            "-06:00",
            "22:00-06:60",
            "25:00-06:00",
            "24:00-06:00",
            "24:01-06:00",
            "22:0-06:00",
            "+2:00-06:00",
            "22:00-06:00-07:00",
            "022:00-06:00",
            "é2:00-06:00",
        ] {
            assert_eq!(text.parse::<Window>(), Err(WindowError::NotAWindow), "{text}");
        }
        for text in ["06:00-06:00", "00:00-00:00", "0:00-00:00"] {
            assert_eq!(text.parse::<Window>(), Err(WindowError::Empty), "{text}");
        }
        assert_eq!("9:30 - 17:00".parse::<Window>(), "09:30-17:00".parse());
    }
}
