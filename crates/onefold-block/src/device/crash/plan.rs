//! Which crash images are made of a recording.

use std::fmt;

use super::fate::{Fate, SECTORS_PER_BLOCK, mix};
use super::gap::gaps;
use crate::device::Event;
use crate::random::SeededRandom;

/// Which crash images to make of a recording. The same plan makes the same images in the same order.
///
/// Between two syncs the events are a *gap*. The number of images grows with the number of events and not with its
/// square: what the singles leave out of the middle of a gap, the random subsets draw from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashPlan {
    /// Decides everything that is random, and what discarded blocks read as.
    pub seed: u64,
    /// Each prefix of the stream, with nothing of it lost.
    pub prefixes: bool,
    /// At the end of each gap: each of its changes lost and all others there, and each of them alone there.
    pub singles: bool,
    /// In how many ways each write is torn, both as the last one begun and with the rest of its gap there: after the
    /// first sector, before the last, before all but the first, after all but the last, then at random.
    pub torn_splits: u32,
    /// Images of each gap, cut at a random place, in which each change is there, lost or torn by chance.
    pub random_subsets_per_gap: u32,
    /// Which of those images are really made.
    pub sample: Sample,
}

/// A choice among the images of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// All of them.
    All,
    /// Image number `offset` and every `step`-th after it: several threads can share a plan.
    EveryNth {
        /// Distance between two images; 0 counts as 1.
        step: usize,
        /// The first image.
        offset: usize,
    },
    /// So many, drawn by the plan's seed, or all if there are fewer.
    AtMost(usize),
    /// The one of this number: to replay a failure.
    Only(usize),
}

impl CrashPlan {
    /// Returns a plan that makes images of every kind.
    #[must_use]
    pub const fn with_seed(seed: u64) -> CrashPlan {
        CrashPlan {
            seed,
            prefixes: true,
            singles: true,
            torn_splits: 4,
            random_subsets_per_gap: 8,
            sample: Sample::All,
        }
    }

    /// Returns the images of a stream of events, in the order of their gaps and cuts.
    pub(super) fn specs(&self, events: &[Event]) -> Vec<Spec> {
        let mut specs = Vec::new();
        for (gap, range) in gaps(events).into_iter().enumerate() {
            let first = specs.len();
            let changes: Vec<usize> = range.clone().filter(|index| events[*index].is_change()).collect();
            if self.prefixes {
                let next_changes = |cut: usize| events.get(cut).is_none_or(Event::is_change);
                let cuts = (range.start..=range.end).filter(|cut| next_changes(*cut));
                specs.extend(cuts.map(|cut| (gap, cut, Shape::Prefix)));
            }
            for (place, &index) in changes.iter().enumerate() {
                let is_last = place + 1 == changes.len();
                if self.singles && changes.len() > 1 {
                    specs.push((gap, range.end, Shape::AllBut { event: index, fate: Fate::Lost }));
                    specs.push((gap, range.end, Shape::Only(index)));
                }
                for split in 0..self.torn_splits {
                    let sectors = sectors_of(&events[index]);
                    if sectors == 0 {
                        break;
                    }
                    let fate = Fate::torn(split, sectors, mix(mix(self.seed, index), split as usize));
                    specs.push((gap, range.end, Shape::AllBut { event: index, fate }));
                    if !is_last {
                        specs.push((gap, index + 1, Shape::AllBut { event: index, fate }));
                    }
                }
            }
            if !changes.is_empty() {
                let random = SeededRandom::new(mix(!self.seed, gap));
                for _ in 0..self.random_subsets_per_gap {
                    let begun = usize::try_from(random.below(changes.len() as u64)).expect("below a length");
                    specs.push((gap, changes[begun] + 1, Shape::Subset { seed: random.next_u64() }));
                }
            }
            specs[first..].sort_by_key(|(_, cut, _)| *cut);
        }
        let numbered = specs.into_iter().enumerate();
        let numbered = numbered.map(|(number, (gap, cut, shape))| Spec { number, gap, cut, shape });
        self.sample.of(self.seed, numbered.collect())
    }
}

impl Sample {
    fn of(self, seed: u64, mut specs: Vec<Spec>) -> Vec<Spec> {
        match self {
            Sample::All => {}
            Sample::EveryNth { step, offset } => {
                specs = specs.into_iter().skip(offset).step_by(step.max(1)).collect();
            }
            Sample::AtMost(count) if count < specs.len() => {
                specs.sort_by_key(|spec| mix(seed, spec.number));
                specs.truncate(count);
                specs.sort_by_key(|spec| spec.number);
            }
            Sample::AtMost(_) => {}
            Sample::Only(number) => specs.retain(|spec| spec.number == number),
        }
        specs
    }
}

/// One crash image to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    /// Its place in the unsampled plan.
    pub(super) number: usize,
    pub(super) gap: usize,
    /// How many events had begun when the power failed.
    pub(super) cut: usize,
    pub(super) shape: Shape,
}

/// What of a gap before the cut is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Prefix,
    /// All, except that one event has another fate.
    AllBut {
        event: usize,
        fate: Fate,
    },
    Only(usize),
    Subset {
        seed: u64,
    },
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Prefix => f.write_str("all of them there"),
            Shape::AllBut { event, fate } => write!(f, "event {event} {fate}"),
            Shape::Only(event) => write!(f, "event {event} alone there of those since the last sync"),
            Shape::Subset { seed } => write!(f, "a random part of those since the last sync there, seed {seed:#x}"),
        }
    }
}

/// Returns the sectors that an event writes.
pub(super) fn sectors_of(event: &Event) -> usize {
    match event {
        Event::Write { blocks, .. } => blocks.len() * SECTORS_PER_BLOCK,
        Event::Discard { .. } | Event::Sync | Event::Mark(_) => 0,
    }
}
