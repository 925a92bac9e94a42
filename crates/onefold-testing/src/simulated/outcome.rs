//! What became of a run.

use std::fmt;

/// How often things happened.
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
    /// How often a host's work came to its end.
    pub ends: u64,
    /// Crashes of hosts.
    pub crashes: u64,
    /// Suspensions of hosts.
    pub stalls: u64,
    /// Blocks that a crash or a failed sync took back.
    pub blocks_lost: u64,
    /// Changes of names that a crash took back.
    pub names_lost: u64,
    /// Locks taken.
    pub locks: u64,
    /// Locks that others took from a host that was silent, or that it found gone.
    pub locks_expired: u64,
    /// Calls that failed or misled because they were to.
    pub faults: u64,
    /// Calls that shared.
    pub shares: u64,
    /// Calls to share that found a difference.
    pub differs: u64,
    /// Calls to share that were refused for what a file is.
    pub refusals: u64,
    /// Blocks that sharing freed.
    pub blocks_freed_by_sharing: u64,
    /// Blocks of images that shares left as holes.
    pub holes_left: u64,
    /// Losses of the state folder's identity.
    pub identities_lost: u64,
    /// Looks at all invariants of all files.
    pub full_checks: u64,
}

/// What the images hold and take. Only whole blocks count: a last one that is not whole cannot be shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Images that have a name.
    pub images: u64,
    /// Blocks of images that hold anything but zeros.
    pub image_blocks: u64,
    /// Blocks of images that are no holes and hold zeros.
    pub zero_blocks: u64,
    /// Contents of `image_blocks`, for each owner by itself: how many blocks of the device would do, if all were shared
    /// that may be.
    pub distinct: u64,
    /// Blocks of the device that `image_blocks` are; one that images of several owners have counts for each.
    pub physical: u64,
    /// Blocks of the device in use by anything.
    pub used: u64,
    /// Blocks of the device.
    pub total: u64,
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// How often things happened.
    pub counters: Counters,
    /// What the images hold and take at the end.
    pub census: Census,
    /// The virtual time that passed, in seconds.
    pub seconds: u64,
    /// What chance would decide next: two runs that came to this by different ways differ in it.
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

/// Why a run ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed that replays it.
    pub seed: u64,
    /// The step after which it was seen.
    pub step: u64,
    /// What was seen.
    pub problem: String,
    /// The last steps, where the options have them told.
    pub story: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nagain with ONEFOLD_SEED={}, step {}", self.problem, self.seed, self.step)?;
        if !self.story.is_empty() {
            f.write_str("; the last steps were:")?;
        }
        self.story.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl std::error::Error for Failure {}
