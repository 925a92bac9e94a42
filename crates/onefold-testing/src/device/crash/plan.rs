//! Selects the crash images to make of a recording.

use std::fmt;

use super::fate::{EventFate, SECTORS_PER_BLOCK, mix};
use super::gap::gaps;
use crate::device::Event;
use onefold_block::random::SeededRandom;

/// Selects the crash images to make of a recording. The same plan makes the same images in the same order.
///
/// The events between two syncs are a *gap*. The number of images grows with the number of events, not with its square:
/// the random subsets sample the combinations within a gap that the singles leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashPlan {
    /// Decides all random choices, and what discarded blocks read as.
    pub seed: u64,
    /// Each prefix of the stream, with none of it lost.
    pub prefixes: bool,
    /// At the end of each gap: each of its changes lost with all others present, and each of them alone.
    pub singles: bool,
    /// Number of ways in which each write is torn, both as the last one begun and with the rest of its gap present. The
    /// order is: after the first sector, before the last, before all but the first, after all but the last, then at
    /// random.
    pub torn_splits: u32,
    /// At the end of each gap: each sector of each of its writes lost with everything else present, and each of them
    /// alone. Also each write, as the last one begun, torn after each of its sectors.
    pub sectors: bool,
    /// Number of images of each gap, cut at a random place, in which chance decides whether each change is present,
    /// lost or torn.
    pub random_subsets_per_gap: u32,
    /// The part of those images that is made.
    pub sample: Sample,
}

/// A choice among the images of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// All images.
    All,
    /// Image number `offset` and every `step`-th after it, so that several threads can share a plan.
    EveryNth {
        /// Distance between two images; 0 counts as 1.
        step: usize,
        /// The first image.
        offset: usize,
    },
    /// At most this many: first every prefix, then equal numbers of images that differ by whole events, by single
    /// sectors and by random subsets, drawn by the plan's seed.
    AtMost(usize),
    /// The image of this number, to replay a failure.
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
            sectors: true,
            random_subsets_per_gap: 8,
            sample: Sample::All,
        }
    }

    /// Returns the images of a stream of events, in the order of their gaps and cuts.
    pub(super) fn specs(&self, events: &[Event]) -> Vec<CrashSpec> {
        let mut specs = Vec::new();
        for (gap, range) in gaps(events).into_iter().enumerate() {
            let first = specs.len();
            let changes: Vec<usize> = range.clone().filter(|index| events[*index].is_change()).collect();
            if self.prefixes {
                let next_changes = |cut: usize| events.get(cut).is_none_or(Event::is_change);
                let cuts = (range.start..=range.end).filter(|cut| next_changes(*cut));
                specs.extend(cuts.map(|cut| (gap, cut, GapShape::Prefix)));
            }
            for (place, &index) in changes.iter().enumerate() {
                let is_last = place + 1 == changes.len();
                if self.singles && changes.len() > 1 {
                    specs.push((gap, range.end, GapShape::AllBut { event: index, fate: EventFate::Lost }));
                    specs.push((gap, range.end, GapShape::Only { event: index, fate: EventFate::Whole }));
                }
                for split in 0..self.torn_splits {
                    let sectors = sectors_of(&events[index]);
                    if sectors == 0 {
                        break;
                    }
                    let fate = EventFate::torn(split, sectors, mix(mix(self.seed, index), split as usize));
                    specs.push((gap, range.end, GapShape::AllBut { event: index, fate }));
                    if !is_last {
                        specs.push((gap, index + 1, GapShape::AllBut { event: index, fate }));
                    }
                }
            }
            for &index in changes.iter().filter(|_| self.sectors) {
                let sectors = sectors_of(&events[index]);
                for sector in 0..sectors {
                    let (lost, alone) = (EventFate::WithoutSector(sector), EventFate::OneSector(sector));
                    specs.push((gap, range.end, GapShape::AllBut { event: index, fate: lost }));
                    specs.push((gap, range.end, GapShape::Only { event: index, fate: alone }));
                    if sector > 0 {
                        specs.push((
                            gap,
                            index + 1,
                            GapShape::AllBut { event: index, fate: EventFate::FirstSectors(sector) },
                        ));
                    }
                }
            }
            if !changes.is_empty() {
                let random = SeededRandom::new(mix(!self.seed, gap));
                for _ in 0..self.random_subsets_per_gap {
                    let begun = usize::try_from(random.below(changes.len() as u64)).expect("below a length");
                    specs.push((gap, changes[begun] + 1, GapShape::Subset { seed: random.next_u64() }));
                }
            }
            specs[first..].sort_by_key(|(_, cut, _)| *cut);
        }
        let numbered = specs.into_iter().enumerate();
        let numbered = numbered.map(|(number, (gap, cut, shape))| CrashSpec { number, gap, cut, shape });
        self.sample.of(self.seed, numbered.collect())
    }
}

impl Sample {
    fn of(self, seed: u64, mut specs: Vec<CrashSpec>) -> Vec<CrashSpec> {
        match self {
            Sample::All => {}
            Sample::EveryNth { step, offset } => {
                specs = specs.into_iter().skip(offset).step_by(step.max(1)).collect();
            }
            Sample::AtMost(count) if count < specs.len() => return draw(seed, specs, count),
            Sample::AtMost(_) => {}
            Sample::Only(number) => specs.retain(|spec| spec.number == number),
        }
        specs
    }
}

/// Draws `count` specs out of more, as [`Sample::AtMost`] describes.
fn draw(seed: u64, specs: Vec<CrashSpec>, count: usize) -> Vec<CrashSpec> {
    let mut kinds: [Vec<CrashSpec>; GapShape::KINDS] = Default::default();
    for spec in specs {
        kinds[spec.shape.kind()].push(spec);
    }
    for kind in &mut kinds {
        kind.sort_by_key(|spec| mix(seed, spec.number));
    }
    let [mut drawn, mut others @ ..] = kinds;
    drawn.truncate(count);
    // The smallest kind comes first: the larger ones share what it leaves of its quota.
    others.sort_by_key(Vec::len);
    let mut left = others.len();
    for mut kind in others {
        kind.truncate((count - drawn.len()).div_ceil(left));
        drawn.append(&mut kind);
        left -= 1;
    }
    drawn.sort_by_key(|spec| spec.number);
    drawn
}

/// A crash image to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CrashSpec {
    /// Its place in the unsampled plan.
    pub(super) number: usize,
    pub(super) gap: usize,
    /// Number of events that had begun when the power failed.
    pub(super) cut: usize,
    pub(super) shape: GapShape,
}

/// The part of a gap before the cut that is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GapShape {
    Prefix,
    /// All, except for one event with another fate.
    AllBut {
        event: usize,
        fate: EventFate,
    },
    /// One event alone, with its fate.
    Only {
        event: usize,
        fate: EventFate,
    },
    Subset {
        seed: u64,
    },
}

impl GapShape {
    const KINDS: usize = 4;

    /// Returns the kind of the image, as [`Sample::AtMost`] distinguishes them; 0 is a prefix.
    const fn kind(self) -> usize {
        match self {
            GapShape::Prefix => 0,
            GapShape::AllBut {
                fate: EventFate::WithoutSector(_) | EventFate::OneSector(_) | EventFate::FirstSectors(_),
                ..
            }
            | GapShape::Only { fate: EventFate::OneSector(_), .. } => 2,
            GapShape::AllBut { .. } | GapShape::Only { .. } => 1,
            GapShape::Subset { .. } => 3,
        }
    }
}

impl fmt::Display for GapShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GapShape::Prefix => f.write_str("all of them there"),
            GapShape::AllBut { event, fate } => write!(f, "event {event} {fate}"),
            GapShape::Only { event, fate } => {
                write!(f, "event {event} {fate}, alone there of those since the last sync")
            }
            GapShape::Subset { seed } => write!(f, "a random part of those since the last sync there, seed {seed:#x}"),
        }
    }
}

/// Returns the number of sectors that an event writes.
pub(super) fn sectors_of(event: &Event) -> usize {
    match event {
        Event::Write { blocks, .. } => blocks.len() * SECTORS_PER_BLOCK,
        Event::Discard { .. } | Event::Sync | Event::Mark(_) => 0,
    }
}
