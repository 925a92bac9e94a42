//! The options of a simulation.

use std::path::PathBuf;
use std::time::Duration;

use onefold_substrate::{FileHandle, UserNo};

use super::dice::Dice;

/// The options of a simulation. The same options give the same run, step by step.
#[derive(Clone, Debug)]
pub struct SimulationOptions {
    /// Decides all random choices.
    pub seed: u64,
    /// Number of hosts that mount the file system.
    pub hosts: u32,
    /// Number of steps of a run. A step is one call of one host, one change by a writer, or one event.
    pub steps: u64,
    /// Number of images at first. Later there are at least half and at most twice as many.
    pub images: u32,
    /// Maximum length of images, in blocks.
    pub image_blocks_max: u32,
    /// Number of contents that writers choose from; one is zeros.
    pub contents: u32,
    /// Size of the file system, in blocks.
    pub total_blocks: u32,
    /// Percentage of steps that are changes by writers.
    pub writer_percent: u32,
    /// Number of users that own images. With several, writers give images to other users now and then.
    pub owners: u32,
    /// Whether writers make some files refuse sharing for a time.
    pub refuses_files: bool,
    /// Whether writers reset modification times of files, as tools that preserve times do.
    pub sets_times_back: bool,
    /// Crashes of a host in a million steps.
    pub crashes_per_million: u32,
    /// Percentage of steps at which a host crashes, among those after which one of its shares in two steps, or a hole
    /// that it filled, is not durable yet.
    pub crash_at_share_percent: u32,
    /// Suspensions of a host, unknown to it, in a million steps.
    pub stalls_per_million: u32,
    /// Changes of a host's time of day, by up to an hour, in a million steps.
    pub clock_jumps_per_million: u32,
    /// Losses of the state folder's identity in a million steps.
    pub identity_losses_per_million: u32,
    /// Percentage of steps that stay with the host that made the last one.
    pub burst_percent: u32,
    /// Maximum time of a step. Each step takes a random time up to that.
    pub step_time_max: Duration,
    /// Maximum time from a crash to the next start.
    pub down_time_max: Duration,
    /// Maximum time of a suspension.
    pub stall_time_max: Duration,
    /// Maximum time from the end of a host's work to its next start.
    pub rest_time_max: Duration,
    /// Time of silence after which others may take a host's locks.
    pub lock_timeout: Duration,
    /// Time for which changes of names may be lost with their host.
    pub names_unsynced_max: Duration,
    /// Granularity of file times.
    pub time_unit: Duration,
    /// The kinds and rates of faults.
    pub faults: Faults,
    /// The variants of behaviour in which file systems differ.
    pub habits: Habits,
    /// A deliberate mistake of the file system, to test that it is found.
    pub mistake: Option<Mistake>,
    /// Number of steps between checks of all invariants for all files, not only for those that a step touched.
    pub full_check_steps: u64,
    /// Whether writes by writers through each host are kept for [`Host::take_writes`](super::Host::take_writes).
    pub tells_writes: bool,
    /// Size of a host's stack, in bytes.
    pub stack_bytes: usize,
    /// Whether the last steps are kept as text, for the message of a failure.
    pub tells_steps: bool,
    /// Whether it is a violation if a host uses a file in a folder that it keeps ([`Names::keep_folder`]) before it has
    /// asked for the file's protection.
    ///
    /// [`Names::keep_folder`]: onefold_substrate::Names::keep_folder
    pub wants_checks: bool,
    /// Decodes a file in the folder of intents; returns `None` if it declares nothing or is unreadable. The simulation
    /// itself does not know the format.
    pub decode_declared: fn(&[u8]) -> Option<DeclaredShare>,
    /// The users for whom the hosts work, in turn; if empty, all hosts work for root. An image belongs to the user of
    /// the host on which it is created.
    pub users: Vec<UserNo>,
}

/// A host's declaration of its shares into one file, in two steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredShare {
    /// The file.
    pub handle: FileHandle,
    /// The blocks.
    pub runs: Vec<DeclaredRun>,
}

/// Consecutive blocks that will share with consecutive slots of an arena file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredRun {
    /// The first block, in the sharing file.
    pub first: u64,
    /// Number of blocks.
    pub count: u64,
    /// The arena file, relative to the root of the file system.
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

    /// Returns options in which everything possible happens; the seed decides rates and sizes.
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
                loses_shares: false,
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

    /// Like [`SimulationOptions::drawn`], on a file system that shares in two steps.
    ///
    /// On such a file system, a host that the others consider dead is reset and so is really dead. So no host is
    /// suspended for that long. Maps are read under the file's lock and are current, but do not show the last
    /// reference. Times after a crash are what the crash leaves; a loss does not change them.
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

    /// Returns whether the file system can report changes since a generation: only if it never overwrites in place.
    pub(super) fn tells_generations(&self) -> bool {
        !self.habits.overwrites_in_place && !self.habits.shares_in_two_steps
    }

    /// Returns the options for a file system that shares in two steps, on which hosts declare their shares in files
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

/// How often calls of hosts fail or mislead, in a million of the calls that can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Any call fails with EIO. A write or share may then have completed a first part, and a sync may have lost data.
    pub io: u32,
    /// A call that takes room fails with ENOSPC; a share with
    /// [`ShareError::Full`](onefold_substrate::ShareError::Full).
    pub full: u32,
    /// A share or clone fails with [`ShareError::Busy`](onefold_substrate::ShareError::Busy).
    pub busy: u32,
    /// A share or clone is refused, as if the file could not be shared.
    pub refused: u32,
    /// A rename fails with EACCES, as on OCFS2 when another host renames to the same name.
    pub rename_denied: u32,
    /// A map of extents ends early.
    pub short_map: u32,
    /// A map of extents shows an earlier moment.
    pub stale_map: u32,
    /// A map of extents omits the places of newly written data.
    pub unplaced: u32,
}

impl Faults {
    /// Returns no faults.
    #[must_use]
    pub const fn none() -> Faults {
        Faults::each(0)
    }

    /// Returns faults of equal rates, except that maps mislead ten times as often.
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

/// Behaviour in which file systems differ and which sharing has to handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// Whether a block without other references is overwritten in place (XFS) or gets a new place (Btrfs).
    pub overwrites_in_place: bool,
    /// Whether syncing a file also makes names durable that its host changed before.
    pub syncs_names_with_data: bool,
    /// Whether an extent is no longer reported as shared once the other references are gone (XFS), or still is (OCFS2).
    pub tells_last_reference: bool,
    /// Whether a loss in a crash updates the times of a file. If not, the file may keep the times of the lost state,
    /// and a process that relies on times does not read it again.
    pub loss_changes_times: bool,
    /// Whether a crash may undo a share in one step that is not durable. The block then has its content at a place of
    /// its own.
    pub loses_shares: bool,
    /// Whether the file system claims to free blocks only as whole extents (Btrfs). The simulation still frees them one
    /// by one: it tests how the engine works then, not what it saves.
    pub frees_whole_extents: bool,
    /// Whether a share may leave a hole if its host crashes before the share is durable (OCFS2). Writers then open
    /// images and keep them open for a while.
    pub shares_in_two_steps: bool,
    /// Maximum length of a range in one call of share, in blocks.
    pub share_blocks_max: u32,
    /// Maximum number of extents in one result.
    pub extents_max: u32,
}

impl Default for Habits {
    fn default() -> Habits {
        Habits {
            overwrites_in_place: true,
            syncs_names_with_data: false,
            tells_last_reference: true,
            loss_changes_times: false,
            loses_shares: false,
            frees_whole_extents: false,
            shares_in_two_steps: false,
            share_blocks_max: 256,
            extents_max: 32,
        }
    }
}

/// A deliberate mistake of the file system, which the invariants must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A share does not compare.
    ShareDoesNotCompare,
    /// A share does not raise the count of the block that it refers to.
    CountNotRaised,
    /// A place that drops its reference to a block does not lower the block's count.
    CountNotLowered,
    /// A write changes a block in place although others refer to it.
    SharedBlockOverwritten,
    /// All files appear to belong to one user.
    OwnersHidden,
}
