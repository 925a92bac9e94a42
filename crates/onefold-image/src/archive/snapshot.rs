//! Snapshots of the state: written now and then by the host that adds an entry, read when an archive is opened.
//!
//! A snapshot is a hint. It counts only if the entry that it follows has the digest that it states, and what it says
//! makes sense in itself. Otherwise an earlier one is read, or the whole ledger. [`Archive::check`] compares it with
//! the ledger. Like an entry, it is only as good as the host that wrote it: a host that may add entries is trusted with
//! the state.

use std::collections::HashMap;

use super::objects::{Folder, is_missing, read_whole};
use super::state::{HeldPack, ImageRecord, Part, State, WriterRecord};
use super::{Archive, ArchiveError};
use crate::ArchiveId;
use crate::format::ledger::{ENTRY_BYTES_MAX, LedgerEntry};
use crate::format::snapshot::{
    DroppedObject, SNAPSHOT_BYTES_MAX, SNAPSHOTS, Snapshot, SnapshotImage, SnapshotPack, SnapshotPart, SnapshotWriter,
};
use crate::store::{ObjectName, Store};

/// A snapshot is written when the number of entries is a multiple of this, before the next entry is made.
pub(super) const ENTRIES_BETWEEN: u64 = 128;
/// Maximum number of snapshots that are tried when an archive is opened.
const TRIED_MAX: usize = 3;
/// Number of snapshots that a collection keeps.
pub(super) const KEPT: usize = TRIED_MAX - 1;

/// Kinds of dropped objects, by their numbers in a snapshot.
const KINDS: [Folder; 3] = [Folder::Packs, Folder::Manifests, Folder::Segments];

/// Writes a snapshot if one is due. An error is of no matter: the next one will do.
pub(super) fn write_if_due(store: &dyn Store, archive: ArchiveId, state: &State, entries_between: u64) {
    if state.position > 0
        && state.position.is_multiple_of(entries_between)
        && let Ok(object) = to_snapshot(state).encode(archive)
        && is_durable(store, state)
    {
        let _ = store.create(&Snapshot::object_name(state.position), &object);
    }
}

/// Makes the last entry durable, and so all before it. Returns whether it is. Its maker may have died between making it
/// and making it durable. If the snapshot alone survived a power cut, the archive would pass for a copy that was cut.
fn is_durable(store: &dyn Store, state: &State) -> bool {
    let Some(last) = state.position.checked_sub(1) else {
        return false;
    };
    let name = LedgerEntry::object_name(last);
    // By the contract of stores, an object is durable once a creation has found it.
    read_whole(store, &name, ENTRY_BYTES_MAX)
        .is_ok_and(|entry| *blake3::hash(&entry).as_bytes() == state.last && store.create(&name, &entry).is_ok())
}

/// Returns the state of the newest snapshot that counts; that of no entry if there is none.
pub(super) fn newest(store: &dyn Store, archive: ArchiveId) -> State {
    let Ok(names) = names(store) else {
        return State::default();
    };
    let states = names.into_iter().rev().take(TRIED_MAX).map(|(position, name)| read(store, archive, position, &name));
    states.flatten().flatten().next().unwrap_or_default()
}

/// Returns all snapshots in order.
pub(super) fn names(store: &dyn Store) -> Result<Vec<(u64, ObjectName)>, ArchiveError> {
    let mut names = Vec::new();
    let mut after = None;
    loop {
        let listed = store.list(SNAPSHOTS, after.as_ref())?;
        let Some(last) = listed.last() else {
            return Ok(names);
        };
        after = Some(last.name.clone());
        names.extend(listed.into_iter().filter_map(|listed| Some((Snapshot::position_of(&listed.name)?, listed.name))));
    }
}

/// Removes all snapshots but the newest ones of a ledger with this many entries. One of more entries is left: it may be
/// that of another host, or come from a copy that was cut. It must not displace one that counts.
pub(super) fn prune(store: &dyn Store, entries: u64) -> Result<(), ArchiveError> {
    let names = names(store)?;
    for (_, name) in names.iter().rev().filter(|(position, _)| *position <= entries).skip(KEPT) {
        store.delete(name)?;
    }
    Ok(())
}

impl Archive {
    /// Returns the snapshots of more entries than the ledger has. A whole archive has none: the ledger ends early, as
    /// that of a copy does which was cut.
    pub(super) fn early_snapshots(&self) -> Result<Vec<ObjectName>, ArchiveError> {
        let names = names(self.store())?;
        // A host that wrote one has read the entries before it, so they can be read now.
        self.refresh()?;
        let entries = self.state.read().position;
        Ok(names.into_iter().filter(|(position, _)| *position > entries).map(|(_, name)| name).collect())
    }

    /// Fails if the archive is a copy that was cut: its ledger ends before the entries of a snapshot.
    pub(super) fn fail_if_cut(&self) -> Result<(), ArchiveError> {
        match self.early_snapshots()?.is_empty() {
            true => Ok(()),
            false => Err(ArchiveError::Cut { entries: self.state.read().position }),
        }
    }
}

/// Reads a snapshot. Returns `None` if it is not one of this ledger.
fn read(
    store: &dyn Store,
    archive: ArchiveId,
    position: u64,
    name: &ObjectName,
) -> Result<Option<State>, ArchiveError> {
    let object = read_whole(store, name, SNAPSHOT_BYTES_MAX)?;
    let snapshot = Snapshot::decode(archive, position, &object);
    let snapshot = snapshot.map_err(|source| ArchiveError::refused(name.to_string(), source))?;
    let Some(last) = position.checked_sub(1) else {
        return Ok(None);
    };
    let entry = match read_whole(store, &LedgerEntry::object_name(last), ENTRY_BYTES_MAX) {
        Ok(entry) => entry,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let follows = *blake3::hash(&entry).as_bytes() == snapshot.last;
    Ok(if follows { from_snapshot(&snapshot) } else { None })
}

impl Archive {
    /// Returns the snapshots that do not say what the ledger does, each with the reason. Those of more entries than
    /// `readable` are left out: an entry that would tell cannot be read. So are those of more entries than there are,
    /// which a copy that was cut has: nobody reads them.
    pub(super) fn wrong_snapshots(&self, readable: Option<u64>) -> Result<Vec<(ObjectName, String)>, ArchiveError> {
        let (store, archive) = (self.store(), self.descriptor().archive);
        let mut wrong = Vec::new();
        let mut state = State::default();
        for (position, name) in names(store)? {
            if readable.is_some_and(|readable| position > readable) {
                break;
            }
            super::ledger::read_until(store, archive, &mut state, position)?;
            if state.position < position {
                break;
            }
            let found = read_whole(store, &name, SNAPSHOT_BYTES_MAX).and_then(|object| {
                let snapshot = Snapshot::decode(archive, position, &object);
                snapshot.map_err(|source| ArchiveError::refused(name.to_string(), source))
            });
            match found {
                Ok(snapshot) if snapshot == to_snapshot(&state) => {}
                Ok(_) => wrong.push((name, "it does not say what the ledger does".to_owned())),
                // A later version of Onefold will read it.
                Err(ArchiveError::Newer { .. }) => {}
                // A collection has removed it since they were listed.
                Err(error) if is_missing(&error) => {}
                Err(error) => wrong.push((name, error.cause())),
            }
        }
        Ok(wrong)
    }
}

fn to_snapshot(state: &State) -> Snapshot {
    // All fields are named, so that none can be forgotten.
    let State { position, last, images, newest, live, dropped, parts, writers, open, lost, lost_until } = state;
    let image = |record: &ImageRecord| {
        let ImageRecord { image, manifest, digest, packs, added } = record.clone();
        SnapshotImage { image, manifest, digest, packs: packs as u64, added }
    };
    let kind = |folder: Folder| (0..).zip(KINDS).find(|(_, kind)| *kind == folder).map_or(u8::MAX, |(at, _)| at);
    let mut snapshot = Snapshot {
        position: *position,
        last: *last,
        lost_until: *lost_until,
        images: images.values().map(image).collect(),
        newest: newest
            .iter()
            .map(|(name, version)| crate::ImageVersion { name: name.clone(), version: *version })
            .collect(),
        live: live
            .iter()
            .map(|(pack, HeldPack { brought, part })| SnapshotPack { pack: *pack, brought: *brought, part: *part })
            .collect(),
        dropped: dropped
            .iter()
            .map(|((folder, object), since)| DroppedObject { kind: kind(*folder), object: *object, since: *since })
            .collect(),
        parts: parts
            .iter()
            .map(|(position, part)| SnapshotPart {
                position: *position,
                segment: part.segment,
                packs: part.packs.clone(),
            })
            .collect(),
        writers: writers
            .iter()
            .map(|(writer, WriterRecord { is_given_up, began, last })| SnapshotWriter {
                writer: *writer,
                is_given_up: *is_given_up,
                began: *began,
                last: *last,
            })
            .collect(),
        open: open.iter().map(|(position, (writer, host))| (*position, *writer, host.clone())).collect(),
        lost: lost.iter().map(|(unit, position)| (*unit, *position)).collect(),
    };
    snapshot.newest.sort_unstable();
    snapshot.live.sort_unstable();
    snapshot.dropped.sort_unstable();
    snapshot.writers.sort_unstable();
    snapshot.lost.sort_unstable();
    snapshot
}

/// Returns the state of a snapshot; `None` if it contradicts itself.
fn from_snapshot(snapshot: &Snapshot) -> Option<State> {
    let Snapshot { position, last, lost_until, images, newest, live, dropped, parts, writers, open, lost } = snapshot;
    let before = |at: u64| at < *position;
    let newest: HashMap<_, _> = newest.iter().map(|image| (image.name.clone(), image.version)).collect();
    let mut state = State { position: *position, last: *last, lost_until: *lost_until, newest, ..State::default() };
    for SnapshotImage { image, manifest, digest, packs, added } in images {
        if state.newest.get(&image.name).is_none_or(|newest| *newest < image.version) {
            return None;
        }
        let packs = usize::try_from(*packs).ok()?;
        let (image, manifest, digest, added) = (image.clone(), *manifest, *digest, *added);
        state.images.insert(image.clone(), ImageRecord { image, manifest, digest, packs, added });
    }
    state.dropped = dropped
        .iter()
        .map(|dropped| Some(((*KINDS.get(usize::from(dropped.kind))?, dropped.object), dropped.since)))
        .collect::<Option<_>>()?;
    for SnapshotPack { pack, brought, part } in live {
        if !before(*brought) || !before(*part) || state.dropped.contains_key(&(Folder::Packs, *pack)) {
            return None;
        }
        state.live.insert(*pack, HeldPack { brought: *brought, part: *part });
    }
    let mut in_parts = 0;
    for SnapshotPart { position, segment, packs } in parts {
        let live = packs.iter().filter(|pack| state.live.get(pack).is_some_and(|held| held.part == *position)).count();
        if live == 0 {
            return None;
        }
        in_parts += live;
        state.parts.insert(*position, Part { segment: *segment, packs: packs.clone(), live });
    }
    if in_parts != state.live.len() {
        return None;
    }
    for SnapshotWriter { writer, is_given_up, began, last } in writers {
        if !before(*began) {
            return None;
        }
        state.writers.insert(*writer, WriterRecord { is_given_up: *is_given_up, began: *began, last: *last });
    }
    for (began, writer, host) in open {
        if state.writers.get(writer).is_none_or(|record| record.began != *began || record.is_given_up) {
            return None;
        }
        state.open.insert(*began, (*writer, host.clone()));
    }
    let is_sound = *lost_until <= *position && lost.iter().all(|(_, lost)| before(*lost));
    state.lost = lost.iter().copied().collect();
    is_sound.then_some(state)
}
