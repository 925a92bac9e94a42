//! A sharing index of very many blocks that exist on no disk, and a batch of new contents for it.
//!
//! The cost of a pass at a given size depends on the index, which is read and rewritten as a whole. Its entries name
//! blocks of a sparse file, which is marked as read so that no scan reads it. Every entry is of a unique block: these
//! are longer than entries of shared ones. The new contents are missing from the index, and spread over all of it.

use std::io;
use std::path::Path;

use onefold_block::BLOCK_BYTES_U64;
use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_share::domain::DomainRules;
use onefold_share::format::entry::{ContentEntry, ContentPlace};
use onefold_share::format::log::{LogKind, Note, WrittenBlock};
use onefold_share::format::prefix::Prefix;
use onefold_share::format::stamp::Stamp;
use onefold_share::format::{FileBlock, FileNo, FingerprintPrefix};
use onefold_share::state::files::Marks;
use onefold_share::state::logs::LogOrder;
use onefold_share::state::shards::{NextGeneration, PublishOutcome};
use onefold_share::state::{State, StateError};
use onefold_substrate::{Access, Substrate};

/// The file whose blocks the index names.
pub const INDEXED: &str = "indexed";
/// The file of the new contents.
pub const NEW: &str = "new";

/// Maximum number of entries in a shard; a pass splits longer shards.
const SHARD_ENTRIES: u64 = onefold_share::pass::SHARD_ENTRIES_MAX;

/// The size of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexPlan {
    /// Number of entries.
    pub entries: u64,
    /// Number of blocks that the next pass adds to it.
    pub news: u64,
}

/// Why the index could not be made.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The number of blocks is zero, or above the maximum of an index.
    #[error("there can be from 1 to {max} blocks, {asked} were asked for")]
    Plan {
        /// Requested number.
        asked: u64,
        /// Maximum number.
        max: u64,
    },
    /// A state folder exists already; its content would mix with this.
    #[error("there is an index already: delete the state folder first")]
    Taken,
    /// A sparse file could not be made.
    #[error("cannot make the file `{name}`")]
    File {
        /// Its name.
        name: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The state folder failed.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Makes a state folder with such an index, and one log, in the root of a file system. Returns the length of the index
/// in bytes.
///
/// # Errors
/// See [`IndexError`].
pub fn make_index<S: Substrate>(substrate: &S, plan: IndexPlan) -> Result<u64, IndexError> {
    for asked in [plan.entries, plan.news] {
        if asked == 0 || asked >= FileBlock::LIMIT {
            return Err(IndexError::Plan { asked, max: FileBlock::LIMIT - 1 });
        }
    }
    let notice = |_| {};
    let state = State::open(substrate, &SystemClock, &SystemRandom, &notice)?;
    if state.has_index()? {
        return Err(IndexError::Taken);
    }
    let mut files = Marks::default();
    let indexed = sparse_file(&state, &mut files, INDEXED, plan.entries)?;
    let new = sparse_file(&state, &mut files, NEW, plan.news)?;
    let mut bytes = 0;
    for shard in shards(plan.entries) {
        bytes += write_shard(&state, plan, shard, indexed)?;
    }
    let mut blocks = (0..plan.news).map(|block| {
        let digest = Some(digest(mixed(block), !block));
        Note::Written(WrittenBlock { block: FileBlock(block), digest })
    });
    state.write_log(LogKind::Log, new, LogOrder::default(), &mut || Ok(blocks.next()))?;
    Ok(bytes)
}

/// Makes a file that is one hole, and marks it as read.
fn sparse_file<S: Substrate>(
    state: &State<'_, S>,
    files: &mut Marks,
    name: &'static str,
    blocks: u64,
) -> Result<FileNo, IndexError> {
    let path = Path::new(name);
    let substrate = state.substrate();
    let domains = DomainRules::of(state)?;
    let make = || {
        let file = substrate.create(path)?;
        substrate.set_len(&file, blocks * BLOCK_BYTES_U64)?;
        substrate.sync(&file)?;
        drop(file);
        let file = substrate.open(path, Access::Read)?;
        let stat = substrate.stat(&file)?;
        let membership = domains.membership(path, &file, &stat, None)?;
        Ok((stat, membership))
    };
    let (stat, membership) = make().map_err(|source| IndexError::File { name, source })?;
    let number = files.number(state, &stat.handle, path, &membership)?;
    files.note(state, number, path, Some(Stamp::of(&stat)))?;
    Ok(number)
}

/// Returns the shards of an index with this number of entries, in order.
fn shards(entries: u64) -> Vec<Prefix> {
    let mut shards = vec![Prefix::WHOLE];
    while entries / (shards.len() as u64) > SHARD_ENTRIES {
        let halves: Option<Vec<[Prefix; 2]>> = shards.iter().map(|shard| shard.halves()).collect();
        let Some(halves) = halves else { break };
        shards = halves.into_iter().flatten().collect();
    }
    shards
}

/// Writes the first generation of a shard. Returns its length in bytes.
fn write_shard<S: Substrate>(
    state: &State<'_, S>,
    plan: IndexPlan,
    shard: Prefix,
    indexed: FileNo,
) -> Result<u64, IndexError> {
    // Digests are evenly spaced; their lower half looks random.
    let distance = u64::MAX / plan.entries;
    let first = shard.first_word().div_ceil(distance);
    let words = (first..plan.entries).map(|number| (number, number * distance));
    let words = words.take_while(|(_, word)| *word <= shard.last_word());
    let next = NextGeneration { prefix: shard, generation: 1, is_split: false };
    let published = state.publish_shard(next, |writer| {
        for (number, word) in words {
            // Neighbours in the index are not adjacent in the file.
            let block = number.reverse_bits() >> (number_bits(plan.entries));
            let place = ContentPlace::Unique(indexed, FileBlock(block.min(plan.entries - 1)));
            writer.push(&ContentEntry { digest: digest(word, mixed(number)), place })?;
        }
        Ok(Some(()))
    })?;
    match published {
        PublishOutcome::Done(shard) => Ok(shard.bytes),
        PublishOutcome::Unneeded | PublishOutcome::Late => Err(IndexError::Taken),
    }
}

/// Returns the shift that brings the reversed bits of a number below `limit` back into range.
fn number_bits(limit: u64) -> u32 {
    (limit - 1).leading_zeros().min(u64::BITS - 1)
}

fn digest(first: u64, second: u64) -> FingerprintPrefix {
    let mut bytes = [0; FingerprintPrefix::BYTES];
    bytes[..8].copy_from_slice(&first.to_be_bytes());
    bytes[8..].copy_from_slice(&second.to_be_bytes()[4..]);
    FingerprintPrefix(bytes)
}

/// Returns a number that looks random; different numbers give different results.
fn mixed(number: u64) -> u64 {
    let mut mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
