//! Power cuts of a folder store on files in memory, which may lose anything that was not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::Arc;

use onefold_block::Timestamp;
use onefold_block::random::SeededRandom;
use parking_lot::Mutex;

use super::*;
use crate::store::within;

/// The target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(usize),
    Folder,
}

/// A change of the names in one folder.
#[derive(Clone, Debug)]
enum Change {
    Add(String, Node),
    Remove(String),
    Rename(String, String),
}

type Names = BTreeMap<String, Node>;

#[derive(Clone, Debug, Default)]
struct FolderNames {
    now: Names,
    durable: Names,
    /// Changes since the folder was synced.
    pending: Vec<Change>,
}

#[derive(Clone, Debug, Default)]
struct Bytes {
    now: Vec<u8>,
    durable: Vec<u8>,
}

/// Files in memory, with a record of the durable bytes and names. Paths identify folders, because no folder is ever
/// removed.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    files: Vec<Bytes>,
    folders: BTreeMap<String, FolderNames>,
}

impl Default for Disk {
    fn default() -> Disk {
        Disk { files: Vec::new(), folders: [(String::new(), FolderNames::default())].into() }
    }
}

fn change(names: &mut Names, change: &Change) {
    match change {
        Change::Add(name, node) => {
            names.insert(name.clone(), *node);
        }
        Change::Remove(name) => {
            names.remove(name);
        }
        Change::Rename(from, to) => {
            if let Some(node) = names.remove(from) {
                names.insert(to.clone(), node);
            }
        }
    }
}

impl Disk {
    fn folder(&mut self, path: &str) -> io::Result<&mut FolderNames> {
        self.folders.get_mut(path).ok_or(ErrorKind::NotFound.into())
    }

    fn change(&mut self, folder: &str, made: Change) -> io::Result<()> {
        let folder = self.folder(folder)?;
        change(&mut folder.now, &made);
        folder.pending.push(made);
        Ok(())
    }

    /// Returns the disk after a power cut. `keep` decides for each change that is not durable whether it took effect.
    pub(crate) fn cut(&self, mut keep: impl FnMut() -> bool) -> Disk {
        let mut left = Disk::default();
        for file in &self.files {
            let mut bytes = file.durable.clone();
            if keep() {
                // Some of the unsynced bytes were written.
                let length = if keep() { file.now.len() } else { file.now.len() / 2 };
                bytes = file.now[..length.max(bytes.len()).min(file.now.len())].to_vec();
            }
            left.files.push(Bytes { now: bytes.clone(), durable: bytes });
        }
        for (path, folder) in &self.folders {
            let mut names = folder.durable.clone();
            folder.pending.iter().filter(|_| keep()).for_each(|made| change(&mut names, made));
            // Parents come before their folders in the order of paths.
            let (above, name) = split_path(path);
            let is_there = path.is_empty()
                || left.folders.get(above).is_some_and(|above| above.now.get(name) == Some(&Node::Folder));
            if is_there {
                left.folders
                    .insert(path.clone(), FolderNames { now: names.clone(), durable: names, pending: Vec::new() });
            }
        }
        // A folder whose name survived exists at least as an empty folder.
        let named: Vec<String> = left.folders.iter().flat_map(|(path, folder)| folders_in(path, folder)).collect();
        named.into_iter().for_each(|path| {
            left.folders.entry(path).or_default();
        });
        left
    }
}

fn folders_in(path: &str, folder: &FolderNames) -> Vec<String> {
    let below = |name: &String| if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
    folder.now.iter().filter(|(_, node)| **node == Node::Folder).map(|(name, _)| below(name)).collect()
}

/// Files in memory that keep a copy of themselves after each change.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedFiles {
    disk: Arc<Mutex<Disk>>,
    history: Arc<Mutex<Vec<Disk>>>,
}

impl RecordedFiles {
    pub(crate) fn of(disk: Disk) -> RecordedFiles {
        RecordedFiles { disk: Arc::new(Mutex::new(disk)), history: Arc::default() }
    }

    /// Returns how many changes were recorded.
    pub(crate) fn changes(&self) -> usize {
        self.history.lock().len()
    }

    /// Returns the disk after this many changes, at least one.
    pub(crate) fn after(&self, changes: usize) -> Disk {
        self.history.lock()[changes - 1].clone()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        let mut disk = self.disk.lock();
        let result = change(&mut disk);
        self.history.lock().push(disk.clone());
        result
    }
}

/// Returns a folder store on these files.
pub(crate) fn store_of(files: RecordedFiles, seed: u64) -> impl Store {
    Folder::new(files, Box::new(SeededRandom::new(seed)))
}

impl Files for RecordedFiles {
    type File = usize;

    fn make_file(&self, path: &str) -> io::Result<usize> {
        let (folder, name) = split_path(path);
        self.change(|disk| {
            if disk.folder(folder)?.now.contains_key(name) {
                return Err(ErrorKind::AlreadyExists.into());
            }
            disk.files.push(Bytes::default());
            let file = disk.files.len() - 1;
            disk.change(folder, Change::Add(name.to_owned(), Node::File(file)))?;
            Ok(file)
        })
    }

    fn write(&self, file: &mut usize, bytes: &[u8]) -> io::Result<()> {
        self.change(|disk| {
            disk.files[*file].now.extend_from_slice(bytes);
            Ok(())
        })
    }

    fn sync_file(&self, file: &mut usize) -> io::Result<()> {
        self.change(|disk| {
            disk.files[*file].durable = disk.files[*file].now.clone();
            Ok(())
        })
    }

    fn sync_named(&self, path: &str) -> io::Result<()> {
        let (folder, name) = split_path(path);
        self.change(|disk| match disk.folder(folder)?.now.get(name).copied() {
            Some(Node::File(file)) => {
                disk.files[file].durable = disk.files[file].now.clone();
                Ok(())
            }
            Some(Node::Folder) => Ok(()),
            None => Err(ErrorKind::NotFound.into()),
        })
    }

    fn link(&self, folder: &str, from: &str, to: &str) -> io::Result<()> {
        self.change(|disk| {
            let names = &disk.folder(folder)?.now;
            let node = *names.get(from).ok_or(io::Error::from(ErrorKind::NotFound))?;
            if names.contains_key(to) {
                return Err(ErrorKind::AlreadyExists.into());
            }
            disk.change(folder, Change::Add(to.to_owned(), node))
        })
    }

    fn rename(&self, folder: &str, from: &str, to: &str) -> io::Result<()> {
        self.change(|disk| disk.change(folder, Change::Rename(from.to_owned(), to.to_owned())))
    }

    fn unlink(&self, folder: &str, name: &str) -> io::Result<()> {
        self.change(|disk| {
            if !disk.folder(folder)?.now.contains_key(name) {
                return Err(ErrorKind::NotFound.into());
            }
            disk.change(folder, Change::Remove(name.to_owned()))
        })
    }

    fn make_folder(&self, folder: &str, name: &str) -> io::Result<()> {
        self.change(|disk| {
            if disk.folder(folder)?.now.contains_key(name) {
                return Err(ErrorKind::AlreadyExists.into());
            }
            disk.change(folder, Change::Add(name.to_owned(), Node::Folder))?;
            let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            disk.folders.insert(path, FolderNames::default());
            Ok(())
        })
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.change(|disk| {
            let folder = disk.folder(folder)?;
            folder.durable = folder.now.clone();
            folder.pending.clear();
            Ok(())
        })
    }

    fn read(&self, path: &str, range: ByteRange) -> io::Result<Option<Vec<u8>>> {
        let mut disk = self.disk.lock();
        let (folder, name) = split_path(path);
        match disk.folder(folder)?.now.get(name).copied() {
            Some(Node::File(file)) => {
                let bytes = &disk.files[file].now;
                let (start, length) = within(range, bytes.len() as u64);
                let start = usize::try_from(start).unwrap();
                Ok(Some(bytes[start..start + length].to_vec()))
            }
            Some(Node::Folder) => Ok(None),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn names(&self, folder: &str) -> io::Result<Vec<String>> {
        Ok(self.disk.lock().folder(folder)?.now.keys().cloned().collect())
    }

    fn find(&self, folder: &str, name: &str) -> io::Result<EntryKind> {
        let mut disk = self.disk.lock();
        match disk.folder(folder)?.now.get(name).copied() {
            Some(Node::File(file)) => {
                Ok(EntryKind::File { length_bytes: disk.files[file].now.len() as u64, modified: Timestamp::default() })
            }
            Some(Node::Folder) => Ok(EntryKind::Folder),
            None => Err(ErrorKind::NotFound.into()),
        }
    }
}

/// Calls `check` with possible results of a power cut after each number of changes: none, all and some of the changes
/// that are not durable survive.
pub(crate) fn every_cut(files: &RecordedFiles, seeds: u64, mut check: impl FnMut(usize, Disk)) {
    for changes in 1..=files.changes() {
        let disk = files.after(changes);
        check(changes, disk.cut(|| false));
        check(changes, disk.cut(|| true));
        for seed in 0..seeds {
            let random = SeededRandom::new(seed * 1_000_003 + changes as u64);
            check(changes, disk.cut(|| random.below(2) == 0));
        }
    }
}

/// Regression: a program that copies an archive syncs nothing, and only the name of an object that a creation found was
/// made durable.
#[test]
fn an_object_of_any_maker_is_durable_once_a_creation_has_found_it() {
    let files = RecordedFiles::default();
    files.make_folder("", "ledger").unwrap();
    let mut copied = files.make_file("ledger/77").unwrap();
    files.write(&mut copied, b"copied").unwrap();
    let name = ObjectName::new("ledger/77").unwrap();
    assert_eq!(store_of(files.clone(), 1).create(&name, b"other").unwrap(), Creation::Exists);
    let left = store_of(RecordedFiles::of(files.after(files.changes()).cut(|| false)), 2);
    assert_eq!(left.get(&name, ByteRange::Whole).unwrap(), b"copied");
}

#[test]
fn objects_are_whole_or_absent_and_acknowledged_ones_stay() {
    let files = RecordedFiles::default();
    // A host made these folders and an entry, and died before it synced their names.
    for (folder, name) in [("", "packs"), ("packs", "a0"), ("", "ledger")] {
        files.make_folder(folder, name).unwrap();
    }
    let mut made = files.make_file("ledger/.new-0").unwrap();
    files.write(&mut made, b"made").unwrap();
    files.sync_file(&mut made).unwrap();
    files.link("ledger", ".new-0", "77").unwrap();
    // Two hosts: each finds objects of the other and relies on them.
    let stores = [store_of(files.clone(), 1), store_of(files.clone(), 2)];
    let name = |text: &str| ObjectName::new(text).unwrap();
    // Each object with the number of changes after which it must survive.
    let mut stored: Vec<(ObjectName, Vec<u8>, usize)> = Vec::new();
    assert_eq!(stores[0].create(&name("ledger/77"), b"other").unwrap(), Creation::Exists);
    stored.push((name("ledger/77"), b"made".to_vec(), files.changes()));
    for number in 0..6u8 {
        let store = &stores[usize::from(number % 2)];
        let (pack, entry) = (name(&format!("packs/a{}/{number}", number / 4)), name(&format!("ledger/{number}")));
        store.put(&pack, &[&[number; 20], &[number; 30]]).unwrap();
        stored.push((pack, vec![number; 50], files.changes()));
        assert_eq!(store.create(&entry, &[number; 9]).unwrap(), Creation::New);
        stored.push((entry.clone(), vec![number; 9], files.changes()));
        assert_eq!(store.create(&entry, &[99; 9]).unwrap(), Creation::Exists);
    }
    let (mut kept, mut lost) = (0, 0);
    every_cut(&files, 8, |changes, disk| {
        let store = store_of(RecordedFiles::of(disk), 3);
        let mut found = BTreeSet::new();
        for (object, bytes, acknowledged) in &stored {
            match store.get(object, ByteRange::Whole) {
                Ok(read) => {
                    assert_eq!(read, *bytes, "{object} after {changes} changes");
                    found.insert(object.clone());
                    kept += 1;
                }
                Err(StoreError::Missing(_)) => {
                    assert!(*acknowledged > changes, "{object} is lost after {changes} changes");
                    lost += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        let listed: BTreeSet<ObjectName> =
            store.list("", None).unwrap().into_iter().map(|listed| listed.name).collect();
        assert_eq!(listed, found);
    });
    assert!(kept > 1000 && lost > 1000, "{kept} {lost}");
}
