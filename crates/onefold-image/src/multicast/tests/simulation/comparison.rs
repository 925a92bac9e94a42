//! Machines whose disk has an earlier version of the image: each compares chunk after chunk while packets arrive.

use super::Violation;
use super::world::{Event, SECOND, World};
use crate::multicast::Settlement;

impl World {
    /// A machine with an earlier version begins to compare it.
    pub(super) fn begin_comparison(&mut self, index: usize) {
        if self.machines[index].is_update {
            self.machines[index].receiver.expect_comparison();
            self.compare(index, 0);
        }
    }

    fn compare(&mut self, index: usize, chunk: u32) {
        let (machine, life) = (index, self.machines[index].life);
        if chunk < self.options.chunks {
            let (bytes, _) = self.image.part(chunk);
            let rate = self.options.rate * self.options.compare_percent / 100;
            self.after(bytes * SECOND / rate, Event::Compared { machine, life, chunk });
        }
    }

    /// A machine has compared a chunk.
    pub(super) fn compared(&mut self, index: usize, chunk: u32) -> Result<(), Violation> {
        let (bytes, changed_bytes) = self.image.part(chunk);
        let machine = &mut self.machines[index];
        let lacking_bytes = if machine.disk[chunk as usize].is_some() { 0 } else { changed_bytes };
        let now = machine.clock(self.now);
        if machine.receiver.compared(chunk, lacking_bytes, bytes, now) {
            self.outcome.spared += 1;
            if lacking_bytes > 0 {
                self.fetch_part(index, chunk, lacking_bytes);
            } else {
                machine.disk[chunk as usize] = Some(self.image.plain[chunk as usize].clone());
                machine.receiver.settle(chunk, Settlement::Present);
            }
        }
        self.compare(index, chunk + 1);
        self.drain(index)
    }
}
