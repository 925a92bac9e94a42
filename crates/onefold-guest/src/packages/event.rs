//! The history of packages: installations, upgrades and removals, with their times.

use std::fmt;

use crate::filesystem::Timestamp;

/// A time of the guest's clock. The logs of package managers contain no time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocalTime {
    /// The year, four digits.
    pub year: u16,
    /// The month, from 1.
    pub month: u8,
    /// The day, from 1.
    pub day: u8,
    /// The hour, below 24.
    pub hour: u8,
    /// The minute, below 60.
    pub minute: u8,
    /// The second, up to 60.
    pub second: u8,
}

impl LocalTime {
    /// Parses a time such as `2026-11-01 12:34:56`.
    pub(super) fn parse(text: &[u8]) -> Option<LocalTime> {
        let [date @ .., b' ', h1, h2, b':', m1, m2, b':', s1, s2] = text else { return None };
        let [y1, y2, y3, y4, b'-', mo1, mo2, b'-', d1, d2] = date else { return None };
        let two = |high: &u8, low: &u8| {
            (high.is_ascii_digit() && low.is_ascii_digit()).then(|| (high - b'0') * 10 + (low - b'0'))
        };
        let time = LocalTime {
            year: u16::from(two(y1, y2)?) * 100 + u16::from(two(y3, y4)?),
            month: two(mo1, mo2)?,
            day: two(d1, d2)?,
            hour: two(h1, h2)?,
            minute: two(m1, m2)?,
            second: two(s1, s2)?,
        };
        let is_date = (1..=12).contains(&time.month) && (1..=31).contains(&time.day);
        (is_date && time.hour < 24 && time.minute < 60 && time.second <= 60).then_some(time)
    }
}

impl fmt::Display for LocalTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LocalTime { year, month, day, hour, minute, second } = self;
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }
}

/// When the present version of a package was installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstallationTime {
    /// According to the package manager's log.
    Logged(LocalTime),
    /// According to the modification time of its list of files, if the log does not reach that far back.
    ListWritten(Timestamp),
}

/// A change of one package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageEvent {
    /// When it began.
    pub time: LocalTime,
    /// The action.
    pub action: PackageAction,
    /// The name of the package.
    pub package: String,
    /// Its architecture, if the log has it.
    pub architecture: Option<String>,
    /// The version before, if there was one.
    pub version_before: Option<String>,
    /// The version after, if there is one.
    pub version_after: Option<String>,
}

/// An action on a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PackageAction {
    /// The package was not installed before.
    Install,
    /// Another version, or the same version again, replaced the installed one.
    Upgrade,
    /// It was removed; its configuration files stay.
    Remove,
    /// It was removed with its configuration files.
    Purge,
}

impl PackageAction {
    /// Returns the word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PackageAction::Install => "install",
            PackageAction::Upgrade => "upgrade",
            PackageAction::Remove => "remove",
            PackageAction::Purge => "purge",
        }
    }
}

impl fmt::Display for PackageAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_and_written_in_one_form() {
        let text = "2026-11-01 12:34:56";
        assert_eq!(LocalTime::parse(text.as_bytes()).unwrap().to_string(), text);
        for wrong in [
            "",
            "2026-11-01 12:34:5",
            "2026-13-01 12:34:56",
            "2026-00-01 12:34:56",
            "2026-11-32 12:34:56",
            "2026-11-01 24:00:00",
            "2026-11-01T12:34:56",
            "2026-1a-01 12:34:56",
            "12026-11-01 12:34:56",
        ] {
            assert_eq!(LocalTime::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
