//! A sharing index of very many blocks that are on no disk, and a batch of news for it.
//!
//! What a pass costs at a size hangs on the index: it is read, and written anew, as a whole. Its entries name blocks of
//! a sparse file, which is marked as read, so that no scan looks into it. Every entry is a unique block's: they are
//! longer than those of shared ones. The news are contents that the index does not have, spread over all of it.

use std::io;
use std::path::Path;

use onefold_block::BLOCK_BYTES_U64;
use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_share::domain::DomainRules;
use onefold_share::format::entry::{Entry, Place};
use onefold_share::format::log::{LogKind, Note, Written};
use onefold_share::format::mark::Stamp;
use onefold_share::format::prefix::Prefix;
use onefold_share::format::{FileBlock, FileNo, FingerprintPrefix};
use onefold_share::state::files::Marks;
use onefold_share::state::logs::LogOrder;
use onefold_share::state::shards::{NextGeneration, Published};
use onefold_share::state::{State, StateError};
use onefold_substrate::{Access, Substrate};

/// The file whose blocks the index names.
pub const INDEXED: &str = "indexed";
/// The file that the news are of.
pub const NEW: &str = "new";

/// A pass splits shards that are longer: these have at most so many entries.
const SHARD_ENTRIES: u64 = onefold_share::pass::SHARD_ENTRIES_MAX;

/// What an index is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexPlan {
    /// Entries.
    pub entries: u64,
    /// Blocks that the next pass brings into it.
    pub news: u64,
}

/// Why no index could be made.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// There are more than an index can have, or none.
    #[error("there can be from 1 to {max} blocks, {asked} were asked for")]
    Plan {
        /// What was asked for.
        asked: u64,
        /// The most that there can be.
        max: u64,
    },
    /// There is a state folder already; what it holds would be mixed with this.
    #[error("there is an index already: delete the state folder first")]
    Taken,
    /// The sparse files could not be made.
    #[error("cannot make the file `{name}`")]
    File {
        /// Its name.
        name: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The state folder.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Makes a state folder with such an index in the root of a file system, and one log. Returns the index's length in
/// bytes.
///
/// # Errors
/// As [`IndexError`] says.
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
        Note::Written(Written { block: FileBlock(block), digest })
    });
    state.write_log(LogKind::Log, new, LogOrder::default(), &mut || Ok(blocks.next()))?;
    Ok(bytes)
}

/// Makes a file that is one hole, and notes it as read.
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

/// Returns the shards of an index of this size, in order.
fn shards(entries: u64) -> Vec<Prefix> {
    let mut shards = vec![Prefix::WHOLE];
    while entries / (shards.len() as u64) > SHARD_ENTRIES {
        let halves: Option<Vec<[Prefix; 2]>> = shards.iter().map(|shard| shard.halves()).collect();
        let Some(halves) = halves else { break };
        shards = halves.into_iter().flatten().collect();
    }
    shards
}

/// Writes the first generation of a shard. Returns its length.
fn write_shard<S: Substrate>(
    state: &State<'_, S>,
    plan: IndexPlan,
    shard: Prefix,
    indexed: FileNo,
) -> Result<u64, IndexError> {
    // Digests have equal distances; their lower half looks random.
    let distance = u64::MAX / plan.entries;
    let first = shard.first_word().div_ceil(distance);
    let words = (first..plan.entries).map(|number| (number, number * distance));
    let words = words.take_while(|(_, word)| *word <= shard.last_word());
    let next = NextGeneration { prefix: shard, generation: 1, is_split: false };
    let published = state.publish_shard(next, |writer| {
        for (number, word) in words {
            // Neighbours in the index are no neighbours in a file.
            let block = number.reverse_bits() >> (number_bits(plan.entries));
            let place = Place::Unique(indexed, FileBlock(block.min(plan.entries - 1)));
            writer.push(&Entry { digest: digest(word, mixed(number)), place })?;
        }
        Ok(Some(()))
    })?;
    match published {
        Published::Done(shard) => Ok(shard.bytes),
        Published::Unneeded | Published::Late => Err(IndexError::Taken),
    }
}

/// Returns by how much the bits of a number below a limit are shifted when they are reversed.
fn number_bits(limit: u64) -> u32 {
    (limit - 1).leading_zeros().min(u64::BITS - 1)
}

fn digest(first: u64, second: u64) -> FingerprintPrefix {
    let mut bytes = [0; FingerprintPrefix::BYTES];
    bytes[..8].copy_from_slice(&first.to_be_bytes());
    bytes[8..].copy_from_slice(&second.to_be_bytes()[4..]);
    FingerprintPrefix(bytes)
}

/// Returns a number that looks random, and another one for each.
fn mixed(number: u64) -> u64 {
    let mut mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
