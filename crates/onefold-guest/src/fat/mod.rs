//! FAT12, FAT16 and FAT32, read-only.
//!
//! | part | does |
//! |---|---|
//! | `layout` | the boot sector: where everything is |
//! | `table` | chains of clusters, from both tables |
//! | `directory`, `name` | records and names |
//! | `walk` | all records of a directory, and all directories of a volume |
//! | `allocation`, `unlisted` | the allocation map, and the files that only some systems see |
//! | `reader` | what every reader of a file system offers |
//!
//! FAT does not number files. The number of a file is the place of its record in the volume, and that of the root
//! directory is 0.

mod allocation;
mod directory;
mod layout;
mod name;
mod reader;
mod table;
mod unlisted;
mod walk;

use std::collections::HashSet;
use std::ops::ControlFlow;

use parking_lot::Mutex;

use crate::bytes::Bytes;
use crate::error::{DamageLog, GuestError};
use crate::filesystem::{AllocationDifferences, Doubt, FileKind, FileNumber, FileStat, FileSystemFacts, State};
use crate::volume::VolumeReader;
use directory::{DIRECTORY_BYTES_MAX, FileRecord, RECORD_BYTES, Record, plain_stat};
use layout::{Layout, Root};
use table::Table;
use walk::Owners;

/// The number of the root directory.
const ROOT: FileNumber = FileNumber(0);
/// Bits of the state in the boot sector: the volume is mounted; its medium has errors.
const STATE_MOUNTED: u8 = 1;
const STATE_ERRORS: u8 = 2;

/// A FAT volume.
pub struct Fat<'a> {
    reader: VolumeReader<'a>,
    layout: Layout,
    table: Table<'a>,
    facts: FileSystemFacts,
    state: State,
    damage: DamageLog,
    /// Those of the most recent allocation map.
    differences: Mutex<Option<AllocationDifferences>>,
    /// The end of the last read: reads of a file are usually consecutive.
    cursor: Mutex<Cursor>,
    owners: Mutex<Owners>,
}

/// A place in a chain: the first cluster of the chain, and a later cluster with its index in the chain.
#[derive(Clone, Copy, Default)]
struct Cursor {
    first: u32,
    index: u64,
    cluster: u32,
}

impl<'a> Fat<'a> {
    /// Opens the FAT volume of a reader; `None` if it is not FAT. If its boot sector and its tables contradict each
    /// other, a matching copy of the boot sector is used.
    ///
    /// # Errors
    /// When the table contradicts the boot sector, or there is no root directory; and those of the disk.
    pub fn open(reader: VolumeReader<'a>) -> Result<Option<Fat<'a>>, GuestError> {
        let Some(layout) = Layout::read(&reader)? else { return Ok(None) };
        match Fat::with_layout(reader.clone(), layout) {
            Ok(fat) => Ok(Some(fat)),
            Err(error @ GuestError::Damaged(_)) => Ok(Some(Fat::open_by_copy(reader)?.ok_or(error)?)),
            Err(error) => Err(error),
        }
    }

    /// Opens a FAT32 by the copy of its boot sector, which makes it unsure; `None` if no copy matches. Another format
    /// that was made over a FAT32 may have left the copy in place, so all other kinds are tried first.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn open_by_copy(reader: VolumeReader<'a>) -> Result<Option<Fat<'a>>, GuestError> {
        let Some(layout) = Layout::read_copy(&reader)? else { return Ok(None) };
        let mut fat = match Fat::with_layout(reader, layout) {
            Ok(fat) => fat,
            Err(GuestError::Damaged(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut doubts = vec![Doubt::MetadataDamaged];
        if let State::Unsure(others) = &fat.state {
            doubts.extend(others);
        }
        doubts.sort_unstable();
        fat.state = State::Unsure(doubts);
        fat.damage.note(fat.reader.damage(0, "boot sector", "its copy stands in for it"));
        Ok(Some(fat))
    }

    fn with_layout(reader: VolumeReader<'a>, layout: Layout) -> Result<Fat<'a>, GuestError> {
        let table = Table::new(reader.clone(), layout.clone());
        let damage = |offset, problem| GuestError::from(reader.damage(offset, "FAT", problem));
        let tables_bytes = layout.table_bytes * u64::from(layout.tables);
        if layout.table_start + tables_bytes > reader.size_bytes() {
            return Err(damage(0, "its tables reach past the end of the volume"));
        }
        if !has_medium(&table, &layout)? {
            return Err(damage(layout.table_start, "its tables do not begin with its medium"));
        }
        if let Root::Clusters(first) = layout.root
            && !layout.has(first)
        {
            return Err(damage(0, "its root directory is no cluster"));
        }
        let state = state(&table, &layout, reader.size_bytes())?;
        let facts = FileSystemFacts {
            kind: layout.kind,
            features: Vec::new(),
            label: Vec::new(),
            uuid: layout
                .serial
                .map_or_else(String::new, |serial| format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff)),
            block_bytes: layout.cluster_bytes,
            size_bytes: layout.size_bytes,
            free_bytes: None,
            files_max: None,
            files_used: None,
        };
        let (damage, cursor, owners) = (DamageLog::default(), Mutex::default(), Mutex::default());
        let differences = Mutex::default();
        let mut fat = Fat { reader, layout, table, facts, state, damage, differences, cursor, owners };
        fat.facts.label = fat.label()?;
        fat.facts.free_bytes = Some(u64::from(fat.free_clusters()?) * fat.layout.cluster_bytes);
        Ok(fat)
    }

    /// Returns the label in the root directory, or else that of the boot sector.
    fn label(&self) -> Result<Vec<u8>, GuestError> {
        let found = self.damage.skip(self.root_label())?.flatten();
        let label = found.unwrap_or_else(|| self.layout.label.clone());
        let label = label.trim_ascii_end();
        Ok(if label == b"NO NAME" { Vec::new() } else { label.to_vec() })
    }

    /// Returns the number of free clusters: the recorded one, or the one from its table.
    fn free_clusters(&self) -> Result<u32, GuestError> {
        match (self.layout.free_clusters, &self.state) {
            (Some(free), State::Certain) => Ok(free),
            _ => self.count_free(),
        }
    }

    /// Returns the record of a file.
    fn record(&self, file: FileNumber) -> Result<FileRecord, GuestError> {
        let is_place = match self.layout.root {
            Root::Fixed { start, .. } => file.0 >= start,
            Root::Clusters(_) => file.0 >= self.layout.data_start,
        };
        if !is_place || !file.0.is_multiple_of(RECORD_BYTES as u64) {
            return Err(GuestError::NotFound);
        }
        let record = self.reader.bytes(file.0, RECORD_BYTES, "directory record")?;
        match Record::decode(Bytes(&record), self.layout.kind) {
            Some(Record::File(record)) => Ok(record),
            _ => Err(GuestError::NotFound),
        }
    }

    /// Returns the length of a directory: that of its clusters, without those in `counted`. Damage ends it.
    fn directory_bytes(&self, first: u32, counted: &mut HashSet<u32>) -> Result<u64, GuestError> {
        let mut length = 0;
        for cluster in self.table.chain(first, &self.damage) {
            let Some(cluster) = self.damage.skip(cluster)? else { break };
            if !counted.insert(cluster) {
                break;
            }
            length += self.layout.cluster_bytes;
            if length >= DIRECTORY_BYTES_MAX {
                break;
            }
        }
        Ok(length)
    }

    fn root_stat(&self) -> Result<FileStat, GuestError> {
        let length_bytes = match self.layout.root {
            Root::Fixed { length_bytes, .. } => length_bytes,
            Root::Clusters(first) => self.directory_bytes(first, &mut HashSet::new())?,
        };
        Ok(plain_stat(FileKind::Directory, length_bytes, self.layout.cluster_bytes))
    }

    /// Returns the metadata of a file. Clusters of directories go into `counted`, so that the lengths of all
    /// directories need only one pass over their chains, even if these join each other.
    fn stat_of(&self, record: &FileRecord, counted: &mut HashSet<u32>) -> Result<FileStat, GuestError> {
        let size_bytes = if record.is_directory {
            self.directory_bytes(record.first_cluster, counted)?
        } else {
            u64::from(record.size_bytes)
        };
        Ok(record.stat(size_bytes, self.layout.cluster_bytes))
    }

    /// Returns the first cluster of a file's content and its length; directories have no length of their own.
    fn content(&self, file: FileNumber) -> Result<(u32, Option<u64>), GuestError> {
        if file == ROOT {
            return Ok(match self.layout.root {
                Root::Fixed { .. } => (0, Some(0)),
                Root::Clusters(first) => (first, None),
            });
        }
        let record = self.record(file)?;
        Ok((record.first_cluster, (!record.is_directory).then_some(u64::from(record.size_bytes))))
    }

    /// Returns the number of clusters for a file of this length; at most the number of existing clusters.
    fn clusters_of(&self, size_bytes: u64) -> u32 {
        let count = size_bytes.div_ceil(self.layout.cluster_bytes);
        u32::try_from(count).unwrap_or(u32::MAX).min(self.layout.clusters)
    }

    /// Calls `visit` with runs of consecutive clusters of a chain, as their first cluster and number, until it breaks.
    /// A file has at most its first `count` clusters, even if its chain continues.
    fn each_run(
        &self,
        first: u32,
        count: u32,
        visit: &mut dyn FnMut(u32, u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, GuestError> {
        let mut run: Option<(u32, u64)> = None;
        let mut chain = self.table.chain(first, &self.damage);
        for cluster in chain.by_ref().take(count_of(count)) {
            let cluster = match cluster {
                Ok(cluster) => cluster,
                Err(error) => {
                    // The part before the damage is visited.
                    if run.is_some_and(|(first, count)| visit(first, count).is_break()) {
                        return Ok(ControlFlow::Break(()));
                    }
                    return Err(error);
                }
            };
            run = match run {
                Some((first, count)) if u64::from(first) + count == u64::from(cluster) => Some((first, count + 1)),
                Some((first, count)) if visit(first, count).is_break() => return Ok(ControlFlow::Break(())),
                _ => Some((cluster, 1)),
            };
        }
        let end = run.map_or(ControlFlow::Continue(()), |(first, count)| visit(first, count));
        if end.is_continue() && chain.next().is_some() {
            // A chain that continues may have returned to itself.
            self.table.check_end(first, count, &self.damage)?;
        }
        Ok(end)
    }

    /// Returns the cluster with an index in the chain of a file of `count` clusters, which begins at `first`; `None` if
    /// the chain is shorter.
    fn cluster_at(&self, first: u32, count: u32, index: u64) -> Result<Option<u32>, GuestError> {
        let known = *self.cursor.lock();
        if known.first != first {
            // A cursor that moves from place to place does not notice repetitions.
            self.table.check_end(first, count, &self.damage)?;
        }
        let start = if known.first == first && known.index <= index && self.layout.has(known.cluster) {
            known
        } else {
            Cursor { first, index: 0, cluster: first }
        };
        let steps = usize::try_from(index - start.index).unwrap_or(usize::MAX);
        let Some(cluster) = self.table.chain(start.cluster, &self.damage).after_steps(steps)? else { return Ok(None) };
        *self.cursor.lock() = Cursor { first, index, cluster };
        Ok(Some(cluster))
    }
}

/// Returns a number of clusters as a number of steps.
fn count_of(clusters: u32) -> usize {
    usize::try_from(clusters).unwrap_or(usize::MAX)
}

/// Returns whether a table begins with the medium, as all tools write it.
fn has_medium(table: &Table<'_>, layout: &Layout) -> Result<bool, GuestError> {
    let expected = (table.highest() & !0xff) | u32::from(layout.medium);
    for copy in table.current() {
        if table.raw(copy, 0)? == expected {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the reliability of the maps of a volume.
fn state(table: &Table<'_>, layout: &Layout, volume_bytes: u64) -> Result<State, GuestError> {
    let copy = table.current().next().unwrap_or(0);
    let mut doubts = Vec::new();
    // The table of FAT12 has no such bits. Those of the others are the highest two: clean, and without errors.
    let highest = table.highest();
    let clean = highest ^ (highest >> 1);
    let bits = if highest == 0xfff { highest } else { table.raw(copy, 1)? };
    if bits & clean == 0 || layout.state & STATE_MOUNTED != 0 {
        doubts.push(Doubt::NotUnmounted);
    }
    if bits & (clean >> 1) == 0 || layout.state & STATE_ERRORS != 0 {
        doubts.push(Doubt::HasErrors);
    }
    if layout.size_bytes > volume_bytes {
        doubts.push(Doubt::LongerThanVolume);
    }
    if layout.is_unmirrored {
        doubts.push(Doubt::OneCurrentTable);
    }
    Ok(if doubts.is_empty() { State::Certain } else { State::Unsure(doubts) })
}
