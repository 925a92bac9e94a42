//! Tests of sender and receiver.

mod basic;
mod comparison;
mod exclusion;
mod lies;
mod silence;
mod simulation;

use std::net::Ipv4Addr;

use crate::format::multicast::{ClientNumber, JoinReply, RepairCode, SessionId};

/// Returns the reply to a machine that is alone in a session of so many chunks, without repair symbols.
fn reply_of(chunks: u32) -> JoinReply {
    JoinReply {
        group: Ipv4Addr::new(239, 1, 1, 1),
        source: Ipv4Addr::new(192, 0, 2, 5),
        port: 1,
        request_port: 2,
        symbol_bytes: 128,
        ttl: 1,
        rate_bytes_per_second: 100_000,
        session: SessionId(7),
        epoch: 3,
        client: ClientNumber(1),
        machines: 1,
        waits_for: 0,
        chunks,
        repairs: RepairCode::None,
        keys: None,
    }
}
