//! The list of packages (`status`): paragraphs of fields, with an empty line between two (deb-control(5)).
//!
//! | field | is |
//! |---|---|
//! | `Package`, `Version`, `Architecture` | the package |
//! | `Status` | three words: what is wanted, a flag, and how far it is installed |
//! | `Installed-Size` | KiB |
//! | `Conffiles` | a line for each configuration file: path, digest, and flags such as `obsolete` |
//!
//! A line that begins with a blank continues the field above.

use std::collections::HashMap;

use super::super::{Package, PackageState};
use crate::tree::{Problem, ProblemLog};

/// Maximum number of packages. The largest distribution has about 70,000.
pub(super) const PACKAGES_MAX: usize = 150_000;
/// Maximum length of a name, version or architecture.
const WORD_BYTES_MAX: usize = 1024;

/// The packages of all texts, each once.
#[derive(Default)]
pub(super) struct Records {
    packages: Vec<Package>,
    /// In the order of the packages.
    details: Vec<Details>,
    known: HashMap<(String, String), usize>,
}

#[derive(Default)]
struct Details {
    conffiles: Vec<u8>,
    file_name: Option<Vec<u8>>,
}

/// A package with the data that only dpkg's files need.
#[derive(Clone, Copy)]
pub(super) struct Record<'r> {
    pub(super) package: &'r Package,
    /// The lines of the field `Conffiles`.
    pub(super) conffiles: &'r [u8],
    /// The file in `status.d` that describes it.
    pub(super) file_name: Option<&'r [u8]>,
}

/// The fields of a paragraph.
#[derive(Default)]
struct Paragraph<'t> {
    package: &'t [u8],
    version: &'t [u8],
    architecture: &'t [u8],
    status: Option<&'t [u8]>,
    installed_size: &'t [u8],
    conffiles: Vec<u8>,
    line: u64,
}

impl Records {
    /// Adds the packages of a text. A later record of a package replaces an earlier one.
    pub(super) fn add(&mut self, text: &[u8], file_name: Option<&[u8]>, path: &[u8], problems: &ProblemLog) {
        each_paragraph(text, &mut |paragraph| {
            if self.packages.len() >= PACKAGES_MAX {
                problems.note(Problem::of_file(path, "more packages than are read"));
                return;
            }
            match package_of(&paragraph) {
                Ok(found) => self.insert(
                    found,
                    Details { conffiles: paragraph.conffiles, file_name: file_name.map(<[u8]>::to_vec) },
                ),
                Err(problem) => problems.note_line(path, paragraph.line, problem),
            }
        });
    }

    /// Adds a package, or removes one that is no longer installed.
    fn insert(&mut self, found: (Package, bool), details: Details) {
        let (package, is_there) = found;
        let key = (package.name.clone(), package.architecture.clone());
        match self.known.get(&key).copied() {
            Some(known) => {
                if let (Some(old), Some(old_details)) = (self.packages.get_mut(known), self.details.get_mut(known)) {
                    *old = package;
                    *old_details = details;
                    if !is_there {
                        old.name.clear();
                        self.known.remove(&key);
                    }
                }
            }
            None if is_there => {
                self.known.insert(key, self.packages.len());
                self.packages.push(package);
                self.details.push(details);
            }
            None => {}
        }
    }

    /// Sorts the packages. Nothing may be added afterwards.
    pub(super) fn sort(&mut self) {
        self.known = HashMap::new();
        let packages = std::mem::take(&mut self.packages).into_iter();
        let mut both: Vec<_> = packages.zip(std::mem::take(&mut self.details)).collect();
        both.retain(|(package, _)| !package.name.is_empty());
        both.sort_by(|(one, _), (two, _)| (&one.name, &one.architecture).cmp(&(&two.name, &two.architecture)));
        (self.packages, self.details) = both.into_iter().unzip();
    }

    pub(super) fn packages(&self) -> &[Package] {
        &self.packages
    }

    pub(super) fn get(&self, index: usize) -> Option<Record<'_>> {
        let (package, details) = (self.packages.get(index)?, self.details.get(index)?);
        Some(Record { package, conffiles: &details.conffiles, file_name: details.file_name.as_deref() })
    }
}

/// Calls `visit` with each paragraph of a text.
fn each_paragraph<'t>(text: &'t [u8], visit: &mut dyn FnMut(Paragraph<'t>)) {
    let mut paragraph = Paragraph { line: 1, ..Paragraph::default() };
    let mut is_empty = true;
    let mut is_in_conffiles = false;
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.trim_ascii().is_empty() {
            if !std::mem::replace(&mut is_empty, true) {
                visit(std::mem::take(&mut paragraph));
            }
            paragraph.line = number + 1;
            is_in_conffiles = false;
        } else if line.starts_with(b" ") || line.starts_with(b"\t") {
            if is_in_conffiles {
                paragraph.conffiles.extend_from_slice(line.trim_ascii());
                paragraph.conffiles.push(b'\n');
            }
        } else {
            is_empty = false;
            is_in_conffiles = paragraph.set(line);
        }
    }
    if !is_empty {
        visit(paragraph);
    }
}

impl<'t> Paragraph<'t> {
    /// Takes the value of a line with a field. Returns whether the lines below it list configuration files.
    fn set(&mut self, line: &'t [u8]) -> bool {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
        let value = line.get(colon + 1..).unwrap_or_default().trim_ascii();
        match line.get(..colon).unwrap_or_default() {
            b"Package" => self.package = value,
            b"Version" => self.version = value,
            b"Architecture" => self.architecture = value,
            b"Status" => self.status = Some(value),
            b"Installed-Size" => self.installed_size = value,
            b"Conffiles" => return true,
            _ => {}
        }
        false
    }
}

/// Returns the package of a paragraph, and whether any part of it is on the system.
fn package_of(paragraph: &Paragraph<'_>) -> Result<(Package, bool), &'static str> {
    let name = word(paragraph.package)?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/') {
        return Err("a package has no name, or one that no package can have");
    }
    // Images without dpkg have no status: all listed packages are installed.
    let state = match paragraph.status {
        None => Some(PackageState::Installed),
        Some(status) => state_of(status)?,
    };
    let kibibytes = std::str::from_utf8(paragraph.installed_size).ok().and_then(|digits| digits.parse::<u64>().ok());
    let package = Package {
        name,
        version: word(paragraph.version)?,
        architecture: word(paragraph.architecture)?,
        state: state.unwrap_or(PackageState::ConfigurationOnly),
        installed_bytes: kibibytes.and_then(|count| count.checked_mul(1024)),
    };
    Ok((package, state.is_some()))
}

/// Returns the state of a package from its status; `None` if no part of it is installed.
fn state_of(status: &[u8]) -> Result<Option<PackageState>, &'static str> {
    let state = status.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).nth(2);
    match state {
        Some(b"installed" | b"triggers-awaited" | b"triggers-pending") => Ok(Some(PackageState::Installed)),
        Some(b"half-installed" | b"unpacked" | b"half-configured") => Ok(Some(PackageState::Partial)),
        Some(b"config-files") => Ok(Some(PackageState::ConfigurationOnly)),
        Some(b"not-installed") => Ok(None),
        _ => Err("a package has an unknown status"),
    }
}

fn word(value: &[u8]) -> Result<String, &'static str> {
    if value.len() > WORD_BYTES_MAX {
        return Err("a package has a name, version or architecture that is too long");
    }
    Ok(String::from_utf8_lossy(value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &[u8] = b"Package: zlib1g\nStatus: install ok installed\nMulti-Arch: same\nArchitecture: i386\n\
        Version: 1:1.2\nInstalled-Size: 12\n\nPackage: zlib1g\nStatus: install ok triggers-pending\n\
        Architecture: amd64\nVersion: 1:1.2\n\n\nPackage: bash\nStatus: install ok unpacked\nArchitecture: amd64\n\
        Version: 5.2\nConffiles:\n /etc/bash.bashrc 89269e1298235f1b12b4c16e4065ad0d\n /etc/skel/.profile 0 obsolete\n\
        Description: shell\n with more text\n .\n Package: not this one\n\n\
        Package: gone\nStatus: deinstall ok not-installed\nArchitecture: all\n\n\
        Package: left\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n\n\
        Package: odd\nStatus: x\n\nVersion: 7\n\nPackage: a/b\nVersion: 1";

    fn records(texts: &[&[u8]]) -> (Records, Vec<String>) {
        let (mut records, problems) = (Records::default(), ProblemLog::default());
        for text in texts {
            records.add(text, None, b"status", &problems);
        }
        records.sort();
        (records, problems.first().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn packages_come_in_order_with_their_state() {
        let (records, problems) = records(&[STATUS]);
        let found: Vec<_> = records
            .packages()
            .iter()
            .map(|package| {
                (package.name.as_str(), package.architecture.as_str(), package.version.as_str(), package.state)
            })
            .collect();
        let expected = [
            ("bash", "amd64", "5.2", PackageState::Partial),
            ("left", "all", "1", PackageState::ConfigurationOnly),
            ("zlib1g", "amd64", "1:1.2", PackageState::Installed),
            ("zlib1g", "i386", "1:1.2", PackageState::Installed),
        ];
        assert_eq!(found, expected);
        assert_eq!(records.packages()[3].installed_bytes, Some(12 << 10));
        let conffiles = b"/etc/bash.bashrc 89269e1298235f1b12b4c16e4065ad0d\n/etc/skel/.profile 0 obsolete\n";
        assert_eq!(records.get(0).unwrap().conffiles, conffiles);
        let expected = [
            "status, line 35: a package has an unknown status",
            "status, line 38: a package has no name, or one that no package can have",
            "status, line 40: a package has no name, or one that no package can have",
        ];
        assert_eq!(problems, expected);
    }

    #[test]
    fn a_later_record_takes_the_place_of_an_earlier_one() {
        let first = b"Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n\n\
            Package: b\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n";
        let update = b"Package: a\nStatus: install ok half-configured\nArchitecture: all\nVersion: 2\n\n\
            Package: b\nStatus: purge ok not-installed\nArchitecture: all\n";
        let (records, problems) = records(&[first, update]);
        assert!(problems.is_empty());
        let [package] = records.packages() else { panic!("{:?}", records.packages()) };
        assert_eq!((package.version.as_str(), package.state), ("2", PackageState::Partial));
    }
}
