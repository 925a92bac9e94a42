//! Long lists in parts: candidates with the places that wait for them, and targets.

use std::io;
use std::iter::Peekable;

use onefold_sort::{Merge, Row};

use super::rows::{Candidate, CandidateKey, Target, WaitingPlace};

/// Candidates, in order of their places.
pub(super) struct Candidates(Peekable<Merge>);

impl Candidates {
    pub(super) fn new(rows: Merge) -> Candidates {
        Candidates(rows.peekable())
    }

    /// Returns whether there are no more.
    pub(super) fn is_empty(&mut self) -> bool {
        self.0.peek().is_none()
    }

    /// Takes the next candidates, at most `most`. They end with a run if a run ends in time.
    pub(super) fn take(&mut self, most: usize) -> io::Result<Vec<Candidate>> {
        let mut taken: Vec<Candidate> = Vec::new();
        while taken.len() < most {
            let (last, is_enough) = (taken.last().copied(), taken.len() >= most - most / 8);
            let goes_on = |row: &io::Result<Row>| match (row, last) {
                (Ok(row), Some(last)) if is_enough => follows(last, Candidate::of(*row)),
                _ => true,
            };
            let Some(row) = self.0.next_if(goes_on) else { break };
            taken.push(Candidate::of(row?));
        }
        Ok(taken)
    }
}

fn follows(last: Candidate, next: Candidate) -> bool {
    last.file == next.file && last.block.0 + 1 == next.block.0
}

/// Places that wait for candidates, in the order of these.
pub(super) struct WaitingPlaces(Peekable<Merge>);

impl WaitingPlaces {
    pub(super) fn new(rows: Merge) -> WaitingPlaces {
        WaitingPlaces(rows.peekable())
    }

    /// Takes the next place that waits for a candidate. Candidates have to be given in their order.
    pub(super) fn take(&mut self, of: CandidateKey) -> io::Result<Option<WaitingPlace>> {
        loop {
            let Some(row) = self.0.next_if(|row| row.as_ref().map_or(true, |row| WaitingPlace::of(*row).of <= of))
            else {
                return Ok(None);
            };
            let other = WaitingPlace::of(row?);
            if other.of == of {
                return Ok(Some(other));
            }
        }
    }
}

/// Targets, in order of their places, in stretches.
pub(super) struct Targets {
    rows: Peekable<Merge>,
    /// Number of targets taken in the current stretch, and the last of them.
    taken: u64,
    last: Option<Target>,
}

impl Targets {
    pub(super) fn new(rows: Merge) -> Targets {
        Targets { rows: rows.peekable(), taken: 0, last: None }
    }

    /// Returns whether there are no more.
    pub(super) fn is_empty(&mut self) -> bool {
        self.rows.peek().is_none()
    }

    /// Begins the next stretch.
    pub(super) fn begin_stretch(&mut self) {
        (self.taken, self.last) = (0, None);
    }

    /// Takes the next target of a stretch of about `most` targets, which ends with a run.
    pub(super) fn take(&mut self, most: u64) -> io::Result<Option<Target>> {
        let (is_enough, last) = (self.taken >= most, self.last);
        let next = self.rows.next_if(|row| match (row, last) {
            (Ok(row), Some(last)) if is_enough => goes_on(last, Target::of(*row)),
            _ => true,
        });
        // At the end of the stretch, the last target stays the same, so that another call returns `None`, too.
        let Some(row) = next else { return Ok(None) };
        self.taken += 1;
        self.last = Some(Target::of(row?));
        Ok(self.last)
    }
}

fn goes_on(last: Target, next: Target) -> bool {
    let source_goes_on = match (last.slot, next.slot) {
        (Some(last), Some(next)) => last.number() + 1 == next.number(),
        (None, None) => true,
        _ => false,
    };
    last.file == next.file && last.block.0 + 1 == next.block.0 && source_goes_on
}
