//! Tracks each group's free blocks: their number, and an upper bound of their longest run.
//!
//! A search for free blocks asks here first, and reads only the bitmaps of groups that may have what it needs. One scan
//! of a group's bitmaps gives both numbers. From then on they follow each change: allocated blocks lower the number,
//! freed blocks raise it, and the run that freed blocks join raises the bound.
//!
//! Invariants, for a known group:
//! 1. `free` is the number of its blocks that are neither used nor busy.
//! 2. `longest` is at least the length of its longest run of free blocks that data may take, or [`LONG_RUN`] if that is
//!    less. It may be too high: after an allocation, the remaining blocks are not scanned.
//!
//! After a crash there are also *hints*: what was known of a group some time before. They may be wrong, so they only
//! tell a search which of the unknown groups to look at first. A hint goes with the first change of its group.
//!
//! This takes four bytes per group, and four more for every 64 groups: half a mebibyte for a pool of 16 TiB. Hints take
//! as much again until all groups are known. Nothing is remembered of groups from [`GROUPS_MAX`] on.

use std::ops::Range;

use crate::format::geometry::GROUP_BLOCKS;
use crate::format::group_summaries::{GroupSummary, LONG_RUN};

/// Number of groups that one part summarises: a search can skip all of them at once.
const PART_GROUPS: usize = 64;
/// Maximum number of groups that are remembered: 512 TiB. A hostile pool that claims to be larger must not take memory
/// for it.
pub(crate) const GROUPS_MAX: usize = 1 << 22;
/// Marks an unknown group.
const UNKNOWN: GroupSummary = GroupSummary { longest: u16::MAX, free: u16::MAX };
const _: () = assert!(size_of::<GroupSummary>() == 4);

fn narrow(count: u64) -> u16 {
    u16::try_from(count).expect("a group has 32,768 blocks")
}

fn unless_unknown(known: GroupSummary) -> Option<GroupSummary> {
    (known != UNKNOWN).then_some(known)
}

/// The free blocks of all groups. All groups are unknown at first.
#[derive(Debug, Default)]
pub(crate) struct FreeRuns {
    /// Groups past the end are unknown.
    groups: Vec<GroupSummary>,
    parts: Vec<PartSummary>,
    /// The hints; of groups past the end there are none.
    hints: Vec<GroupSummary>,
}

/// The prospect of a search in an unknown group, by its hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// It had what the search needs.
    Good,
    /// There is no hint.
    Open,
    /// It lacked what the search needs.
    Poor,
}

impl Outlook {
    /// All, in the order in which a search should look at the groups.
    pub(crate) const BEST_FIRST: [Outlook; 3] = [Outlook::Good, Outlook::Open, Outlook::Poor];

    fn of(hint: Option<GroupSummary>, least: u64) -> Outlook {
        match hint {
            None => Outlook::Open,
            // The bound does not include blocks that were kept for metadata, but the number does.
            Some(hint) if u64::from(hint.longest) >= least.min(LONG_RUN) || least == 1 && hint.free > 0 => {
                Outlook::Good
            }
            Some(_) => Outlook::Poor,
        }
    }
}

/// Summary of [`PART_GROUPS`] groups.
#[derive(Clone, Copy, Debug, Default)]
struct PartSummary {
    /// The highest bound of a known group.
    longest: u16,
    known: u16,
    /// The highest bound and the highest number of a hint.
    hinted: u16,
    hinted_free: u16,
    /// Number of unknown groups with hints.
    hints: u16,
}

impl FreeRuns {
    /// Returns the known facts about a group, or `None`.
    pub(crate) fn get(&self, group: u64) -> Option<GroupSummary> {
        unless_unknown(*self.groups.get(usize::try_from(group).ok()?)?)
    }

    /// Returns the hint about an unknown group, if there is one.
    pub(crate) fn hint(&self, group: u64) -> Option<GroupSummary> {
        unless_unknown(*self.hints.get(usize::try_from(group).ok()?)?)
    }

    /// Sets the hint about a group, unless the group is known; `None` takes it away.
    pub(crate) fn set_hint(&mut self, group: u64, hint: Option<GroupSummary>) {
        if hint.is_some() && self.get(group).is_some() {
            return;
        }
        let at = usize::try_from(group).expect("a ready group is on the device");
        if at >= self.hints.len() {
            if hint.is_none() || at >= GROUPS_MAX {
                return;
            }
            self.reach(at);
            self.hints.resize(self.groups.len(), UNKNOWN);
        }
        let hint = hint.unwrap_or(UNKNOWN);
        if std::mem::replace(&mut self.hints[at], hint) == hint {
            return;
        }
        let first = at / PART_GROUPS * PART_GROUPS;
        let end = self.hints.len().min(first + PART_GROUPS);
        let part = &mut self.parts[at / PART_GROUPS];
        (part.hinted, part.hinted_free, part.hints) = (0, 0, 0);
        for hint in self.hints[first..end].iter().filter_map(|hint| unless_unknown(*hint)) {
            part.hinted = part.hinted.max(hint.longest);
            part.hinted_free = part.hinted_free.max(hint.free);
            part.hints += 1;
        }
    }

    /// Makes room for facts about a group.
    fn reach(&mut self, at: usize) {
        if at >= self.groups.len() {
            self.groups.resize(at + 1, UNKNOWN);
            self.parts.resize(self.groups.len().div_ceil(PART_GROUPS), PartSummary::default());
        }
    }

    /// Takes all hints away.
    pub(crate) fn forget_hints(&mut self) {
        if std::mem::take(&mut self.hints).is_empty() {
            return;
        }
        for part in &mut self.parts {
            (part.hinted, part.hinted_free, part.hints) = (0, 0, 0);
        }
    }

    /// Sets the known facts about a group; `None` forgets them. The group's hint goes in either case.
    pub(crate) fn set(&mut self, group: u64, known: Option<GroupSummary>) {
        self.set_hint(group, None);
        let at = usize::try_from(group).expect("a ready group is on the device");
        if at >= self.groups.len() {
            if known.is_none() || at >= GROUPS_MAX {
                return;
            }
            self.reach(at);
        }
        let before = unless_unknown(std::mem::replace(&mut self.groups[at], known.unwrap_or(UNKNOWN)));
        let part = &mut self.parts[at / PART_GROUPS];
        part.known = part.known + u16::from(known.is_some()) - u16::from(before.is_some());
        let (old, new) = (before.map_or(0, |known| known.longest), known.map_or(0, |known| known.longest));
        if new >= part.longest {
            part.longest = new;
        } else if old == part.longest {
            let first = at / PART_GROUPS * PART_GROUPS;
            let end = self.groups.len().min(first + PART_GROUPS);
            let known = self.groups[first..end].iter().filter_map(|known| unless_unknown(*known));
            part.longest = known.map(|known| known.longest).max().unwrap_or(0);
        }
    }

    /// Notes that free blocks of a group were allocated.
    pub(crate) fn take(&mut self, group: u64, count: u64) {
        let Some(known) = self.get(group) else { return self.set_hint(group, None) };
        let free = known.free.saturating_sub(narrow(count));
        self.set(group, Some(GroupSummary { free, longest: known.longest.min(free) }));
    }

    /// Notes that blocks of a group became free; the longest run that they join has `longest` blocks.
    pub(crate) fn release(&mut self, group: u64, count: u64, longest: u64) {
        let Some(known) = self.get(group) else { return self.set_hint(group, None) };
        // A hostile pool may have saved too high a number.
        let free = (u64::from(known.free) + count).min(GROUP_BLOCKS);
        let merged = GroupSummary::new(longest, free);
        self.set(group, Some(GroupSummary { longest: known.longest.max(merged.longest), free: merged.free }));
    }

    /// Returns the first of `groups` that is known and may have a run of `least` blocks.
    pub(crate) fn next_with(&self, groups: Range<u64>, least: u64) -> Option<u64> {
        let least = narrow(least.min(LONG_RUN));
        let has = |known: &GroupSummary| unless_unknown(*known).is_some_and(|known| known.longest >= least);
        self.next(groups, |part| part.longest >= least && part.known > 0, has)
    }

    /// Returns the first of `groups` that is not known.
    pub(crate) fn next_unknown(&self, groups: Range<u64>) -> Option<u64> {
        let behind = groups.start.max(self.groups.len() as u64);
        let end = groups.end;
        self.next(groups, |part| usize::from(part.known) < PART_GROUPS, |known| *known == UNKNOWN)
            .or_else(|| (behind < end).then_some(behind))
    }

    /// Returns the first of `groups` that is not known and has this outlook for a search of a run of `least` blocks.
    pub(crate) fn next_with_outlook(&self, groups: Range<u64>, least: u64, outlook: Outlook) -> Option<u64> {
        if self.hints.is_empty() {
            return if outlook == Outlook::Open { self.next_unknown(groups) } else { None };
        }
        let part_has = |part: &PartSummary| match outlook {
            Outlook::Good => u64::from(part.hinted) >= least.min(LONG_RUN) || least == 1 && part.hinted_free > 0,
            Outlook::Open => usize::from(part.known + part.hints) < PART_GROUPS,
            Outlook::Poor => part.hints > 0,
        };
        let mut from = groups.start;
        while let Some(group) = self.next(from..groups.end, part_has, |known| *known == UNKNOWN) {
            if Outlook::of(self.hint(group), least) == outlook {
                return Some(group);
            }
            from = group + 1;
        }
        let behind = groups.start.max(self.groups.len() as u64);
        (outlook == Outlook::Open && behind < groups.end).then_some(behind)
    }

    fn next(
        &self,
        groups: Range<u64>,
        part_has: impl Fn(&PartSummary) -> bool,
        has: impl Fn(&GroupSummary) -> bool,
    ) -> Option<u64> {
        let end = self.groups.len().min(usize::try_from(groups.end).unwrap_or(usize::MAX));
        let mut at = usize::try_from(groups.start).unwrap_or(usize::MAX);
        while at < end {
            let part_end = end.min((at / PART_GROUPS + 1) * PART_GROUPS);
            if part_has(&self.parts[at / PART_GROUPS])
                && let Some(found) = self.groups[at..part_end].iter().position(&has)
            {
                return Some((at + found) as u64);
            }
            at = part_end;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(longest: u16) -> Option<GroupSummary> {
        Some(GroupSummary { longest, free: 1000 })
    }

    #[test]
    fn groups_are_found_as_a_look_at_each_of_them_would() {
        let mut runs = FreeRuns::default();
        let mut plain: Vec<Option<GroupSummary>> = vec![None; 300];
        let mut seed = 7_u64;
        for round in 0..5000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (group, longest) = ((seed >> 33) % 300, u16::try_from((seed >> 50) % 9).unwrap());
            let value = if longest == 8 { None } else { known(longest) };
            runs.set(group, value);
            plain[usize::try_from(group).unwrap()] = value;
            let range = round % 300..300;
            let first = |has: &dyn Fn(Option<GroupSummary>) -> bool| {
                range.clone().find(|&group| has(plain[usize::try_from(group).unwrap()]))
            };
            for least in 1..9 {
                let expected = first(&|known| known.is_some_and(|known| u64::from(known.longest) >= least));
                assert_eq!(runs.next_with(range.clone(), least), expected);
            }
            assert_eq!(runs.next_unknown(range.clone()), first(&|known| known.is_none()));
        }
    }

    #[test]
    fn a_pool_that_claims_to_be_huge_takes_no_memory() {
        let mut runs = FreeRuns::default();
        runs.set(1 << 36, known(5));
        assert_eq!(
            (runs.groups.len(), runs.get(1 << 36), runs.next_unknown(1 << 36..1 << 37)),
            (0, None, Some(1 << 36))
        );
    }

    #[test]
    fn counts_follow_what_is_taken_and_released_and_bound_the_longest_run() {
        let mut runs = FreeRuns::default();
        runs.take(3, 5);
        runs.release(3, 5, 5);
        assert_eq!(runs.get(3), None, "of a group that is not known nothing becomes known");
        runs.set(3, Some(GroupSummary::new(40, 60)));
        runs.take(3, 30);
        assert_eq!(runs.get(3), Some(GroupSummary { longest: 30, free: 30 }));
        runs.release(3, 10, 10);
        assert_eq!(runs.get(3), Some(GroupSummary { longest: 30, free: 40 }));
        runs.release(3, 2, 9000);
        assert_eq!(runs.get(3), Some(GroupSummary { longest: 256, free: 42 }));
        assert_eq!((runs.next_with(0..9, 9000), runs.next_with(4..9, 1)), (Some(3), None));
    }

    #[test]
    fn groups_are_found_by_their_outlook_as_a_look_at_each_of_them_would() {
        let mut runs = FreeRuns::default();
        let mut plain: Vec<(Option<GroupSummary>, Option<GroupSummary>)> = vec![(None, None); 300];
        let mut seed = 7_u64;
        for round in 0..4000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (group, longest) = ((seed >> 33) % 260, u16::try_from((seed >> 50) % 9).unwrap());
            let value = Some(GroupSummary { longest, free: longest + u16::try_from((seed >> 54) % 2).unwrap() });
            let found = &mut plain[usize::try_from(group).unwrap()];
            match (seed >> 58) % 8 {
                0..5 => {
                    runs.set_hint(group, value);
                    found.1 = if found.0.is_some() { None } else { value };
                }
                5 => {
                    runs.set_hint(group, None);
                    found.1 = None;
                }
                6 => {
                    runs.set(group, value);
                    *found = (value, None);
                }
                _ => {
                    runs.set(group, None);
                    *found = (None, None);
                }
            }
            if round % 1000 == 999 {
                runs.forget_hints();
                plain.iter_mut().for_each(|found| found.1 = None);
            }
            let range = round % 300..300;
            for (least, outlook) in (1..5).flat_map(|least| Outlook::BEST_FIRST.map(|outlook| (least, outlook))) {
                let expected = range.clone().find(|&group| {
                    let (known, hint) = plain[usize::try_from(group).unwrap()];
                    known.is_none() && Outlook::of(hint, least) == outlook
                });
                assert_eq!(runs.next_with_outlook(range.clone(), least, outlook), expected, "round {round}");
            }
        }
    }

    #[test]
    fn hints_order_unknown_groups_and_go_with_the_first_change() {
        let mut runs = FreeRuns::default();
        for (group, longest, free) in [(0, 0, 0), (1, 0, 9), (2, 40, 60), (4, 0, 0), (5, 9, 9), (6, 9, 9)] {
            runs.set_hint(group, Some(GroupSummary { longest, free }));
        }
        let with = |runs: &FreeRuns, least, outlook| {
            let mut from = 0;
            let mut found = Vec::new();
            while let Some(group) = runs.next_with_outlook(from..9, least, outlook) {
                found.push(group);
                from = group + 1;
            }
            found
        };
        assert_eq!(
            Outlook::BEST_FIRST.map(|outlook| with(&runs, 1, outlook)),
            [vec![1, 2, 5, 6], vec![3, 7, 8], vec![0, 4]]
        );
        assert_eq!(Outlook::BEST_FIRST.map(|outlook| with(&runs, 32, outlook))[0], [2]);
        runs.take(1, 2);
        runs.release(4, 2, 2);
        runs.set(2, known(3));
        runs.set(5, known(3));
        runs.set(5, None);
        assert_eq!(
            Outlook::BEST_FIRST.map(|outlook| with(&runs, 1, outlook)),
            [vec![6], vec![1, 3, 4, 5, 7, 8], vec![0]]
        );
        runs.forget_hints();
        assert_eq!(Outlook::BEST_FIRST.map(|outlook| with(&runs, 1, outlook).len()), [0, 8, 0]);
        runs.set_hint(1 << 36, known(3));
        assert_eq!((runs.hints.len(), runs.hint(1 << 36)), (0, None), "of a pool that claims to be huge");
    }
}
