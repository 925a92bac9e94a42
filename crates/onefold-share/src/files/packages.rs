//! The packages to which files belong: each name, version and architecture of all images gets one number.

use std::collections::HashMap;

use onefold_guest::packages::Package;

/// Maximum number of packages that are told apart. Further ones count as [`PackageNames::OTHERS`]: only a hostile guest
/// has so many.
const PACKAGES_MAX: usize = 1 << 20;
/// Maximum number of characters that are kept of a name.
const NAME_CHARS_MAX: usize = 200;

/// Approximate memory of a name beside its text, in bytes.
const NAME_COST_BYTES: usize = 100;

/// The packages of all images.
#[derive(Debug)]
pub(super) struct PackageNames {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Bytes left for further names.
    bytes_left: usize,
    /// How often a package was counted as one of the others, because there was no room for its name.
    refused: u64,
}

impl PackageNames {
    /// The number of files of no package, and of packages that are not told apart.
    pub(super) const OTHERS: u32 = 0;

    /// Returns an empty list of names, which will take at most this many bytes. Further packages count as others.
    pub(super) fn new(bytes_max: usize) -> PackageNames {
        PackageNames {
            names: vec!["files of no package".to_owned()],
            numbers: HashMap::new(),
            bytes_left: bytes_max,
            refused: 0,
        }
    }

    /// Returns the name of a package. Packages of equal name, version and architecture have one name.
    pub(super) fn name_of(package: &Package) -> String {
        let Package { name, version, architecture, .. } = package;
        let whole = [name, version, architecture].map(|part| part.chars().take(NAME_CHARS_MAX).collect::<String>());
        whole.join(" ")
    }

    /// Returns the number of the package with a name of [`PackageNames::name_of`].
    pub(super) fn number_of(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        self.add(name).unwrap_or_else(|| {
            self.refused += 1;
            PackageNames::OTHERS
        })
    }

    /// Returns how often a package was counted as one of the others, because there was no room for its name.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Adds a name. Returns its number, if there is room for it.
    fn add(&mut self, name: &str) -> Option<u32> {
        let number = u32::try_from(self.names.len()).ok().filter(|_| self.names.len() < PACKAGES_MAX)?;
        // The name is kept twice.
        let bytes = name.len().saturating_mul(2).saturating_add(NAME_COST_BYTES);
        self.bytes_left = self.bytes_left.checked_sub(bytes)?;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        Some(number)
    }

    /// Returns the name of a package: name, version and architecture. The text comes from a guest.
    pub(super) fn name(&self, number: u32) -> &str {
        usize::try_from(number).ok().and_then(|at| self.names.get(at)).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use onefold_guest::packages::PackageState;

    use super::*;

    fn name(name: &str, version: &str) -> String {
        let [name, version, architecture] = [name, version, "amd64"].map(str::to_owned);
        let state = PackageState::Installed;
        PackageNames::name_of(&Package { name, version, architecture, state, installed_bytes: None })
    }

    #[test]
    fn names_take_bounded_memory_and_known_ones_keep_their_numbers() {
        let mut names = PackageNames::new(10_000);
        let numbers: Vec<u32> = (0..1000).map(|at| names.number_of(&name(&format!("{at:0200}"), "1"))).collect();
        // Each takes 2 * 208 + 100 bytes.
        assert_eq!(numbers.iter().filter(|number| **number != PackageNames::OTHERS).count(), 19);
        assert_eq!(names.refused(), 1000 - 19);
        assert_eq!(names.number_of(&name(&format!("{:0200}", 3), "1")), 4);
    }

    #[test]
    fn equal_packages_have_one_number() {
        let mut names = PackageNames::new(1 << 20);
        let numbers = [("a", "1"), ("a", "2"), ("b", "1"), ("a", "1")]
            .map(|(package, version)| names.number_of(&name(package, version)));
        assert_eq!(numbers, [1, 2, 3, 1]);
        assert_eq!((names.name(2), names.name(0), names.name(9)), ("a 2 amd64", "files of no package", ""));
        let long = names.number_of(&name(&"ü".repeat(100_000), "1"));
        assert_eq!(names.name(long).chars().count(), NAME_CHARS_MAX + " 1 amd64".len());
    }
}
