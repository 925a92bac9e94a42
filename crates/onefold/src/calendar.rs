//! Days and times of files, in UTC: prints and parses them.

const SECONDS_PER_DAY: i64 = 86_400;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_EPOCH: i64 = 719_468;
/// Days of 400 years, after which the calendar repeats.
const DAYS_PER_ERA: i64 = 146_097;

/// Parses a day such as `2026-11-01`, optionally with a time such as `T12:30` or `T12:30:05`. Returns seconds since
/// 1970.
pub(crate) fn parse(text: &str) -> Result<i64, String> {
    let expected = || "expected a time such as 2026-11-01 or 2026-11-01T12:30".to_owned();
    let (day, time) = text.split_once(['T', ' ']).map_or((text, None), |(day, time)| (day, Some(time)));
    let [year, month, day] = numbers(day, '-').ok_or_else(expected)?;
    if !(0..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=days_of(year, month)).contains(&day) {
        return Err("there is no such day".to_owned());
    }
    let seconds = match time.map(|time| time.trim_end_matches('Z')) {
        None => 0,
        Some(time) => {
            let [hours, minutes, seconds] = match time.matches(':').count() {
                1 => numbers(time, ':').map(|[hours, minutes]| [hours, minutes, 0]),
                _ => numbers(time, ':'),
            }
            .ok_or_else(expected)?;
            if hours > 23 || minutes > 59 || seconds > 59 {
                return Err("there is no such time".to_owned());
            }
            (hours * 60 + minutes) * 60 + seconds
        }
    };
    Ok(days_since_epoch(year, month, day) * SECONDS_PER_DAY + seconds)
}

/// Returns the day and minute of a time in seconds since 1970, as `2026-11-01 12:30`.
pub(crate) fn minute(seconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(SECONDS_PER_DAY));
    let minutes = seconds.rem_euclid(SECONDS_PER_DAY) / 60;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", minutes / 60, minutes % 60)
}

/// Returns a time in seconds since 1970 in the form of ISO 8601, `2026-11-01T12:30:05Z`.
pub(crate) fn iso(seconds: i64) -> String {
    let (year, month, day) = civil(seconds.div_euclid(SECONDS_PER_DAY));
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Returns year, month, day, hour, minute and second of a time in seconds since 1970.
pub(crate) fn parts(seconds: i64) -> [i64; 6] {
    let (year, month, day) = civil(seconds.div_euclid(SECONDS_PER_DAY));
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    [year, month, day, second / 3600, second / 60 % 60, second % 60]
}

/// Returns the numbers between `separator`, if there are `N`, all made of digits.
fn numbers<const N: usize>(text: &str, separator: char) -> Option<[i64; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split(separator);
    for number in &mut numbers {
        let part = parts.next()?;
        let is_number = (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = is_number.then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(numbers)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the number of a day of the Gregorian calendar, counted from 1970-01-01. Years count from March, so that a
/// leap day is the last day.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_PER_ERA + day_of_era - DAYS_TO_EPOCH
}

/// Returns year, month and day of a day counted from 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_EPOCH;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("1969-12-31T23:59", -60),
            ("2000-02-29T12:30:05", 951_827_405),
            ("2026-11-01", 1_793_491_200),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(parse(text), Ok(seconds), "{text}");
            assert!(iso(seconds).starts_with(text.trim_end_matches('Z')), "{text}: {}", iso(seconds));
        }
        assert_eq!(minute(1_793_491_200 + 45_061), "2026-11-01 12:31");
    }

    #[test]
    fn every_day_comes_back() {
        let mut days = days_since_epoch(1890, 1, 1);
        for year in 1890..2410 {
            for month in 1..=12 {
                for day in 1..=days_of(year, month) {
                    assert_eq!((days_since_epoch(year, month, day), civil(days)), (days, (year, month, day)));
                    days += 1;
                }
            }
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "2026", "2026-13-01", "2026-02-29", "2026-11-01T24:00", "2026-11-01T1", "2026-1-1-1", "x-1-1"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn any_number_is_a_time() {
        for seconds in [i64::MIN, i64::MAX, i64::MIN + 1] {
            assert!(iso(seconds).ends_with('Z') && !minute(seconds).is_empty());
        }
    }
}
