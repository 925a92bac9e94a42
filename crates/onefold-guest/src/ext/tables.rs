//! State that all parts of the reader share: the superblock, the bytes, and the log of damage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::group::Group;
use super::inode::Inode;
use super::source::Source;
use super::superblock::Superblock;
use crate::directory_owners::DirectoryOwners;
use crate::error::{DamageLog, GuestError};

/// An ext file system on the bytes of its volume.
pub(super) struct Tables<'a> {
    pub(super) superblock: Superblock,
    pub(super) source: Source<'a>,
    pub(super) damage: DamageLog,
    /// The part of an inode table that the last pass over all inodes read last.
    pub(super) window: Mutex<Option<Window>>,
    /// The most recently decoded inode. Callers request an inode several times in a row: its kind, its length, its map.
    pub(super) last_inode: Mutex<Option<Inode>>,
    /// The group whose inodes were read last.
    pub(super) last_group: Mutex<Option<Group>>,
    /// Memory for a block of a directory, while no thread reads one.
    pub(super) block_memory: Mutex<Vec<u8>>,
    /// The directory of each block.
    pub(super) directory_owners: Mutex<DirectoryOwners>,
    /// Whether an inode, a whole table of inodes, or the map of a file was skipped because of damage.
    is_file_lost: AtomicBool,
    /// The first group that is skipped, like all later ones.
    groups_end: u32,
}

/// Consecutive inodes in their stored form.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The number of the first inode.
    pub(super) first: u32,
    /// First byte in the volume.
    pub(super) offset: u64,
    /// Number of bytes that belong to the inodes.
    pub(super) length: usize,
    /// The inodes, and unused memory that was allocated for more of them.
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

    /// Skips this group and all later ones.
    pub(super) fn leave_out_groups_from(&mut self, number: u32) {
        self.groups_end = number;
    }

    /// Returns the first skipped group, if the volume contains it. All later ones are skipped, too.
    pub(super) fn first_group_left_out(&self) -> Option<u32> {
        (self.groups_end < u32::MAX).then_some(self.groups_end)
    }

    /// Records damage and returns `None`, like [`DamageLog::skip`], and remembers that a part of a file is missing.
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
