//! The kernel's sharing calls and nothing around them: the baseline for an engine that uses them.
//!
//! The pairs are given; nothing is searched, hashed or kept. Both ranges are read before each call, since the kernel
//! reads missing data page by page.

use std::io;
use std::time::{Duration, Instant};

use onefold_block::BLOCK_BYTES_U64;
use onefold_substrate::{At, ComparisonResult, ShareError, Substrate};

/// Equal blocks, as a pair of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The first block of the source.
    pub source: u64,
    /// The first block of the target.
    pub target: u64,
    /// Number of blocks.
    pub count: u64,
}

/// Why the calls ended early.
#[derive(Debug, thiserror::Error)]
pub enum CallsError {
    /// A line is no pair.
    #[error("line {line}: `{text}` is not SOURCE TARGET COUNT, in blocks")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Content of the line.
        text: String,
    },
    /// The files could not be read.
    #[error("cannot read the files")]
    Io(#[from] io::Error),
    /// The kernel refused.
    #[error("block {0} is not shared")]
    Refused(u64, #[source] ShareError),
    /// The blocks of a pair differ.
    #[error("the blocks at {0} are not equal")]
    Differ(u64),
}

/// Cost of the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCosts {
    /// Number of calls.
    pub calls: u64,
    /// Shared bytes.
    pub bytes: u64,
    /// Total time, including the reads before each call, and until the target was durable.
    pub time: Duration,
    /// The longest call.
    pub longest: Duration,
}

/// Reads pairs, one per line.
///
/// # Errors
/// `Line`; those of the reader.
pub fn read_pairs(lines: impl io::BufRead) -> Result<Vec<Pair>, CallsError> {
    let mut pairs = Vec::new();
    for (number, text) in lines.lines().enumerate() {
        let text = text?;
        let words: Vec<u64> = text.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
        match words[..] {
            [source, target, count] if count > 0 => pairs.push(Pair { source, target, count }),
            _ => return Err(CallsError::Line { line: number + 1, text }),
        }
    }
    Ok(pairs)
}

/// Shares all pairs, in calls of at most `call_bytes`.
///
/// # Errors
/// See [`CallsError`].
pub fn share_pairs<S: Substrate>(
    substrate: &S,
    source: &S::File,
    target: &S::File,
    pairs: &[Pair],
    call_bytes: u64,
) -> Result<CallCosts, CallsError> {
    let at_once = (call_bytes / BLOCK_BYTES_U64).max(1);
    let mut buffer = Vec::new();
    let mut called = CallCosts::default();
    let started = Instant::now();
    for pair in pairs {
        let mut done = 0;
        while done < pair.count {
            let length = at_once.min(pair.count - done) * BLOCK_BYTES_U64;
            let from = At { file: source, offset: (pair.source + done) * BLOCK_BYTES_U64 };
            let into = At { file: target, offset: (pair.target + done) * BLOCK_BYTES_U64 };
            buffer.resize(usize::try_from(length).expect("at most a call"), 0);
            for place in [from, into] {
                substrate.read_at(place.file, place.offset, &mut buffer)?;
            }
            let call_started = Instant::now();
            match substrate.share(from, into, length) {
                Ok(ComparisonResult::Shared) => {}
                Ok(ComparisonResult::Differ) => return Err(CallsError::Differ(pair.target + done)),
                Err(why) => return Err(CallsError::Refused(pair.target + done, why)),
            }
            called.longest = called.longest.max(call_started.elapsed());
            called.calls += 1;
            called.bytes += length;
            done += length / BLOCK_BYTES_U64;
        }
    }
    substrate.sync(target)?;
    called.time = started.elapsed();
    Ok(called)
}
