//! The allocation map of a FAT volume.
//!
//! A cluster is free if every current table marks it as free and no chain of a file or directory contains it. Tables
//! have no checksum: if a directory or a chain is damaged, or too short for its file, nothing is free. Nothing is free
//! of a volume in doubt.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::directory::{DIRECTORY_BYTES_MAX, FileRecord};
use super::layout::Root;
use super::table::FatEntry;
use super::{Fat, count_of};
use crate::budget::Budget;
use crate::error::GuestError;
use crate::filesystem::{Allocation, AllocationClass, AllocationDifferences, State, TableKind};

/// Maximum number of runs of a map. If there are more, the rest of the volume counts as allocated.
const RUNS_MAX: usize = 4 << 20;
/// Number of sets of all clusters that a map needs.
const SETS: u64 = 2;

/// A set of clusters.
pub(super) struct Clusters(Vec<u64>);

impl Clusters {
    pub(super) fn new(end: u32) -> Clusters {
        Clusters(vec![0; usize::try_from(end.div_ceil(64)).unwrap_or(0)])
    }

    /// Adds a cluster. Returns whether it is new.
    pub(super) fn add(&mut self, cluster: u32) -> bool {
        let Some(word) = usize::try_from(cluster / 64).ok().and_then(|at| self.0.get_mut(at)) else { return false };
        let bit = 1 << (cluster % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Returns the number of clusters in the set.
    fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Adds the clusters of another set of the same length. Returns the number of the new ones.
    fn add_all(&mut self, other: &Clusters) -> u64 {
        let words = self.0.iter_mut().zip(&other.0);
        words.fold(0, |added, (word, other)| {
            let new = other & !*word;
            *word |= new;
            added + u64::from(new.count_ones())
        })
    }

    fn has(&self, cluster: u32) -> bool {
        let word = usize::try_from(cluster / 64).ok().and_then(|at| self.0.get(at)).copied().unwrap_or(0);
        word & (1 << (cluster % 64)) != 0
    }
}

impl Fat<'_> {
    /// Returns the number of free clusters in the first current table.
    pub(super) fn count_free(&self) -> Result<u32, GuestError> {
        let Some(table) = self.table.current().next() else { return Ok(0) };
        let mut free = self.layout.clusters;
        self.table.each_used(table, &mut |_, _| free = free.saturating_sub(1))?;
        Ok(free)
    }

    /// Returns the clusters that at least one current table does not mark as free, or to which an entry leads. A table
    /// that marks other clusters as free than another one is damaged.
    fn in_use(&self) -> Result<UseSurvey, GuestError> {
        let (mut used, mut led_to) = (Clusters::new(self.layout.end()), Clusters::new(self.layout.end()));
        let mut differing = 0;
        for (copy, table) in self.table.current().enumerate() {
            let (before, mut count, mut added) = (used.count(), 0_u64, 0_u64);
            self.table.each_used(table, &mut |cluster, bits| {
                count += 1;
                added += u64::from(used.add(cluster));
                if let FatEntry::Next(next) = self.table.meaning(bits) {
                    led_to.add(next);
                }
            })?;
            let missing = before - (count - added);
            if copy > 0 && (added > 0 || missing > 0) {
                differing += added + missing;
                let problem = "the two tables differ in clusters that are free";
                self.damage.note(self.reader.damage(self.layout.table_start, "file allocation table", problem));
            }
        }
        let only_led_to = used.add_all(&led_to);
        if only_led_to > 0 {
            let problem = "a chain leads to a cluster that is free";
            self.damage.note(self.reader.damage(self.layout.table_start, "file allocation table", problem));
        }
        Ok(UseSurvey { used, differing, only_led_to })
    }

    /// Adds the clusters of all files and directories to those in use. A chain ends at a cluster of an earlier chain,
    /// which has already added the rest.
    fn reach(&self, used: &mut Clusters) -> Result<ChainSurvey, GuestError> {
        let mut reached = ReachedClusters { all: Clusters::new(self.layout.end()), free_count: 0 };
        let mut directories = HashSet::new();
        let (mut outcome, mut is_file_lost) = (Ok(()), false);
        if let Root::Clusters(first) = self.layout.root {
            is_file_lost |= self.reach_chain(first, &mut reached, used)?.is_none();
        }
        let are_whole = self.each_record_and_cluster(&mut directories, &mut |_, record| {
            let chain = match record.first_cluster {
                0 => Ok(Some(0)),
                first => self.reach_chain(first, &mut reached, used),
            };
            match chain {
                Ok(count) => is_file_lost |= count.is_none_or(|count| !self.is_whole(record, count)),
                Err(error) => outcome = Err(error),
            }
            if outcome.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        outcome?;
        let is_file_lost = is_file_lost || !are_whole;
        Ok(ChainSurvey { directories, is_file_lost, free_count: reached.free_count })
    }

    /// Returns whether a chain of `count` clusters is long enough for a file, and not longer than the limit for a
    /// directory.
    fn is_whole(&self, record: &FileRecord, count: u32) -> bool {
        if record.is_directory {
            let read = DIRECTORY_BYTES_MAX.div_ceil(self.layout.cluster_bytes);
            return count > 0 && u64::from(count) <= read;
        }
        count >= self.clusters_of(u64::from(record.size_bytes))
    }

    /// Adds a chain to the clusters that are reached, and to those in use. Returns the number of its clusters; `None`
    /// if it is damaged or continues in another chain.
    fn reach_chain(
        &self,
        first: u32,
        reached: &mut ReachedClusters,
        used: &mut Clusters,
    ) -> Result<Option<u32>, GuestError> {
        let damage = |cluster, problem| self.reader.damage(self.layout.place(cluster), "cluster chain", problem);
        let mut count = 0;
        for cluster in self.table.chain(first, &self.damage) {
            let Some(cluster) = self.damage.skip(cluster)? else { return Ok(None) };
            if !reached.all.add(cluster) {
                self.damage.note(damage(cluster, "two files have the same cluster"));
                return Ok(None);
            }
            if used.add(cluster) {
                reached.free_count += 1;
                self.damage.note(damage(cluster, "a file has a cluster that is free"));
            }
            count += 1;
        }
        Ok(Some(count))
    }

    /// Returns the initial state of a pass over all files.
    pub(super) fn new_pass(&self) -> Pass {
        Pass { reached: Clusters::new(self.layout.end()), spare: u64::from(self.layout.clusters) }
    }

    /// Returns whether a pass over all files visits a file. A file with clusters of another file is damage. When such
    /// files have shared as many clusters as the volume has, further ones are skipped, because the chain of each
    /// visited file is read, and many records may lead to one long chain.
    pub(super) fn has_room(&self, record: &FileRecord, pass: &mut Pass) -> Result<bool, GuestError> {
        if record.is_directory || record.first_cluster == 0 {
            return Ok(true);
        }
        let count = self.clusters_of(u64::from(record.size_bytes));
        let mut rest = u64::from(count);
        for cluster in self.table.chain(record.first_cluster, &self.damage).take(count_of(count)) {
            let Some(cluster) = self.damage.skip(cluster)? else { break };
            if !pass.reached.add(cluster) {
                let place = self.layout.place(cluster);
                self.damage.note(self.reader.damage(place, "cluster chain", "two files have the same cluster"));
                let spare = pass.spare.checked_sub(rest);
                pass.spare = spare.unwrap_or(pass.spare);
                if spare.is_none() {
                    let problem = "files have too many clusters of others; some are left out";
                    self.damage.note(self.reader.damage(self.layout.table_start, "cluster chain", problem));
                }
                return Ok(spare.is_some());
            }
            rest -= 1;
        }
        Ok(true)
    }

    pub(super) fn allocation_map(&self, budget: &Budget) -> Result<Vec<Allocation>, GuestError> {
        let volume_bytes = self.reader.size_bytes();
        let set_bytes = u64::from(self.layout.end()).div_ceil(64) * 8;
        let sets_bytes = usize::try_from(SETS * set_bytes).unwrap_or(usize::MAX);
        let (sets, rest) = (budget.draw(sets_bytes), budget.draw(RUNS_MAX * size_of::<Allocation>()));
        let run_rows = rest.rows(1, size_of::<Allocation>(), RUNS_MAX);
        if sets.rows(1, sets_bytes, 1).max == 0 || run_rows.max == 0 {
            budget.note_short();
            let class = AllocationClass::Doubtful;
            return Ok(vec![Allocation { start_bytes: 0, length_bytes: volume_bytes, class }]);
        }
        let UseSurvey { mut used, differing, only_led_to } = self.in_use()?;
        let ChainSurvey { directories, is_file_lost, free_count } = self.reach(&mut used)?;
        let free_count = free_count + only_led_to + self.add_unlisted(&directories, &mut used)?;
        *self.differences.lock() = Some(AllocationDifferences {
            reached_bytes: free_count * self.layout.cluster_bytes,
            between_copies_bytes: differing * self.layout.cluster_bytes,
            ..AllocationDifferences::default()
        });
        if is_file_lost {
            let problem = "nothing counts as free: a part of a file is lost";
            self.damage.note(self.reader.damage(self.layout.table_start, "file allocation table", problem));
        }
        let is_certain = !is_file_lost && self.state == State::Certain;
        let mut runs = AllocationBuilder { runs: Vec::new(), end: 0, volume_bytes };
        runs.add(self.layout.table_start, AllocationClass::Table(TableKind::Superblock));
        let tables = self.layout.table_bytes * u64::from(self.layout.tables);
        runs.add(tables, AllocationClass::Table(TableKind::Bitmap));
        runs.add(self.layout.data_start.saturating_sub(runs.end), AllocationClass::Table(TableKind::Directory));
        for cluster in 2..self.layout.end() {
            let class = match (used.has(cluster), directories.contains(&cluster)) {
                (_, true) => AllocationClass::Table(TableKind::Directory),
                (true, false) => AllocationClass::Data,
                (false, false) if is_certain => AllocationClass::Free,
                (false, false) => AllocationClass::Doubtful,
            };
            runs.add(self.layout.cluster_bytes, class);
            if runs.runs.len() >= run_rows.max {
                budget.note_full(run_rows);
                runs.add(u64::MAX, AllocationClass::Doubtful);
                break;
            }
        }
        runs.add(u64::MAX, AllocationClass::Outside);
        Ok(runs.runs)
    }
}

/// The clusters that the tables know.
struct UseSurvey {
    /// Those in use.
    used: Clusters,
    /// Number of those that one table marks as free, and another one does not.
    differing: u64,
    /// Number of those to which an entry leads, though all tables mark them as free.
    only_led_to: u64,
}

/// The clusters that chains have reached.
struct ReachedClusters {
    all: Clusters,
    /// Number of those that all tables mark as free.
    free_count: u64,
}

/// Result of following all chains.
struct ChainSurvey {
    /// The clusters of directories.
    directories: HashSet<u32>,
    /// Whether a directory or a chain is damaged, or the length of a chain does not match its file.
    is_file_lost: bool,
    /// Number of clusters of files that all tables mark as free.
    free_count: u64,
}

/// A pass over all files.
pub(super) struct Pass {
    /// Clusters of the files so far.
    reached: Clusters,
    /// Number of clusters that the following files may share with others.
    spare: u64,
}

/// Runs that are collected from the start of a volume.
struct AllocationBuilder {
    runs: Vec<Allocation>,
    end: u64,
    volume_bytes: u64,
}

impl AllocationBuilder {
    /// Adds the next `length` bytes, as far as they are within the volume.
    fn add(&mut self, length: u64, class: AllocationClass) {
        let length_bytes = length.min(self.volume_bytes - self.end);
        if length_bytes == 0 {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if last.class == class => last.length_bytes += length_bytes,
            _ => self.runs.push(Allocation { start_bytes: self.end, length_bytes, class }),
        }
        self.end += length_bytes;
    }
}
