//! Reads units in their stored form, for those who send them on.

use super::ahead::PlannedReads;
use super::units::decompressor;
use super::{Archive, ArchiveError, WantedUnit};
use crate::format::pack::UnitHeader;

impl Archive {
    /// Reads units as they are stored, in few calls, and calls `each` with the index of each in `wanted`. The bytes are
    /// neither decompressed nor compared with the name: they may be damaged.
    ///
    /// # Errors
    /// When a unit is lost, the store fails, or `each` fails.
    pub(crate) fn read_unverified(
        &self,
        wanted: &[WantedUnit],
        each: &mut impl FnMut(usize, UnitHeader, &[u8]) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        self.read(wanted, &mut PlannedReads::default(), &mut |index, header, stored| {
            each(index, header, stored).map(|()| true)
        })
    }

    /// As [`Archive::read_unverified`], but the units are intact, and `each` also gets their plain bytes.
    ///
    /// # Errors
    /// When a unit is lost, or damaged in all packs that have it; when the store fails; or when `each` fails.
    pub(crate) fn read_verified(
        &self,
        wanted: &[WantedUnit],
        each: &mut impl FnMut(usize, UnitHeader, &[u8], &[u8]) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let mut decompressor = decompressor()?;
        let mut plain = Vec::new();
        self.read(wanted, &mut PlannedReads::default(), &mut |index, header, stored| {
            let is_unit = decompressor.decompress(header, stored, &mut plain)
                && self.descriptor().key.name(&plain) == wanted[index].name;
            if is_unit {
                each(index, header, stored, &plain)?;
            }
            Ok(is_unit)
        })
    }
}
