//! The results of a run.

use std::fmt;

/// Event counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Steps of all kinds.
    pub steps: u64,
    /// Calls of hosts.
    pub calls: u64,
    /// Listings of folders.
    pub lists: u64,
    /// Changes by writers.
    pub writes: u64,
    /// Starts of hosts.
    pub starts: u64,
    /// Times that a host's work came to its end.
    pub ends: u64,
    /// Crashes of hosts.
    pub crashes: u64,
    /// Suspensions of hosts.
    pub stalls: u64,
    /// Blocks that a crash or a failed sync reverted.
    pub blocks_lost: u64,
    /// Shares in one step that crashes have undone.
    pub shares_lost: u64,
    /// Changes of names that a crash reverted.
    pub names_lost: u64,
    /// Locks taken.
    pub locks: u64,
    /// Locks that others took from a silent host, or that it found lost.
    pub locks_expired: u64,
    /// Calls that failed or misled on purpose.
    pub faults: u64,
    /// Calls that shared blocks.
    pub shares: u64,
    /// Calls that cloned blocks.
    pub clones: u64,
    /// Calls to share that found a difference.
    pub differs: u64,
    /// Calls to share that were refused for a property of a file.
    pub refusals: u64,
    /// Blocks that sharing freed.
    pub blocks_freed_by_sharing: u64,
    /// Blocks of images that shares left as holes.
    pub holes_left: u64,
    /// Losses of the state folder's identity.
    pub identities_lost: u64,
    /// Checks of all invariants of all files.
    pub full_checks: u64,
}

/// The content of the images and the blocks that they take. Only whole blocks count: a partial last one cannot be
/// shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Images with a name.
    pub images: u64,
    /// Blocks of images with content other than zeros.
    pub image_blocks: u64,
    /// Blocks of images that hold zeros and are no holes.
    pub zero_blocks: u64,
    /// Distinct contents of `image_blocks`, counted separately for each owner: the number of device blocks if
    /// everything that may be shared were shared.
    pub distinct: u64,
    /// Device blocks behind `image_blocks`; a block in images of several owners counts once for each.
    pub physical: u64,
    /// Device blocks in use.
    pub used: u64,
    /// Device blocks in all.
    pub total: u64,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Event counters.
    pub counters: Counters,
    /// Content and blocks of the images at the end.
    pub census: Census,
    /// The virtual time that passed, in seconds.
    pub seconds: u64,
    /// The next random number: it differs between two runs that reached this result by different ways.
    pub trail: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counters { steps, calls, writes, crashes, stalls, blocks_lost, names_lost, .. } = self.counters;
        let Counters { locks, locks_expired, faults, shares, differs, blocks_freed_by_sharing, .. } = self.counters;
        let Census { images, image_blocks, distinct, physical, .. } = self.census;
        write!(
            f,
            "seed {}: {steps} steps in {} s of its time: {calls} calls, {writes} writes, {crashes} crashes ({blocks_lost} \
             blocks and {names_lost} names lost), {stalls} stalls, {locks} locks ({locks_expired} expired), {faults} \
             faults, {shares} shares, {differs} differed, {blocks_freed_by_sharing} blocks saved; at the end {images} \
             images of {image_blocks} blocks on {physical} ({distinct} distinct)",
            self.seed, self.seconds,
        )
    }
}

/// Why a run ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    /// The seed that replays it.
    pub seed: u64,
    /// The step after which the failure was seen.
    pub step: u64,
    /// The failure.
    pub problem: String,
    /// The last steps, if the options keep them.
    pub story: Vec<String>,
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nagain with ONEFOLD_SEED={}, step {}", self.problem, self.seed, self.step)?;
        if !self.story.is_empty() {
            f.write_str("; the last steps were:")?;
        }
        self.story.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl std::error::Error for RunFailure {}
