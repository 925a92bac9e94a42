//! **Decides which chunks need not come by multicast**: the target or seeds have them, or lack little of them.
//!
//! The caller compares chunk after chunk while packets arrive. A machine requests only chunks that are compared, so a
//! comparison in time spares them all. It takes others as they pass, since they may be lacking.

use std::time::Duration;

use super::session::SessionState;
use super::{ChunkState, Receiver};
use crate::multicast::rules::{Rule, follows};

/// Of a chunk that is requested over HTTP as a whole, at most one of so many bytes is not needed.
const UNNEEDED_SHARE: u64 = 8;

impl Receiver {
    /// Waits for [`Receiver::compared`] before any chunk is requested.
    pub fn expect_comparison(&mut self) {
        let lacking = self.states.iter_mut().filter(|state| **state == ChunkState::Lacking);
        lacking.for_each(|state| *state = ChunkState::Uncompared);
        self.lacking = 0;
    }

    /// Takes the result of the comparison of a chunk: of its `bytes`, `lacking_bytes` are nowhere on this machine.
    /// Returns true if the chunk need not come by multicast. The caller then gets the rest over HTTP and settles the
    /// chunk, as one that it has claimed. Chunks that the caller has in hand already stay there.
    pub fn compared(&mut self, chunk: u32, lacking_bytes: u64, bytes: u64, now: Duration) -> bool {
        self.pass(now);
        if !self.is_open(chunk) {
            return false;
        }
        let machines = self.session.as_ref().map_or(1, SessionState::sharing_machines);
        if is_little(lacking_bytes, bytes, machines) {
            self.change(chunk, ChunkState::ByHttp);
            return true;
        }
        if self.lacking == 0 {
            // No symbol was waited for until now.
            self.progress.wait(self.now);
        }
        self.change(chunk, ChunkState::Lacking);
        if let Some(session) = &mut self.session {
            session.timer.look_again(self.now);
        }
        false
    }

    /// Returns the begun chunks whose lacking symbols are requested.
    pub(super) fn begun(&self) -> impl Iterator<Item = u32> + '_ {
        self.assemblies.begun().filter(|chunk| self.is_requestable(*chunk))
    }

    /// Returns whether the symbols of a chunk are taken.
    pub(super) fn is_open(&self, chunk: u32) -> bool {
        self.states.get(chunk as usize).is_some_and(|state| state.is_open())
    }

    /// Returns whether the symbols of a chunk may be requested.
    pub(super) fn is_requestable(&self, chunk: u32) -> bool {
        match self.states.get(chunk as usize) {
            Some(ChunkState::Lacking) => true,
            Some(ChunkState::Uncompared) => !follows(Rule::ComparedFirst),
            _ => false,
        }
    }
}

impl ChunkState {
    /// Returns whether symbols of the chunk are taken.
    pub(super) fn is_open(self) -> bool {
        matches!(self, ChunkState::Lacking | ChunkState::Uncompared)
    }
}

/// Returns whether so little of a chunk is lacking that it comes over HTTP. By multicast it is sent once, and over HTTP
/// its lacking part once for each machine: if all lack as much, no more is sent then.
fn is_little(lacking_bytes: u64, bytes: u64, machines: u32) -> bool {
    let sent_bytes = lacking_bytes.saturating_mul(machines.max(1).into());
    lacking_bytes == 0 || sent_bytes < bytes - bytes / UNNEEDED_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_less_over_http_than_a_chunk_for_all() {
        for (lacking_bytes, machines, expected) in [
            (0, 1000, true),
            (1, 1, true),
            (874, 1, true),
            (875, 1, false),
            (1000, 1, false),
            (437, 2, true),
            (438, 2, false),
            (9, 97, true),
            (10, 97, false),
            // A machine that has not joined yet is alone.
            (500, 0, true),
            (u64::MAX, u32::MAX, false),
        ] {
            assert_eq!(is_little(lacking_bytes, 1000, machines), expected, "{lacking_bytes} {machines}");
        }
        assert!(is_little(0, 0, 1), "a chunk of zeros");
    }
}
