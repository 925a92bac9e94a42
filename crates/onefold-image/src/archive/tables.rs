//! Cache of the tables of packs. A table proves which unit lies where.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::ArchiveError;
use super::objects::{Folder, damaged, is_missing};
use crate::format::FormatError;
use crate::format::pack::{TAIL_BYTES, TableEntry, Tail, decode_tail};
use crate::store::{ByteRange, Store};
use crate::{ArchiveId, ObjectId};

/// Maximum memory for tables, in bytes, unless less is given. The cache may exceed it by one table.
pub(super) const MEMORY_BYTES: usize = 64 << 20;

/// The table of a pack, sorted by offset.
pub(super) type Table = Arc<Vec<TableEntry>>;

/// Tables in memory. The least recently used one is evicted first.
#[derive(Debug, Default)]
pub(super) struct Tables {
    kept: Mutex<TableCache>,
    /// Some thread has read a table, or failed to.
    has_read: Condvar,
}

#[derive(Debug)]
struct TableCache {
    tables: HashMap<ObjectId, (Table, u64)>,
    /// The packs whose tables a thread reads at this moment.
    reading: HashSet<ObjectId>,
    bytes: usize,
    bytes_max: usize,
    /// Counts uses.
    clock: u64,
}

impl Default for TableCache {
    fn default() -> TableCache {
        TableCache { tables: HashMap::new(), reading: HashSet::new(), bytes: 0, bytes_max: MEMORY_BYTES, clock: 0 }
    }
}

impl Tables {
    /// Sets the memory for tables.
    pub(super) fn limit(&self, bytes_max: usize) {
        let mut kept = self.kept.lock();
        kept.bytes_max = bytes_max.min(MEMORY_BYTES);
        kept.make_room();
    }

    /// Returns the table of a pack. Threads that want the same table at the same time read it once; if that fails, each
    /// of them tries for itself.
    pub(super) fn table(&self, store: &dyn Store, archive: ArchiveId, pack: ObjectId) -> Result<Table, ArchiveError> {
        let mut kept = self.kept.lock();
        if let Some(table) = kept.get(pack) {
            return Ok(table);
        }
        let reading = if kept.reading.insert(pack) {
            Some(TableRead { tables: self, pack })
        } else {
            self.has_read.wait_while(&mut kept, |kept| kept.reading.contains(&pack));
            if let Some(table) = kept.get(pack) {
                return Ok(table);
            }
            None
        };
        drop(kept);
        let table = Arc::new(read_table(store, archive, pack)?);
        self.kept.lock().insert(pack, &table);
        drop(reading);
        Ok(table)
    }
}

/// A thread reads a table, and others may wait for it. They stop waiting when this is dropped.
struct TableRead<'a> {
    tables: &'a Tables,
    pack: ObjectId,
}

impl Drop for TableRead<'_> {
    fn drop(&mut self) {
        self.tables.kept.lock().reading.remove(&self.pack);
        self.tables.has_read.notify_all();
    }
}

impl TableCache {
    fn get(&mut self, pack: ObjectId) -> Option<Table> {
        self.clock += 1;
        let (table, used) = self.tables.get_mut(&pack)?;
        *used = self.clock;
        Some(Arc::clone(table))
    }

    fn make_room(&mut self) {
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.tables.iter().min_by_key(|(_, (_, used))| *used).map(|(pack, _)| *pack) else {
                break;
            };
            if let Some((table, _)) = self.tables.remove(&oldest) {
                self.bytes -= memory_bytes(&table);
            }
        }
    }

    fn insert(&mut self, pack: ObjectId, table: &Table) {
        self.make_room();
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
pub(super) fn read_table(
    store: &dyn Store,
    archive: ArchiveId,
    pack: ObjectId,
) -> Result<Vec<TableEntry>, ArchiveError> {
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

/// Returns whether an object is gone, damaged or cannot be read, which other objects may make up for. A store that
/// refuses its user, or that did not answer for long, fails as a whole.
pub(super) fn is_broken(error: &ArchiveError) -> bool {
    match error {
        ArchiveError::Store(error) => !error.is_final(),
        ArchiveError::Damaged { .. } => true,
        _ => false,
    }
}

/// Returns whether the store fails to read an object, which may be whole.
pub(super) fn is_unread(error: &ArchiveError) -> bool {
    matches!(error, ArchiveError::Store(_)) && !is_missing(error)
}

/// Returns the entry at an offset of a table.
pub(super) fn entry_at(table: &[TableEntry], offset: u32) -> Option<&TableEntry> {
    table.binary_search_by_key(&offset, |entry| entry.offset).ok().map(|at| &table[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{UnitName, WriterId};

    #[test]
    fn tables_stay_within_their_memory_but_for_the_last_one() {
        let entry = TableEntry { name: UnitName([0; 32]), offset: 0, stored_bytes: 1, plain_bytes: 1 };
        let table: Table = Arc::new(vec![entry; 1000]);
        let bytes = memory_bytes(&table);
        let tables = Tables::default();
        let pack = |number: u8| ObjectId { writer: WriterId([1; 16]), random: [number; 8] };
        (0..9).for_each(|number| tables.kept.lock().insert(pack(number), &table));
        assert_eq!(tables.kept.lock().bytes, 9 * bytes);
        tables.limit(3 * bytes);
        assert_eq!(tables.kept.lock().bytes, 3 * bytes);
        (10..20).for_each(|number| tables.kept.lock().insert(pack(number), &table));
        let mut kept = tables.kept.lock();
        assert_eq!((kept.bytes, kept.tables.len()), (4 * bytes, 4));
        assert!(kept.get(pack(19)).is_some() && kept.get(pack(15)).is_none());
    }
}
