//! Counts how the blocks of each owner are shared. Contents come in order.

use super::survey::ImageSurvey;

/// Blocks of an owner that are not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnerCount {
    /// Contents that other images also have.
    pub(super) shared: u64,
    /// Contents that no other image has.
    pub(super) only_here: u64,
    /// Repetitions within the image.
    pub(super) repeated: u64,
}

/// A block with the current content: image, block and owner.
pub(crate) type OwnedPlace = (usize, u64, u16);

/// Places of a content: the first one, and some with other images or owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnedPlaces {
    places: [OwnedPlace; 4],
    count: usize,
}

impl OwnedPlaces {
    fn note(&mut self, place: OwnedPlace) {
        let is_like = |kept: &OwnedPlace| (kept.0, kept.2) == (place.0, place.2);
        if !self.list().iter().any(is_like)
            && let Some(free) = self.places.get_mut(self.count)
        {
            *free = place;
            self.count += 1;
        }
    }

    /// Returns the places.
    pub(crate) fn list(&self) -> &[OwnedPlace] {
        self.places.get(..self.count).unwrap_or_default()
    }
}

/// Counts of all images, and the current content.
#[derive(Debug, Default)]
pub(crate) struct OwnerCounts {
    /// By image and number of the owner. Empty for images that do not count.
    images: Vec<Vec<OwnerCount>>,
    /// The first block of the content in each image that has it.
    firsts: Vec<(usize, u16)>,
    places: OwnedPlaces,
}

impl OwnerCounts {
    /// Returns counts for images that have these owners.
    pub(crate) fn new<'s>(surveys: impl Iterator<Item = Option<&'s ImageSurvey>>) -> OwnerCounts {
        let counts =
            |survey: Option<&ImageSurvey>| vec![OwnerCount::default(); survey.map_or(0, ImageSurvey::owners_count)];
        OwnerCounts { images: surveys.map(counts).collect(), ..OwnerCounts::default() }
    }

    /// Takes a block of the current content. Blocks come in the order of their places.
    pub(crate) fn take(&mut self, (image, index, owner): OwnedPlace) {
        if self.firsts.last().is_some_and(|first| first.0 == image) {
            if let Some(count) = self.count(image, owner) {
                count.repeated += 1;
            }
        } else {
            self.firsts.push((image, owner));
        }
        self.places.note((image, index, owner));
    }

    /// Counts the current content, all of whose blocks were taken, and starts another one. Returns some of its places.
    pub(crate) fn close(&mut self) -> OwnedPlaces {
        let is_shared = self.firsts.len() > 1;
        let mut firsts = std::mem::take(&mut self.firsts);
        for (image, owner) in firsts.drain(..) {
            if let Some(count) = self.count(image, owner) {
                count.shared += u64::from(is_shared);
                count.only_here += u64::from(!is_shared);
            }
        }
        // The list keeps its memory.
        self.firsts = firsts;
        std::mem::take(&mut self.places)
    }

    fn count(&mut self, image: usize, owner: u16) -> Option<&mut OwnerCount> {
        self.images.get_mut(image)?.get_mut(usize::from(owner))
    }

    /// Returns the counts of an image, by the number of the owner.
    pub(super) fn of_image(&self, image: usize) -> &[OwnerCount] {
        self.images.get(image).map_or(&[], Vec::as_slice)
    }
}
