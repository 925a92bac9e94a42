//! The extents of all files of a volume as rows. Their number is limited to what an intact volume can have.

use std::ops::ControlFlow;

use onefold_block::BLOCK_BYTES_U64;
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{ExtentKind, FileKind, FileNumber, FileStat, FileSystem};
use onefold_guest::volume::VolumeReader;

use super::allowance::{ExtentAllowance, TIMES_MAX};
use super::error::MapError;
use super::named::NameWriter;
use super::rows::extent_row;

/// The smallest length that an extent counts for.
const SECTOR_BYTES: u64 = 512;

/// A volume whose extents are being written.
struct VolumeExtents<'e> {
    /// Its index in the guest.
    at: usize,
    reader: &'e VolumeReader<'e>,
    system: &'e dyn FileSystem,
    /// Minimum number of bytes that an extent counts for, even if it is shorter.
    extent_bytes_min: u64,
    bytes_left: u64,
    /// Whether the volume has more extents than allowed.
    is_full: bool,
    /// Number of files whose extents cannot be read, without damaged files.
    unread: u64,
}

impl VolumeExtents<'_> {
    /// Subtracts an extent from the allowance. Returns whether it fitted.
    fn take(&mut self, length_bytes: u64, left: &mut ExtentAllowance) -> bool {
        let bytes = length_bytes.max(self.extent_bytes_min);
        let after = self.bytes_left.checked_sub(bytes).zip(left.bytes.checked_sub(bytes));
        match after {
            Some((of_volume, of_image)) => (self.bytes_left, left.bytes) = (of_volume, of_image),
            None => self.is_full = true,
        }
        !self.is_full
    }

    /// Counts a file that cannot be read. A running machine may have deleted it meanwhile.
    ///
    /// # Errors
    /// Those of the disk.
    fn skip(&mut self, error: GuestError) -> Result<(), MapError> {
        match error {
            GuestError::Disk(error) => Err(GuestError::Disk(error).into()),
            _ => {
                self.unread += 1;
                Ok(())
            }
        }
    }
}

impl NameWriter<'_> {
    /// Writes the extents of the files of a volume; `at` is its index in the guest. If extents are missing, records a
    /// doubt with the volume's `name`.
    ///
    /// # Errors
    /// Those of the disk and of temporary files, and an interruption by the user.
    pub(super) fn extents(
        &mut self,
        at: usize,
        name: &str,
        reader: &VolumeReader<'_>,
        system: &dyn FileSystem,
    ) -> Result<(), MapError> {
        let mut volume = VolumeExtents {
            at,
            reader,
            system,
            extent_bytes_min: system.facts().block_bytes.clamp(SECTOR_BYTES, BLOCK_BYTES_U64),
            bytes_left: reader.size_bytes().saturating_mul(TIMES_MAX),
            is_full: false,
            unread: 0,
        };
        let mut failed = None;
        let outcome = system.each_file(&mut |file, stat| match self.extents_of(&mut volume, file, stat) {
            Ok(()) if !volume.is_full => ControlFlow::Continue(()),
            Ok(()) => ControlFlow::Break(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        });
        failed.map_or(Ok(()), Err)?;
        if let Err(error) = outcome {
            if let GuestError::Disk(error) = error {
                return Err(GuestError::Disk(error).into());
            }
            self.doubts.note_damage(format!("{name}: not all of its files can be found: {error}"));
        }
        if volume.is_full {
            self.doubts.note(format!("{name}: its files have more extents than are counted"));
        }
        if volume.unread > 0 {
            self.doubts.note_damage(format!("{name}: the blocks of {} files cannot be told", volume.unread));
        }
        Ok(())
    }

    fn extents_of(
        &mut self,
        volume: &mut VolumeExtents<'_>,
        file: FileNumber,
        stat: &FileStat,
    ) -> Result<(), MapError> {
        self.ask()?;
        // Directories are metadata, and so are the few links with a block.
        if !matches!(stat.kind, FileKind::Regular | FileKind::Other) {
            return Ok(());
        }
        let VolumeExtents { at, reader, system, .. } = *volume;
        // A stream belongs to the file to which it is attached.
        let belongs = match system.damage().skip(system.belongs_to(file)) {
            Ok(belongs) => belongs.flatten(),
            Err(error) => return volume.skip(error),
        };
        let file_of_name = belongs.map_or(file, |(owner, _)| owner);
        let mut failed = None;
        let outcome = system.each_extent(file, &mut |extent| {
            // A file has at most one of these, in its own record.
            if extent.kind == ExtentKind::Inline {
                return ControlFlow::Continue(());
            }
            failed = self.ask().err();
            if failed.is_some() || !volume.take(extent.length_bytes, &mut self.extents_left) {
                return ControlFlow::Break(());
            }
            reader.each_on_disk(extent.place, extent.length_bytes, &mut |range| {
                let Some(row) = extent_row(at, file_of_name, &range) else { return };
                match self.extents_left.rows.checked_sub(1) {
                    _ if failed.is_some() => {}
                    None => volume.is_full = true,
                    Some(left) => {
                        self.extents_left.rows = left;
                        failed = self.rows.push(row).err().map(MapError::from);
                    }
                }
            });
            if failed.is_some() || volume.is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        failed.map_or(Ok(()), Err)?;
        system.damage().skip(outcome).map_or_else(|error| volume.skip(error), |_| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::doubts::Doubts;
    use super::super::names::Names;
    use super::*;
    use std::collections::BTreeSet;

    use onefold_disk::{Disk, DiskError};
    use onefold_guest::filesystem::Extent;
    use onefold_guest::memory::MemoryFileSystem;
    use onefold_guest::volume::Volume;
    use onefold_sort::SortWriter;

    const DISK_BYTES: u64 = 1 << 20;

    struct Zeros;

    impl Disk for Zeros {
        fn size_bytes(&self) -> u64 {
            DISK_BYTES
        }

        fn next_data(&self, _: u64) -> Result<Option<std::ops::Range<u64>>, DiskError> {
            Ok(None)
        }

        fn read(&self, _: u64, into: &mut [u8]) -> Result<(), DiskError> {
            into.fill(0);
            Ok(())
        }
    }

    /// Returns a file system of `files` files with `count` extents of one block each, all at the same place.
    fn extents(files: u64, count: u64, kind: ExtentKind) -> MemoryFileSystem {
        let mut system = MemoryFileSystem::default();
        let extent = |at| Extent { offset: at * 4096, length_bytes: 4096, place: 8192, kind };
        for number in 0..files {
            let file = system.write(&format!("/{number}"), "");
            system.set_extents(file, (0..count).map(extent).collect());
        }
        system
    }

    /// As [`extents`], of written blocks.
    fn written(files: u64, count: u64) -> MemoryFileSystem {
        extents(files, count, ExtentKind::Written)
    }

    /// Returns the number of rows for the extents of volumes, each of which is a disk of its own, and the doubts.
    fn told(volumes: &[MemoryFileSystem], mut extents_left: ExtentAllowance) -> (usize, Vec<String>) {
        let reader = VolumeReader::new(&Zeros, &Volume::whole_disk(DISK_BYTES).unwrap());
        let mut rows = SortWriter::new(&std::env::temp_dir(), 1 << 20);
        let mut doubts = Doubts::default();
        for (at, volume) in volumes.iter().enumerate() {
            let mut naming = NameWriter {
                names: &mut Names::new(0),
                causes: &[],
                rows: &mut rows,
                doubts: &mut doubts,
                package: &mut |_| {},
                go_on: &|| ControlFlow::Continue(()),
                walked: BTreeSet::new(),
                files: 0,
                extents_left,
            };
            naming.extents(at, &format!("volume {at}"), &reader, volume).unwrap();
            extents_left = naming.extents_left;
        }
        (rows.finish().unwrap().count(), doubts.into_sentences())
    }

    const MORE: &str = "its files have more extents than are counted";

    #[test]
    fn files_that_all_point_at_the_same_blocks_have_no_more_extents_than_a_volume_has_room_for() {
        let fits = told(&[written(4, 256)], ExtentAllowance::new(DISK_BYTES));
        assert_eq!(fits, (1024, vec![]));
        let inline = extents(2000, 1, ExtentKind::Inline);
        assert_eq!(told(&[inline], ExtentAllowance::new(DISK_BYTES)), (0, vec![]));
        let (rows, doubts) = told(&[written(1000, 1000)], ExtentAllowance::new(DISK_BYTES));
        assert_eq!((rows, doubts), (1024, vec![format!("volume 0: {MORE}")]));
    }

    #[test]
    fn volumes_in_the_same_place_have_no_more_extents_than_their_disk_has_room_for() {
        let volumes = [written(2, 256), written(3, 200), written(1, 1)];
        let (rows, doubts) = told(&volumes, ExtentAllowance { bytes: 900 * 4096, rows: 1000 });
        assert_eq!((rows, doubts), (900, vec![format!("volume 1: {MORE}"), format!("volume 2: {MORE}")]));
    }

    #[test]
    fn an_image_has_no_more_rows_than_it_may_however_long_it_is() {
        let volumes = [written(2, 40), written(1, 40)];
        let (rows, doubts) = told(&volumes, ExtentAllowance { bytes: u64::MAX, rows: 100 });
        assert_eq!((rows, doubts), (100, vec![format!("volume 1: {MORE}")]));
    }

    #[test]
    fn a_file_that_is_gone_and_a_table_that_ends_early_cost_no_other_file_its_extents() {
        let mut gone = written(3, 2);
        gone.fail_extents(FileNumber(2), || GuestError::NotFound);
        gone.fail_table(|| GuestError::Unsupported("a table"));
        let (rows, doubts) = told(&[gone, written(1, 1)], ExtentAllowance::new(DISK_BYTES));
        let expected = [
            "volume 0: not all of its files can be found: a table cannot be read",
            "volume 0: the blocks of 1 files cannot be told",
        ];
        assert_eq!((rows, doubts), (5, expected.map(str::to_owned).to_vec()));
    }
}
