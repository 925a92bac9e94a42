//! The wire format of multicast: datagrams of a session, and the reply by which a machine joins it.
//! `docs/format/multicast.md` is the page for readers.
//!
//! A datagram is a header in the clear, a sealed body, and the tag of the seal. This module encodes and decodes headers
//! and plain bodies; sealing is the transport's.
//!
//! | field    | type | in                                                                                    |
//! |----------|------|---------------------------------------------------------------------------------------|
//! | version  | u8   | all datagrams; 1                                                                      |
//! | kind     | u8   | all; 1 is a [symbol](Symbol), 2 a [beacon](Beacon), 3 a [request](Request)            |
//! | session  | u32  | all                                                                                   |
//! | sequence | u64  | all; counts from 1, for the server and for each machine                               |
//! | client   | u32  | requests; the number of the machine, from 1                                           |
//!
//! Header and body are authenticated together. The sequence number is the nonce, so no key seals one number twice.

mod beacon;
mod index_set;
mod join;
mod request;
mod symbol;

pub use beacon::Beacon;
pub use index_set::IndexSet;
pub use join::{JoinReply, RepairCode, SessionKeys};
pub use request::{BegunChunk, Request};
pub use symbol::{CODED_SYMBOLS_MAX, SYMBOL_HEADER_BYTES, Symbol, symbols_of};

use super::FormatError;
use super::bytes::{Decoder, Encoder};

/// Version of the datagrams. The reply to a join has its own.
const VERSION: u8 = 1;
/// Length of the header of symbols and beacons, in bytes.
pub const HEADER_BYTES: usize = 14;
/// Length of the header of a request, in bytes.
pub const REQUEST_HEADER_BYTES: usize = HEADER_BYTES + 4;
/// Length of the tag that ends a sealed datagram, in bytes.
pub const TAG_BYTES: usize = 16;
/// Minimum size of a symbol, in bytes.
pub const SYMBOL_BYTES_MIN: u16 = 128;
/// Maximum size of a symbol, in bytes. Jumbo frames of 9000 bytes have room for it.
pub const SYMBOL_BYTES_MAX: u16 = 8928;
/// Maximum number of chunks of an image that is sent by multicast: 4 TiB of chunks of 1 MiB.
pub const CHUNKS_MAX: u32 = 1 << 22;

/// Name of the structure in errors.
const STRUCTURE: &str = "header of a multicast datagram";

/// A session: one image, sent by one start of a server under one set of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u32);

/// The number of a machine within a session, from 1. A number is never given to a second machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientNumber(pub u32);

/// The kind of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// A part of a chunk, from the server to the group.
    Symbol,
    /// A note of the server to the group.
    Beacon,
    /// A request of a machine to the server.
    Request(ClientNumber),
}

/// The header of a datagram, which is not encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    /// Its kind.
    pub kind: PacketKind,
    /// Its session.
    pub session: SessionId,
    /// Its number among the datagrams of its sender in this session, from 1. It is the nonce of the seal.
    pub sequence: u64,
}

impl PacketHeader {
    /// Returns its length in bytes.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        match self.kind {
            PacketKind::Symbol | PacketKind::Beacon => HEADER_BYTES,
            PacketKind::Request(_) => REQUEST_HEADER_BYTES,
        }
    }

    /// Appends its bytes to a datagram.
    pub fn encode(&self, datagram: &mut Vec<u8>) {
        let kind = match self.kind {
            PacketKind::Symbol => 1,
            PacketKind::Beacon => 2,
            PacketKind::Request(_) => 3,
        };
        let mut encoder = Encoder(std::mem::take(datagram));
        encoder.u8(VERSION).u8(kind).u32(self.session.0).u64(self.sequence);
        if let PacketKind::Request(client) = self.kind {
            encoder.u32(client.0);
        }
        *datagram = encoder.0;
    }

    /// Splits a datagram into its header and the bytes behind it.
    ///
    /// # Errors
    /// When the datagram has no valid header, or a newer version.
    pub fn decode(datagram: &[u8]) -> Result<(PacketHeader, &[u8]), FormatError> {
        let mut decoder = Decoder::new(STRUCTURE, datagram);
        let version = decoder.u8()?;
        if version != VERSION {
            return Err(FormatError::Newer { structure: STRUCTURE, version: version.into(), features: 0 });
        }
        let kind = decoder.u8()?;
        let (session, sequence) = (SessionId(decoder.u32()?), decoder.u64()?);
        let kind = match kind {
            1 => PacketKind::Symbol,
            2 => PacketKind::Beacon,
            3 => PacketKind::Request(ClientNumber(decoder.u32()?)),
            _ => return Err(decoder.wrong("an unknown kind of datagram")),
        };
        if sequence == 0 || kind == PacketKind::Request(ClientNumber(0)) {
            return Err(decoder.wrong("numbers count from 1"));
        }
        let rest = decoder.bytes(decoder.left())?;
        Ok((PacketHeader { kind, session, sequence }, rest))
    }
}

/// Returns the maximum length of the plain body of a symbol or a beacon in a session with symbols of this size, in
/// bytes. Symbols fill it; beacons name as many chunks as fit.
#[must_use]
pub fn body_bytes_max(symbol_bytes: u16) -> usize {
    SYMBOL_HEADER_BYTES + usize::from(symbol_bytes)
}

/// Returns the maximum length of the plain body of a request, in bytes. Its datagram is no longer than that of a
/// symbol.
#[must_use]
pub fn request_bytes_max(symbol_bytes: u16) -> usize {
    body_bytes_max(symbol_bytes) - (REQUEST_HEADER_BYTES - HEADER_BYTES)
}

/// Returns the size of the symbols that fill datagrams of IPv4 on a link with this MTU, in bytes. Bounded by what a
/// session may have.
#[must_use]
pub fn symbol_bytes_for(mtu_bytes: u16) -> u16 {
    /// IPv4 and UDP.
    const NETWORK_HEADERS: usize = 20 + 8;
    let overhead = NETWORK_HEADERS + HEADER_BYTES + TAG_BYTES + SYMBOL_HEADER_BYTES;
    let size = u16::try_from(usize::from(mtu_bytes).saturating_sub(overhead)).unwrap_or(SYMBOL_BYTES_MAX);
    size.clamp(SYMBOL_BYTES_MIN, SYMBOL_BYTES_MAX)
}
