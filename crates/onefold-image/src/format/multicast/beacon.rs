//! Beacons: notes of the server to the group, ten times a second.
//!
//! | field       | type     | is                                                                                |
//! |-------------|----------|-----------------------------------------------------------------------------------|
//! | epoch       | u64      | the start of the server, as in the join reply                                     |
//! | machines    | u32      | number of machines that lack chunks                                               |
//! | queue       | u32      | time that the queue takes at the present rate, in milliseconds                    |
//! | sent        | set      | chunks in transmission now                                                        |
//! | just sent   | set      | chunks whose transmission has just ended                                          |
//! | unavailable | set      | chunks that the server cannot send by multicast                                   |
//! | excluded    | set      | numbers of machines that are to fetch the rest over HTTP                          |
//! | unheard     | set      | numbers of machines that joined some seconds ago, and whose requests do not arrive |
//! | queued      | set      | chunks that will be sent; the first ones if not all fit                           |
//!
//! Unheard machines take at most a quarter of the bytes: the first ones if not all fit.

use super::IndexSet;
use crate::format::FormatError;
use crate::format::bytes::{Decoder, Encoder};

/// Name of the structure in errors.
const STRUCTURE: &str = "multicast beacon";
/// Length of the fields before the sets.
const FIXED_BYTES: usize = 8 + 4 + 4;
/// Length of an empty set.
const EMPTY_SET_BYTES: usize = 1;
/// Divisor for the share of a beacon that unheard machines take. Without the queue, all machines would request more.
const UNHEARD_DIVISOR: usize = 4;

/// A note of the server to the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beacon {
    /// Start of the server. A restart has another one.
    pub epoch: u64,
    /// Number of machines that lack chunks.
    pub machines: u32,
    /// Time that the queue takes at the present rate, in milliseconds.
    pub queue_ms: u32,
    /// Chunks in transmission.
    pub sending: IndexSet,
    /// Chunks whose transmission ended within the last moment.
    pub just_sent: IndexSet,
    /// Chunks that the server cannot send by multicast.
    pub unavailable: IndexSet,
    /// Numbers of machines whose requests do not count any more: they are to fetch the rest over HTTP.
    pub excluded: IndexSet,
    /// Numbers of machines that have joined some seconds ago, and from which no request has come.
    pub unheard: IndexSet,
    /// Chunks that will be sent.
    pub queued: IndexSet,
}

impl Beacon {
    /// Appends its bytes to a datagram: at most `bytes_max` of them, with as many chunks as fit.
    pub fn encode(&self, bytes_max: usize, datagram: &mut Vec<u8>) {
        let mut encoder = Encoder(std::mem::take(datagram));
        let start = encoder.0.len();
        encoder.u64(self.epoch).u32(self.machines).u32(self.queue_ms);
        let Beacon { sending, just_sent, unavailable, excluded, unheard, queued, .. } = self;
        // A machine that does not fit is listed later, when others are not any more.
        let unheard = &unheard.within(bytes_max / UNHEARD_DIVISOR);
        let sets = [sending, just_sent, unavailable, excluded, unheard, queued];
        for (at, set) in sets.into_iter().enumerate() {
            let used = encoder.0.len() - start + (sets.len() - 1 - at) * EMPTY_SET_BYTES;
            set.within(bytes_max.saturating_sub(used)).encode(&mut encoder);
        }
        debug_assert!(encoder.0.len() - start <= bytes_max.max(FIXED_BYTES + sets.len() * EMPTY_SET_BYTES));
        *datagram = encoder.0;
    }

    /// Decodes the body of a beacon of an image with so many chunks.
    ///
    /// # Errors
    /// When the bytes are no beacon, or name other chunks.
    pub fn decode(body: &[u8], chunks: u32) -> Result<Beacon, FormatError> {
        let mut decoder = Decoder::new(STRUCTURE, body);
        let beacon = Beacon {
            epoch: decoder.u64()?,
            machines: decoder.u32()?,
            queue_ms: decoder.u32()?,
            sending: IndexSet::decode(&mut decoder, chunks)?,
            just_sent: IndexSet::decode(&mut decoder, chunks)?,
            unavailable: IndexSet::decode(&mut decoder, chunks)?,
            excluded: IndexSet::decode(&mut decoder, u32::MAX)?,
            unheard: IndexSet::decode(&mut decoder, u32::MAX)?,
            queued: IndexSet::decode(&mut decoder, chunks)?,
        };
        decoder.end()?;
        Ok(beacon)
    }
}
