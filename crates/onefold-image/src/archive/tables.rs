//! Cache of the tables of packs. A table proves which unit lies where.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::ArchiveError;
use super::objects::{Folder, damaged, is_missing};
use crate::format::FormatError;
use crate::format::pack::{TAIL_BYTES, TableEntry, Tail, decode_tail};
use crate::store::{ByteRange, Store};
use crate::{ArchiveId, ObjectId};

/// Maximum memory for tables, in bytes. The cache may exceed it by one table.
const MEMORY_BYTES: usize = 64 << 20;

/// The table of a pack, sorted by offset.
pub(super) type Table = Arc<Vec<TableEntry>>;

/// Tables in memory. The least recently used one is evicted first.
#[derive(Debug, Default)]
pub(super) struct Tables {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    tables: HashMap<ObjectId, (Table, u64)>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

impl Tables {
    /// Returns the table of a pack.
    pub(super) fn table(&self, store: &dyn Store, archive: ArchiveId, pack: ObjectId) -> Result<Table, ArchiveError> {
        if let Some(table) = self.kept.lock().get(pack) {
            return Ok(table);
        }
        let table = Arc::new(read_table(store, archive, pack)?);
        self.kept.lock().insert(pack, &table);
        Ok(table)
    }
}

impl Kept {
    fn get(&mut self, pack: ObjectId) -> Option<Table> {
        self.clock += 1;
        let (table, used) = self.tables.get_mut(&pack)?;
        *used = self.clock;
        Some(Arc::clone(table))
    }

    fn insert(&mut self, pack: ObjectId, table: &Table) {
        while self.bytes > MEMORY_BYTES {
            let Some(oldest) = self.tables.iter().min_by_key(|(_, (_, used))| *used).map(|(pack, _)| *pack) else {
                break;
            };
            if let Some((table, _)) = self.tables.remove(&oldest) {
                self.bytes -= memory_bytes(&table);
            }
        }
        self.clock += 1;
        self.bytes += memory_bytes(table);
        if let Some((before, _)) = self.tables.insert(pack, (Arc::clone(table), self.clock)) {
            self.bytes -= memory_bytes(&before);
        }
    }
}

fn memory_bytes(table: &Table) -> usize {
    table.len() * size_of::<TableEntry>()
}

/// Reads the table of a pack, usually in one call.
fn read_table(store: &dyn Store, archive: ArchiveId, pack: ObjectId) -> Result<Vec<TableEntry>, ArchiveError> {
    let name = Folder::Packs.object(pack);
    let mut length_bytes = TAIL_BYTES;
    for _ in 0..2 {
        let tail = store.get(&name, ByteRange::Last { length_bytes })?;
        match decode_tail(archive, pack, &tail).map_err(damaged(&name))? {
            Tail::Table(table) => return Ok(table),
            Tail::Longer(wanted) => length_bytes = wanted,
        }
    }
    Err(damaged(&name)(FormatError::Length { structure: "pack" }))
}

/// Returns whether an object is gone, damaged or cannot be read, which other objects may make up for.
pub(super) fn is_broken(error: &ArchiveError) -> bool {
    matches!(error, ArchiveError::Store(_) | ArchiveError::Damaged { .. })
}

/// Returns whether the store fails to read an object, which may be whole.
pub(super) fn is_unread(error: &ArchiveError) -> bool {
    matches!(error, ArchiveError::Store(_)) && !is_missing(error)
}

/// Returns the entry at an offset of a table.
pub(super) fn entry_at(table: &[TableEntry], offset: u32) -> Option<&TableEntry> {
    table.binary_search_by_key(&offset, |entry| entry.offset).ok().map(|at| &table[at])
}
