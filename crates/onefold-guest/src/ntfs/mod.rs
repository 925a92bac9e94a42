//! NTFS, read-only.
//!
//! After "NTFS Documentation" of the Linux-NTFS project, and MS-FSCC for reparse points. Every structure is decoded in
//! one module here, which contains its table: `boot`, `record` (with `fixups` and `runs`), `attribute_list`, `names`,
//! `index`, `reparse`, `extended`, `log`. Above them: `stream` (bytes of an attribute), `mft` (all records), `file`
//! (all records of a file), `bitmap`, `upper_case`, `content`, `directory`, `stat`, `state`, `allocation` and `reader`,
//! which serves callers.
//!
//! The number of a file is that of its base record. Its alternate streams are separate files: the `n`-th of them,
//! sorted by name, has `n` in the upper 16 bits ([`stream_number`]). `file:stream` finds it by name.
//!
//! The log is never replayed: a volume that may need that is unsure, and so is one that is dirty or hibernated.
//! Compressed or encrypted content is mapped, but not decoded.

mod allocation;
mod attribute_list;
mod bitmap;
mod boot;
mod content;
mod directory;
mod extended;
mod file;
mod fixups;
mod index;
mod log;
mod mft;
mod names;
mod reader;
mod record;
mod reparse;
mod runs;
mod stat;
mod state;
mod stream;
mod upper_case;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::directory_owners::DirectoryOwners;
use crate::error::{Damage, DamageLog, GuestError, UNREADABLE};
use crate::filesystem::{
    AllocationDifferences, DirectoryEntry, FileNumber, FileStat, FileSystemFacts, FileSystemKind, State,
};
use crate::volume::VolumeReader;
use bitmap::{BITMAP_RECORD, ClusterMap};
use boot::{Boot, Geometry};
use content::Content;
use directory::Directory;
use file::MftFile;
use mft::Mft;
use names::FileName;
use record::{DATA, Record, Reference};
use state::VolumeFacts;
use stream::Stream;
use upper_case::{UpperCase, UpperCaseTable};

/// Record of the root directory.
const ROOT: u64 = 5;
/// Records below this one are internal files of the file system. Directories do not list them.
const FIRST_USER_RECORD: u64 = 16;
/// Number of bits of a file's number for its record.
const RECORD_BITS: u32 = 48;
/// Bytes of one read of the MFT.
const PIECE_BYTES: usize = 256 << 10;
/// Maximum number of files whose metadata is cached.
const STATS_MAX: usize = 4096;

/// An NTFS that is open for reading.
pub struct Ntfs<'a> {
    geometry: Geometry,
    mft: Mft<'a>,
    upper: UpperCase,
    volume_facts: VolumeFacts,
    facts: OnceLock<FileSystemFacts>,
    state: State,
    damage: DamageLog,
    /// Those of the most recent allocation map.
    differences: Mutex<Option<AllocationDifferences>>,
    /// Whether a record, or a part of the map of a file, was skipped because of damage.
    is_file_lost: AtomicBool,
    /// The most recently read content. A file is read in many pieces, and its map may be long.
    recent: Mutex<Option<(FileNumber, Arc<Content>)>>,
    /// Metadata of files with a list of attributes. They may have many names and many records.
    stats: Mutex<HashMap<FileNumber, Result<FileStat, Damage>>>,
    /// The directory of each index cluster that was listed.
    directory_owners: Mutex<DirectoryOwners>,
}

/// Opens the NTFS of a volume; `None` if it holds something else.
///
/// A volume whose first sector is not recognised counts as NTFS if there is a copy of the boot sector at its end.
/// Callers try file systems without a boot sector (ext, XFS) first, because such a copy survives if one of them was
/// made over an NTFS.
///
/// # Errors
/// Those of the disk, and when the MFT or the root directory cannot be found.
pub fn open<'a>(volume: &VolumeReader<'a>) -> Result<Option<Ntfs<'a>>, GuestError> {
    let Some(boot) = boot::read(volume)? else { return Ok(None) };
    match open_with(volume, boot) {
        Err(GuestError::Damaged(damage)) => {
            let other = boot::backup(volume)?.filter(|other| other.geometry != boot.geometry);
            open_with(volume, other.ok_or(damage)?).map(Some)
        }
        outcome => outcome.map(Some),
    }
}

fn open_with<'a>(volume: &VolumeReader<'a>, boot: Boot) -> Result<Ntfs<'a>, GuestError> {
    let mft = Mft::open(volume, boot.geometry)?;
    let damage = DamageLog::default();
    if boot.is_backup {
        damage.note(volume.damage(0, "boot sector", "it leads nowhere; its copy is used"));
    }
    mft.damages().for_each(|found| damage.note(found.clone()));
    let mut ntfs = Ntfs {
        geometry: boot.geometry,
        mft,
        upper: UpperCase::default(),
        volume_facts: VolumeFacts::default(),
        facts: OnceLock::new(),
        state: State::Certain,
        damage,
        differences: Mutex::default(),
        is_file_lost: AtomicBool::new(false),
        recent: Mutex::default(),
        stats: Mutex::default(),
        directory_owners: Mutex::default(),
    };
    let root = ntfs.system_file(ROOT)?;
    Directory::open(&root, &ntfs.mft)?;
    ntfs.volume_facts = state::volume_facts(&ntfs)?;
    ntfs.state = state::state(&ntfs, &ntfs.volume_facts)?;
    Ok(ntfs)
}

/// Returns the record of a file's number, and the number of its stream: 0 is the main one.
#[must_use]
pub fn stream_number(file: FileNumber) -> (u64, u16) {
    let reference = Reference(file.0);
    (reference.record(), reference.sequence())
}

/// Called with each record.
type RecordVisit<'v> = dyn FnMut(Record) -> Result<ControlFlow<()>, GuestError> + 'v;

/// A file, or an alternate stream of a file.
struct OpenStream {
    file: MftFile,
    /// The name of the stream in UTF-16; empty for the file itself.
    stream: Vec<u8>,
}

impl Ntfs<'_> {
    /// Returns the file of a base record.
    ///
    /// # Errors
    /// When it is not in use, belongs to another file, or is damaged; and those of the disk.
    fn open_file(&self, record: u64) -> Result<MftFile, GuestError> {
        let record = self.mft.read(record)?.filter(|record| record.base.is_none()).ok_or(GuestError::NotFound)?;
        MftFile::of(record, &self.mft, &self.damage)
    }

    /// Returns an internal file of the file system.
    ///
    /// # Errors
    /// When it is damaged, which includes that it is not in use; and those of the disk.
    fn system_file(&self, record: u64) -> Result<MftFile, GuestError> {
        match self.open_file(record) {
            Err(GuestError::NotFound) => Err(self.mft.damage(record, "it is not in use").into()),
            outcome => outcome,
        }
    }

    fn open_number(&self, number: FileNumber) -> Result<OpenStream, GuestError> {
        let (record, stream) = stream_number(number);
        let file = self.open_file(record)?;
        let stream = match stream.checked_sub(1) {
            None => Vec::new(),
            Some(index) => {
                file.stream_names().into_iter().nth(usize::from(index)).ok_or(GuestError::NotFound)?.to_vec()
            }
        };
        Ok(OpenStream { file, stream })
    }

    /// Returns the main stream of an internal file of the file system.
    fn system_stream(&self, record: u64) -> Result<Option<Stream>, GuestError> {
        self.system_file(record)?.stream(DATA, &[], &self.mft)
    }

    fn content(&self, number: FileNumber) -> Result<Arc<Content>, GuestError> {
        if let Some((recent, content)) = &*self.recent.lock()
            && *recent == number
        {
            return Ok(Arc::clone(content));
        }
        let opened = self.open_number(number)?;
        let content = Arc::new(if opened.stream.is_empty() {
            let reparse = content::reparse_of(&opened.file, &self.mft)?;
            Content::of(&opened.file, reparse.as_ref(), &self.mft)?
        } else {
            Content::of_stream(opened.file.stream(DATA, &opened.stream, &self.mft)?)
        });
        self.keep(number, Arc::clone(&content));
        Ok(content)
    }

    /// Caches the content of a file for the next call.
    fn keep(&self, number: FileNumber, content: Arc<Content>) {
        *self.recent.lock() = Some((number, content));
    }

    /// Caches the metadata of a file, or the error, for the next call.
    fn keep_stat(&self, number: FileNumber, found: &Result<FileStat, GuestError>) {
        let found = match found {
            Ok(stat) => Ok(stat.clone()),
            Err(GuestError::Damaged(damage)) => Err(damage.clone()),
            Err(_) => return,
        };
        let mut stats = self.stats.lock();
        if stats.len() >= STATS_MAX {
            stats.clear();
        }
        stats.insert(number, found);
    }

    /// Calls `visit` with each record in use in the order of the MFT, until it breaks or fails. Damaged ones are
    /// recorded and skipped.
    fn each_record(&self, visit: &mut RecordVisit<'_>) -> Result<(), GuestError> {
        let length = self.geometry.record_length();
        let (mut first, count) = (0, self.mft.record_count());
        while first < count {
            let records = (count - first).min((PIECE_BYTES / length) as u64);
            for (number, bytes) in (first..).zip(self.raw_records(first, records)?.chunks_exact(length)) {
                let record = self.damage.skip(self.mft.decode(number, bytes))?;
                if record.is_none() {
                    self.lose_file();
                }
                if let Some(record) = record.flatten()
                    && visit(record)?.is_break()
                {
                    return Ok(());
                }
            }
            first = self.mft.next_written(first + records)?;
        }
        Ok(())
    }

    /// Records that a part of a file was skipped.
    fn lose_file(&self) {
        self.is_file_lost.store(true, Ordering::Relaxed);
    }

    /// Returns the bytes of records. Records outside of the volume are zeros, like unused records.
    fn raw_records(&self, first: u64, count: u64) -> Result<Vec<u8>, GuestError> {
        match self.mft.read_raw(first, count) {
            Err(GuestError::Damaged(damage)) if count == 1 => {
                self.damage.note(damage);
                self.lose_file();
                Ok(vec![0; self.geometry.record_length()])
            }
            Err(GuestError::Damaged(_)) => {
                let pieces = (first..first + count).map(|number| self.raw_records(number, 1));
                Ok(pieces.collect::<Result<Vec<_>, _>>()?.concat())
            }
            outcome => outcome,
        }
    }

    fn upper(&self) -> UpperCaseTable<'_> {
        UpperCaseTable::new(&self.upper, self)
    }

    /// Returns whether an entry of a directory still refers to its original file. If the record now belongs to another
    /// file, that is recorded: this file has neither the name nor the content that the caller requested.
    fn is_current(&self, directory: u64, reference: Reference) -> bool {
        // If a record cannot be read, opening it reports the reason.
        let is_current = self.mft.is_current(reference).unwrap_or(true);
        if !is_current {
            self.damage.note(self.mft.damage(directory, "a name leads to a record that another file has now"));
        }
        is_current
    }

    /// Returns the file with a name in UTF-8. Does not consider streams.
    fn find(&self, directory: FileNumber, name: &[u8]) -> Result<Option<u64>, GuestError> {
        let Some(units) = names::from_utf8(name) else { return Ok(None) };
        let file = self.open_file(directory.0)?;
        let directory = Directory::open(&file, &self.mft)?;
        let found = match directory.find(&units, self.upper()) {
            Err(GuestError::Damaged(damage)) => {
                self.damage.note(damage);
                directory.find_slowly(&units, self)?
            }
            found => found?,
        };
        let found = found.filter(|reference| self.is_current(file.base.number, *reference));
        Ok(found.map(Reference::record))
    }

    /// Returns the alternate stream of a file with a name in UTF-8.
    fn find_stream(&self, record: u64, name: &[u8]) -> Result<Option<FileNumber>, GuestError> {
        let Some(units) = names::from_utf8(name) else { return Ok(None) };
        let file = self.open_file(record)?;
        let is_equal = |found: &[u8]| {
            self.upper().compare(names::Units(found).iter(), units.iter().copied()) == std::cmp::Ordering::Equal
        };
        let index = file.stream_names().into_iter().position(is_equal);
        Ok(index.and_then(|index| numbered(record, index + 1)))
    }

    /// Returns an entry in the form for listings; `None` if the directory does not list it.
    fn shown(&self, directory: u64, reference: Reference, name: FileName<'_>) -> Option<DirectoryEntry> {
        let record = reference.record();
        let text = name.units.to_utf8();
        if name.is_dos || is_own(record) || text == b"." {
            return None;
        }
        let is_odd = text.is_empty() || text == b".." || text.contains(&b'/') || text.contains(&0);
        if is_odd || record == directory {
            let problem = if is_odd { "a name cannot be one" } else { "it contains itself" };
            self.damage.note(self.mft.damage(directory, problem));
            return None;
        }
        if !self.is_current(directory, reference) {
            return None;
        }
        Some(DirectoryEntry { name: text, file: FileNumber(record), kind: name.kind() })
    }

    /// Converts the target of a link to a path of this volume, if it is one: `C:/Users` becomes `/Users` if the root
    /// has that.
    fn localised(&self, target: Vec<u8>) -> Vec<u8> {
        let is_drive = target.first().is_some_and(u8::is_ascii_alphabetic) && target.get(1..3) == Some(b":/");
        if !is_drive {
            return target;
        }
        let Some(path) = target.get(2..) else { return target };
        let mut at = FileNumber(ROOT);
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            match self.find(at, part) {
                Ok(Some(found)) => at = FileNumber(found),
                _ => return target,
            }
        }
        path.to_vec()
    }

    fn new_facts(&self) -> FileSystemFacts {
        let free_clusters = self.count(ClusterMap::open(self).and_then(|bitmap| match bitmap {
            Some(bitmap) => bitmap.free_count(),
            None => Err(self.mft.damage(BITMAP_RECORD, "free clusters are unknown: the bitmap cannot be used").into()),
        }));
        let version = self.volume_facts.version.map(|(major, minor)| format!("version {major}.{minor}"));
        FileSystemFacts {
            kind: FileSystemKind::Ntfs,
            features: version.into_iter().collect(),
            label: self.volume_facts.label.clone(),
            uuid: format!("{:016X}", self.geometry.serial),
            block_bytes: self.geometry.cluster_bytes,
            size_bytes: self.geometry.size_bytes(),
            free_bytes: free_clusters.map(|count| count.saturating_mul(self.geometry.cluster_bytes)),
            files_max: None,
            files_used: self.count(self.mft.used_count()).flatten(),
        }
    }

    /// Returns a count of a table of the volume; `None` if the table cannot be read, which is damage.
    fn count<T>(&self, outcome: Result<T, GuestError>) -> Option<T> {
        // A disk that fails as a whole has no other way out of here.
        outcome
            .map_err(|error| match error {
                GuestError::Damaged(damage) => damage,
                _ => self.mft.clusters().volume.damage(0, bitmap::STRUCTURE, UNREADABLE),
            })
            .map_err(|damage| self.damage.note(damage))
            .ok()
    }
}

/// Returns whether a record belongs to an internal file of the file system.
fn is_own(record: u64) -> bool {
    record < FIRST_USER_RECORD && record != ROOT
}

/// Returns the number of the `index`-th stream of a file.
fn numbered(record: u64, index: usize) -> Option<FileNumber> {
    let index = u16::try_from(index).ok()?;
    Some(FileNumber(record | u64::from(index) << RECORD_BITS))
}

impl std::fmt::Debug for Ntfs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ntfs").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}
