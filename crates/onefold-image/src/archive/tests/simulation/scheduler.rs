//! The scheduler: of the threads of a simulation, one runs at a time, and a seed decides which.

use onefold_block::random::SeededRandom;
use parking_lot::{Condvar, Mutex};

/// Gives turns to actors, which have a thread each.
#[derive(Debug)]
pub(super) struct Scheduler {
    turns: Mutex<Turns>,
    wakers: Vec<Condvar>,
}

#[derive(Debug)]
struct Turns {
    random: SeededRandom,
    running: usize,
    /// The step at which each actor goes on; `None` once it has ended.
    wakes: Vec<Option<u64>>,
    step: u64,
}

impl Scheduler {
    pub(super) fn new(actors: usize, seed: u64) -> Scheduler {
        let random = SeededRandom::new(seed);
        let turns = Turns { random, running: 0, wakes: vec![Some(0); actors], step: 0 };
        Scheduler { turns: Mutex::new(turns), wakers: (0..actors).map(|_| Condvar::new()).collect() }
    }

    /// Waits for the first turn of an actor.
    pub(super) fn enter(&self, actor: usize) {
        let mut turns = self.turns.lock();
        while turns.running != actor {
            self.wakers[actor].wait(&mut turns);
        }
    }

    /// Lets others go first, for at least so many steps.
    pub(super) fn pause(&self, actor: usize, steps: u64) {
        let mut turns = self.turns.lock();
        turns.wakes[actor] = Some(turns.step + steps);
        turns.choose();
        if turns.running != actor {
            self.wakers[turns.running].notify_one();
        }
        while turns.running != actor {
            self.wakers[actor].wait(&mut turns);
        }
    }

    /// Ends an actor.
    pub(super) fn leave(&self, actor: usize) {
        let mut turns = self.turns.lock();
        turns.wakes[actor] = None;
        turns.choose();
        self.wakers[turns.running].notify_one();
    }
}

impl Turns {
    /// Chooses the actor that goes on: often the same one. Nothing changes if none is left.
    fn choose(&mut self) {
        let Some(earliest) = self.wakes.iter().flatten().min() else { return };
        self.step = (self.step + 1).max(*earliest);
        let is_ready = |actor: &usize| self.wakes[*actor].is_some_and(|wake| wake <= self.step);
        if is_ready(&self.running) && self.random.below(3) > 0 {
            return;
        }
        let ready: Vec<usize> = (0..self.wakes.len()).filter(is_ready).collect();
        self.running = ready[usize::try_from(self.random.below(ready.len() as u64)).unwrap()];
    }
}
