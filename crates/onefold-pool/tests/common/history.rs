//! The actions and promises of a recorded workload, by which its crash images are judged.

use onefold_testing::device::{Event, Recording};

use super::observe::{Tree, difference};

/// Decides what a crash may have left.
pub trait History: Send + Sync {
    /// Judges the visible tree after power failed when `cut` events of the recording had begun.
    ///
    /// # Errors
    /// A description of what was lost or is too much.
    fn judge(&self, recording: &Recording, cut: usize, seen: &Tree) -> Result<(), String>;

    /// Judges the visible tree after the whole recording, with nothing lost.
    ///
    /// # Errors
    /// The difference.
    fn judge_last(&self, seen: &Tree) -> Result<(), String>;
}

/// One thread's operations: the visible tree after each of them.
pub struct Steps {
    pub states: Vec<Tree>,
}

/// Returns a mark of [`Steps`]: the promised state, and the last finished one.
pub fn mark(promised: usize, finished: usize) -> u64 {
    (promised as u64) << 32 | finished as u64
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("an index of a state")
}

impl Steps {
    /// Returns the states that may be seen: from the promised one to the one in progress.
    fn allowed(&self, recording: &Recording, cut: usize) -> &[Tree] {
        let promised = recording.marks_before(cut).next_back().map_or(0, |mark| mark >> 32);
        let next_mark = recording.events()[cut..].iter().find_map(|event| match event {
            Event::Mark(mark) => Some(mark & 0xffff_ffff),
            _ => None,
        });
        let last = next_mark.map_or(self.states.len() - 1, index);
        &self.states[index(promised)..=last]
    }
}

impl History for Steps {
    fn judge(&self, recording: &Recording, cut: usize, seen: &Tree) -> Result<(), String> {
        let allowed = self.allowed(recording, cut);
        if allowed.contains(seen) {
            return Ok(());
        }
        let differences: Vec<String> = allowed.iter().filter_map(|state| difference(seen, state)).take(2).collect();
        Err(format!("shows none of {} allowed states: {}", allowed.len(), differences.join(" / ")))
    }

    fn judge_last(&self, seen: &Tree) -> Result<(), String> {
        difference(seen, self.states.last().expect("there is always a first state")).map_or(Ok(()), Err)
    }
}

/// The operations of several threads, each on its own files.
///
/// Marks are indexes of `notes`, and each is set on the recorded device when its note is taken: before an operation
/// begins, and after it has returned. So no effect of an operation comes before its first mark, and promised operations
/// had ended when the promise was requested, whatever the threads' schedule was.
pub struct Threads {
    /// For each thread, the visible tree of its files after each of its operations.
    pub states: Vec<Vec<Tree>>,
    pub notes: Vec<Note>,
    /// The thread to which the file at a path belongs.
    pub owner: fn(&str) -> Option<usize>,
}

/// An event recorded while threads worked.
pub enum Note {
    /// A thread begins an operation.
    Began(usize),
    /// A thread's operation has returned.
    Ended(usize),
    /// All operations that had ended at the time of a request are durable: the number of operations of each thread.
    Promised(Vec<usize>),
}

/// The information in the notes before a crash.
struct NoteFacts {
    promised: Vec<usize>,
    began: Vec<usize>,
    /// For each thread and each of its operations, how many operations of every thread had ended when it began.
    before: Vec<Vec<Vec<usize>>>,
}

impl Threads {
    fn known(&self, recording: &Recording, cut: usize) -> NoteFacts {
        let count = self.states.len();
        let mut known = NoteFacts { promised: vec![0; count], began: vec![0; count], before: vec![Vec::new(); count] };
        let mut ended = vec![0; count];
        for mark in recording.marks_before(cut) {
            match &self.notes[index(mark)] {
                Note::Began(thread) => {
                    known.began[*thread] += 1;
                    known.before[*thread].push(ended.clone());
                }
                Note::Ended(thread) => ended[*thread] += 1,
                Note::Promised(durable) => {
                    for (promised, durable) in known.promised.iter_mut().zip(durable) {
                        *promised = (*promised).max(*durable);
                    }
                }
            }
        }
        known
    }

    fn part(&self, seen: &Tree, thread: usize) -> Tree {
        let own = seen.iter().filter(|(path, _)| (self.owner)(path) == Some(thread));
        own.map(|(path, view)| (path.clone(), view.clone())).collect()
    }
}

impl History for Threads {
    fn judge(&self, recording: &Recording, cut: usize, seen: &Tree) -> Result<(), String> {
        let known = self.known(recording, cut);
        // Two states of a thread may look the same: finds the first and the last that fit.
        let mut fitting = Vec::new();
        for (thread, states) in self.states.iter().enumerate() {
            let own = self.part(seen, thread);
            let range = known.promised[thread]..=known.began[thread];
            let mut fit = range.clone().filter(|state| states[*state] == own);
            let Some(first) = fit.next() else {
                let differences: Vec<String> =
                    states[range.clone()].iter().filter_map(|state| difference(&own, state)).take(2).collect();
                return Err(format!("thread {thread} shows no state of {range:?}: {}", differences.join(" / ")));
            };
            fitting.push((first, fit.next_back().unwrap_or(first)));
        }
        // Changes become durable in order: with an operation, all those that had ended before it began.
        for (thread, (first, _)) in fitting.iter().enumerate().filter(|(_, (first, _))| *first > 0) {
            for (other, (&needed, (_, last))) in known.before[thread][first - 1].iter().zip(&fitting).enumerate() {
                if needed > *last {
                    return Err(format!(
                        "operation {first} of thread {thread} is there, but of thread {other} only {last} operations, \
                         though {needed} had ended before"
                    ));
                }
            }
        }
        Ok(())
    }

    fn judge_last(&self, seen: &Tree) -> Result<(), String> {
        for (thread, states) in self.states.iter().enumerate() {
            let last = states.last().expect("there is always a first state");
            if let Some(difference) = difference(&self.part(seen, thread), last) {
                return Err(format!("thread {thread}: {difference}"));
            }
        }
        Ok(())
    }
}
