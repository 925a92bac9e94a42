//! Directories of a volume: their records, and all records of all directories.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use super::directory::{DIRECTORY_BYTES_MAX, FileRecord, RECORD_BYTES, Record};
use super::layout::Root;
use super::name::LongName;
use super::{Fat, ROOT};
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::FileNumber;

/// Maximum bytes of one read of a directory.
const PIECE_BYTES: u64 = 64 << 10;
const SHARED: &str = "another directory has the same cluster";

/// Maximum number of clusters whose directory is remembered. Further ones are not listed.
const OWNED_CLUSTERS_MAX: usize = 1 << 20;

/// The directory of each cluster that was visited. A directory is identified by the place of its record. Damage may
/// assign its clusters to many records. Each such record would be a separate directory with the whole content below,
/// and the number of paths would be the product over all levels.
#[derive(Default)]
pub(super) struct Owners(HashMap<u32, FileNumber>);

impl Owners {
    /// Makes `directory` the owner of a cluster, unless the cluster has one. Fails with the reason.
    fn claim(&mut self, cluster: u32, directory: FileNumber) -> Result<(), &'static str> {
        let is_full = self.0.len() >= OWNED_CLUSTERS_MAX;
        match self.0.get(&cluster) {
            Some(owner) if *owner == directory => Ok(()),
            Some(_) => Err(SHARED),
            None if is_full => Err("there are too many directories to tell them apart"),
            None => {
                self.0.insert(cluster, directory);
                Ok(())
            }
        }
    }
}

/// Mechanism that keeps two directories from having the same cluster.
enum Claims<'c> {
    /// None: only one directory is read.
    None,
    /// The clusters of all directories in a pass over all of them.
    Pass(&'c mut HashSet<u32>),
    /// The owners of clusters. The directory becomes one of them.
    Directory(FileNumber),
}

/// Receives the name of a file, its number and its record.
type NameVisit<'v> = &'v mut dyn FnMut(Vec<u8>, FileNumber, &FileRecord) -> ControlFlow<()>;

impl Fat<'_> {
    /// Returns the place of a directory.
    pub(super) fn directory(&self, directory: FileNumber) -> Result<Root, GuestError> {
        if directory == ROOT {
            return Ok(self.layout.root);
        }
        let record = self.record(directory)?;
        if record.is_directory { Ok(Root::Clusters(record.first_cluster)) } else { Err(GuestError::NotADirectory) }
    }

    /// Calls `visit` with each record of a directory and its place, until it breaks. A cluster that belongs to another
    /// directory according to `claims` ends the directory. Damage also ends the directory, and is recorded. Returns
    /// whether nothing but the end of the directory or `visit` ended it.
    fn each_record_in(
        &self,
        directory: Root,
        mut claims: Claims<'_>,
        visit: &mut dyn FnMut(u64, Bytes<'_>) -> ControlFlow<()>,
    ) -> Result<bool, GuestError> {
        let first = match directory {
            Root::Fixed { start, length_bytes } => {
                return Ok(self.damage.skip(self.each_record_at(start, length_bytes, visit))?.is_some());
            }
            Root::Clusters(first) => first,
        };
        let mut room = DIRECTORY_BYTES_MAX;
        for cluster in self.table.chain(first, &self.damage) {
            let Some(cluster) = self.damage.skip(cluster)? else { return Ok(false) };
            let place = self.layout.place(cluster);
            let claim = match &mut claims {
                Claims::None => Ok(()),
                Claims::Pass(seen) => {
                    if seen.insert(cluster) {
                        Ok(())
                    } else {
                        Err(SHARED)
                    }
                }
                Claims::Directory(directory) => self.owners.lock().claim(cluster, *directory),
            };
            if let Err(problem) = claim.and(if room == 0 { Err("it is too long") } else { Ok(()) }) {
                self.damage.note(self.reader.damage(place, "directory", problem));
                return Ok(false);
            }
            let length = self.layout.cluster_bytes.min(room);
            room -= length;
            match self.damage.skip(self.each_record_at(place, length, visit))? {
                Some(ControlFlow::Continue(())) => {}
                Some(ControlFlow::Break(())) => return Ok(true),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Calls `visit` with each record of a part of a directory, until it breaks.
    ///
    /// # Errors
    /// When a sector cannot be read, and those of the disk.
    pub(super) fn each_record_at(
        &self,
        place: u64,
        length: u64,
        visit: &mut dyn FnMut(u64, Bytes<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, GuestError> {
        let (mut at, end) = (place, place + length);
        while at < end {
            let piece = usize::try_from((end - at).min(PIECE_BYTES)).unwrap_or(0);
            let bytes = self.reader.bytes(at, piece, "directory")?;
            for record in bytes.chunks_exact(RECORD_BYTES) {
                if visit(at, Bytes(record)).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                at += RECORD_BYTES as u64;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Calls `visit` with each file in a directory, until it breaks. A name that is invalid in paths is damage. So is a
    /// cluster that was already listed for a directory with another record: it has one path, and is not listed again.
    pub(super) fn each_named(&self, directory: FileNumber, visit: NameVisit<'_>) -> Result<(), GuestError> {
        let mut long = LongName::default();
        let claims = Claims::Directory(directory);
        self.each_record_in(self.directory(directory)?, claims, &mut |place, bytes| match Record::decode(
            bytes,
            self.layout.kind,
        ) {
            None | Some(Record::End) => ControlFlow::Break(()),
            Some(Record::LongName) => {
                long.add(bytes);
                ControlFlow::Continue(())
            }
            Some(Record::Deleted | Record::Label(_) | Record::Dots) => {
                long = LongName::default();
                ControlFlow::Continue(())
            }
            Some(Record::File(record)) => {
                let name = long.take_for(&record.short).unwrap_or_else(|| record.short.shown());
                if name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| b"/\0".contains(byte)) {
                    self.damage.note(self.reader.damage(place, "directory record", "no path can have its name"));
                    return ControlFlow::Continue(());
                }
                visit(name, FileNumber(place), &record)
            }
        })?;
        Ok(())
    }

    /// Returns the file with a name. Case does not matter, and a DOS name also finds its file. An exact match has
    /// priority.
    pub(super) fn find(&self, directory: FileNumber, name: &[u8]) -> Result<Option<FileNumber>, GuestError> {
        let folded = fold(name);
        let (mut exact, mut similar) = (None, None);
        self.each_named(directory, &mut |found, file, record| {
            if found == name {
                exact = Some(file);
                return ControlFlow::Break(());
            }
            if similar.is_none() && (fold(&found) == folded || fold(&record.short.shown()) == folded) {
                similar = Some(file);
            }
            ControlFlow::Continue(())
        })?;
        Ok(exact.or(similar))
    }

    /// Calls `visit` with the record of each file below the root directory, until it breaks. Directories that lead back
    /// to themselves or to each other are visited once.
    pub(super) fn each_record(
        &self,
        visit: &mut dyn FnMut(FileNumber, &FileRecord) -> ControlFlow<()>,
    ) -> Result<(), GuestError> {
        self.each_record_and_cluster(&mut HashSet::new(), visit).map(|_| ())
    }

    /// As [`Fat::each_record`], but also adds the clusters of all directories to `seen`, and returns whether each
    /// directory that was visited could be read to its end.
    pub(super) fn each_record_and_cluster(
        &self,
        seen: &mut HashSet<u32>,
        visit: &mut dyn FnMut(FileNumber, &FileRecord) -> ControlFlow<()>,
    ) -> Result<bool, GuestError> {
        let mut are_whole = true;
        let mut waiting = vec![self.layout.root];
        while let Some(directory) = waiting.pop() {
            let mut end = ControlFlow::Continue(());
            are_whole &= self.each_record_in(directory, Claims::Pass(seen), &mut |place, bytes| {
                match Record::decode(bytes, self.layout.kind) {
                    None | Some(Record::End) => return ControlFlow::Break(()),
                    Some(Record::LongName | Record::Deleted | Record::Label(_) | Record::Dots) => {}
                    Some(Record::File(record)) => {
                        if record.is_directory {
                            waiting.push(Root::Clusters(record.first_cluster));
                        }
                        end = visit(FileNumber(place), &record);
                    }
                }
                end
            })?;
            if end.is_break() {
                break;
            }
        }
        Ok(are_whole)
    }

    /// Returns the label in the root directory.
    pub(super) fn root_label(&self) -> Result<Option<Vec<u8>>, GuestError> {
        let mut label = None;
        self.each_record_in(self.layout.root, Claims::None, &mut |_, bytes| match Record::decode(
            bytes,
            self.layout.kind,
        ) {
            None | Some(Record::End) => ControlFlow::Break(()),
            Some(Record::Label(found)) => {
                label = Some(found);
                ControlFlow::Break(())
            }
            Some(_) => ControlFlow::Continue(()),
        })?;
        Ok(label)
    }
}

/// Returns a name in lower case for comparison.
fn fold(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(text) => text.to_lowercase().into_bytes(),
        Err(_) => name.to_ascii_lowercase(),
    }
}
