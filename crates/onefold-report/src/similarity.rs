//! Similarity of images: the number of contents that each two have in common, and an order that places similar images
//! together.

use std::collections::HashMap;

/// Number of images that are compared with each other: the first ones.
pub(crate) const COMPARED_MAX: usize = 64;
/// Maximum number of sets of images that are kept before they are counted by pairs.
const SETS_MAX: usize = 1 << 16;

/// Numbers of common contents, for each two of the first images.
#[derive(Debug)]
pub(crate) struct Overlaps {
    compared: usize,
    /// Number of contents that are in exactly these images (one bit each). There are far fewer sets than contents.
    sets: HashMap<u64, u64>,
    common: Vec<u64>,
}

impl Overlaps {
    pub(crate) fn new(images: usize) -> Overlaps {
        let compared = images.min(COMPARED_MAX);
        Overlaps { compared, sets: HashMap::new(), common: vec![0; compared * compared] }
    }

    /// Adds a content of the images `holders`.
    pub(crate) fn add(&mut self, holders: &[usize]) {
        let set = holders.iter().filter(|&&image| image < self.compared).fold(0_u64, |set, image| set | 1 << image);
        if set == 0 {
            return;
        }
        *self.sets.entry(set).or_default() += 1;
        if self.sets.len() > SETS_MAX {
            self.settle();
        }
    }

    /// Counts the sets that were collected so far.
    pub(crate) fn settle(&mut self) {
        for (set, count) in self.sets.drain() {
            let members: Vec<usize> = (0..self.compared).filter(|image| set & (1 << image) != 0).collect();
            for &one in &members {
                for &other in &members {
                    self.common[one * self.compared + other] += count;
                }
            }
        }
    }

    /// Returns how many contents two images have in common; for an image and itself, the number of its contents.
    pub(crate) fn common(&self, one: usize, other: usize) -> u64 {
        self.common[one * self.compared + other]
    }

    /// Returns the similarity of two images: contents that both have, divided by those that at least one of them has.
    /// From 0 to 1; images without any content are equal.
    pub(crate) fn likeness(&self, one: usize, other: usize) -> f64 {
        let both = self.common(one, other);
        let any = self.common(one, one) + self.common(other, other) - both;
        if any == 0 { 1.0 } else { both as f64 / any as f64 }
    }

    /// Returns the images in an order that places similar ones next to each other: repeatedly merges the two most
    /// similar clusters (average linkage).
    pub(crate) fn order(&self) -> Vec<usize> {
        let mut clusters: Vec<Vec<usize>> = (0..self.compared).map(|image| vec![image]).collect();
        while clusters.len() > 1 {
            let mut nearest = (0, 1, -1.0);
            for one in 0..clusters.len() {
                for other in one + 1..clusters.len() {
                    let likeness = self.linkage(&clusters[one], &clusters[other]);
                    if likeness > nearest.2 {
                        nearest = (one, other, likeness);
                    }
                }
            }
            let joined = clusters.remove(nearest.1);
            clusters[nearest.0].extend(joined);
        }
        clusters.pop().unwrap_or_default()
    }

    fn linkage(&self, ones: &[usize], others: &[usize]) -> f64 {
        let sum: f64 = ones.iter().flat_map(|&one| others.iter().map(move |&other| self.likeness(one, other))).sum();
        sum / (ones.len() * others.len()) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_counted_however_often_sets_are_settled() {
        let mut overlaps = Overlaps::new(3);
        overlaps.add(&[0, 1]);
        overlaps.settle();
        overlaps.add(&[0, 1]);
        overlaps.add(&[0, 1, 2]);
        overlaps.add(&[2]);
        overlaps.settle();
        assert_eq!(overlaps.common(0, 1), 3);
        assert_eq!((overlaps.common(0, 2), overlaps.common(2, 0), overlaps.common(2, 2)), (1, 1, 2));
        assert!((overlaps.likeness(0, 1) - 1.0).abs() < 1e-9);
        assert!((overlaps.likeness(0, 2) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn images_beyond_the_first_are_left_out() {
        let mut overlaps = Overlaps::new(100);
        overlaps.add(&[1, 80]);
        overlaps.add(&[80, 90]);
        overlaps.settle();
        assert_eq!(overlaps.compared, COMPARED_MAX);
        assert_eq!(overlaps.common(1, 1), 1);
    }

    #[test]
    fn the_like_stand_beside_each_other() {
        let mut overlaps = Overlaps::new(4);
        for _ in 0..10 {
            overlaps.add(&[0, 2]);
            overlaps.add(&[1, 3]);
        }
        overlaps.add(&[0, 1, 2, 3]);
        overlaps.settle();
        assert_eq!(overlaps.order(), [0, 2, 1, 3]);
        assert!(Overlaps::new(0).order().is_empty());
    }

    #[test]
    fn images_of_zeros_only_are_alike() {
        let overlaps = Overlaps::new(2);
        assert!((overlaps.likeness(0, 1) - 1.0).abs() < 1e-9);
    }
}
