//! What all parts of the reader share: the superblock, the bytes, and where damage is noted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::group::Group;
use super::inode::Inode;
use super::source::Source;
use super::superblock::Superblock;
use crate::directory_owners::DirectoryOwners;
use crate::error::{DamageLog, GuestError};

/// An ext file system over the bytes of its volume.
pub(super) struct Tables<'a> {
    pub(super) superblock: Superblock,
    pub(super) source: Source<'a>,
    pub(super) damage: DamageLog,
    /// The part of an inode table that was read last by a pass over all inodes.
    pub(super) window: Mutex<Option<Window>>,
    /// The inode that was decoded last. Callers ask for one several times in a row: its kind, its length, its map.
    pub(super) last_inode: Mutex<Option<Inode>>,
    /// The group whose inodes were read last.
    pub(super) last_group: Mutex<Option<Group>>,
    /// Memory for a block of a directory, while nobody reads one.
    pub(super) block_memory: Mutex<Vec<u8>>,
    /// Which directory each block belongs to.
    pub(super) directory_owners: Mutex<DirectoryOwners>,
    /// Whether an inode, a whole table of them, or the map of a file was skipped because it is damaged.
    is_file_lost: AtomicBool,
    /// The first group that is left out, as all after it.
    groups_end: u32,
}

/// Consecutive inodes, as they were read.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The number of the first inode.
    pub(super) first: u32,
    /// First byte in the volume.
    pub(super) offset: u64,
    /// How many bytes belong to the inodes.
    pub(super) length: usize,
    /// The inodes, and what is left of memory that was made for more of them.
    pub(super) bytes: Arc<[u8]>,
}

impl<'a> Tables<'a> {
    /// Returns the file system that a superblock describes.
    pub(super) fn new(superblock: Superblock, source: Source<'a>, damage: DamageLog) -> Tables<'a> {
        Tables {
            superblock,
            source,
            damage,
            window: Mutex::new(None),
            last_inode: Mutex::new(None),
            last_group: Mutex::new(None),
            block_memory: Mutex::new(Vec::new()),
            directory_owners: Mutex::new(DirectoryOwners::default()),
            is_file_lost: AtomicBool::new(false),
            groups_end: u32::MAX,
        }
    }

    /// Leaves out this group and all after it.
    pub(super) fn leave_out_groups_from(&mut self, number: u32) {
        self.groups_end = number;
    }

    /// Returns the first group that is left out although the volume has it, as all after it.
    pub(super) fn first_group_left_out(&self) -> Option<u32> {
        (self.groups_end < u32::MAX).then_some(self.groups_end)
    }

    /// Records damage and returns `None`, as [`DamageLog::skip`] does, and remembers that a part of a file is missing.
    pub(super) fn skip_file<T>(&self, outcome: Result<T, GuestError>) -> Result<Option<T>, GuestError> {
        let found = self.damage.skip(outcome)?;
        if found.is_none() {
            self.is_file_lost.store(true, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// Returns whether a pass over all files skipped a part of one.
    pub(super) fn is_file_lost(&self) -> bool {
        self.is_file_lost.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Tables<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables").field("superblock", &self.superblock).finish_non_exhaustive()
    }
}
