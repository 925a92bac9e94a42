//! The objects in the store, and what becomes of each by the ledger.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use onefold_block::Timestamp;

use crate::archive::ArchiveError;
use crate::archive::objects::Folder;
use crate::archive::probe::PROBES;
use crate::archive::rules::{Rule, follows};
use crate::archive::signatures::{self, SIGNATURES};
use crate::archive::state::State;
use crate::signature::KeyId;
use crate::store::{ListedObject, ObjectName, Store};
use crate::{ObjectId, WriterId};

/// Packs, manifests, segments, signatures and probes in the store.
#[derive(Debug, Default)]
pub(super) struct StoredObjects {
    objects: Vec<Object>,
    probes: Vec<ListedObject>,
}

#[derive(Debug)]
pub(super) struct Object {
    pub(super) folder: Folder,
    pub(super) id: ObjectId,
    /// Key of a signature of the object. Then this is not the object itself but its signature, with the same fate.
    signature: Option<KeyId>,
    pub(super) length_bytes: u64,
    modified: Timestamp,
}

/// Fate of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The archive needs it.
    Needed,
    /// It may be deleted now.
    Due,
    /// It is deleted after the delay.
    Waiting,
    /// No entry names it, and its writer may be at work.
    Running,
    /// No entry names it or its writer. An incomplete copy of an archive has such objects.
    Foreign,
}

/// Decides the fate of objects.
#[derive(Debug)]
pub(super) struct Judge<'j> {
    state: &'j State,
    needed: HashSet<(Folder, ObjectId)>,
    now: Timestamp,
    delay: Duration,
}

impl StoredObjects {
    /// Lists the store. The ledger has to be read after this: an object that no entry names then, and whose writer has
    /// not begun, is of no writer that is at work.
    pub(super) fn read(store: &dyn Store) -> Result<StoredObjects, ArchiveError> {
        let mut listing = StoredObjects::default();
        for folder in [Folder::Packs, Folder::Manifests, Folder::Segments] {
            each_listed(store, folder.prefix(), &mut |listed| {
                // Other names are no objects of an archive.
                listing.objects.extend(folder.id_of(&listed.name).map(|id| Object {
                    folder,
                    id,
                    signature: None,
                    length_bytes: listed.length_bytes,
                    modified: listed.modified,
                }));
            })?;
        }
        each_listed(store, SIGNATURES, &mut |listed| {
            listing.objects.extend(signatures::parse(&listed.name).map(|(id, key)| Object {
                folder: Folder::Manifests,
                id,
                signature: Some(key),
                length_bytes: listed.length_bytes,
                modified: listed.modified,
            }));
        })?;
        each_listed(store, PROBES, &mut |listed| listing.probes.push(listed))?;
        Ok(listing)
    }

    pub(super) fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Returns probes that were made before a moment: a later one may be in use.
    pub(super) fn probes_before(&self, before: Timestamp) -> impl Iterator<Item = &ListedObject> {
        self.probes.iter().filter(move |probe| probe.modified < before)
    }

    /// Returns the lengths of all segments.
    pub(super) fn segments(&self) -> HashMap<ObjectId, u64> {
        let segments = self.objects.iter().filter(|object| object.folder == Folder::Segments);
        segments.map(|object| (object.id, object.length_bytes)).collect()
    }

    /// Returns all writers that have objects which no entry names, and have neither stored an object nor made an entry
    /// since `before`.
    pub(super) fn silent_writers(&self, judge: &Judge<'_>, before: Timestamp) -> Vec<WriterId> {
        let mut newest: HashMap<WriterId, (Timestamp, bool)> = HashMap::new();
        for object in &self.objects {
            let (modified, has_leftovers) = newest.entry(object.id.writer).or_default();
            *modified = object.modified.max(*modified);
            *has_leftovers |= judge.fate(object) == Fate::Running;
        }
        let silent = newest.into_iter().filter(|(writer, (modified, has_leftovers))| {
            *has_leftovers && *modified < before && judge.state.is_silent(*writer, before)
        });
        let mut silent: Vec<WriterId> = silent.map(|(writer, _)| writer).collect();
        silent.sort_unstable();
        silent
    }
}

impl Object {
    pub(super) fn name(&self) -> ObjectName {
        match self.signature {
            Some(key) => signatures::object_name(self.id, key),
            None => self.folder.object(self.id),
        }
    }
}

impl<'j> Judge<'j> {
    pub(super) fn new(state: &'j State, now: Timestamp, delay: Duration) -> Judge<'j> {
        Judge { state, needed: state.needed(), now, delay }
    }

    pub(super) fn fate(&self, object: &Object) -> Fate {
        let Object { folder, id, .. } = *object;
        if self.needed.contains(&(folder, id)) {
            return Fate::Needed;
        }
        if let Some(dropped) = self.state.dropped(folder, id) {
            return if has_passed(dropped, self.delay, self.now) { Fate::Due } else { Fate::Waiting };
        }
        match self.state.writer(id.writer) {
            Some(writer) if writer.is_given_up || !follows(Rule::WritersOwnObjects) => Fate::Due,
            Some(writer) if !follows(Rule::NoClockDeletes) && has_passed(writer.last, self.delay, self.now) => {
                Fate::Due
            }
            Some(_) => Fate::Running,
            None => Fate::Foreign,
        }
    }
}

/// Returns whether a time has passed since a moment, by these clocks.
fn has_passed(since: Timestamp, time: Duration, now: Timestamp) -> bool {
    i128::try_from(time.as_nanos())
        .is_ok_and(|time| since.as_nanoseconds().saturating_add(time) <= now.as_nanoseconds())
}

/// Returns the moment before which a writer was last heard of that is silent for `silence`.
pub(super) fn before(now: Timestamp, silence: Duration) -> Timestamp {
    let seconds = i64::try_from(silence.as_secs()).unwrap_or(i64::MAX);
    Timestamp { seconds: now.seconds.saturating_sub(seconds), nanoseconds: now.nanoseconds }
}

fn each_listed(store: &dyn Store, prefix: &str, each: &mut dyn FnMut(ListedObject)) -> Result<(), ArchiveError> {
    let mut after = None;
    loop {
        let listed = store.list(prefix, after.as_ref())?;
        match listed.last() {
            Some(last) => after = Some(last.name.clone()),
            None => return Ok(()),
        }
        listed.into_iter().for_each(&mut *each);
    }
}
