//! Shared parts of the pool's tests: a naive reference, random actions, and small helpers.

#![allow(dead_code, unreachable_pub, reason = "each test crate uses its own part of this module")]

pub mod actions;
pub mod bench;
pub mod history;
pub mod observe;
pub mod reference;

use std::sync::Arc;

use onefold_block::clock::ManualClock;
use onefold_block::random::SeededRandom;
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BlockDevice, Random};
use onefold_pool::{
    Dedup, Durability, Environment, FileKind, Ino, NewFile, OpenOptions, OwnedWrite, Pool, PoolError, ReadRequest,
    TestLimits, Workers, WriteStart,
};

/// Returns the seed of a test run: `ONEFOLD_SEED`, or the test's own.
pub fn seed_or(default: u64) -> u64 {
    number_from("ONEFOLD_SEED").unwrap_or(default)
}

/// Returns the seed for one of several tests of a run: `own`, offset by `ONEFOLD_SEED`.
pub fn seed_moved(own: u64) -> u64 {
    own.wrapping_add(number_from("ONEFOLD_SEED").unwrap_or(0))
}

/// Reads a number from the environment, decimal or `0x` hexadecimal.
pub fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok());
    Some(number.unwrap_or_else(|| panic!("{variable} is not a number: {text}")))
}

/// Returns how many trials a test draws from its seed: `usual`, times `ONEFOLD_EFFORT` in runs that may take long.
pub fn tries(usual: u64) -> u64 {
    usual * number_from("ONEFOLD_EFFORT").unwrap_or(1)
}

/// Returns a reproducible clock and randomness.
pub fn environment() -> Environment {
    Environment { clock: Arc::new(ManualClock::starting_at(1000)), random: Arc::new(SeededRandom::new(1)) }
}

/// Returns options of a pool without background work. It keeps its summaries like a large pool.
pub fn quiet() -> OpenOptions {
    let test_limits = TestLimits { summaries_from_groups: 1, ..TestLimits::default() };
    OpenOptions { background: false, memory_bytes: 64 << 20, test_limits, ..OpenOptions::default() }
}

/// Returns options of a pool in which threads that wait for accepted writes carry them out. The pool stores the first
/// two small writes after a sync at once, and later ones with the next commit.
pub fn behind() -> OpenOptions {
    let test_limits = TestLimits { late_after: 2, ..quiet().test_limits };
    OpenOptions { workers: Workers::Callers, test_limits, ..quiet() }
}

/// Opens a pool; panics if it does not open.
pub fn open(device: &Arc<dyn BlockDevice>, options: &OpenOptions) -> Pool {
    Pool::open(Arc::clone(device), options.clone(), environment()).expect("the pool opens")
}

/// Writes as doors do: whole blocks may take effect later, but not if they must be durable at once.
pub fn write_as_doors_do(
    pool: &Pool,
    ino: Ino,
    offset: u64,
    bytes: &[u8],
    durability: Durability,
) -> Result<(), PoolError> {
    match durability {
        Durability::Now => pool.write(ino, offset, bytes, durability),
        Durability::Later => {
            let (buffer, range) = (AlignedBuffer::copy_of(bytes), 0..bytes.len());
            pool.write_behind(OwnedWrite { ino, offset, buffer, range }, WriteStart::ByWorker)
        }
    }
}

/// Reads as doors do: whole blocks into whole pages, together with concurrent requests.
pub fn read_as_doors_do(pool: &Pool, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize, PoolError> {
    let mut buffer = AlignedBuffer::zeroed(into.len().div_ceil(BLOCK_BYTES));
    let mut readings = [ReadRequest { ino, offset, into: &mut buffer[..into.len()] }];
    let got = pool.read_each(&mut readings).pop().expect("one outcome")?;
    into[..got].copy_from_slice(&buffer[..got]);
    Ok(got)
}

/// Returns a new file of some kind.
pub fn new_file(kind: FileKind) -> NewFile {
    NewFile { kind, mode: 0o644, umask: 0o022, uid: 1000, gid: 100, rdev: 0 }
}

/// Returns a new regular file.
pub fn regular() -> NewFile {
    new_file(FileKind::Regular)
}

/// Returns the extended attribute's value for a dedup setting.
pub fn dedup_value(dedup: Dedup) -> &'static [u8] {
    if dedup == Dedup::On { b"on" } else { b"off" }
}

/// Returns the name of an error's variant, for comparing with the reference.
pub fn kind_of(error: &PoolError) -> &'static str {
    match error {
        PoolError::NotFound => "NotFound",
        PoolError::Exists => "Exists",
        PoolError::NotADirectory => "NotADirectory",
        PoolError::IsADirectory => "IsADirectory",
        PoolError::NotEmpty => "NotEmpty",
        PoolError::NameTooLong => "NameTooLong",
        PoolError::NoSpace => "NoSpace",
        PoolError::FileTooLarge => "FileTooLarge",
        PoolError::CrossDomain => "CrossDomain",
        PoolError::Invalid(_) => "Invalid",
        PoolError::NoSuchOffset => "NoSuchOffset",
        PoolError::NoAttribute => "NoAttribute",
        PoolError::NotPermitted(_) => "NotPermitted",
        _ => "unexpected",
    }
}

/// Seeded choices.
pub struct Dice(SeededRandom);

impl Dice {
    /// Returns the dice for a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(SeededRandom::new(seed))
    }

    /// Returns a number below `bound`.
    pub fn below(&self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// Returns a number below `bound`, as an index.
    pub fn index(&self, bound: usize) -> usize {
        usize::try_from(self.0.below(bound as u64)).expect("below a usize")
    }

    /// Returns true once in `sides` times.
    pub fn one_in(&self, sides: u64) -> bool {
        self.below(sides) == 0
    }

    /// Returns one of several elements.
    pub fn pick<'a, T>(&self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// Returns 64 random bits.
    pub fn bits(&self) -> u64 {
        self.0.next_u64()
    }
}

/// Returns a block's content by its number in the tests' alphabet; 0 is zeros.
pub fn letter(number: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    if number > 0 {
        SeededRandom::new(number).fill(&mut block).expect("cannot fail");
    }
    block
}

/// Returns the blocks of some numbers, one after another.
pub fn letters(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in numbers {
        bytes.extend_from_slice(&letter(number));
    }
    bytes
}

/// Returns bytes made from blocks of the alphabet, each below `letters`; zeros are as common as each other letter.
pub fn text(dice: &Dice, length: usize, letters: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + BLOCK_BYTES);
    while bytes.len() < length {
        let block = letter(dice.below(letters));
        // Sometimes a run of one content.
        for _ in 0..=(if dice.one_in(8) { dice.below(5) } else { 0 }) {
            bytes.extend_from_slice(&block);
        }
    }
    bytes.truncate(length);
    bytes
}
