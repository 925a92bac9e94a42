//! All files in the order of the disk: every extent of every file, sorted by place, in bounded memory.

mod rows;

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use onefold_sort::{Merge, Row, SortWriter};

use super::Guest;
use crate::error::GuestError;
use crate::filesystem::{Extent, ExtentKind, FileNumber, FileStat, FileSystem};
use crate::volume::{DiskRange, VolumeReader};

/// A volume has at most one extent for each unit of this length: nearly all extents of intact volumes are larger. Files
/// of a damaged or hostile volume may share one map, so that a few bytes name any number of extents.
const BYTES_FOR_EXTENT: u64 = 1024;
/// Number of extents that a small volume may have, whatever its size.
const EXTENTS_MIN: u64 = 1 << 12;
/// Maximum number of extents of a volume: 12 GiB of temporary files.
const EXTENTS_MAX: u64 = 1 << 28;

/// A part of a file at its place on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedExtent {
    /// Its place. For an inline part, the bytes within the structure that holds them.
    pub range: DiskRange,
    /// The volume of the file, as an index into [`Guest::volumes`].
    pub volume: usize,
    /// The file.
    pub file: FileNumber,
    /// Its first byte in the file.
    pub offset: u64,
    /// Number of bytes of the range before the end of the file. The rest of the last block is not content.
    pub used_bytes: u64,
    /// How it is stored.
    pub kind: ExtentKind,
}

/// Why files cannot be sorted.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// The disk cannot be read.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// Temporary files cannot be written or read.
    #[error("cannot use temporary files")]
    Temporary(#[from] io::Error),
    /// A place or a count exceeds the limits of real disks: a byte from 2^48 on, 65,536 volumes, or 2^36 extents.
    #[error("the extent at byte {0} of the disk cannot be put in order: it lies too far, or is one of too many")]
    TooFar(u64),
}

/// Every extent of every file, in the order of the disk. Extents that begin at the same place are sorted by volume, and
/// then in the order of the file system's tables.
#[derive(Debug)]
pub struct FilesInOrder {
    rows: Merge,
}

impl Guest<'_> {
    /// Returns every extent of every file in the order of the disk. Uses about `memory_bytes`; the rest goes into
    /// unnamed temporary files in `folder`. Holes are left out, and so are parts of damaged files, which the file
    /// systems record. The number of pieces of extents in a volume is limited to one for each of its kibibytes. The
    /// limit is at least 4096 and at most 2^28. Further extents are left out, and the file system records this as
    /// damage.
    ///
    /// # Errors
    /// Those of the disk and of the temporary files.
    pub fn files_in_order(&self, folder: &Path, memory_bytes: usize) -> Result<FilesInOrder, OrderError> {
        let mut placing =
            ExtentCollector { writer: SortWriter::new(folder, memory_bytes), count: 0, left: 0, is_full: false };
        for (at, volume) in self.volumes().iter().enumerate() {
            if let Some(system) = volume.file_system() {
                placing.add(at, system, &volume.reader)?;
            }
        }
        Ok(FilesInOrder { rows: placing.writer.finish()? })
    }
}

/// Collects extents for the sort.
struct ExtentCollector {
    writer: SortWriter,
    count: u64,
    /// Number of further extents that the volume may have.
    left: u64,
    /// Whether the volume has more extents than its limit.
    is_full: bool,
}

impl ExtentCollector {
    fn add(&mut self, volume: usize, system: &dyn FileSystem, reader: &VolumeReader<'_>) -> Result<(), OrderError> {
        self.left = (reader.size_bytes() / BYTES_FOR_EXTENT).clamp(EXTENTS_MIN, EXTENTS_MAX);
        self.is_full = false;
        let mut failed = None;
        system.each_file(&mut |file, stat| match self.add_file(volume, system, reader, file, stat) {
            Ok(()) if self.is_full => ControlFlow::Break(()),
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        if self.is_full {
            system.damage().note(reader.damage(0, "files", "they have more extents than the volume has room for"));
        }
        failed.map_or(Ok(()), Err)
    }

    fn add_file(
        &mut self,
        volume: usize,
        system: &dyn FileSystem,
        reader: &VolumeReader<'_>,
        file: FileNumber,
        stat: &FileStat,
    ) -> Result<(), OrderError> {
        let mut failed = None;
        let outcome = system.each_extent(file, &mut |extent| {
            let result = each_placed(reader, &extent, stat.size_bytes, &mut |range, offset, used_bytes| {
                self.push(PlacedExtent { range, volume, file, offset, used_bytes, kind: extent.kind })
            });
            match result {
                Ok(()) if self.is_full => ControlFlow::Break(()),
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        system.damage().skip(outcome)?;
        failed.map_or(Ok(()), Err)
    }

    fn push(&mut self, mut rest: PlacedExtent) -> Result<(), OrderError> {
        while rest.range.length_bytes > 0 {
            let Some(left) = self.left.checked_sub(1) else {
                self.is_full = true;
                break;
            };
            self.left = left;
            let length = rows::length_in_rows(&rest);
            let used_bytes = rest.used_bytes.min(length);
            let range = DiskRange { length_bytes: length, ..rest.range };
            let piece = PlacedExtent { range, used_bytes, ..rest };
            let rows = rows::encode(&piece, self.count).ok_or(OrderError::TooFar(rest.range.start_bytes))?;
            rows.into_iter().try_for_each(|row| self.writer.push(row))?;
            self.count += 1;
            rest.range = DiskRange {
                start_bytes: rest.range.start_bytes.saturating_add(length),
                length_bytes: rest.range.length_bytes - length,
            };
            rest.offset = rest.offset.saturating_add(length);
            rest.used_bytes -= used_bytes;
        }
        Ok(())
    }
}

/// Calls `visit` with each range of the disk that an extent occupies, its first byte in the file, and the number of its
/// bytes before the end of the file, whose length is `size_bytes`.
pub(super) fn each_placed<E>(
    reader: &VolumeReader<'_>,
    extent: &Extent,
    size_bytes: u64,
    visit: &mut dyn FnMut(DiskRange, u64, u64) -> Result<(), E>,
) -> Result<(), E> {
    let mut offset = extent.offset;
    let mut result = Ok(());
    reader.each_on_disk(extent.place, extent.length_bytes, &mut |range| {
        if result.is_ok() {
            let used_bytes = size_bytes.saturating_sub(offset).min(range.length_bytes);
            result = visit(range, offset, used_bytes);
            offset = offset.saturating_add(range.length_bytes);
        }
    });
    result
}

impl Iterator for FilesInOrder {
    type Item = Result<PlacedExtent, OrderError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut row = || -> io::Result<Option<Row>> { self.rows.next().transpose() };
        let pair = (|| match (row()?, row()?) {
            (Some(first), Some(second)) => Ok(Some([first, second])),
            _ => Ok(None),
        })();
        match pair {
            Ok(Some(pair)) => {
                let foreign = || OrderError::Temporary(io::Error::other("a temporary file has changed"));
                Some(rows::decode(pair).ok_or_else(foreign))
            }
            Ok(None) => None,
            Err(error) => Some(Err(OrderError::Temporary(error))),
        }
    }
}
