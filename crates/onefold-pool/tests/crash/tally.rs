//! Numbers of the tried images.

use std::fmt;
use std::time::Duration;

use onefold_testing::device::MemoryImage;

/// An image that breaks a promise.
pub(crate) struct Failure {
    pub(crate) problem: String,
    pub(crate) image: MemoryImage,
}

/// The number of tried images, and how long their recovery took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    images: u64,
    /// Number of images of recoveries that were themselves interrupted.
    of_recoveries: u64,
    recoveries: Vec<Duration>,
}

impl Tally {
    /// Returns how many images were tried.
    pub(crate) fn images(&self) -> u64 {
        self.images
    }

    /// Counts an image of the workload, with the time of its recovery.
    pub(crate) fn note(&mut self, took: Duration) {
        self.images += 1;
        self.recoveries.push(took);
    }

    /// Counts images of recoveries. The first recovery is that of an image already counted.
    pub(crate) fn note_nested(&mut self, took: &[Duration]) {
        let images = took.len().saturating_sub(1) as u64;
        self.images += images;
        self.of_recoveries += images;
        self.recoveries.extend_from_slice(took);
    }

    /// Adds another tally.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.images += other.images;
        self.of_recoveries += other.of_recoveries;
        self.recoveries.extend_from_slice(&other.recoveries);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut recoveries = self.recoveries.clone();
        recoveries.sort_unstable();
        let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1000.0);
        let (median, worst) = (ms(recoveries.get(recoveries.len() / 2)), ms(recoveries.last()));
        write!(
            f,
            "{} images, {} of them of recoveries that were cut; recovery took {median:.2} ms (median), {worst:.2} ms (worst)",
            self.images, self.of_recoveries
        )
    }
}
