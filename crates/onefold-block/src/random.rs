//! The randomness seam.

use parking_lot::Mutex;

/// A source of unpredictable bytes: pool identities and keys come from here.
pub trait Random: Send + Sync {
    /// Fills `into` with random bytes.
    ///
    /// # Errors
    /// When the operating system cannot provide random bytes.
    fn fill(&self, into: &mut [u8]) -> std::io::Result<()>;
}

/// The operating system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, mut into: &mut [u8]) -> std::io::Result<()> {
        while !into.is_empty() {
            let count = rustix::rand::getrandom(&mut *into, rustix::rand::GetRandomFlags::empty())?;
            into = &mut into[count..];
        }
        Ok(())
    }
}

/// A seeded generator for tests (SplitMix64): the same seed gives the same bytes.
#[derive(Debug)]
pub struct SeededRandom {
    state: Mutex<u64>,
}

impl SeededRandom {
    /// Returns the generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> SeededRandom {
        SeededRandom { state: Mutex::new(seed) }
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&self) -> u64 {
        next(&mut self.state.lock())
    }

    /// Returns a number below `bound`, or 0 when `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }
}

impl Random for SeededRandom {
    fn fill(&self, into: &mut [u8]) -> std::io::Result<()> {
        let mut state = self.state.lock();
        for piece in into.chunks_mut(8) {
            piece.copy_from_slice(&next(&mut state).to_le_bytes()[..piece.len()]);
        }
        Ok(())
    }
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
