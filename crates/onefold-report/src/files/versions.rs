//! Finds the versions of each package in all images, in bounded memory.

use std::collections::BTreeMap;

use super::analysis::{PackageVersion, PackageVersions};

/// Memory of a package, and of a version, without its text.
const NAME_BYTES: usize = 100;
/// Memory of an image that has a version.
const IMAGE_BYTES: usize = 8;
/// Memory of the name of an image in a result, without its text.
const STRING_BYTES: usize = 24;
/// Number of copies of such a name in memory: in the result, and in the document that is made of it.
const COPIES: usize = 2;

/// The versions of the packages of all images.
#[derive(Debug)]
pub(super) struct Versions {
    /// Images by package and version.
    packages: BTreeMap<String, BTreeMap<String, Vec<u32>>>,
    bytes_left: usize,
    /// The length of each image's name.
    name_bytes: Vec<usize>,
    image: u32,
    is_full: bool,
}

impl Versions {
    /// Returns an empty list. It takes about `memory_bytes`, including the names of images in its result, whose lengths
    /// are `name_bytes`.
    pub(super) fn new(memory_bytes: usize, name_bytes: Vec<usize>) -> Versions {
        Versions { packages: BTreeMap::new(), bytes_left: memory_bytes, name_bytes, image: 0, is_full: false }
    }

    /// Begins the packages of an image.
    pub(super) fn begin(&mut self, image: usize) {
        self.image = u32::try_from(image).unwrap_or(u32::MAX);
        self.is_full = false;
    }

    /// Returns whether the current image has a package for which there was no memory.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Records a package of the current image. A package of several architectures counts once.
    pub(super) fn add(&mut self, name: &str, version: &str) {
        let of_version = 2 * NAME_BYTES + name.len() + version.len();
        let bytes = match self.packages.get(name) {
            None => of_version,
            Some(versions) => match versions.get(version) {
                Some(images) if images.last() == Some(&self.image) => return,
                Some(_) if versions.len() > 1 => IMAGE_BYTES + self.told_bytes(self.image),
                Some(_) => IMAGE_BYTES,
                None => {
                    // With its second version, a package enters the result, and so do all images with that package.
                    let before = versions.values().filter(|_| versions.len() == 1).flatten();
                    let told = before.map(|image| self.told_bytes(*image)).fold(0, usize::saturating_add);
                    of_version.saturating_add(self.told_bytes(self.image)).saturating_add(told)
                }
            },
        };
        let Some(left) = self.bytes_left.checked_sub(bytes) else {
            self.is_full = true;
            return;
        };
        self.bytes_left = left;
        let versions = self.packages.entry(name.to_owned()).or_default();
        versions.entry(version.to_owned()).or_default().push(self.image);
    }

    /// Returns the memory for the name of an image in each version of the result that lists it.
    fn told_bytes(&self, image: u32) -> usize {
        let name_bytes = usize::try_from(image).ok().and_then(|at| self.name_bytes.get(at)).copied().unwrap_or(0);
        COPIES * (STRING_BYTES + name_bytes)
    }

    /// Returns the packages with several versions among the images for which `name_of` returns a name.
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
        let mut versions = Versions::new(1 << 20, vec![7; 4]);
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
        let mut versions = Versions::new(10_000, vec![7]);
        versions.begin(0);
        for number in 0..1_000_000 {
            versions.add(&format!("package-{number}"), "1");
        }
        assert!(versions.is_full());
        assert!(versions.packages.len() < 50);
    }

    #[test]
    fn names_of_images_take_no_more_memory_than_they_may() {
        for second in [false, true] {
            let mut versions = Versions::new(10_000, vec![1000; 100]);
            let mut was_full = false;
            for image in 0..100 {
                versions.begin(image);
                versions.add("package", if second && image % 2 == 1 { "2" } else { "1" });
                was_full |= versions.is_full();
            }
            let several = versions.several(&|_| Some("n".repeat(1000)));
            let told: usize = several.iter().flat_map(|package| &package.versions).map(|at| at.images.len()).sum();
            assert_eq!((was_full, told), (second, if second { 4 } else { 0 }));
        }
    }
}
