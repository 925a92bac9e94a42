//! Where a file of a guest lies in its image.

use std::ops::ControlFlow;

use onefold_block::BLOCK_BYTES_U64;
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{Extent, ExtentKind, FileSystem};
use onefold_guest::tree::GuestFile;
use onefold_guest::volume::VolumeReader;

use super::IdentifyError;
use super::examine::Examiner;

impl Examiner<'_> {
    /// Adds the places of a file to its pieces. Returns false if the image claims more bytes than it may.
    pub(super) fn add_extents(
        &mut self,
        system: &dyn FileSystem,
        reader: &VolumeReader<'_>,
        file: GuestFile,
        size_bytes: u64,
    ) -> Result<bool, IdentifyError> {
        let (disk, go_on) = (self.disk(), self.go_on());
        let Examiner { bytes_left, pieces, sums: examined, .. } = self;
        let mut mapped = Ok(0_u64);
        let mut is_bounded = true;
        let mut gone_on = Ok(());
        let visited = system.each_extent(file.file, &mut |extent: Extent| {
            gone_on = go_on();
            if gone_on.is_err() {
                return ControlFlow::Break(());
            }
            // Looking at an extent costs something, however short it is.
            let Some(left) = bytes_left.checked_sub(extent.length_bytes.max(BLOCK_BYTES_U64)) else {
                is_bounded = false;
                return ControlFlow::Break(());
            };
            *bytes_left = left;
            let used = extent.length_bytes.min(size_bytes.saturating_sub(extent.offset));
            match extent.kind {
                ExtentKind::Written | ExtentKind::Shared => {
                    let mut offset = extent.offset;
                    reader.each_on_disk(extent.place, extent.length_bytes, &mut |range| {
                        let Ok(unmapped) = &mut mapped else { return };
                        let added = pieces.add_of_disk(disk, range, offset, size_bytes);
                        mapped = added.map(|bytes| unmapped.saturating_add(bytes));
                        offset = offset.saturating_add(range.length_bytes);
                    });
                }
                ExtentKind::Unwritten => examined.unwritten_bytes = examined.unwritten_bytes.saturating_add(used),
                ExtentKind::Encoded(_) => {
                    examined.encoded_bytes = examined.encoded_bytes.saturating_add(extent.length_bytes);
                }
                ExtentKind::Inline => examined.resident_bytes = examined.resident_bytes.saturating_add(used),
            }
            ControlFlow::Continue(())
        });
        gone_on.map_err(IdentifyError::Stopped)?;
        examined.unmapped_bytes = examined.unmapped_bytes.saturating_add(mapped?);
        match system.damage().skip(visited) {
            Ok(_) | Err(GuestError::NotFound) => Ok(is_bounded),
            Err(error) => Err(error.into()),
        }
    }
}
