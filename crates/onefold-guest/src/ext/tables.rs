//! What all parts of the reader share: the superblock, the bytes, and where damage is noted.

use std::sync::Arc;

use parking_lot::Mutex;

use super::source::Source;
use super::superblock::Superblock;
use crate::error::DamageLog;

/// An ext file system over the bytes of its volume.
pub(super) struct Tables<'a> {
    pub(super) superblock: Superblock,
    pub(super) source: Source<'a>,
    pub(super) damage: DamageLog,
    /// The part of an inode table that was read last by a pass over all inodes.
    pub(super) window: Mutex<Option<Window>>,
}

/// Consecutive inodes, as they were read.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The number of the first inode.
    pub(super) first: u32,
    /// First byte in the volume.
    pub(super) offset: u64,
    pub(super) bytes: Arc<[u8]>,
}

impl<'a> Tables<'a> {
    /// Returns the file system that a superblock describes.
    pub(super) fn new(superblock: Superblock, source: Source<'a>, damage: DamageLog) -> Tables<'a> {
        Tables { superblock, source, damage, window: Mutex::new(None) }
    }
}

impl std::fmt::Debug for Tables<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables").field("superblock", &self.superblock).finish_non_exhaustive()
    }
}
