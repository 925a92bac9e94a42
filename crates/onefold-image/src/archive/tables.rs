//! Cache of the tables of packs. A table proves which unit lies where.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};

use super::ArchiveError;
use super::objects::{Folder, damaged, is_missing};
use crate::format::FormatError;
use crate::format::pack::{TableEntry, Tail, decode_tail, tail_bytes};
use crate::store::{ByteRange, Store, StoreError};
use crate::{ArchiveId, ObjectId};

/// Maximum memory for tables, in bytes, unless less is given. The cache may exceed it by one table.
pub(super) const MEMORY_BYTES: usize = 64 << 20;

/// How many last bytes of a pack the first read of a table asks for.
const TAIL_BYTES_FIRST: u64 = 64 << 10;
/// Maximum number of last bytes that a read asks for before it knows the length of the table: 6,500 units.
const TAIL_BYTES_MAX: u64 = 256 << 10;

/// The table of a pack, sorted by offset.
pub(super) type Table = Arc<Vec<TableEntry>>;

/// Tables in memory. The least recently used one is evicted first.
#[derive(Debug, Default)]
pub(super) struct Tables {
    kept: Mutex<TableCache>,
    tail: TailLength,
    /// Some thread has read a table, or failed to.
    has_read: Condvar,
}

#[derive(Debug)]
struct TableCache {
    tables: HashMap<ObjectId, (Table, u64)>,
    /// The packs whose tables a thread reads at this moment. If the store fails for good, the others get its error,
    /// too.
    reading: HashMap<ObjectId, Arc<OnceLock<StoreError>>>,
    bytes: usize,
    bytes_max: usize,
    /// Counts uses.
    clock: u64,
}

impl Default for TableCache {
    fn default() -> TableCache {
        TableCache { tables: HashMap::new(), reading: HashMap::new(), bytes: 0, bytes_max: MEMORY_BYTES, clock: 0 }
    }
}

impl Tables {
    /// Sets the memory for tables.
    pub(super) fn limit(&self, bytes_max: usize) {
        let mut kept = self.kept.lock();
        kept.bytes_max = bytes_max.min(MEMORY_BYTES);
        kept.make_room();
    }

    /// Returns the table of a pack. Threads that want the same table at the same time read it once. If that fails for a
    /// reason that may concern this read alone, each of them tries for itself.
    pub(super) fn table(&self, store: &dyn Store, archive: ArchiveId, pack: ObjectId) -> Result<Table, ArchiveError> {
        let mut kept = self.kept.lock();
        if let Some(table) = kept.get(pack) {
            return Ok(table);
        }
        let reading = match kept.reading.get(&pack).map(Arc::clone) {
            None => {
                let failure = Arc::default();
                kept.reading.insert(pack, Arc::clone(&failure));
                Some(TableRead { tables: self, pack, failure })
            }
            Some(failure) => {
                let is_same = |other: &Arc<OnceLock<StoreError>>| Arc::ptr_eq(other, &failure);
                self.has_read.wait_while(&mut kept, |kept| kept.reading.get(&pack).is_some_and(is_same));
                if let Some(table) = kept.get(pack) {
                    return Ok(table);
                }
                if let Some(error) = failure.get() {
                    return Err(error.for_another().into());
                }
                None
            }
        };
        drop(kept);
        let read = self.read(store, archive, pack);
        if let (Some(reading), Err(ArchiveError::Store(error))) = (&reading, &read)
            && error.is_final()
        {
            reading.failure.get_or_init(|| error.for_another());
        }
        let table = Arc::new(read?);
        self.kept.lock().insert(pack, &table);
        drop(reading);
        Ok(table)
    }

    /// Reads the table of a pack, usually in one call, and does not keep it.
    pub(super) fn read(
        &self,
        store: &dyn Store,
        archive: ArchiveId,
        pack: ObjectId,
    ) -> Result<Vec<TableEntry>, ArchiveError> {
        let name = Folder::Packs.object(pack);
        let mut length_bytes = self.tail.expected();
        for _ in 0..2 {
            let tail = store.get(&name, ByteRange::Last { length_bytes })?;
            match decode_tail(archive, pack, &tail).map_err(damaged(&name))? {
                Tail::Table(table) => {
                    self.tail.learn(tail_bytes(table.len()));
                    return Ok(table);
                }
                Tail::Longer(wanted) => length_bytes = wanted,
            }
        }
        Err(damaged(&name)(FormatError::Length { structure: "pack" }))
    }
}

/// How many last bytes of a pack a read of its table asks for. The tables of an archive are of about the same length: 4
/// to 16 KiB for units of 256 KiB, and over 100 KiB for files.
#[derive(Debug)]
struct TailLength(AtomicU64);

impl Default for TailLength {
    fn default() -> TailLength {
        TailLength(AtomicU64::new(TAIL_BYTES_FIRST))
    }
}

impl TailLength {
    fn expected(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes note of the length of a table: a quarter more may do for the next one. After a short one, the length goes
    /// down slowly, so long ones among short ones do not take two requests each.
    fn learn(&self, tail_bytes: u64) {
        let before = self.expected();
        let next = (tail_bytes + tail_bytes / 4).max(before - before / 8);
        self.0.store(next.min(TAIL_BYTES_MAX), Ordering::Relaxed);
    }
}

/// A thread reads a table, and others may wait for it. They stop waiting when this is dropped.
struct TableRead<'a> {
    tables: &'a Tables,
    pack: ObjectId,
    failure: Arc<OnceLock<StoreError>>,
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

    /// Regression: 256 KiB were read of each pack, whatever its table needs.
    #[test]
    fn reads_of_tables_ask_for_about_what_the_last_ones_took() {
        let tail = TailLength::default();
        (0..40).for_each(|_| tail.learn(8 << 10));
        assert_eq!(tail.expected(), 10 << 10);
        // One that is longer takes two calls, and the next ones one.
        tail.learn(100 << 10);
        for _ in 0..10 {
            assert!(tail.expected() >= 100 << 10);
            tail.learn(8 << 10);
            assert!(tail.expected() >= 100 << 10);
            tail.learn(100 << 10);
        }
        tail.learn(10 << 20);
        assert_eq!(tail.expected(), TAIL_BYTES_MAX);
    }
}
