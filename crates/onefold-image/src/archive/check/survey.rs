//! Findings of a check that a repair has to know.

use std::collections::{BTreeSet, HashMap};

use crate::archive::state::Part;
use crate::format::pack::TableEntry;
use crate::store::ObjectName;
use crate::{ObjectId, UnitName};

/// Maximum number of lost units that a survey lists. One entry of the ledger takes them. A repair of more is repeated.
const LOST_MAX: usize = 1 << 20;

/// Objects and units that need repair.
#[derive(Debug, Default)]
pub(in crate::archive) struct Survey {
    /// Number of entries that the ledger had.
    pub(in crate::archive) position: u64,
    /// The descriptor, or its copy, if it is damaged or missing.
    pub(in crate::archive) descriptors: Vec<&'static str>,
    /// Snapshots of the state that do not say what the ledger does.
    pub(in crate::archive) snapshots: Vec<ObjectName>,
    /// Snapshots of more entries than the ledger has, which are the signs of a copy that was cut.
    pub(in crate::archive) early_snapshots: Vec<ObjectName>,
    /// Live packs that exist, and are damaged or cannot be read.
    pub(in crate::archive) damaged: Vec<ObjectId>,
    /// Live packs that do not exist, or are empty objects.
    pub(in crate::archive) missing: Vec<ObjectId>,
    /// Units that live packs have although an entry calls them lost, with all their places. Tables name most of these
    /// places, so not each of them has an intact copy.
    pub(in crate::archive) unheld: HashMap<UnitName, Vec<(ObjectId, TableEntry)>>,
    /// Units that images need, and of which no pack has an intact copy that counts.
    pub(in crate::archive) lost: BTreeSet<UnitName>,
    /// Whether more units are lost than it lists.
    pub(in crate::archive) lost_more: bool,
    /// Whether it is unknown what some images need, because a manifest is damaged or entries are hidden.
    pub(in crate::archive) unknown_needs: bool,
    /// Parts of the index whose segments are damaged.
    pub(in crate::archive) segments: Vec<Part>,
}

impl Survey {
    /// Adds a lost unit, if there is room.
    pub(super) fn add_lost(&mut self, unit: UnitName) {
        if self.lost.len() < LOST_MAX {
            self.lost.insert(unit);
        } else if !self.lost.contains(&unit) {
            self.lost_more = true;
        }
    }
}
