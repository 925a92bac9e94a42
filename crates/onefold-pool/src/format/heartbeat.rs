//! Heartbeat: one block with which the host that has a pool open announces this to other hosts that file locks do not
//! reach.
//!
//! After the header:
//!
//! | bytes  | field | notes                                                              |
//! |--------|-------|--------------------------------------------------------------------|
//! | 16..32 | host  | identity of the host                                               |
//! | 32..40 | run   | random number of the opening: two openings on one host differ      |
//! | 40..48 | beat  | one more at each beat                                              |
//! | 48     | held  | 1: the pool is open; 0: it was closed                              |
//! | 49     | sure  | 1: written by a host that had made sure to have no rivals; else 0  |
//!
//! All fields lie in the first sector, so a torn write leaves either the old beat or the new one.

use onefold_block::BLOCK_BYTES;

use super::geometry::HEARTBEAT;
use super::header::{self, BlockKind};
use super::{BlockBytes, get_u64, put_u64};
use crate::host::HostId;

/// One beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The host that has, or had, the pool open.
    pub host: HostId,
    /// The opening.
    pub run: u64,
    /// Counts the beats of the opening.
    pub beat: u64,
    /// Whether the pool is open.
    pub held: bool,
    /// Whether the host had made sure that it has no rivals.
    pub sure: bool,
}

impl Heartbeat {
    /// Returns the sealed block.
    #[must_use]
    pub fn encode(&self, pool_tag: u32) -> BlockBytes {
        let mut bytes = header::blank(pool_tag, BlockKind::Heartbeat, HEARTBEAT);
        bytes[16..32].copy_from_slice(&self.host);
        put_u64(&mut bytes, 32, self.run);
        put_u64(&mut bytes, 40, self.beat);
        bytes[48] = u8::from(self.held);
        bytes[49] = u8::from(self.sure);
        header::seal(&mut bytes);
        bytes
    }

    /// Decodes the block. `None` for a pool that was never opened with a heartbeat, or a damaged block.
    #[must_use]
    pub fn decode(bytes: &BlockBytes, pool_tag: u32) -> Option<Heartbeat> {
        header::verify(bytes, pool_tag, BlockKind::Heartbeat, HEARTBEAT).ok()?;
        Some(Heartbeat {
            host: bytes[16..32].try_into().expect("sixteen bytes"),
            run: get_u64(bytes, 32),
            beat: get_u64(bytes, 40),
            held: bytes[48] != 0,
            sure: bytes[49] != 0,
        })
    }
}

const _: () = assert!(50 <= 512 && 512 < BLOCK_BYTES, "a beat fits the sector that a disk writes whole");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_survives_its_encoding_and_differs_only_in_the_first_sector() {
        let beat = Heartbeat { host: [3; 16], run: 7, beat: 9, held: true, sure: true };
        let bytes = beat.encode(5);
        assert_eq!(Heartbeat::decode(&bytes, 5), Some(beat));
        assert_eq!(Heartbeat::decode(&bytes, 6), None);
        let later = Heartbeat { beat: 10, held: false, ..beat }.encode(5);
        assert!(bytes[512..] == later[512..]);
    }
}
