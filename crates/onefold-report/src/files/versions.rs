//! Which images have which versions of a package, in bounded memory.

use std::collections::BTreeMap;

use super::analysis::{PackageVersion, PackageVersions};

/// Memory of a package, and of a version, besides its text.
const NAME_BYTES: usize = 100;
/// Memory of an image that has a version.
const IMAGE_BYTES: usize = 8;

/// The versions of the packages of all images.
#[derive(Debug)]
pub(super) struct Versions {
    /// Images by package and version.
    packages: BTreeMap<String, BTreeMap<String, Vec<u32>>>,
    bytes_left: usize,
    image: u32,
    is_full: bool,
}

impl Versions {
    /// Returns an empty list that takes about `memory_bytes`.
    pub(super) fn new(memory_bytes: usize) -> Versions {
        Versions { packages: BTreeMap::new(), bytes_left: memory_bytes, image: 0, is_full: false }
    }

    /// Begins with the packages of an image.
    pub(super) fn begin(&mut self, image: usize) {
        self.image = u32::try_from(image).unwrap_or(u32::MAX);
        self.is_full = false;
    }

    /// Returns whether a package of the image at hand found no room.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Notes that the image at hand has a package. A package of several architectures counts once.
    pub(super) fn add(&mut self, name: &str, version: &str) {
        let known = self.packages.get_mut(name);
        let known_version = known.and_then(|versions| versions.get_mut(version));
        if let Some(images) = known_version {
            if images.last() != Some(&self.image) {
                match self.bytes_left.checked_sub(IMAGE_BYTES) {
                    Some(left) => {
                        self.bytes_left = left;
                        images.push(self.image);
                    }
                    None => self.is_full = true,
                }
            }
            return;
        }
        let Some(left) = self.bytes_left.checked_sub(2 * NAME_BYTES + name.len() + version.len()) else {
            self.is_full = true;
            return;
        };
        self.bytes_left = left;
        self.packages.entry(name.to_owned()).or_default().insert(version.to_owned(), vec![self.image]);
    }

    /// Returns the packages with several versions among the images that `name_of` has a name for.
    pub(super) fn several(&self, name_of: &dyn Fn(usize) -> Option<String>) -> Vec<PackageVersions> {
        let version = |(version, images): (&String, &Vec<u32>)| {
            let images = images.iter().filter_map(|image| name_of(usize::try_from(*image).ok()?)).collect();
            PackageVersion { version: version.clone(), images }
        };
        let package = |(name, versions): (&String, &BTreeMap<String, Vec<u32>>)| {
            if versions.len() < 2 {
                return None;
            }
            let mut versions: Vec<PackageVersion> = versions.iter().map(version).collect();
            versions.retain(|version| !version.images.is_empty());
            versions.sort_by_key(|version| std::cmp::Reverse(version.images.len()));
            (versions.len() > 1).then(|| PackageVersions { name: name.clone(), versions })
        };
        self.packages.iter().filter_map(package).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_in_several_versions_are_told_and_the_usual_version_first() {
        let mut versions = Versions::new(1 << 20);
        for (image, found) in [("1", "2"), ("1", "3"), ("1", "3"), ("1", "4")].iter().enumerate() {
            versions.begin(image);
            versions.add("same", found.0);
            versions.add("other", found.1);
            versions.add("other", found.1);
        }
        let name_of = |image: usize| (image != 3).then(|| format!("image-{image}"));
        let several = versions.several(&name_of);
        let [package] = &several[..] else { panic!("{several:?}") };
        assert_eq!(package.name, "other");
        let told: Vec<(&str, usize)> =
            package.versions.iter().map(|at| (at.version.as_str(), at.images.len())).collect();
        assert_eq!(told, [("3", 2), ("2", 1)]);
    }

    #[test]
    fn a_million_packages_take_no_more_memory_than_they_may() {
        let mut versions = Versions::new(10_000);
        versions.begin(0);
        for number in 0..1_000_000 {
            versions.add(&format!("package-{number}"), "1");
        }
        assert!(versions.is_full());
        assert!(versions.packages.len() < 50);
    }
}
