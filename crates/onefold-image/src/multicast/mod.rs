//! Multicast: one server sends the chunks of an image to many machines at once, as state machines.
//!
//! [`Sender`] and [`Receiver`] take events with the time, and return packets and actions. Nothing here knows a socket,
//! a clock or a thread, so a thousand machines run in one test, and a failure replays from its seed. The wire format is
//! in [`crate::format::multicast`]; decision 36 has the reasons.
//!
//! **`order.rs` decides which chunk is sent next**, `receiver/requests.rs` whether a machine requests anything.

mod burst;
mod coding;
mod demand;
mod order;
mod pacing;
mod rank;
mod rate;
mod receiver;
mod rules;
mod sender;
#[cfg(test)]
mod tests;
mod timing;

pub use burst::PacketBurst;
pub use coding::{ReceivedChunk, RepairJob, RepairSymbols};
pub use pacing::BURST_PACKETS_MAX;
pub use receiver::{
    HttpReason, Receiver, ReceiverAction, ReceiverCounts, ReceiverSettings, Settlement, UnwantedPacket,
};
pub use sender::{ClientStatus, Sender, SenderCounts, SenderSettings, SenderStatus, SessionStart};
pub use timing::{BEACON_EVERY, SESSION_WAIT_MAX, SILENCE};

/// Length of a usual chunk in bytes, as captures cut them. Used until a chunk has come.
const USUAL_CHUNK_BYTES: usize = 1 << 20;
