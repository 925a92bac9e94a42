//! A file system in memory: the trees of tests and of fuzz targets. The test sets the extents of its files and the map
//! of its volume, independent of their content.

use std::ops::ControlFlow;

use crate::error::{DamageLog, GuestError};
use crate::filesystem::{
    Allocation, DirectoryEntry, Doubt, ExtendedAttribute, Extent, FileKind, FileNumber, FileStat, FileSystem,
    FileSystemFacts, FileSystemKind, State, Timestamp,
};

/// A file system in memory. Files are added by path; their numbers count from 0, which is the root.
#[derive(Debug)]
pub struct MemoryFileSystem {
    facts: FileSystemFacts,
    state: State,
    damage: DamageLog,
    files: Vec<MemoryFile>,
    /// Error at the end of the table of files.
    table_error: Option<ErrorSource>,
    allocation: Result<Vec<Allocation>, ErrorSource>,
}

/// Makes an error for a test.
type ErrorSource = fn() -> GuestError;

#[derive(Debug)]
struct MemoryFile {
    stat: FileStat,
    /// The content, or the target of a symbolic link. The rest of a longer file is zeros.
    content: Vec<u8>,
    entries: Vec<(Vec<u8>, FileNumber)>,
    extents: Result<Vec<Extent>, ErrorSource>,
}

impl MemoryFile {
    fn new(kind: FileKind, content: &[u8]) -> MemoryFile {
        let size_bytes = content.len() as u64;
        let stat = FileStat {
            kind,
            mode: if kind == FileKind::Directory { 0o755 } else { 0o644 },
            user: 0,
            group: 0,
            links: 1,
            size_bytes,
            allocated_bytes: size_bytes,
            modified: Timestamp::default(),
            changed: Timestamp::default(),
            accessed: Timestamp::default(),
            created: None,
            device: None,
            generation: 0,
            encoding: None,
        };
        MemoryFile { stat, content: content.to_vec(), entries: Vec::new(), extents: Ok(Vec::new()) }
    }
}

impl Default for MemoryFileSystem {
    fn default() -> MemoryFileSystem {
        MemoryFileSystem::new("", b"")
    }
}

impl MemoryFileSystem {
    /// Returns a file system with an empty root directory.
    #[must_use]
    pub fn new(uuid: &str, label: &[u8]) -> MemoryFileSystem {
        let facts = FileSystemFacts {
            kind: FileSystemKind::Ext4,
            features: Vec::new(),
            label: label.to_vec(),
            uuid: uuid.to_owned(),
            block_bytes: 4096,
            size_bytes: 0,
            free_bytes: Some(0),
            files_max: None,
            files_used: None,
        };
        MemoryFileSystem {
            facts,
            state: State::Certain,
            damage: DamageLog::default(),
            files: vec![MemoryFile::new(FileKind::Directory, b"")],
            table_error: None,
            allocation: Ok(Vec::new()),
        }
    }

    /// Adds a regular file, and the directories of its path. Replaces an existing file with this path.
    pub fn write(&mut self, path: &str, content: impl AsRef<[u8]>) -> FileNumber {
        self.add(path, MemoryFile::new(FileKind::Regular, content.as_ref()))
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) -> FileNumber {
        self.add(path, MemoryFile::new(FileKind::SymbolicLink, target.as_bytes()))
    }

    /// Adds a directory.
    pub fn directory(&mut self, path: &str) -> FileNumber {
        self.add(path, MemoryFile::new(FileKind::Directory, b""))
    }

    /// Gives a file another name. A directory may become part of itself.
    pub fn link(&mut self, directory: FileNumber, name: &[u8], file: FileNumber) {
        if let Some(directory) = self.file_mut(directory) {
            directory.entries.retain(|(known, _)| known != name);
            directory.entries.push((name.to_vec(), file));
        }
    }

    /// Returns the metadata of a file for changes.
    pub fn stat_mut(&mut self, file: FileNumber) -> Option<&mut FileStat> {
        self.file_mut(file).map(|file| &mut file.stat)
    }

    /// Returns the facts about the file system for changes.
    pub fn facts_mut(&mut self) -> &mut FileSystemFacts {
        &mut self.facts
    }

    /// Sets whether its maps are certain.
    pub fn set_state(&mut self, state: State) {
        self.state = state;
    }

    /// Sets the extents of a file.
    pub fn set_extents(&mut self, file: FileNumber, extents: Vec<Extent>) {
        if let Some(file) = self.file_mut(file) {
            file.extents = Ok(extents);
        }
    }

    /// Makes reads of a file's map fail.
    pub fn fail_extents(&mut self, file: FileNumber, error: fn() -> GuestError) {
        if let Some(file) = self.file_mut(file) {
            file.extents = Err(error);
        }
    }

    /// Sets the allocation map.
    pub fn set_allocation(&mut self, allocation: Vec<Allocation>) {
        self.allocation = Ok(allocation);
    }

    /// Makes reads of the allocation map fail.
    pub fn fail_allocation(&mut self, error: fn() -> GuestError) {
        self.allocation = Err(error);
    }

    /// Makes reads of the table of files fail after its last file.
    pub fn fail_table(&mut self, error: fn() -> GuestError) {
        self.table_error = Some(error);
    }

    fn add(&mut self, path: &str, file: MemoryFile) -> FileNumber {
        let mut at = self.root();
        let mut names = path.split('/').filter(|name| !name.is_empty()).peekable();
        let mut last: &[u8] = b"";
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                last = name.as_bytes();
                break;
            }
            let known = self.look_up(at, name.as_bytes()).ok().flatten();
            at = known.unwrap_or_else(|| {
                let made = self.push(MemoryFile::new(FileKind::Directory, b""));
                self.link(at, name.as_bytes(), made);
                made
            });
        }
        if file.stat.kind == FileKind::Directory
            && let Ok(Some(known)) = self.look_up(at, last)
        {
            return known;
        }
        let made = self.push(file);
        self.link(at, last, made);
        made
    }

    fn push(&mut self, file: MemoryFile) -> FileNumber {
        self.files.push(file);
        FileNumber(self.files.len() as u64 - 1)
    }

    fn file(&self, file: FileNumber) -> Result<&MemoryFile, GuestError> {
        usize::try_from(file.0).ok().and_then(|index| self.files.get(index)).ok_or(GuestError::NotFound)
    }

    fn file_mut(&mut self, file: FileNumber) -> Option<&mut MemoryFile> {
        usize::try_from(file.0).ok().and_then(|index| self.files.get_mut(index))
    }
}

impl FileSystem for MemoryFileSystem {
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
        FileNumber(0)
    }

    fn stat(&self, file: FileNumber) -> Result<FileStat, GuestError> {
        Ok(self.file(file)?.stat.clone())
    }

    fn each_entry(
        &self,
        directory: FileNumber,
        visit: &mut dyn FnMut(DirectoryEntry) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        let directory = self.file(directory)?;
        if directory.stat.kind != FileKind::Directory {
            return Err(GuestError::NotADirectory);
        }
        for (name, file) in &directory.entries {
            let kind = self.file(*file).ok().map(|file| file.stat.kind);
            if visit(DirectoryEntry { name: name.clone(), file: *file, kind }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_link(&self, file: FileNumber) -> Result<Vec<u8>, GuestError> {
        let file = self.file(file)?;
        if file.stat.kind != FileKind::SymbolicLink {
            return Err(GuestError::NotFound);
        }
        Ok(file.content.clone())
    }

    fn attributes(&self, file: FileNumber) -> Result<Vec<ExtendedAttribute>, GuestError> {
        self.file(file).map(|_| Vec::new())
    }

    fn each_extent(
        &self,
        file: FileNumber,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        let extents = self.file(file)?.extents.as_ref().map_err(|error| error())?;
        let _ = extents.iter().try_for_each(|extent| visit(*extent));
        Ok(())
    }

    fn read(&self, file: FileNumber, offset: u64, into: &mut [u8]) -> Result<usize, GuestError> {
        let file = self.file(file)?;
        if let Some(encoding) = file.stat.encoding {
            return Err(GuestError::Encoded(encoding));
        }
        let left = file.stat.size_bytes.saturating_sub(offset);
        let length = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let stored = usize::try_from(offset).ok().and_then(|offset| file.content.get(offset..)).unwrap_or_default();
        let filled = stored.len().min(length);
        into[..filled].copy_from_slice(&stored[..filled]);
        into[filled..length].fill(0);
        Ok(length)
    }

    fn each_file(&self, visit: &mut dyn FnMut(FileNumber, &FileStat) -> ControlFlow<()>) -> Result<(), GuestError> {
        for (number, file) in self.files.iter().enumerate() {
            if visit(FileNumber(number as u64), &file.stat).is_break() {
                return Ok(());
            }
        }
        self.table_error.map_or(Ok(()), |error| Err(error()))
    }

    fn allocation(&self) -> Result<Vec<Allocation>, GuestError> {
        self.allocation.clone().map_err(|error| error())
    }
}
