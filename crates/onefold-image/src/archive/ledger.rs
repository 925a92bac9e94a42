//! The ledger: reads new entries and appends one.

use std::time::Duration;

use onefold_block::Clock;

use super::ArchiveError;
use super::objects::{damaged, is_missing, read_whole};
use super::rules::{Rule, follows};
use super::state::State;
use crate::ArchiveId;
use crate::format::ledger::{ENTRY_BYTES_MAX, LedgerEntry};
use crate::store::{Creation, ObjectName, Store, StoreError};

/// The beginning of the names of entries.
const ENTRIES: &str = "ledger/";
/// How often a creation is tried whose answer is an error.
const ATTEMPTS: u32 = 5;
/// Pause after the first failed attempt. Each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(100);

/// Applies all entries that `state` does not contain yet.
pub(super) fn read_on(store: &dyn Store, archive: ArchiveId, state: &mut State) -> Result<(), ArchiveError> {
    read_until(store, archive, state, u64::MAX)
}

/// Applies entries until `state` contains `count` of them, or there are no more.
pub(super) fn read_until(
    store: &dyn Store,
    archive: ArchiveId,
    state: &mut State,
    count: u64,
) -> Result<(), ArchiveError> {
    while state.position < count
        && let Some((name, object)) = next(store, state.position)?
    {
        let entry = LedgerEntry::decode(archive, state.position, &object).map_err(damaged(&name))?;
        let digest = *blake3::hash(&object).as_bytes();
        let refused = |what: &str| ArchiveError::Ledger { position: entry.position, what: what.to_owned() };
        state.apply(&entry, digest).map_err(refused)?;
    }
    Ok(())
}

/// Returns an entry that was read before.
pub(super) fn entry(store: &dyn Store, archive: ArchiveId, position: u64) -> Result<LedgerEntry, ArchiveError> {
    let name = LedgerEntry::object_name(position);
    let object = read_whole(store, &name, ENTRY_BYTES_MAX)?;
    LedgerEntry::decode(archive, position, &object).map_err(damaged(&name))
}

/// Returns the object of an entry, if it exists.
fn next(store: &dyn Store, position: u64) -> Result<Option<(ObjectName, Vec<u8>)>, ArchiveError> {
    let name = LedgerEntry::object_name(position);
    match read_whole(store, &name, ENTRY_BYTES_MAX) {
        Ok(object) => Ok(Some((name, object))),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// An entry at which a ledger ends for its readers, although it goes on: the entry is missing, damaged or cannot be
/// read. Images of earlier entries stay readable. Nothing can be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerHole {
    /// Number of the entry.
    pub position: u64,
    /// Why it is not usable.
    pub what: String,
}

impl LedgerHole {
    /// Returns an entry that is missing.
    pub(super) fn missing(position: u64) -> LedgerHole {
        LedgerHole { position, what: "it is missing, and others follow it".to_owned() }
    }

    /// Returns the name of the entry's object.
    #[must_use]
    pub fn object(&self) -> String {
        LedgerEntry::object_name(self.position).to_string()
    }
}

impl From<LedgerHole> for ArchiveError {
    fn from(hole: LedgerHole) -> ArchiveError {
        ArchiveError::Ledger { position: hole.position, what: hole.what }
    }
}

/// Returns the missing entry, if the entries that `state` knows end before it and other entries follow. A writer that
/// added to such a ledger would make a second entry with that number.
pub(super) fn hole(store: &dyn Store, state: &State) -> Result<Option<LedgerHole>, ArchiveError> {
    let mut after = state.position.checked_sub(1).map(LedgerEntry::object_name);
    loop {
        let listed = store.list(ENTRIES, after.as_ref())?;
        let Some(last) = listed.last() else {
            return Ok(None);
        };
        if let Some(entry) = listed.iter().find(|listed| is_entry(&listed.name)) {
            // The next one came while the ledger was read.
            let follows = entry.name == LedgerEntry::object_name(state.position);
            return Ok((!follows).then(|| LedgerHole::missing(state.position)));
        }
        after = Some(last.name.clone());
    }
}

/// Returns whether the store has objects among which entries may be.
pub(super) fn has_entries(store: &dyn Store) -> Result<bool, ArchiveError> {
    Ok(!store.list(ENTRIES, None)?.is_empty())
}

/// Returns whether an object has the name of an entry: other files may lie beside them.
fn is_entry(name: &ObjectName) -> bool {
    let number = name.as_str().strip_prefix(ENTRIES).unwrap_or_default();
    number.len() == 16 && number.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// Makes an object that must be exactly `bytes`. Returns whether it is; otherwise another was there first.
///
/// Most errors from the store prove nothing: the object may exist already or appear later. The function retries the
/// same creation, so an object that appears late is the intended one. "Exists" does not say who made the object. Its
/// bytes do, because they contain a random token. Only if no attempt can have had an effect, the error is certain, and
/// the function returns it at once.
pub(super) fn create_exactly(
    store: &dyn Store,
    clock: Option<&dyn Clock>,
    name: &ObjectName,
    bytes: &[u8],
) -> Result<bool, ArchiveError> {
    let mut pause = PAUSE;
    let mut may_exist = false;
    for attempt in 1.. {
        let created = match follows(Rule::EntriesStay) {
            true => store.create(name, bytes),
            false => store.put(name, &[bytes]).map(|()| Creation::New),
        };
        let answer = created.and_then(|created| match created {
            Creation::Exists if follows(Rule::TokensCompared) => is_stored(store, name, bytes),
            _ => Ok(true),
        });
        match answer {
            Ok(is_ours) => return Ok(is_ours),
            Err(error) if !may_exist && (error.had_no_effect() || !follows(Rule::ErrorsProveNothing)) => {
                return Err(error.into());
            }
            Err(error) if attempt == ATTEMPTS || error.is_final() => return Err(ArchiveError::Doubtful(error)),
            Err(error) => may_exist |= !error.had_no_effect(),
        }
        if let Some(clock) = clock {
            clock.sleep(pause);
        }
        pause *= 2;
    }
    unreachable!("the last attempt returns")
}

/// Returns whether the object exists with exactly these bytes.
fn is_stored(store: &dyn Store, name: &ObjectName, bytes: &[u8]) -> Result<bool, StoreError> {
    let range = crate::store::ByteRange::From { offset: 0, length_bytes: bytes.len() as u64 + 1 };
    Ok(store.get(name, range)? == bytes)
}
