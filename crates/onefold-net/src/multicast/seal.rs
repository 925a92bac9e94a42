//! Sealing of packets: AES-256-GCM under keys of one session.
//!
//! The nonce of a packet is its sequence number. A key seals each number at most once: a [`Sealer`] takes rising
//! numbers only, each direction and each client has a key of its own, and each start of a server and each join makes
//! new ones. The header of a packet is not encrypted, but vouched for.

use std::fmt;

use onefold_image::format::multicast::TAG_BYTES;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey};

use super::window::{Freshness, ReplayWindow};
use crate::private::wipe;

/// Length of a key in bytes.
pub(crate) const KEY_BYTES: usize = 32;
const _: () = assert!(TAG_BYTES == MAX_TAG_LEN);

/// A key. It does not show itself, and its memory is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SessionKey(pub(crate) [u8; KEY_BYTES]);

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

impl Drop for SessionKey {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl SessionKey {
    fn cipher(&self) -> LessSafeKey {
        LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &self.0).expect("a key of AES-256 has 32 bytes"))
    }
}

/// A packet cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    /// The number may have been used under this key.
    #[error("sequence number {sequence} comes after {next}")]
    UsedNumber {
        /// The number of the packet.
        sequence: u64,
        /// The least number that is unused.
        next: u64,
    },
    /// The packet is too short for its header, or too long for the cipher.
    #[error("a packet of {bytes} bytes cannot be sealed")]
    Length {
        /// Length of the packet.
        bytes: usize,
    },
}

/// Seals the packets of one direction.
pub(crate) struct Sealer {
    cipher: LessSafeKey,
    /// The least sequence number that no packet has.
    next: u64,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Sealer {
    /// Returns a sealer under a key that has sealed nothing yet.
    pub(crate) fn new(key: &SessionKey) -> Sealer {
        Sealer { cipher: key.cipher(), next: 0 }
    }

    /// Returns the least sequence number that may be sealed.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Seals a packet in place: all between its first `header_bytes` bytes and its last [`TAG_BYTES`] is encrypted, and
    /// the tag takes the place of the latter.
    ///
    /// # Errors
    /// When the number is not above all numbers before, or the packet has no such parts.
    pub(crate) fn seal(&mut self, sequence: u64, header_bytes: usize, packet: &mut [u8]) -> Result<(), SealError> {
        if sequence < self.next || sequence == u64::MAX {
            return Err(SealError::UsedNumber { sequence, next: self.next });
        }
        let length = SealError::Length { bytes: packet.len() };
        let tag_at = packet.len().checked_sub(TAG_BYTES).ok_or(length)?;
        let (sealed, room) = packet.split_at_mut(tag_at);
        let (header, body) = sealed.split_at_mut_checked(header_bytes).ok_or(length)?;
        let tag = self.cipher.seal_in_place_separate_tag(nonce(sequence), Aad::from(&*header), body);
        room.copy_from_slice(tag.map_err(|_| length)?.as_ref());
        self.next = sequence + 1;
        Ok(())
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropCause {
    /// It is too short to be one.
    Truncated,
    /// Its sequence number came before.
    Repeated,
    /// Its sequence number is too old to tell.
    Old,
    /// It was not sealed under this key, or changed since.
    Forged,
}

/// Numbers of dropped packets, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DropCounts {
    pub(crate) truncated: u64,
    pub(crate) repeated: u64,
    pub(crate) old: u64,
    pub(crate) forged: u64,
}

impl DropCounts {
    fn add(&mut self, cause: DropCause) {
        let count = match cause {
            DropCause::Truncated => &mut self.truncated,
            DropCause::Repeated => &mut self.repeated,
            DropCause::Old => &mut self.old,
            DropCause::Forged => &mut self.forged,
        };
        *count = count.saturating_add(1);
    }
}

/// Opens the packets of one sender, each at most once.
pub(crate) struct Opener {
    cipher: LessSafeKey,
    window: ReplayWindow,
    dropped: DropCounts,
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("dropped", &self.dropped).finish_non_exhaustive()
    }
}

impl Opener {
    /// Returns what opens the packets that are sealed under a key.
    pub(crate) fn new(key: &SessionKey) -> Opener {
        Opener { cipher: key.cipher(), window: ReplayWindow::new(), dropped: DropCounts::default() }
    }

    /// Returns how many packets were dropped.
    pub(crate) fn dropped(&self) -> DropCounts {
        self.dropped
    }

    /// Opens a packet in place, and returns what was sealed. A packet that came before costs no decryption.
    ///
    /// # Errors
    /// When it is dropped, which is counted.
    pub(crate) fn open<'p>(
        &mut self,
        sequence: u64,
        header_bytes: usize,
        packet: &'p mut [u8],
    ) -> Result<&'p [u8], DropCause> {
        let opened = self.try_open(sequence, header_bytes, packet);
        match &opened {
            Ok(_) => self.window.note(sequence),
            Err(cause) => self.dropped.add(*cause),
        }
        opened
    }

    fn try_open<'p>(&self, sequence: u64, header_bytes: usize, packet: &'p mut [u8]) -> Result<&'p [u8], DropCause> {
        let (header, sealed) = packet.split_at_mut_checked(header_bytes).ok_or(DropCause::Truncated)?;
        if sealed.len() < TAG_BYTES {
            return Err(DropCause::Truncated);
        }
        match self.window.freshness(sequence) {
            Freshness::Repeated => return Err(DropCause::Repeated),
            Freshness::Old => return Err(DropCause::Old),
            Freshness::New => {}
        }
        let opened = self.cipher.open_in_place(nonce(sequence), Aad::from(&*header), sealed);
        opened.map(|body| &*body).map_err(|_| DropCause::Forged)
    }
}

/// Returns the nonce of a sequence number.
fn nonce(sequence: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - size_of::<u64>()..].copy_from_slice(&sequence.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: usize = 12;
    const KEY: SessionKey = SessionKey([7; KEY_BYTES]);

    fn sealed(sealer: &mut Sealer, sequence: u64) -> Vec<u8> {
        let mut packet = [&[3; HEADER][..], b"a symbol of a chunk", &[0; TAG_BYTES]].concat();
        sealer.seal(sequence, HEADER, &mut packet).unwrap();
        packet
    }

    #[test]
    fn an_opened_packet_has_the_bytes_that_were_sealed() {
        let (mut sealer, mut opener) = (Sealer::new(&KEY), Opener::new(&KEY));
        // Behind a leap, and out of order.
        for sequence in [0, 1, 5, 1 << 40] {
            let mut packet = sealed(&mut sealer, sequence);
            assert_eq!(packet.len(), HEADER + 19 + TAG_BYTES);
            assert!(!packet.windows(6).any(|part| part == b"symbol"), "it is encrypted");
            assert_eq!(opener.open(sequence, HEADER, &mut packet).unwrap(), b"a symbol of a chunk");
        }
        assert_eq!(opener.dropped(), DropCounts::default());
    }

    /// Fixes cipher, nonce and covered header, so that two versions of the program understand each other.
    #[test]
    fn a_sealed_packet_has_these_bytes() {
        let packet = sealed(&mut Sealer::new(&KEY), 0x0102_0304_0506_0708);
        let text: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            text,
            "0303030303030303030303030b370442b488e5cded45fdbad1bbdca75ad982639ebb47134a84f3f32185427bcbcb56"
        );
    }

    #[test]
    fn a_packet_with_any_bit_flipped_or_cut_anywhere_is_dropped() {
        let mut sealer = Sealer::new(&KEY);
        let packet = sealed(&mut sealer, 4);
        let mut opener = Opener::new(&KEY);
        for bit in 0..8 * packet.len() {
            let mut flipped = packet.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(opener.open(4, HEADER, &mut flipped), Err(DropCause::Forged), "bit {bit}");
        }
        for length in 0..packet.len() {
            let cause = opener.open(4, HEADER, &mut packet[..length].to_vec()).unwrap_err();
            let expected = if length < HEADER + TAG_BYTES { DropCause::Truncated } else { DropCause::Forged };
            assert_eq!(cause, expected, "{length} bytes");
        }
        assert_eq!(opener.open(5, HEADER, &mut packet.clone()), Err(DropCause::Forged), "another number");
        let mut other = Opener::new(&SessionKey([8; KEY_BYTES]));
        assert_eq!(other.open(4, HEADER, &mut packet.clone()), Err(DropCause::Forged), "another key");
        // None of these has moved the window.
        assert!(opener.open(4, HEADER, &mut packet.clone()).is_ok());
        assert_eq!(opener.open(4, HEADER, &mut packet.clone()), Err(DropCause::Repeated));
        let dropped = opener.dropped();
        assert_eq!(dropped.repeated, 1);
        assert_eq!((dropped.truncated, dropped.old), ((HEADER + TAG_BYTES) as u64, 0));
        assert_eq!(dropped.forged, (8 * packet.len() + packet.len() - HEADER - TAG_BYTES) as u64 + 1);
    }

    #[test]
    fn a_packet_from_long_ago_is_dropped_unopened() {
        let (mut sealer, mut opener) = (Sealer::new(&KEY), Opener::new(&KEY));
        let mut old = sealed(&mut sealer, 3);
        let mut new = sealed(&mut sealer, 100_000);
        opener.open(100_000, HEADER, &mut new).unwrap();
        assert_eq!(opener.open(3, HEADER, &mut old), Err(DropCause::Old));
        assert_eq!(opener.dropped().old, 1);
    }

    #[test]
    fn no_number_is_sealed_twice() {
        let mut sealer = Sealer::new(&KEY);
        sealed(&mut sealer, 9);
        for sequence in [9, 8, 0, u64::MAX] {
            let refused = sealer.seal(sequence, HEADER, &mut [0; 40]);
            assert_eq!(refused, Err(SealError::UsedNumber { sequence, next: 10 }));
        }
        for bytes in [3, TAG_BYTES, HEADER + TAG_BYTES - 1] {
            assert_eq!(sealer.seal(10, HEADER, &mut vec![0; bytes]), Err(SealError::Length { bytes }));
        }
        sealed(&mut sealer, 10);
    }

    #[test]
    fn numbers_above_32_bits_have_nonces_of_their_own() {
        let nonces: Vec<[u8; NONCE_LEN]> = [1, 2, u32::MAX.into(), 1 << 32, (1 << 32) + 1, (1 << 32) + 2, 1 << 63]
            .map(|sequence: u64| *nonce(sequence).as_ref())
            .into();
        for (index, nonce) in nonces.iter().enumerate() {
            assert!(!nonces[..index].contains(nonce), "{nonce:?}");
        }
        let mut sealer = Sealer::new(&KEY);
        sealed(&mut sealer, u32::MAX.into());
        sealed(&mut sealer, 1 << 32);
        assert!(sealer.seal(0, HEADER, &mut [0; 40]).is_err(), "the count goes on");
    }

    #[test]
    fn keys_do_not_show_themselves() {
        let texts = [format!("{KEY:?}"), format!("{:?}", Sealer::new(&KEY)), format!("{:?}", Opener::new(&KEY))];
        assert!(texts.iter().all(|text| !text.contains("7, 7") && !text.contains("07")), "{texts:?}");
    }
}
