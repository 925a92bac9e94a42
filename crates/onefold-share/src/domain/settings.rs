//! Settings of an administrator: which domains are joined, and which users run machines.
//!
//! The file `domains` in the state folder. Plain text, one rule a line:
//!
//! ```text
//! # Files of the users 1000 and 1001 are one domain.
//! join 1000 1001 = staff
//! # User 900 runs machines: a file that is given to that user keeps its domain.
//! machine-users 900
//! ```
//!
//! Users are given by number, as the file system stores them: other hosts may know them by other names. The file must
//! belong to the user that runs the command, and nobody else may be able to write to it.

use std::collections::{BTreeMap, BTreeSet};

use onefold_substrate::{Protection, UserNo};

use super::{Domain, DomainName, DomainNameError};

/// Name of the file in the state folder.
pub const FILE: &str = "domains";
/// Maximum length of the file, in bytes.
pub(crate) const BYTES_MAX: usize = 64 << 10;
/// Permission bits that let others write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Settings of an administrator for a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    joined: BTreeMap<Domain, DomainName>,
    machine_users: BTreeSet<u32>,
}

/// Why settings are not used. Without them nothing is shared, because they may keep files apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The file belongs to another user.
    #[error("it belongs to user {owner}, not to user {expected}; look at it, and `chown {expected}` it")]
    Foreign {
        /// Its owner's user number.
        owner: u32,
        /// The user number of the process.
        expected: u32,
    },
    /// Others may write to the file.
    #[error("others may write to it (mode {mode:o}); look at it, and `chmod 600` it")]
    Writable {
        /// Its permission bits.
        mode: u32,
    },
    /// The file has other names, by which others may reach it.
    #[error("it has {names} names; make it anew, with one")]
    Linked {
        /// The number of names.
        names: u32,
    },
    /// The file is too long.
    #[error("it is longer than {BYTES_MAX} bytes")]
    Long,
    /// A line is invalid.
    #[error("line {line}: {why}")]
    Line {
        /// Its number, from 1 on.
        line: usize,
        /// The error.
        why: LineError,
    },
}

/// The error in a line of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It is not a rule.
    #[error("lines are `join DOMAIN... = NAME`, `machine-users NUMBER...`, or begin with `#`")]
    Unknown,
    /// It is not text.
    #[error("it is not text")]
    NotText,
    /// A word should be a domain.
    #[error("{0}")]
    Domain(#[from] DomainNameError),
    /// A word should be the number of a user.
    #[error("users stand here by number")]
    NotUser,
    /// A domain is joined twice, or others are joined into a domain that is joined itself.
    #[error("a domain is joined once, into one that is not joined itself")]
    JoinedTwice,
}

impl Settings {
    /// Returns the settings in a file's bytes.
    ///
    /// # Errors
    /// `Long`, `Line`.
    pub fn parse(bytes: &[u8]) -> Result<Settings, SettingsError> {
        if bytes.len() > BYTES_MAX {
            return Err(SettingsError::Long);
        }
        let mut settings = Settings::default();
        for (line, number) in bytes.split(|byte| *byte == b'\n').zip(1..) {
            settings.add(line).map_err(|why| SettingsError::Line { line: number, why })?;
        }
        Ok(settings)
    }

    fn add(&mut self, line: &[u8]) -> Result<(), LineError> {
        let line = std::str::from_utf8(line).map_err(|_| LineError::NotText)?;
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            None => Ok(()),
            Some(word) if word.starts_with('#') => Ok(()),
            Some("join") => {
                let words: Vec<&str> = words.collect();
                let [domains @ .., "=", name] = words.as_slice() else { return Err(LineError::Unknown) };
                if domains.is_empty() {
                    return Err(LineError::Unknown);
                }
                self.join(domains, &name.parse()?)
            }
            Some("machine-users") => {
                let users = words.map(|word| match word.parse::<Domain>() {
                    Ok(Domain::Owner(user)) => Ok(user),
                    _ => Err(LineError::NotUser),
                });
                let users: Vec<u32> = users.collect::<Result<_, _>>()?;
                if users.is_empty() {
                    return Err(LineError::NotUser);
                }
                self.machine_users.extend(users);
                Ok(())
            }
            Some(_) => Err(LineError::Unknown),
        }
    }

    fn join(&mut self, domains: &[&str], name: &DomainName) -> Result<(), LineError> {
        for domain in domains {
            let domain: Domain = domain.parse()?;
            let is_target = |domain: &Domain| self.joined.values().any(|into| *domain == Domain::Named(into.clone()));
            // A domain stays in one that has its name.
            if domain == Domain::Named(name.clone()) {
                continue;
            }
            if is_target(&domain) || self.joined.contains_key(&Domain::Named(name.clone())) {
                return Err(LineError::JoinedTwice);
            }
            if self.joined.insert(domain, name.clone()).is_some_and(|before| before != *name) {
                return Err(LineError::JoinedTwice);
            }
        }
        Ok(())
    }

    /// Returns the domain into which a domain is joined; `None` if it stands for itself.
    #[must_use]
    pub fn joined(&self, domain: &Domain) -> Option<Domain> {
        self.joined.get(domain).map(|name| Domain::Named(name.clone()))
    }

    /// Returns the numbers of users that run machines, beside those of libvirt.
    #[must_use]
    pub(crate) fn machine_users(&self) -> &BTreeSet<u32> {
        &self.machine_users
    }
}

/// Checks that only a user can have written a file.
pub(crate) fn check_trust(found: &Protection, user: UserNo) -> Result<(), SettingsError> {
    let Protection { owner, mode, links } = *found;
    if owner != user {
        return Err(SettingsError::Foreign { owner: owner.0, expected: user.0 });
    }
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(SettingsError::Writable { mode });
    }
    if links != 1 {
        return Err(SettingsError::Linked { names: u32::try_from(links).unwrap_or(u32::MAX) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use onefold_block::random::SeededRandom;

    use super::*;

    fn domain(text: &str) -> Domain {
        text.parse().unwrap()
    }

    #[test]
    fn rules_join_domains_and_name_users() {
        let text = "# a comment\n\n join 1000 1001 = staff\r\njoin lab staff 0 = staff\nmachine-users 900 901\nmachine-users 7";
        let settings = Settings::parse(text.as_bytes()).unwrap();
        for (from, into) in [("1000", "staff"), ("1001", "staff"), ("lab", "staff"), ("0", "staff")] {
            assert_eq!(settings.joined(&domain(from)), Some(domain(into)), "{from}");
        }
        for alone in ["1002", "staff", "other"] {
            assert_eq!(settings.joined(&domain(alone)), None, "{alone}");
        }
        assert_eq!(*settings.machine_users(), BTreeSet::from([7, 900, 901]));
        assert_eq!(Settings::parse(b"").unwrap(), Settings::default());
    }

    #[test]
    fn lines_that_say_nothing_clear_are_refused_by_their_number() {
        let twice = LineError::JoinedTwice;
        for (text, line, why) in [
            ("join", 1, LineError::Unknown),
            ("\njoin 1 2 staff", 2, LineError::Unknown),
            ("join = staff", 1, LineError::Unknown),
            ("join 1 =", 1, LineError::Unknown),
            ("join 1 = staff # why", 1, LineError::Unknown),
            ("#\n\nJoin 1 = staff", 3, LineError::Unknown),
            ("join 1 = 2", 1, LineError::Domain(DomainNameError::First)),
            ("join 1 = owner", 1, LineError::Domain(DomainNameError::Reserved)),
            ("join 1/2 = staff", 1, LineError::Domain(DomainNameError::Character)),
            ("join 4294967296 = staff", 1, LineError::Domain(DomainNameError::First)),
            ("join 1 = a\njoin 1 = b", 2, twice),
            ("join 1 = a\njoin a = b", 2, twice),
            ("join a = b\njoin 1 = a", 2, twice),
            ("machine-users", 1, LineError::NotUser),
            ("machine-users qemu", 1, LineError::NotUser),
            ("machine-users -1", 1, LineError::NotUser),
        ] {
            assert_eq!(Settings::parse(text.as_bytes()), Err(SettingsError::Line { line, why }), "{text:?}");
        }
        assert_eq!(Settings::parse(b"join 1 = a\n\xff"), Err(SettingsError::Line { line: 2, why: LineError::NotText }));
        assert_eq!(Settings::parse(&vec![b'\n'; BYTES_MAX + 1]), Err(SettingsError::Long));
    }

    /// Any text gives settings or an error, and never settings that join a domain into one that is joined itself.
    #[test]
    fn hostile_settings_are_refused_or_clear() {
        let words = ["join", "machine-users", "=", "1", "2", "a", "b", "c", "#", "\n", "\n", "owner", "\0", "\u{e9}"];
        let random = SeededRandom::new(5);
        for _ in 0..20_000 {
            let count = random.below(16);
            let text: Vec<&str> = (0..count).map(|_| words[usize::try_from(random.below(14)).unwrap()]).collect();
            let Ok(settings) = Settings::parse(text.join(" ").as_bytes()) else { continue };
            for into in settings.joined.values() {
                assert_eq!(settings.joined(&Domain::Named(into.clone())), None, "{text:?}");
            }
        }
    }

    #[test]
    fn only_a_file_that_nobody_else_can_have_written_is_trusted() {
        for ((owner, user), mode, links, trusted) in [
            ((0, 0), 0o600, 1, Ok(())),
            ((0, 0), 0o644, 1, Ok(())),
            ((1000, 1000), 0o600, 1, Ok(())),
            ((1000, 0), 0o600, 1, Err(SettingsError::Foreign { owner: 1000, expected: 0 })),
            ((0, 1000), 0o600, 1, Err(SettingsError::Foreign { owner: 0, expected: 1000 })),
            ((0, 0), 0o620, 1, Err(SettingsError::Writable { mode: 0o620 })),
            ((0, 0), 0o602, 1, Err(SettingsError::Writable { mode: 0o602 })),
            ((0, 0), 0o600, 2, Err(SettingsError::Linked { names: 2 })),
        ] {
            let found = Protection { owner: UserNo(owner), mode, links };
            assert_eq!(check_trust(&found, UserNo(user)), trusted);
        }
    }
}
