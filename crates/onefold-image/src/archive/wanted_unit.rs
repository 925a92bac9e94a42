//! Requests for units.

use crate::UnitName;

/// A unit to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedUnit {
    /// The unit.
    pub name: UnitName,
    /// Length of its plain bytes, if known. Any other length is damage.
    pub plain_bytes: Option<u32>,
}
