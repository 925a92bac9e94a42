//! The images that a power cut may leave of a recorded device.
//!
//! A disk may lose, tear at a sector or reorder all writes that no sync has covered. Writes that a sync covered are
//! present. Each image shares all but a few blocks with the others, so that a million of them fit in memory.

mod fate;
mod gap;
mod plan;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::vec;

use fate::{EventFate, mix};
use gap::{Gap, apply, blocks_of, gaps};
pub use plan::{CrashPlan, Sample};
use plan::{CrashSpec, GapShape, sectors_of};

use crate::device::{Event, MemoryDevice, MemoryImage, Recording};
use onefold_block::random::SeededRandom;

/// The device as one power cut left it.
#[derive(Debug)]
pub struct CrashImage {
    /// The device after power returned; it may be written to.
    pub device: MemoryDevice,
    /// Number of events that had begun when the power failed. Those before the last sync among them are complete.
    pub cut: usize,
    number: usize,
    seed: u64,
    shape: GapShape,
    last_mark: Option<u64>,
}

impl CrashImage {
    /// Returns the tag of the last mark before the cut: all promises up to it must hold.
    #[must_use]
    pub const fn last_mark(&self) -> Option<u64> {
        self.last_mark
    }

    /// Returns the image's number in its plan; [`Sample::Only`] makes it again.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.number
    }

    /// Returns a sentence that describes the power cut and how to reproduce it.
    #[must_use]
    pub fn description(&self) -> String {
        let CrashImage { cut, number, seed, shape, .. } = self;
        format!("crash image {number} of the plan with seed {seed}: power failed after {cut} events, {shape}")
    }
}

/// The crash images of a recording, each made on demand.
#[derive(Debug)]
pub struct CrashImages<'a> {
    recording: &'a Recording,
    plan: CrashPlan,
    specs: vec::IntoIter<CrashSpec>,
    gaps: Vec<Range<usize>>,
    gap_index: usize,
    gap: Gap<'a>,
    /// The image at the start of the gap: everything before is durable.
    base: MemoryImage,
    /// The image after the first `prefix_cut` events with nothing lost.
    prefix: MemoryImage,
    prefix_cut: usize,
    last_mark: Option<u64>,
}

impl Recording {
    /// Returns the images that a power cut may have left at any moment of the recording, as selected by `plan`.
    #[must_use]
    pub fn crash_images(&self, plan: CrashPlan) -> CrashImages<'_> {
        let gaps = gaps(self.events());
        CrashImages {
            recording: self,
            plan,
            specs: plan.specs(self.events()).into_iter(),
            gap: Gap::new(self.events(), gaps[0].clone()),
            gaps,
            gap_index: 0,
            base: self.start().clone(),
            prefix: self.start().clone(),
            prefix_cut: 0,
            last_mark: None,
        }
    }

    /// Returns the device's content after its first `cut` events with nothing lost. Discarded blocks read as `plan`
    /// decides.
    #[must_use]
    pub fn image_after(&self, cut: usize, plan: &CrashPlan) -> MemoryImage {
        let mut image = self.start().clone();
        for (index, event) in self.events().iter().enumerate().take(cut) {
            apply(event, index, &mut image, plan.seed);
        }
        image
    }
}

impl CrashImages<'_> {
    fn advance_to_gap(&mut self, gap: usize) {
        if gap != self.gap_index {
            self.advance_prefix(self.gaps[gap].start);
            self.base = self.prefix.clone();
            self.gap = Gap::new(self.recording.events(), self.gaps[gap].clone());
            self.gap_index = gap;
        }
    }

    fn advance_prefix(&mut self, cut: usize) {
        let events = self.recording.events().iter().enumerate();
        for (index, event) in events.take(cut).skip(self.prefix_cut) {
            apply(event, index, &mut self.prefix, self.plan.seed);
            if let Event::Mark(tag) = event {
                self.last_mark = Some(*tag);
            }
        }
        self.prefix_cut = cut;
    }

    /// Returns the content that `shape` leaves. The prefix must be at the cut.
    fn content(&self, shape: GapShape) -> MemoryImage {
        let (events, cut) = (self.recording.events(), self.prefix_cut);
        let mut image = match shape {
            GapShape::Prefix | GapShape::AllBut { .. } => self.prefix.clone(),
            GapShape::Only { .. } | GapShape::Subset { .. } => self.base.clone(),
        };
        match shape {
            GapShape::Prefix => {}
            GapShape::AllBut { event, fate } => {
                let fate_of = |index| if index == event { fate } else { EventFate::Whole };
                for block in blocks_of(&events[event]) {
                    self.gap.settle(&mut image, &self.base, block, cut, self.plan.seed, fate_of);
                }
            }
            GapShape::Only { event, fate } => {
                let fate_of = |index| if index == event { fate } else { EventFate::Lost };
                for block in blocks_of(&events[event]) {
                    self.gap.settle(&mut image, &self.base, block, cut, self.plan.seed, fate_of);
                }
            }
            GapShape::Subset { seed } => {
                let fate_of = |index: usize| match sectors_of(&events[index]) {
                    0 => EventFate::random_whole(mix(seed, index)),
                    sectors => EventFate::random(&SeededRandom::new(mix(seed, index)), sectors),
                };
                for block in self.gap.blocks() {
                    self.gap.settle(&mut image, &self.base, block, cut, seed, fate_of);
                }
            }
        }
        image
    }
}

impl Iterator for CrashImages<'_> {
    type Item = CrashImage;

    fn next(&mut self) -> Option<CrashImage> {
        let CrashSpec { number, gap, cut, shape } = self.specs.next()?;
        self.advance_to_gap(gap);
        self.advance_prefix(cut);
        let device = MemoryDevice::from(self.content(shape));
        Some(CrashImage { device, cut, number, seed: self.plan.seed, shape, last_mark: self.last_mark })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.specs.size_hint()
    }
}

impl ExactSizeIterator for CrashImages<'_> {}
