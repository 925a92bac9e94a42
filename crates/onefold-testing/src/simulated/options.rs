//! What a simulation is made of.

use std::path::PathBuf;
use std::time::Duration;

use onefold_substrate::{FileHandle, UserNo};

use super::dice::Dice;

/// What a simulation is made of. The same options give the same run, step by step.
#[derive(Clone, Debug)]
pub struct SimulationOptions {
    /// Decides all that is left to chance.
    pub seed: u64,
    /// How many hosts have the file system mounted.
    pub hosts: u32,
    /// How many steps a run takes. A step is one call of one host, one change by a writer, or one event.
    pub steps: u64,
    /// How many images there are at first, and at least half as many and at most twice as many later.
    pub images: u32,
    /// How long images are at most, in blocks.
    pub image_blocks_max: u32,
    /// How many contents writers choose from; one is zeros.
    pub contents: u32,
    /// How large the file system is, in blocks.
    pub total_blocks: u32,
    /// How many of a hundred steps are changes by writers.
    pub writer_percent: u32,
    /// How many users the images belong to. With several, writers give images to other users now and then.
    pub owners: u32,
    /// Whether writers make files ones that the file system does not share, for a time.
    pub refuses_files: bool,
    /// Whether writers set the times of files back, as tools that keep times do.
    pub sets_times_back: bool,
    /// How often a host crashes, in a million steps.
    pub crashes_per_million: u32,
    /// How many of a hundred steps after which something that a host shared in two steps, or filled, is not durable are
    /// its last.
    pub crash_at_share_percent: u32,
    /// How often a host is suspended and does not know it, in a million steps.
    pub stalls_per_million: u32,
    /// How often the time of day of a host is set, by up to an hour, in a million steps.
    pub clock_jumps_per_million: u32,
    /// How often the identity of the state folder is lost, in a million steps.
    pub identity_losses_per_million: u32,
    /// How many of a hundred steps stay with the host that made the last one.
    pub burst_percent: u32,
    /// The longest time that a step takes. It takes some time up to that.
    pub step_time_max: Duration,
    /// The longest time from a crash to the next start.
    pub down_time_max: Duration,
    /// The longest time that a host is suspended.
    pub stall_time_max: Duration,
    /// The longest time from the end of a host's work to its next start.
    pub rest_time_max: Duration,
    /// How long a host must be silent until its locks are others' to take.
    pub lock_timeout: Duration,
    /// How long changes of names may be lost with their host.
    pub names_unsynced_max: Duration,
    /// How file times are rounded.
    pub time_unit: Duration,
    /// What fails, and how often.
    pub faults: Faults,
    /// How the file system does what file systems do in several ways.
    pub habits: Habits,
    /// A mistake that the file system is to make, to see that it is found.
    pub mistake: Option<Mistake>,
    /// After how many steps all invariants are looked at for all files, not only for what the step touched.
    pub full_check_steps: u64,
    /// Whether what writers write through each host is kept for [`Host::take_writes`](super::Host::take_writes).
    pub tells_writes: bool,
    /// How large the stack of a host is, in bytes.
    pub stack_bytes: usize,
    /// Whether the last steps are kept as text, for the message of a failure.
    pub tells_steps: bool,
    /// Whether it is a violation that a host uses a file in a folder that it keeps ([`Names::keep_folder`]) before it
    /// has asked for the file's protection.
    ///
    /// [`Names::keep_folder`]: onefold_substrate::Names::keep_folder
    pub wants_checks: bool,
    /// Returns what a file of the folder for intents declares; none where it declares nothing, or cannot be read. A
    /// format that nothing here knows.
    pub decode_declared: fn(&[u8]) -> Option<DeclaredShare>,
    /// The users for whom the hosts work, in turn; all of them work for root where it is empty. An image belongs to the
    /// user of the host on which it is created.
    pub users: Vec<UserNo>,
}

/// What a host has declared that it shares in one file, in two steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredShare {
    /// The file.
    pub handle: FileHandle,
    /// The blocks.
    pub runs: Vec<DeclaredRun>,
}

/// Consecutive blocks that are to share with consecutive slots of an arena file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredRun {
    /// The first block, in the file that shares.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// The arena file, from the root of the file system.
    pub arena: PathBuf,
    /// The first slot, in blocks from the beginning of the arena file.
    pub slot: u64,
}

impl Default for SimulationOptions {
    /// Four hosts, small images, no faults.
    fn default() -> SimulationOptions {
        SimulationOptions {
            seed: 0,
            hosts: 4,
            steps: 10_000,
            images: 12,
            image_blocks_max: 32,
            contents: 48,
            total_blocks: 4096,
            writer_percent: 20,
            owners: 1,
            refuses_files: true,
            sets_times_back: true,
            crashes_per_million: 0,
            crash_at_share_percent: 0,
            stalls_per_million: 0,
            clock_jumps_per_million: 0,
            identity_losses_per_million: 0,
            burst_percent: 50,
            step_time_max: Duration::from_millis(20),
            down_time_max: Duration::from_secs(90),
            stall_time_max: Duration::from_secs(60),
            rest_time_max: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(30),
            names_unsynced_max: Duration::from_secs(5),
            time_unit: Duration::from_millis(4),
            faults: Faults::none(),
            habits: Habits::default(),
            mistake: None,
            decode_declared: |_| None,
            full_check_steps: 2000,
            tells_writes: false,
            stack_bytes: 512 << 10,
            tells_steps: false,
            wants_checks: false,
            users: Vec::new(),
        }
    }
}

impl SimulationOptions {
    /// Returns the user for whom a host works. The observer works for root.
    pub(super) fn user_of(&self, host: u32) -> UserNo {
        let number = (host as usize).checked_rem(self.users.len()).filter(|_| host < self.hosts);
        number.map_or(UserNo::ROOT, |number| self.users[number])
    }

    /// Returns options in which everything happens that may happen, how often and at what sizes decided by the seed.
    #[must_use]
    pub fn drawn(seed: u64, hosts: u32, steps: u64) -> SimulationOptions {
        let mut dice = Dice::new(seed, 0x0071);
        let mut up_to = |most: u32| u32::try_from(dice.below(u64::from(most) + 1)).expect("at most a u32");
        let images = 4 + up_to(28);
        let image_blocks_max = 4 + up_to(60);
        let contents = 4 + up_to(120);
        let spacious = images * image_blocks_max * 2 + 1024;
        let cramped = images * image_blocks_max / 2 + 64;
        SimulationOptions {
            seed,
            hosts,
            steps,
            images,
            image_blocks_max,
            contents,
            total_blocks: if up_to(3) == 0 { cramped } else { spacious },
            writer_percent: 2 + up_to(50),
            crashes_per_million: up_to(2000),
            stalls_per_million: up_to(2000),
            clock_jumps_per_million: up_to(200),
            burst_percent: up_to(99),
            faults: match up_to(3) {
                0 => Faults::none(),
                1 => Faults::each(500 + up_to(20_000)),
                _ => Faults::each(up_to(500)),
            },
            habits: Habits {
                overwrites_in_place: up_to(1) == 0,
                syncs_names_with_data: up_to(1) == 0,
                tells_last_reference: up_to(2) > 0,
                loss_changes_times: up_to(1) == 0,
                frees_whole_extents: up_to(3) == 0,
                shares_in_two_steps: false,
                share_blocks_max: [1, 16, 256][up_to(2) as usize],
                extents_max: 1 + up_to(40),
            },
            wants_checks: true,
            ..SimulationOptions::default()
        }
    }

    /// Returns the options for images of several users.
    #[must_use]
    pub fn with_owners(self, owners: u32) -> SimulationOptions {
        SimulationOptions { owners, ..self }
    }

    /// As [`SimulationOptions::drawn`], on a file system that shares in two steps.
    ///
    /// Whoever the others think dead is dead there: it is reset. So no host is suspended for that long. Maps are looked
    /// at under the file's lock, and are of the moment, but do not tell the last reference; times are what a crash
    /// leaves of them, and no others.
    #[must_use]
    pub fn drawn_in_two_steps(
        seed: u64,
        hosts: u32,
        steps: u64,
        decode_declared: fn(&[u8]) -> Option<DeclaredShare>,
    ) -> SimulationOptions {
        let options = SimulationOptions::drawn(seed, hosts, steps).in_two_steps(decode_declared);
        SimulationOptions { crash_at_share_percent: 10, ..options }
    }

    /// Tells whether the file system says what was changed since a generation: where nothing is overwritten where it
    /// lies.
    pub(super) fn tells_generations(&self) -> bool {
        !self.habits.overwrites_in_place && !self.habits.shares_in_two_steps
    }

    /// Returns the options for a file system that shares in two steps, where hosts declare what they share in files
    /// that `decode_declared` reads.
    #[must_use]
    pub fn in_two_steps(mut self, decode_declared: fn(&[u8]) -> Option<DeclaredShare>) -> SimulationOptions {
        self.decode_declared = decode_declared;
        self.habits.shares_in_two_steps = true;
        (self.habits.loss_changes_times, self.habits.frees_whole_extents) = (false, false);
        self.habits.tells_last_reference = false;
        self.stall_time_max = self.lock_timeout / 2;
        self.faults.stale_map = 0;
        self
    }
}

/// How often calls of hosts fail or mislead, each in a million of the calls that can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Any call fails with EIO. A write may have written its first part then, a share have shared it, a sync lost data.
    pub io: u32,
    /// What takes room fails with ENOSPC; a share with [`ShareError::Full`](onefold_substrate::ShareError::Full).
    pub full: u32,
    /// A share or clone fails with [`ShareError::Busy`](onefold_substrate::ShareError::Busy).
    pub busy: u32,
    /// A share or clone is refused, as if the file could not be shared.
    pub refused: u32,
    /// A rename fails with EACCES, as OCFS2's does beside another one to the same name.
    pub rename_denied: u32,
    /// A map of extents ends early.
    pub short_map: u32,
    /// A map of extents is that of an earlier moment.
    pub stale_map: u32,
    /// A map of extents does not tell the places of what was just written.
    pub unplaced: u32,
}

impl Faults {
    /// Nothing fails.
    #[must_use]
    pub const fn none() -> Faults {
        Faults::each(0)
    }

    /// Everything fails equally often; maps mislead ten times as often.
    #[must_use]
    pub const fn each(per_million: u32) -> Faults {
        let maps = per_million.saturating_mul(10);
        Faults {
            io: per_million,
            full: per_million,
            busy: per_million,
            refused: per_million,
            rename_denied: per_million,
            short_map: maps,
            stale_map: maps,
            unplaced: maps,
        }
    }
}

/// What file systems do in one way or another, and sharing has to live with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// Whether a block that nobody else refers to is overwritten where it is (XFS), or gets a new place (Btrfs).
    pub overwrites_in_place: bool,
    /// Whether syncing a file makes names durable too that its host changed before.
    pub syncs_names_with_data: bool,
    /// Whether an extent stops being told as shared when the others are gone (XFS), or stays so (OCFS2).
    pub tells_last_reference: bool,
    /// Whether a file that lost something in a crash is seen to have changed then. Where it is not, its times may be
    /// those of what was lost, and whoever goes by times does not look again.
    pub loss_changes_times: bool,
    /// Whether the file system says of itself that blocks come free only as whole extents (Btrfs). Here they come free
    /// one by one all the same: what is tried is the engine's way of working then, not what it saves.
    pub frees_whole_extents: bool,
    /// Whether a share may leave a hole where its host crashes before it is durable (OCFS2). Writers open images then,
    /// and keep them open for a while.
    pub shares_in_two_steps: bool,
    /// The longest range that one call shares, in blocks.
    pub share_blocks_max: u32,
    /// How many extents one call gives at most.
    pub extents_max: u32,
}

impl Default for Habits {
    fn default() -> Habits {
        Habits {
            overwrites_in_place: true,
            syncs_names_with_data: false,
            tells_last_reference: true,
            loss_changes_times: false,
            frees_whole_extents: false,
            shares_in_two_steps: false,
            share_blocks_max: 256,
            extents_max: 32,
        }
    }
}

/// A mistake of the file system, that the invariants must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A share does not compare.
    ShareDoesNotCompare,
    /// A share does not raise the count of the block that it refers to.
    CountNotRaised,
    /// A place that lets go of a block does not lower its count.
    CountNotLowered,
    /// A write changes a block in place that others refer to.
    SharedBlockOverwritten,
    /// All files look as if they belonged to one user.
    OwnersHidden,
}
