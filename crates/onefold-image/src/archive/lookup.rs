//! Where the units of an archive may be, according to its index.

use super::index::{ClaimedPlace, ClaimedPlaces, Index, IndexRoom, IndexSource};
use super::state::State;
use super::tables::Table;
use super::{Archive, ArchiveError};
use crate::{ObjectId, UnitName};

/// Divisor of the memory for tables: tables in which the next units are looked for first may take this share.
const FOLLOWED_SHARE: usize = 4;

/// How often a unit is looked up while the local files of the index turn out to be damaged.
const LOOKS_MAX: u32 = 16;

impl Archive {
    /// Limits the memory for tables of packs to about so many bytes: those that are cached, at most 64 MiB, and those
    /// in which the next units are looked for first.
    pub fn limit_tables(&self, bytes_max: usize) {
        let followed = bytes_max / FOLLOWED_SHARE;
        self.followed.limit(followed);
        self.tables.limit(bytes_max - followed);
    }

    /// Gives the index its room, and forgets what it knows.
    pub fn set_index_room(&self, room: IndexRoom) {
        *self.index.write() = Index::with_room(room);
    }

    /// Reads the index on, and returns the memory that it takes, in bytes.
    ///
    /// # Errors
    /// When the store fails, or there is no room for the index.
    pub fn index_bytes(&self) -> Result<usize, ArchiveError> {
        self.read_index(&self.state.read())?;
        Ok(self.index.read().memory_bytes())
    }

    /// Returns possible places of a unit according to the index and the ledger as last read, the shortest stored form
    /// first.
    pub(super) fn places(&self, name: UnitName) -> Result<Vec<ClaimedPlace>, ArchiveError> {
        Ok(self.found(name)?.places)
    }

    /// As [`Archive::places`], and whether places may be missing.
    pub(super) fn found(&self, name: UnitName) -> Result<ClaimedPlaces, ArchiveError> {
        let state = self.state.read();
        for _ in 0..LOOKS_MAX {
            self.read_index(&state)?;
            let index = self.index.read();
            // Another thread may have dropped a part of it since.
            if !index.is_of(&state) {
                continue;
            }
            let found = index.places(name, |pack| state.holds(pack, name));
            drop(index);
            match found {
                Ok(found) => return Ok(found),
                Err(broken) => self.index.write().drop_broken(broken),
            }
        }
        let source = std::io::Error::other("its files are damaged again and again");
        Err(ArchiveError::System { what: "to look units up in the index", source })
    }

    /// Reads the index on to what `state` says.
    pub(super) fn read_index(&self, state: &State) -> Result<(), ArchiveError> {
        if !self.index.read().is_of(state) {
            self.index.write().read_on(&self.reading(state))?;
        }
        Ok(())
    }

    fn reading<'r>(&'r self, state: &'r State) -> IndexSource<'r> {
        IndexSource { store: &*self.store, archive: self.descriptor.archive, state, tables: &self.tables }
    }

    /// Reads the packs again that the index lacks, unless that was in vain just now. If that says nothing new, drops
    /// what came from the cache. Returns whether the index may know more units now.
    pub(super) fn read_unread(&self) -> Result<bool, ArchiveError> {
        let state = self.state.read();
        let mut index = self.index.write();
        let knows_more = !index.unread().is_empty() && index.read_again(&self.reading(&state))?;
        Ok(knows_more || index.drop_cached())
    }

    /// Returns whether a capture may add this many units to the archive.
    pub(super) fn has_room_for(&self, units: usize) -> Result<bool, ArchiveError> {
        self.read_index(&self.state.read())?;
        Ok(self.index.read().check_room(units, self.limits.units_max).is_ok())
    }

    /// Returns the table of a pack.
    pub(super) fn table(&self, pack: ObjectId) -> Result<Table, ArchiveError> {
        self.tables.table(&*self.store, self.descriptor.archive, pack)
    }
}
