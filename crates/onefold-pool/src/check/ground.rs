//! The ground of a check: the metadata that recovery puts in place, and the pool state.
//!
//! If journal or pool state are damaged, there may be several readings of the rest. Each is tried by a check in memory,
//! and the reading that the rest of the pool contradicts least is chosen. So a repair guesses nothing, and needs no
//! rule for which of two witnesses to trust.
//!
//! The blocks that a reading puts in place can be as large as the journal. So only one reading is held at any time, and
//! never together with the journal's own bytes while the pool is checked: each is read again when its turn comes.

use std::collections::BTreeMap;
use std::sync::Arc;

use onefold_block::{BlockDevice, BlockNo};

use super::fixed;
use super::lost_state;
use super::reader::MetadataReader;
use crate::error::Result;
use crate::format::BlockBytes;
use crate::format::geometry::STATE;
use crate::format::superblock::Superblock;
use crate::journal::log::LogPosition;
use crate::journal::replay::{self, ReplayResult};
use crate::journal::salvage::Remains;

/// How the journal is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JournalReading {
    /// As in any opening of the pool.
    Recovered,
    /// All transactions that follow one another up to the newest, including those already in place.
    NewestChain,
    /// The transactions from the log's beginning up to the damage.
    UpToDamage,
    /// No transactions.
    Nothing,
}

impl JournalReading {
    /// Returns the description of the reading for users.
    pub(super) fn words(self) -> &'static str {
        match self {
            JournalReading::Recovered => "it can be read",
            JournalReading::NewestChain => "its later part can still be used completely",
            JournalReading::UpToDamage => "changes after the damaged place, made in the last moments, are lost",
            JournalReading::Nothing => "changes made in the last moments may be lost",
        }
    }
}

/// Metadata that may not be in place, and the journal's position.
pub(super) struct Ground {
    pub(super) reading: JournalReading,
    pub(super) blocks: Arc<BTreeMap<BlockNo, Box<BlockBytes>>>,
    pub(super) next_sequence: u64,
    pub(super) position: LogPosition,
    /// Whether the pool state was rebuilt, so that its counters are unknown.
    pub(super) is_state_rebuilt: bool,
}

impl Ground {
    fn new(reading: JournalReading, replayed: ReplayResult) -> Ground {
        Ground {
            reading,
            blocks: Arc::new(replayed.blocks),
            next_sequence: replayed.next_sequence,
            position: replayed.position,
            is_state_rebuilt: false,
        }
    }

    /// Returns the ground of an opening of the pool.
    ///
    /// # Errors
    /// Damage of the journal; device errors.
    pub(super) fn recover(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Ground> {
        let replayed = replay::replay(device, superblock)?;
        Ok(Ground::new(JournalReading::Recovered, replayed))
    }

    /// Returns the ground for a reading of the journal, if the journal can be read that way.
    pub(super) fn read(device: &dyn BlockDevice, superblock: &Superblock, reading: JournalReading) -> Option<Ground> {
        let geometry = &superblock.geometry;
        let remains = || Remains::read(device, superblock);
        let replayed = match reading {
            JournalReading::Recovered => return Ground::recover(device, superblock).ok(),
            JournalReading::NewestChain => remains().newest_chain(device, geometry)?,
            JournalReading::UpToDamage => remains().since_tail(device, geometry)?,
            JournalReading::Nothing => remains().nothing(),
        };
        Some(Ground::new(reading, replayed))
    }

    fn reader<'a>(&self, device: &'a dyn BlockDevice, superblock: &Superblock) -> MetadataReader<'a> {
        let total_blocks = superblock.geometry.total_blocks;
        MetadataReader::new(device, superblock.pool_tag(), total_blocks, Arc::clone(&self.blocks))
    }

    /// Returns the pool state if a check can continue with it.
    pub(super) fn state(&self, device: &dyn BlockDevice, superblock: &Superblock) -> Option<Box<BlockBytes>> {
        fixed::usable_state(&mut self.reader(device, superblock), &superblock.geometry).ok()
    }

    /// Returns a pool state rebuilt from the content of the pool.
    pub(super) fn rebuilt_state(&self, device: &dyn BlockDevice, superblock: &Superblock) -> Box<BlockBytes> {
        lost_state::rebuild(&mut self.reader(device, superblock), superblock)
    }

    /// Returns the same ground with another pool state.
    pub(super) fn with_state(mut self, state: Box<BlockBytes>) -> Ground {
        Arc::make_mut(&mut self.blocks).insert(STATE, state);
        Ground { is_state_rebuilt: true, ..self }
    }
}
