//! Places where a unit may be.

use crate::ObjectId;

/// Maximum number of places where a unit is looked for. Writers that do not know of each other store a unit once each.
pub(in crate::archive) const PLACES_MAX: usize = 64;

/// Where a unit may be: its name's beginning says so, and its pack has to confirm it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::archive) struct ClaimedPlace {
    pub(in crate::archive) pack: ObjectId,
    pub(in crate::archive) offset: u32,
    pub(in crate::archive) stored_bytes: u32,
}

/// Places of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::archive) struct ClaimedPlaces {
    /// The shortest form first, at most [`PLACES_MAX`].
    pub(in crate::archive) places: Vec<ClaimedPlace>,
    /// Whether there are so many that the right one may be missing.
    pub(in crate::archive) is_crowded: bool,
}
