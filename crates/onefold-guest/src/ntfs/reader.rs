//! NTFS as a file system.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::content::{self, Content};
use super::directory::Directory;
use super::file::MftFile;
use super::names::Units;
use super::record::ATTRIBUTE_LIST;
use super::reparse::Reparse;
use super::stream::Stream;
use super::{Ntfs, ROOT, allocation, is_own, numbered, stat};
use crate::budget::Budget;
use crate::error::{DamageLog, GuestError};
use crate::filesystem::{
    self, Allocation, AllocationDifferences, DirectoryEntry, Doubt, ExtendedAttribute, Extent, FileKind, FileNumber,
    FileStat, FileSystem, FileSystemFacts, State,
};

/// Maximum length of an alternate stream that is shown as an extended attribute. Linux does not allow longer ones.
const ATTRIBUTE_BYTES_MAX: u64 = 64 << 10;
/// Maximum total length of all attributes of a file, including their names.
const ATTRIBUTES_BYTES_MAX: u64 = 16 << 20;

impl FileSystem for Ntfs<'_> {
    /// Counts the free clusters on the first call.
    fn facts(&self) -> &FileSystemFacts {
        self.facts.get_or_init(|| self.new_facts())
    }

    fn state(&self) -> &State {
        &self.state
    }

    fn add_doubt(&mut self, doubt: Doubt) {
        self.state.add(doubt);
    }

    fn damage(&self) -> &DamageLog {
        &self.damage
    }

    fn root(&self) -> FileNumber {
        FileNumber(ROOT)
    }

    fn stat(&self, file: FileNumber) -> Result<FileStat, GuestError> {
        if let Some(known) = self.stats.lock().get(&file) {
            return Ok(known.clone()?);
        }
        let opened = self.open_number(file)?;
        let found = stat::stat(&opened.file, &opened.stream, &self.mft).map(|(found, _)| found);
        if opened.file.has(ATTRIBUTE_LIST) {
            self.keep_stat(file, &found);
        }
        found
    }

    fn each_entry(
        &self,
        directory: FileNumber,
        visit: &mut dyn FnMut(DirectoryEntry) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        let file = self.open_file(directory.0)?;
        Directory::open(&file, &self.mft)?.each(self, &mut |reference, name| {
            self.shown(directory.0, reference, name).map_or(ControlFlow::Continue(()), &mut *visit)
        })
    }

    /// Names are compared without regard to case, by the volume's own table; an exact match has priority. A name for
    /// DOS programs finds its file. `file:stream` finds an alternate stream.
    fn look_up(&self, directory: FileNumber, name: &[u8]) -> Result<Option<FileNumber>, GuestError> {
        if name == b"." || name == b".." {
            return Ok(None);
        }
        if let Some(record) = self.find(directory, name)? {
            return Ok(Some(FileNumber(record)));
        }
        let Some(colon) = name.iter().rposition(|byte| *byte == b':') else { return Ok(None) };
        let (Some(file), Some(stream)) = (name.get(..colon), name.get(colon + 1..)) else { return Ok(None) };
        match self.find(directory, file)? {
            Some(record) if !stream.is_empty() => self.find_stream(record, stream),
            _ => Ok(None),
        }
    }

    /// The files in `$Extend` belong to it, and `$Extend` belongs to the root.
    fn belongs_to(&self, file: FileNumber) -> Result<Option<(FileNumber, Vec<u8>)>, GuestError> {
        let opened = self.open_number(file)?;
        let record = opened.file.base.number;
        if !opened.stream.is_empty() {
            return Ok(Some((FileNumber(record), [b":", &Units(&opened.stream).to_utf8()[..]].concat())));
        }
        let unlisted = opened.file.names().find(|name| is_own(record) || is_own(name.parent.record()));
        let named = unlisted.map(|name| (FileNumber(name.parent.record()), [b"/", &name.units.to_utf8()[..]].concat()));
        Ok(named.filter(|(parent, _)| parent.0 != record))
    }

    fn read_link(&self, file: FileNumber) -> Result<Vec<u8>, GuestError> {
        let file = self.open_file(file.0)?;
        match content::reparse_of(&file, &self.mft)? {
            Some(Reparse::Link(target)) => Ok(self.localised(target)),
            _ => Err(GuestError::Unsupported("a file that is no symbolic link")),
        }
    }

    /// Returns the alternate streams of up to 64 KiB in the form of NTFS-3G: as `user.` with their name. Encoded ones
    /// are skipped. Fails if their total exceeds 16 MiB.
    fn attributes(&self, file: FileNumber) -> Result<Vec<ExtendedAttribute>, GuestError> {
        let opened = self.open_number(file)?;
        let (mut attributes, mut room) = (Vec::new(), ATTRIBUTES_BYTES_MAX);
        for (name, parts) in opened.file.streams().into_iter().filter(|(name, _)| *name != content::OVERLAY_STREAM) {
            let content = Content::of_stream(Stream::assemble(parts.into_iter(), self.mft.clusters()));
            let Some(stream) = content.stream.filter(|stream| stream.size_bytes <= ATTRIBUTE_BYTES_MAX) else {
                continue;
            };
            if content.form.is_none() {
                let too_many = GuestError::Unsupported("a file with more than 16 MiB of alternate streams");
                room = room.checked_sub(stream.size_bytes + name.len() as u64).ok_or(too_many)?;
                let value = stream.read_all(self.mft.clusters(), ATTRIBUTE_BYTES_MAX)?;
                let name = [b"user.", &Units(name).to_utf8()[..]].concat();
                attributes.push(ExtendedAttribute { name, value });
            }
        }
        Ok(attributes)
    }

    fn each_extent(
        &self,
        file: FileNumber,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        self.content(file)?.each_extent(self.geometry.cluster_bytes, visit)
    }

    fn read(&self, file: FileNumber, offset: u64, into: &mut [u8]) -> Result<usize, GuestError> {
        self.content(file)?.read(self.mft.clusters(), offset, into)
    }

    /// Visits each file in the order of the MFT, followed by its alternate streams.
    fn each_file(&self, visit: &mut dyn FnMut(FileNumber, &FileStat) -> ControlFlow<()>) -> Result<(), GuestError> {
        self.each_record(&mut |record| {
            if record.base.is_some() {
                return Ok(ControlFlow::Continue(()));
            }
            let number = record.number;
            let file = MftFile::of(record, &self.mft, &self.damage)?;
            let main = self.damage.skip(stat::stat(&file, &[], &self.mft))?;
            let main = main.map(|(found, content)| (FileNumber(number), found, content));
            let plain = stat::of_kind(&file, FileKind::Regular);
            let streams = file.streams().into_values().enumerate().filter_map(|(index, parts)| {
                let content = Content::of_stream(Stream::assemble(parts.into_iter(), self.mft.clusters()));
                Some((numbered(number, index + 1)?, stat::with_content(&plain, &content), content))
            });
            for (number, found, content) in main.into_iter().chain(streams) {
                // Most callers request the extents of the file next.
                self.keep(number, Arc::new(content));
                if visit(number, &found).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    fn allocation(&self) -> Result<Vec<Allocation>, GuestError> {
        self.allocation_within(&Budget::default())
    }

    fn allocation_within(&self, budget: &Budget) -> Result<Vec<Allocation>, GuestError> {
        allocation::map(self, budget)
    }

    fn free_by_bitmaps(&self, budget: &Budget) -> Result<Vec<Range<u64>>, GuestError> {
        Ok(filesystem::free_ranges(&allocation::bitmap_map(self, budget)?))
    }

    fn allocation_differences(&self) -> Option<AllocationDifferences> {
        *self.differences.lock()
    }
}
