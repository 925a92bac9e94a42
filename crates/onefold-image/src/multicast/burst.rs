//! Packets that are sent at once, in one buffer.

use crate::format::multicast::{PacketHeader, TAG_BYTES};

/// Packets that are sent at once. They lie one after the other in one buffer, each with room for the tag of its seal,
/// so that the kernel can cut several of equal length out of one piece.
#[derive(Debug, Default)]
pub struct PacketBurst {
    bytes: Vec<u8>,
    /// End of each packet in `bytes`, with its tag.
    ends: Vec<usize>,
}

impl PacketBurst {
    /// Returns the number of packets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there is no packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes all packets. The buffer is kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Returns each packet: header, plain body, and [`TAG_BYTES`] for the tag. The seal is made in place.
    pub fn packets_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let mut rest = self.bytes.as_mut_slice();
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let (packet, behind) = std::mem::take(&mut rest).split_at_mut(*end - start);
            (rest, start) = (behind, *end);
            packet
        })
    }

    /// Returns the bytes of all packets, and where each one ends.
    #[must_use]
    pub fn parts(&self) -> (&[u8], &[usize]) {
        (&self.bytes, &self.ends)
    }

    /// Appends a packet. Returns its length, with the tag.
    pub(super) fn push(&mut self, header: PacketHeader, encode_body: impl FnOnce(&mut Vec<u8>)) -> usize {
        let start = self.bytes.len();
        header.encode(&mut self.bytes);
        encode_body(&mut self.bytes);
        self.bytes.resize(self.bytes.len() + TAG_BYTES, 0);
        self.ends.push(self.bytes.len());
        self.bytes.len() - start
    }
}
