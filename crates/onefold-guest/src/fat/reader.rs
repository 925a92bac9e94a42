//! A FAT volume as a file system.

use std::collections::HashSet;
use std::ops::ControlFlow;

use super::directory::DIRECTORY_BYTES_MAX;
use super::{Fat, ROOT};
use crate::budget::Budget;
use crate::error::{DamageLog, GuestError};
use crate::filesystem::{
    Allocation, AllocationDifferences, DirectoryEntry, Doubt, ExtendedAttribute, Extent, ExtentKind, FileKind,
    FileNumber, FileStat, FileSystem, FileSystemFacts, State,
};

impl FileSystem for Fat<'_> {
    fn facts(&self) -> &FileSystemFacts {
        &self.facts
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
        ROOT
    }

    fn stat(&self, file: FileNumber) -> Result<FileStat, GuestError> {
        if file == ROOT { self.root_stat() } else { self.stat_of(&self.record(file)?, &mut HashSet::new()) }
    }

    fn each_entry(
        &self,
        directory: FileNumber,
        visit: &mut dyn FnMut(DirectoryEntry) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        self.each_named(directory, &mut |name, file, record| {
            let kind = if record.is_directory { FileKind::Directory } else { FileKind::Regular };
            visit(DirectoryEntry { name, file, kind: Some(kind) })
        })
    }

    fn look_up(&self, directory: FileNumber, name: &[u8]) -> Result<Option<FileNumber>, GuestError> {
        self.find(directory, name)
    }

    fn read_link(&self, _: FileNumber) -> Result<Vec<u8>, GuestError> {
        Err(GuestError::Unsupported("a symbolic link on FAT, which has none,"))
    }

    fn attributes(&self, _: FileNumber) -> Result<Vec<ExtendedAttribute>, GuestError> {
        Ok(Vec::new())
    }

    fn each_extent(
        &self,
        file: FileNumber,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        let (first, size_bytes) = self.content(file)?;
        let count = self.clusters_of(size_bytes.unwrap_or(DIRECTORY_BYTES_MAX));
        let mut offset = 0;
        if first != 0 && count > 0 {
            let end = self.each_run(first, count, &mut |cluster, count| {
                let length_bytes = count * self.layout.cluster_bytes;
                let extent =
                    Extent { offset, length_bytes, place: self.layout.place(cluster), kind: ExtentKind::Written };
                offset += length_bytes;
                visit(extent)
            })?;
            if end.is_break() {
                return Ok(());
            }
        }
        match size_bytes {
            Some(size_bytes) if size_bytes > offset => Err(self.too_short(file)),
            _ => Ok(()),
        }
    }

    fn read(&self, file: FileNumber, offset: u64, into: &mut [u8]) -> Result<usize, GuestError> {
        let (first, size_bytes) = self.content(file)?;
        let Some(size_bytes) = size_bytes else { return Ok(0) };
        let Some(rest) = size_bytes.checked_sub(offset) else { return Ok(0) };
        let length = usize::try_from(rest).unwrap_or(usize::MAX).min(into.len());
        let (mut at, mut rest) = (offset, into.get_mut(..length).unwrap_or_default());
        while !rest.is_empty() {
            let (index, within) = (at / self.layout.cluster_bytes, at % self.layout.cluster_bytes);
            let Some(cluster) = self.cluster_at(first, self.clusters_of(size_bytes), index)? else {
                return Err(self.too_short(file));
            };
            let room = usize::try_from(self.layout.cluster_bytes - within).unwrap_or(usize::MAX);
            let (part, after) = rest.split_at_mut(room.min(rest.len()));
            self.reader.read(self.layout.place(cluster) + within, part, "content of a file")?;
            at += part.len() as u64;
            rest = after;
        }
        Ok(length)
    }

    fn blocks_start(&self) -> u64 {
        self.layout.data_start
    }

    fn each_file(&self, visit: &mut dyn FnMut(FileNumber, &FileStat) -> ControlFlow<()>) -> Result<(), GuestError> {
        if visit(ROOT, &self.root_stat()?).is_break() {
            return Ok(());
        }
        let (mut counted, mut outcome) = (HashSet::new(), Ok(()));
        let mut pass = self.new_pass();
        self.each_record(&mut |file, record| {
            let has_room = self.has_room(record, &mut pass);
            match has_room.and_then(|has_room| Ok((has_room, self.stat_of(record, &mut counted)?))) {
                Ok((true, stat)) => visit(file, &stat),
                Ok((false, _)) => ControlFlow::Continue(()),
                Err(error) => {
                    outcome = Err(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        outcome
    }

    fn allocation(&self) -> Result<Vec<Allocation>, GuestError> {
        self.allocation_within(&Budget::default())
    }

    fn allocation_within(&self, budget: &Budget) -> Result<Vec<Allocation>, GuestError> {
        self.allocation_map(budget)
    }

    fn allocation_differences(&self) -> Option<AllocationDifferences> {
        *self.differences.lock()
    }
}

impl Fat<'_> {
    fn too_short(&self, file: FileNumber) -> GuestError {
        self.reader.damage(file.0, "cluster chain", "it is shorter than its file").into()
    }
}
