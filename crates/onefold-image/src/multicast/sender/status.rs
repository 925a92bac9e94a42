//! The state of a sender, for its caller and for people.

use std::num::NonZeroU64;

use super::gate::StartGate;
use super::{ClientStatus, Sender, SenderCounts};

/// The present state of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderStatus {
    /// Rate to which it has adapted to the losses of the machines, in bytes of UDP payload per second.
    pub rate_bytes_per_second: NonZeroU64,
    /// Machines that lack chunks, or have not said yet.
    pub machines: u32,
    /// Machines that are to fetch the rest over HTTP, since they lose far more packets than the others.
    pub excluded: u32,
    /// Whether it waits for machines before it sends chunks.
    pub is_waiting: bool,
}

impl Sender {
    /// Returns the present state.
    #[must_use]
    pub fn status(&self) -> SenderStatus {
        SenderStatus {
            rate_bytes_per_second: self.rate.rate(),
            machines: self.machines(),
            excluded: u32::try_from(self.clients.excluded().iter().count()).unwrap_or(u32::MAX),
            is_waiting: self.is_running() && !self.is_sending(),
        }
    }

    /// Returns how many machines lack chunks, or have not said yet.
    #[must_use]
    pub fn machines(&self) -> u32 {
        self.clients.lacking()
    }

    /// Returns how many machines the session waits for before it sends chunks; 0 if it does not wait.
    #[must_use]
    pub fn waits_for(&self) -> u32 {
        self.gate.as_ref().map_or(0, StartGate::machines)
    }

    /// Returns the machines of the session.
    pub fn clients(&self) -> impl Iterator<Item = ClientStatus> + '_ {
        self.clients.status(self.now)
    }

    /// Returns the counts since the start.
    #[must_use]
    pub fn counts(&self) -> SenderCounts {
        self.counts
    }
}
