//! Fingerprints: digests that stand for the content of a block.
//!
//! A fingerprint is the first 128 bits of BLAKE3, keyed with a secret of the pool and the sharing domain. So nobody
//! without the key can prepare two blocks with one fingerprint, and equal blocks of two domains have unrelated
//! fingerprints.
//!
//! One block is too short to fill the wide registers that make BLAKE3 fast, so many blocks are hashed side by side: the
//! first chunk of each, then the second of each, and so on up the trees, which all have the same shape. This uses
//! `blake3::platform`, which is public but undocumented: its version is pinned, and tests compare the results with
//! `blake3::keyed_hash`.

use std::fmt;

use blake3::IncrementCounter;
use blake3::platform::Platform;

use crate::BLOCK_BYTES;

/// The digest of one block.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; Fingerprint::BYTES]);

impl Fingerprint {
    /// Length in bytes.
    pub const BYTES: usize = 16;

    /// Returns the first 64 bits, read big-endian so that prefixes sort as fingerprints do.
    #[must_use]
    pub const fn prefix_u64(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// The secret key for fingerprints of one sharing domain.
#[derive(Clone)]
pub struct FingerprintKey {
    bytes: [u8; FingerprintKey::BYTES],
    words: [u32; 8],
    /// Mask of the fingerprint bits that are kept; all of them except in tests.
    kept: u128,
}

/// Separates this use of a pool's key from any other. Part of the on-disk format.
const DOMAIN_CONTEXT: &str = "onefold 2026-11-21 fingerprint key of a sharing domain";
/// Separates the keys for plain files' sharing domains from any other use of a state folder's key. Part of the on-disk
/// format.
const PLAIN_DOMAIN_CONTEXT: &str = "onefold 2026-11-23 fingerprint key of a sharing domain of plain files";

const CHUNK_BYTES: usize = blake3::CHUNK_LEN;
const CHUNKS: usize = BLOCK_BYTES / CHUNK_BYTES;
const NODE_BYTES: usize = blake3::OUT_LEN;
const PARENT_BYTES: usize = 2 * NODE_BYTES;
const _: () = assert!(CHUNKS == 4, "a block's tree is four chunks, two parents and the root");

/// Number of blocks hashed side by side: the maximum that any processor's registers take.
const LANES: usize = 16;

/// Flags of BLAKE3's compression function (section 2.2 of its paper).
const CHUNK_START: u8 = 1 << 0;
const CHUNK_END: u8 = 1 << 1;
const PARENT: u8 = 1 << 2;
const ROOT: u8 = 1 << 3;
const KEYED_HASH: u8 = 1 << 4;

impl FingerprintKey {
    /// Length in bytes.
    pub const BYTES: usize = 32;

    /// Returns the key that consists of `bytes`.
    #[must_use]
    pub fn new(bytes: [u8; FingerprintKey::BYTES]) -> FingerprintKey {
        let mut words = [0; 8];
        for (word, piece) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u32::from_le_bytes(*piece);
        }
        FingerprintKey { bytes, words, kept: u128::MAX }
    }

    /// Returns the key of sharing domain `domain` in the pool that owns `pool_key`.
    #[must_use]
    pub fn derive(pool_key: &[u8; FingerprintKey::BYTES], domain: u16) -> FingerprintKey {
        let mut material = [0; FingerprintKey::BYTES + 2];
        material[..FingerprintKey::BYTES].copy_from_slice(pool_key);
        material[FingerprintKey::BYTES..].copy_from_slice(&domain.to_le_bytes());
        FingerprintKey::new(blake3::derive_key(DOMAIN_CONTEXT, &material))
    }

    /// Returns the key of a sharing domain of plain files, for a state folder with this key. `domain` is the domain's
    /// encoding.
    #[must_use]
    pub fn derive_for(state_key: &[u8; FingerprintKey::BYTES], domain: &[u8]) -> FingerprintKey {
        let mut hasher = blake3::Hasher::new_derive_key(PLAIN_DOMAIN_CONTEXT);
        hasher.update(state_key).update(domain);
        FingerprintKey::new(*hasher.finalize().as_bytes())
    }

    /// Returns this key with only the first `bits` bits of its fingerprints kept and the others zero: different blocks
    /// then often collide. For tests only.
    #[doc(hidden)]
    #[must_use]
    pub fn shortened(self, bits: u8) -> FingerprintKey {
        let dropped = u128::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
        FingerprintKey { kept: !dropped, ..self }
    }

    /// Makes a fingerprint from a digest's first bytes.
    fn keep(&self, digest: [u8; Fingerprint::BYTES]) -> Fingerprint {
        Fingerprint((u128::from_be_bytes(digest) & self.kept).to_be_bytes())
    }

    /// Returns the fingerprint of one block.
    ///
    /// # Panics
    /// When `block` is not [`BLOCK_BYTES`] long.
    #[must_use]
    pub fn fingerprint(&self, block: &[u8]) -> Fingerprint {
        assert_eq!(block.len(), BLOCK_BYTES, "fingerprints are of whole blocks");
        let hash = blake3::keyed_hash(&self.bytes, block);
        self.keep(*hash.as_bytes().first_chunk().expect("32 bytes have a first 16"))
    }

    /// Puts the fingerprints of consecutive blocks into `out`, twice as fast as one at a time.
    ///
    /// # Panics
    /// When `data` has not exactly one block for each place in `out`.
    pub fn fingerprint_blocks(&self, data: &[u8], out: &mut [Fingerprint]) {
        let (blocks, rest) = data.as_chunks::<BLOCK_BYTES>();
        assert!(rest.is_empty() && blocks.len() == out.len(), "one place for each whole block");
        for (blocks, out) in blocks.chunks(LANES).zip(out.chunks_mut(LANES)) {
            let mut lanes = [&blocks[0]; LANES];
            for (lane, block) in lanes.iter_mut().zip(blocks) {
                *lane = block;
            }
            self.fingerprint_lanes(&lanes[..blocks.len()], out);
        }
    }

    /// Puts the fingerprints of scattered blocks into `out`, as fast as [`FingerprintKey::fingerprint_blocks`].
    ///
    /// # Panics
    /// When one of `blocks` is not [`BLOCK_BYTES`] long, or `out` does not have one place for each.
    pub fn fingerprint_each(&self, blocks: &[&[u8]], out: &mut [Fingerprint]) {
        assert_eq!(blocks.len(), out.len(), "one place for each block");
        for (blocks, out) in blocks.chunks(LANES).zip(out.chunks_mut(LANES)) {
            let whole = |block: &'_ [u8]| block.len() == BLOCK_BYTES;
            assert!(blocks.iter().all(|block| whole(block)), "fingerprints are of whole blocks");
            let first = blocks[0].first_chunk().expect("length checked above");
            let mut lanes = [first; LANES];
            for (lane, block) in lanes.iter_mut().zip(blocks) {
                *lane = block.first_chunk().expect("length checked above");
            }
            self.fingerprint_lanes(&lanes[..blocks.len()], out);
        }
    }

    /// Hashes up to [`LANES`] blocks side by side, level by level.
    fn fingerprint_lanes(&self, blocks: &[&[u8; BLOCK_BYTES]], out: &mut [Fingerprint]) {
        if let ([block], [out]) = (blocks, &mut *out) {
            // A lone block is hashed faster with its four chunks side by side.
            *out = self.fingerprint(*block);
            return;
        }
        let platform = Platform::detect();
        let mut level = [0; LANES * NODE_BYTES];

        // Each pair of chunks has a parent: left half, right half.
        let mut parents = [[[0; PARENT_BYTES]; LANES]; CHUNKS / 2];
        for chunk in 0..CHUNKS {
            let mut inputs = [&[0; CHUNK_BYTES]; LANES];
            for (input, block) in inputs.iter_mut().zip(blocks) {
                *input = &block.as_chunks().0[chunk];
            }
            platform.hash_many(
                &inputs[..blocks.len()],
                &self.words,
                chunk as u64,
                IncrementCounter::No,
                KEYED_HASH,
                CHUNK_START,
                CHUNK_END,
                &mut level,
            );
            place_children(&level, &mut parents[chunk / 2], chunk % 2);
        }

        let mut roots = [[0; PARENT_BYTES]; LANES];
        for (side, parents) in parents.iter().enumerate() {
            self.hash_parents(platform, &parents[..blocks.len()], 0, &mut level);
            place_children(&level, &mut roots, side);
        }
        self.hash_parents(platform, &roots[..blocks.len()], ROOT, &mut level);
        for (out, node) in out.iter_mut().zip(level.as_chunks::<NODE_BYTES>().0) {
            *out = self.keep(*node.first_chunk().expect("32 bytes have a first 16"));
        }
    }

    fn hash_parents(&self, platform: Platform, parents: &[[u8; PARENT_BYTES]], flag: u8, level: &mut [u8]) {
        let mut inputs = [&[0; PARENT_BYTES]; LANES];
        for (input, parent) in inputs.iter_mut().zip(parents) {
            *input = parent;
        }
        let inputs = &inputs[..parents.len()];
        platform.hash_many(inputs, &self.words, 0, IncrementCounter::No, KEYED_HASH | PARENT | flag, 0, 0, level);
    }
}

/// Puts a level's nodes into one side of the level above: 0 is left, 1 is right.
fn place_children(level: &[u8; LANES * NODE_BYTES], parents: &mut [[u8; PARENT_BYTES]; LANES], side: usize) {
    for (parent, node) in parents.iter_mut().zip(level.as_chunks::<NODE_BYTES>().0) {
        parent[side * NODE_BYTES..][..NODE_BYTES].copy_from_slice(node);
    }
}

impl fmt::Debug for FingerprintKey {
    /// Keeps the secret out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Random, SeededRandom};

    fn random_blocks(seed: u64, count: usize) -> Vec<u8> {
        let mut data = vec![0; count * BLOCK_BYTES];
        SeededRandom::new(seed).fill(&mut data).unwrap();
        data
    }

    fn plain(key: &[u8; 32], block: &[u8]) -> Fingerprint {
        Fingerprint(blake3::keyed_hash(key, block).as_bytes()[..16].try_into().unwrap())
    }

    #[test]
    fn side_by_side_and_one_at_a_time_agree_for_every_number_of_blocks() {
        let key_bytes: [u8; 32] = random_blocks(1, 1)[..32].try_into().unwrap();
        let key = FingerprintKey::new(key_bytes);
        for count in 0..=50 {
            let data = random_blocks(count as u64, count);
            let scattered: Vec<&[u8]> = data.chunks(BLOCK_BYTES).collect();
            let expected: Vec<_> = scattered.iter().map(|block| plain(&key_bytes, block)).collect();
            let mut out = vec![Fingerprint::default(); count];
            key.fingerprint_blocks(&data, &mut out);
            assert_eq!(out, expected, "{count} consecutive blocks");
            out.fill(Fingerprint::default());
            key.fingerprint_each(&scattered, &mut out);
            assert_eq!(out, expected, "{count} scattered blocks");
            assert!(scattered.iter().zip(&expected).all(|(block, expected)| key.fingerprint(block) == *expected));
        }
    }

    #[test]
    fn a_changed_bit_in_any_chunk_changes_the_fingerprint() {
        let key = FingerprintKey::new([3; 32]);
        let original = random_blocks(7, 1);
        for byte in [0, 1023, 1024, 2047, 2048, 3071, 3072, 4095] {
            let mut two = [original.clone(), original.clone()].concat();
            two[BLOCK_BYTES + byte] ^= 0x80;
            let mut out = [Fingerprint::default(); 2];
            key.fingerprint_blocks(&two, &mut out);
            assert_ne!(out[0], out[1], "byte {byte}");
        }
    }

    #[test]
    fn keys_of_domains_and_pools_are_unrelated() {
        let block = random_blocks(2, 1);
        let of = |pool: u8, domain| FingerprintKey::derive(&[pool; 32], domain).fingerprint(&block);
        let all = [of(0, 0), of(0, 1), of(0, 256), of(1, 0), of(1, 1)];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one));
        }
        assert_eq!(of(0, 1), of(0, 1));
    }

    /// These values are on disk in every pool, so they never change.
    #[test]
    fn fingerprints_match_the_stored_vectors() {
        let counting: Vec<u8> = (0..BLOCK_BYTES).map(|index| u8::try_from(index % 251).unwrap()).collect();
        let key = |domain| FingerprintKey::derive(&std::array::from_fn(|index| u8::try_from(index).unwrap()), domain);
        let of = |domain, block: &[u8]| key(domain).fingerprint(block).to_string();
        assert_eq!(of(0, &counting), "170afcedd41c984d977776d440798692");
        assert_eq!(of(1, &counting), "f900d7ecd4443858617b16e8d713831e");
        assert_eq!(of(0, &[0; BLOCK_BYTES]), "177ca3be257a7ee01ca71b0fad856d58");
    }

    #[test]
    fn a_fingerprint_prints_as_hex_and_its_prefix_is_its_beginning() {
        let fingerprint = Fingerprint(*b"\x01\x23\x45\x67\x89\xab\xcd\xef01234567");
        assert_eq!(fingerprint.to_string(), "0123456789abcdef3031323334353637");
        assert_eq!(fingerprint.prefix_u64(), 0x0123_4567_89ab_cdef);
    }

    #[test]
    fn a_shortened_key_keeps_the_first_bits_only() {
        let key = FingerprintKey::new([3; 32]);
        let data = random_blocks(9, 20);
        let blocks: Vec<&[u8]> = data.chunks(BLOCK_BYTES).collect();
        for bits in [0, 1, 11, 127, 128, 255] {
            let mut short = [Fingerprint::default(); 20];
            key.clone().shortened(bits).fingerprint_each(&blocks, &mut short);
            for (block, short) in blocks.iter().zip(short) {
                let whole = u128::from_be_bytes(key.fingerprint(block).0);
                let dropped = 128 - u32::from(bits.min(128));
                let expected = whole.checked_shr(dropped).unwrap_or(0).checked_shl(dropped).unwrap_or(0);
                assert_eq!(u128::from_be_bytes(short.0), expected, "{bits} bits");
                assert_eq!(key.clone().shortened(bits).fingerprint(block), short);
            }
        }
    }

    #[test]
    fn the_key_does_not_show_in_debug_output() {
        assert_eq!(format!("{:?}", FingerprintKey::new([0x5a; 32])), "FingerprintKey(..)");
    }

    #[test]
    #[should_panic(expected = "whole blocks")]
    fn a_short_block_has_no_fingerprint() {
        let _ = FingerprintKey::new([0; 32]).fingerprint(&[0; 512]);
    }
}
