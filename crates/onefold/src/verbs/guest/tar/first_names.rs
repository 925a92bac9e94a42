//! The first names of files with several names: in memory while there is room, then in temporary files.
//!
//! The temporary files contain a table of fixed length and a heap of names. Only the length of the table depends on the
//! number of files that the guest reports, and the table is a hole until a slot is used.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use onefold_guest::tree::GuestFile;

/// Maximum number of bytes of names in memory, plus [`ENTRY_BYTES`] for each.
const MEMORY_BYTES_MAX: usize = 48 << 20;
const ENTRY_BYTES: usize = 64;
/// A slot of the table: the file system, from 1, and the file; then the end of its name in the heap, and the name's
/// length.
const SLOT_BYTES: usize = 24;
/// Number of slots that a file may be in: the one of its hash, and those after it.
const PROBES: usize = 64;
const SLOTS_MIN: u64 = 1 << 12;
const SLOTS_MAX: u64 = 1 << 28;
const HEAP_BUFFER_BYTES: usize = 256 << 10;

/// The first name of each file with several names.
pub(super) struct FirstNames {
    memory: HashMap<GuestFile, Vec<u8>>,
    memory_bytes: usize,
    memory_bytes_max: usize,
    /// Maximum number of files in all.
    files_max: u64,
    spilled: Option<SpilledNames>,
    /// Whether some names found no room.
    pub(super) is_full: bool,
}

impl FirstNames {
    /// Returns an empty table for names of at most `files_max` files.
    pub(super) fn new(files_max: u64) -> FirstNames {
        FirstNames {
            memory: HashMap::new(),
            memory_bytes: 0,
            memory_bytes_max: MEMORY_BYTES_MAX,
            files_max,
            spilled: None,
            is_full: false,
        }
    }

    /// Returns the first name of a file; `None` if it had none, or if there was no room for it.
    ///
    /// # Errors
    /// Those of the temporary files.
    pub(super) fn get(&mut self, file: GuestFile) -> io::Result<Option<Vec<u8>>> {
        if let Some(name) = self.memory.get(&file) {
            return Ok(Some(name.clone()));
        }
        self.spilled.as_mut().map_or(Ok(None), |spilled| spilled.get(file))
    }

    /// Records the first name of a file.
    ///
    /// # Errors
    /// Those of the temporary files.
    pub(super) fn insert(&mut self, file: GuestFile, name: &[u8]) -> io::Result<()> {
        let bytes = name.len() + ENTRY_BYTES;
        if self.memory_bytes + bytes <= self.memory_bytes_max {
            self.memory_bytes += bytes;
            self.memory.insert(file, name.to_vec());
            return Ok(());
        }
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            none => none.insert(SpilledNames::new(&std::env::temp_dir(), self.files_max)?),
        };
        self.is_full |= !spilled.insert(file, name)?;
        Ok(())
    }
}

/// Names in temporary files, which are themselves nameless.
struct SpilledNames {
    table: File,
    slots: u64,
    heap: BufWriter<File>,
    heap_bytes: u64,
    /// Has a random key, so that a guest cannot choose numbers that all collide.
    hasher: RandomState,
}

/// The slot of a file in the table, or a free one for it.
enum TableSlot {
    Found { end: u64, length: usize },
    Free(u64),
    Full,
}

impl SpilledNames {
    fn new(folder: &Path, files_max: u64) -> io::Result<SpilledNames> {
        let slots = files_max.saturating_mul(2).clamp(SLOTS_MIN, SLOTS_MAX);
        let table = tempfile::tempfile_in(folder)?;
        table.set_len((slots + PROBES as u64) * SLOT_BYTES as u64)?;
        let heap = BufWriter::with_capacity(HEAP_BUFFER_BYTES, tempfile::tempfile_in(folder)?);
        Ok(SpilledNames { table, slots, heap, heap_bytes: 0, hasher: RandomState::new() })
    }

    fn get(&mut self, file: GuestFile) -> io::Result<Option<Vec<u8>>> {
        let TableSlot::Found { end, length } = self.place(file)? else { return Ok(None) };
        let start = end.checked_sub(length as u64).ok_or_else(foreign)?;
        self.heap.flush()?;
        let mut name = vec![0; length];
        self.heap.get_ref().read_exact_at(&mut name, start)?;
        Ok(Some(name))
    }

    /// Returns whether there is room for the name.
    fn insert(&mut self, file: GuestFile, name: &[u8]) -> io::Result<bool> {
        let (TableSlot::Free(at), Ok(length)) = (self.place(file)?, u32::try_from(name.len())) else {
            return Ok(false);
        };
        self.heap.write_all(name)?;
        self.heap_bytes += u64::from(length);
        let mut slot = [0; SLOT_BYTES];
        slot[..12].copy_from_slice(&key(file));
        slot[12..20].copy_from_slice(&self.heap_bytes.to_le_bytes());
        slot[20..].copy_from_slice(&length.to_le_bytes());
        self.table.write_all_at(&slot, at)?;
        Ok(true)
    }

    fn place(&self, file: GuestFile) -> io::Result<TableSlot> {
        let key = key(file);
        let first = self.hasher.hash_one(file) % self.slots * SLOT_BYTES as u64;
        let mut slots = [0; PROBES * SLOT_BYTES];
        self.table.read_exact_at(&mut slots, first)?;
        for (at, slot) in (first..).step_by(SLOT_BYTES).zip(slots.chunks_exact(SLOT_BYTES)) {
            if slot[..12] == key {
                let end = slot[12..20].try_into().map(u64::from_le_bytes).map_err(|_| foreign())?;
                let length = slot[20..].try_into().map(u32::from_le_bytes).map_err(|_| foreign())?;
                return Ok(TableSlot::Found { end, length: usize::try_from(length).map_err(|_| foreign())? });
            }
            if slot[..12] == [0; 12] {
                return Ok(TableSlot::Free(at));
            }
        }
        Ok(TableSlot::Full)
    }
}

/// Returns the key of a file in the table, which is never all zeros.
fn key(file: GuestFile) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&file.system.0.wrapping_add(1).to_le_bytes());
    key[4..].copy_from_slice(&file.file.0.to_le_bytes());
    key
}

fn foreign() -> io::Error {
    io::Error::other("a temporary file has changed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_guest::filesystem::FileNumber;
    use onefold_guest::tree::SystemIndex;

    fn file(number: u64) -> GuestFile {
        GuestFile { system: SystemIndex(u32::from(number.is_multiple_of(3))), file: FileNumber(number * 7) }
    }

    fn name(number: u64) -> Vec<u8> {
        format!("folder/name-{number}/{}", "n".repeat(usize::try_from(number % 50).unwrap())).into_bytes()
    }

    #[test]
    fn names_beyond_the_memory_come_back_from_temporary_files() {
        let mut names = FirstNames { memory_bytes_max: 10_000, ..FirstNames::new(5000) };
        for number in 0..5000 {
            assert_eq!(names.get(file(number)).unwrap(), None);
            names.insert(file(number), &name(number)).unwrap();
            let earlier = number / 2;
            assert_eq!(names.get(file(earlier)).unwrap(), Some(name(earlier)));
        }
        assert!(names.memory.len() < 150 && !names.is_full);
        for number in (0..5000).rev() {
            assert_eq!(names.get(file(number)).unwrap(), Some(name(number)));
        }
        assert_eq!(names.get(file(5000)).unwrap(), None);
    }

    /// A guest that reports fewer files than it shows gets no wrong name.
    #[test]
    fn a_table_without_room_says_so() {
        let mut names = FirstNames { memory_bytes_max: 0, ..FirstNames::new(1) };
        for number in 0..10_000 {
            names.insert(file(number), &name(number)).unwrap();
        }
        assert!(names.is_full);
        let known: Vec<u64> = (0..10_000).filter(|number| names.get(file(*number)).unwrap().is_some()).collect();
        assert!((4000..9000).contains(&known.len()), "{}", known.len());
        for number in known {
            assert_eq!(names.get(file(number)).unwrap(), Some(name(number)));
        }
    }
}
