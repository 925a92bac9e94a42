//! The reply to a machine that joins a session. It comes over HTTP.
//!
//! | field   | type       | is                                                                                   |
//! |---------|------------|--------------------------------------------------------------------------------------|
//! | magic   | `1fmj`     |                                                                                      |
//! | version | u8, 2      |                                                                                      |
//! | family  | u8, 4      | IPv4; addresses have four bytes                                                      |
//! | group   | 4 bytes    | address of the group                                                                 |
//! | source  | 4 bytes    | address that the server sends from                                                   |
//! | ports   | u16, u16   | of the group; of the server, for requests                                            |
//! | symbol  | u16        | size of symbols in bytes                                                             |
//! | TTL     | u8         | time to live of packets to the group, from 1: each router on the way takes one away  |
//! | rate    | u64        | maximum rate of the server in bytes per second, counted as UDP payload               |
//! | session | u32        |                                                                                      |
//! | epoch   | u64        | start of the server                                                                  |
//! | client  | u32        | number of this machine, from 1                                                       |
//! | machines | u32       | number of machines that lack chunks, with this one                                   |
//! | waits   | u32        | number of machines that the session waits for before it sends chunks; 0 if it does not |
//! | chunks  | u32        | number of chunks of the image                                                        |
//! | repair  | u8         | 1 if the server sends repair symbols of RaptorQ, 0 if it sends none                  |
//! | keys    | u8         | 1 if keys follow (over TLS), 0 if both sides derive them from a key that they have   |
//! |         | 2 * 32 bytes | key of the group, key of this machine                                              |

use std::fmt;
use std::net::Ipv4Addr;

use super::{CHUNKS_MAX, ClientNumber, SYMBOL_BYTES_MAX, SYMBOL_BYTES_MIN, SessionId};
use crate::format::FormatError;
use crate::format::bytes::{Decoder, Encoder};

/// Name of the structure in errors.
const STRUCTURE: &str = "reply to a join";
const MAGIC: [u8; 4] = *b"1fmj";
/// Version of the reply. Replies of version 1 have no time to live.
const VERSION: u8 = 2;
/// The address family of IPv4.
const IPV4: u8 = 4;

/// The code of the repair symbols of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepairCode {
    /// There are none: lost symbols are sent again.
    #[default]
    None,
    /// RaptorQ (RFC 6330), in symbols behind the end of a chunk.
    RaptorQ,
}

/// The keys of one machine in a session, for AES-256-GCM.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKeys {
    /// Key of all datagrams from the server to the group.
    pub group: [u8; 32],
    /// Key of this machine's requests.
    pub client: [u8; 32],
}

/// Keys do not stay in memory that is given back.
impl Drop for SessionKeys {
    fn drop(&mut self) {
        for key in [&mut self.group, &mut self.client] {
            key.fill(0);
            // The compiler must assume that the zeros are read.
            std::hint::black_box(&*key);
        }
    }
}

/// Keys are not printed.
impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKeys").finish_non_exhaustive()
    }
}

/// The reply to a machine that joins a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinReply {
    /// Address of the group, a multicast address.
    pub group: Ipv4Addr,
    /// Address that the server sends from.
    pub source: Ipv4Addr,
    /// UDP port of the group.
    pub port: u16,
    /// UDP port of the server for requests, at the source address.
    pub request_port: u16,
    /// Size of symbols in bytes.
    pub symbol_bytes: u16,
    /// Time to live of packets to the group: how many routers they may cross, plus one.
    pub ttl: u8,
    /// Maximum rate of the server in bytes of UDP payload per second.
    pub rate_bytes_per_second: u64,
    /// The session.
    pub session: SessionId,
    /// Start of the server. A restart has another one.
    pub epoch: u64,
    /// Number of this machine.
    pub client: ClientNumber,
    /// Number of machines that lack chunks, with this one.
    pub machines: u32,
    /// Number of machines that the session waits for before it sends chunks; 0 if it does not wait.
    pub waits_for: u32,
    /// Number of chunks of the image.
    pub chunks: u32,
    /// The repair symbols that the server sends.
    pub repairs: RepairCode,
    /// Keys of the session, unless both sides derive them from a key that they have.
    pub keys: Option<SessionKeys>,
}

impl JoinReply {
    /// Returns its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::default();
        encoder.bytes(&MAGIC).u8(VERSION).u8(IPV4);
        encoder.bytes(&self.group.octets()).bytes(&self.source.octets());
        encoder.u16(self.port).u16(self.request_port).u16(self.symbol_bytes).u8(self.ttl);
        encoder.u64(self.rate_bytes_per_second).u32(self.session.0).u64(self.epoch);
        encoder.u32(self.client.0).u32(self.machines).u32(self.waits_for).u32(self.chunks);
        encoder.u8(match self.repairs {
            RepairCode::None => 0,
            RepairCode::RaptorQ => 1,
        });
        match &self.keys {
            Some(keys) => encoder.u8(1).bytes(&keys.group).bytes(&keys.client),
            None => encoder.u8(0),
        };
        encoder.0
    }

    /// Decodes a reply.
    ///
    /// # Errors
    /// When the bytes are no reply, or one of another version or another address family.
    pub fn decode(reply: &[u8]) -> Result<JoinReply, FormatError> {
        let mut decoder = Decoder::new(STRUCTURE, reply);
        if decoder.array()? != MAGIC {
            return Err(FormatError::Other { structure: STRUCTURE, what: "its kind" });
        }
        let (version, family) = (decoder.u8()?, decoder.u8()?);
        if (version, family) != (VERSION, IPV4) {
            let (version, features) = (version.into(), family.into());
            return Err(FormatError::Newer { structure: STRUCTURE, version, features });
        }
        let reply = JoinReply {
            group: Ipv4Addr::from(decoder.array::<4>()?),
            source: Ipv4Addr::from(decoder.array::<4>()?),
            port: decoder.u16()?,
            request_port: decoder.u16()?,
            symbol_bytes: decoder.u16()?,
            ttl: decoder.u8()?,
            rate_bytes_per_second: decoder.u64()?,
            session: SessionId(decoder.u32()?),
            epoch: decoder.u64()?,
            client: ClientNumber(decoder.u32()?),
            machines: decoder.u32()?,
            waits_for: decoder.u32()?,
            chunks: decoder.u32()?,
            repairs: decode_repairs(&mut decoder)?,
            keys: decode_keys(&mut decoder)?,
        };
        decoder.end()?;
        if !reply.group.is_multicast() || reply.source.is_multicast() || reply.source.is_unspecified() {
            return Err(decoder.wrong("the group is no multicast address, or the source is none of one machine"));
        }
        let has_ports = reply.port != 0 && reply.request_port != 0;
        let has_size = (SYMBOL_BYTES_MIN..=SYMBOL_BYTES_MAX).contains(&reply.symbol_bytes);
        let has_rate = reply.rate_bytes_per_second != 0 && reply.ttl != 0;
        let has_numbers = reply.client.0 != 0 && reply.machines != 0 && has_rate;
        if !has_ports || !has_size || !has_numbers || reply.chunks > CHUNKS_MAX {
            return Err(decoder.wrong("a port, a size or a number is out of bounds"));
        }
        Ok(reply)
    }
}

fn decode_repairs(decoder: &mut Decoder<'_>) -> Result<RepairCode, FormatError> {
    match decoder.u8()? {
        0 => Ok(RepairCode::None),
        1 => Ok(RepairCode::RaptorQ),
        _ => Err(decoder.wrong("the code of the repair symbols is unknown")),
    }
}

fn decode_keys(decoder: &mut Decoder<'_>) -> Result<Option<SessionKeys>, FormatError> {
    match decoder.u8()? {
        0 => Ok(None),
        1 => Ok(Some(SessionKeys { group: decoder.array()?, client: decoder.array()? })),
        _ => Err(decoder.wrong("keys are there or not")),
    }
}
