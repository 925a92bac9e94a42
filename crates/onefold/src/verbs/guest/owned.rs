//! Finds the file of the guest that has a byte of an image file, and the package of that file.
//!
//! `share explain` reports this for a block. It converts nothing for this purpose, and reads images unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use onefold_block::Show;
use onefold_disk::{CachedDisk, Disk, DiskError, ImageFormat};
use onefold_guest::budget::Budget;
use onefold_guest::error::GuestError;
use onefold_guest::guest::{Guest, Owner};
use onefold_guest::machine::machines;
use onefold_guest::packages::{self, Owners, Package};
use onefold_guest::tree::{Crossing, GuestFile, Links, SystemIndex, Tree, Visitor, WalkEntry, WalkError, WalkStep};
use serde_json::{Value, json};

use super::describe::{class_name, origin, path_members};
use super::scene::ReadableVolumes;
use crate::size::grouped;
use crate::verbs::images::{self, FoundImage};

const CACHE_BYTES: usize = 32 << 20;
/// Memory for allocation maps.
const MAP_BYTES: usize = 128 << 20;
/// Maximum number of names of a file that are reported.
const NAMES_MAX: usize = 20;
/// Maximum number of parts of an image that are searched for a byte: a hostile one has any number.
const PARTS_MAX: u64 = 1 << 24;

/// The guest's use of a byte of its image file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::verbs) struct OwnedByte {
    /// The volume; `None` if the byte lies in none.
    volume: Option<String>,
    /// Its use, if the file system can be read.
    class: Option<&'static str>,
    files: Vec<ByteOwner>,
}

/// A file of a guest that has the byte.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ByteOwner {
    /// Its paths, as the system sees them; bytes of the guest.
    names: Vec<Vec<u8>>,
    /// The offset of the byte in the file.
    offset: u64,
    /// The package that the file belongs to: name, version and architecture.
    package: Option<String>,
}

/// Returns the guest's use of a byte of an image file. An error says why it is not known.
pub(in crate::verbs) fn owned_byte(path: &Path, offset: u64) -> Result<OwnedByte, String> {
    owned_bytes(path, &[offset]).and_then(|mut owned| owned.pop().unwrap_or_else(|| Ok(OwnedByte::default())))
}

/// Returns the guest's use of some bytes of an image file, in their order. An error says why it is not known.
pub(in crate::verbs) fn owned_bytes(path: &Path, offsets: &[u64]) -> Result<Vec<Result<OwnedByte, String>>, String> {
    let FoundImage::File(found) = images::find_one(path).map_err(|failure| failure.error)? else {
        return Err("it lies in an archive".to_owned());
    };
    let file = found.open().map_err(|error| error.to_string())?;
    match onefold_disk::format_of(&file) {
        Some(ImageFormat::Raw | ImageFormat::Qcow2) => {}
        Some(other) => return Err(format!("an image of the format {} has to be converted first", other.name())),
        None => return Err("it cannot be read".to_owned()),
    }
    let opened = onefold_disk::open(file, None, &[], &|_| std::ops::ControlFlow::Continue(()));
    let opened = opened.map_err(|error| error.to_string())?;
    if !opened.is_one_file {
        return Err("the image has a backing file or a data file".to_owned());
    }
    let cached = CachedDisk::new(opened.disk.as_ref(), CACHE_BYTES);
    let places = offsets.iter().map(|offset| place_of(&cached, *offset).map_err(|error| error.to_string()));
    let places = places.collect::<Result<Vec<Option<u64>>, String>>()?;
    let guest = Guest::open(&cached).map_err(|error| error.to_string())?.with_budget(Budget::new(MAP_BYTES));
    let stored: Vec<u64> = places.iter().flatten().copied().collect();
    let mut owners = guest.owners(&stored).map_err(|error| error.to_string())?.into_iter();
    let owned = |place: Option<u64>| {
        let owner = place.map(|_| owners.next()).ok_or(NOT_STORED)?;
        owner.map_or_else(|| Ok(OwnedByte::default()), |owner| of_owner(&guest, &owner).map_err(|e| e.to_string()))
    };
    Ok(places.into_iter().map(owned).collect())
}

/// Why a byte of an image file is no byte of a guest.
const NOT_STORED: &str =
    "no byte of the disk is stored there: it is metadata of the image format, compressed data, or part of a snapshot";

/// Returns the byte of a disk that is stored at a byte of its file.
fn place_of(disk: &dyn Disk, offset: u64) -> Result<Option<u64>, DiskError> {
    let (mut at, mut parts) = (0, 0);
    while let Some(range) = disk.next_data(at)? {
        let mut here = range.start;
        while here < range.end && parts < PARTS_MAX {
            let part = disk.in_file(here)?;
            if let Some(within) = part.offset.and_then(|start| offset.checked_sub(start))
                && within < part.length_bytes
            {
                return Ok(here.checked_add(within).filter(|place| *place < disk.size_bytes()));
            }
            here = here.saturating_add(part.length_bytes.max(1));
            parts += 1;
        }
        if parts >= PARTS_MAX {
            break;
        }
        at = range.end.max(at.saturating_add(1));
    }
    Ok(None)
}

fn of_owner(guest: &Guest<'_>, owner: &Owner) -> Result<OwnedByte, GuestError> {
    let volume = owner.volume.and_then(|(at, _)| Some((at, guest.volumes().get(at)?)));
    let mut owned = OwnedByte {
        volume: volume.map(|(_, volume)| origin(&volume.volume.origin)),
        class: owner.class.map(class_name),
        files: Vec::new(),
    };
    let Some((at, volume)) = volume.filter(|_| !owner.files.is_empty()) else { return Ok(owned) };
    let readable = ReadableVolumes::of(guest);
    // The tree of the system that mounts the volume, or else of the volume alone.
    let mut trees = machines(&readable.volumes).into_iter().filter_map(|machine| {
        let index = machine.mounts.iter().position(|mount| readable.place(mount.volume) == at)?;
        Some((machine.tree, SystemIndex(u32::try_from(index).ok()?)))
    });
    let alone = || Some((Tree::new(volume.file_system()?), SystemIndex(0)));
    let Some((tree, system)) = trees.next().or_else(alone) else { return Ok(owned) };
    let files: Vec<GuestFile> =
        owner.files.iter().map(|file| tree.seen(GuestFile { system, file: file.file })).collect();
    let mut namer = OwnerNamer { names: files.iter().map(|file| (*file, Vec::new())).collect() };
    let root = tree.find(b"/", Links::Keep)?;
    namer.note(root.file, b"/");
    tree.walk(&root, Crossing::Enter, &mut namer)?;
    let packages = packages_of(&tree, files.iter().copied().collect());
    for (file, at) in files.iter().zip(&owner.files) {
        let names = namer.names.get(file).cloned().unwrap_or_default();
        owned.files.push(ByteOwner { names, offset: at.offset, package: packages.get(file).cloned() });
    }
    Ok(owned)
}

/// Returns the packages of files. An unreadable database names none.
fn packages_of(tree: &Tree<'_>, files: BTreeSet<GuestFile>) -> BTreeMap<GuestFile, String> {
    let Ok(Some(database)) = packages::open(tree) else { return BTreeMap::new() };
    let owners = Owners::read(tree, database.as_ref());
    let text = |package: &Package| format!("{} {} {}", package.name, package.version, package.architecture);
    let package = |file: GuestFile| Some((file, text(database.packages().get(owners.package(file)?)?)));
    files.into_iter().filter_map(package).collect()
}

/// Collects the names of some files in a walk over all files.
struct OwnerNamer {
    names: BTreeMap<GuestFile, Vec<Vec<u8>>>,
}

impl OwnerNamer {
    fn note(&mut self, file: GuestFile, path: &[u8]) {
        if let Some(names) = self.names.get_mut(&file).filter(|names| names.len() < NAMES_MAX) {
            names.push(path.to_vec());
        }
    }
}

impl Visitor for OwnerNamer {
    fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep {
        self.note(entry.file, entry.path);
        WalkStep::Enter
    }

    fn failed(&mut self, _: &[u8], _: WalkError) {}
}

impl OwnedByte {
    /// Returns the guest's use of the byte, for people.
    pub(in crate::verbs) fn lines(&self) -> Vec<String> {
        let Some(volume) = &self.volume else { return vec!["in the guest, it lies in no volume".to_owned()] };
        if self.files.is_empty() {
            let class = self.class.unwrap_or("no file system that is read");
            return vec![format!("in the guest, no file has it ({volume}: {class})")];
        }
        let line = |file: &ByteOwner| {
            let names: Vec<String> = file.names.iter().map(|name| format!("`{}`", name.shown())).collect();
            let names = if names.is_empty() { "a file without a name".to_owned() } else { names.join(", ") };
            let package = file.package.as_ref().map(|package| format!(", of the package {}", package.shown()));
            let byte = grouped(file.offset);
            format!("in the guest, it is byte {byte} of {names}{}", package.unwrap_or_default())
        };
        self.files.iter().map(line).collect()
    }

    /// Returns whether a file of the guest has the byte, or the guest says what else lies there.
    pub(in crate::verbs) fn is_known(&self) -> bool {
        !self.files.is_empty() || self.class.is_some()
    }

    /// Returns the guest's file that has the byte, or what else lies there, in a few words.
    pub(in crate::verbs) fn short(&self) -> String {
        let Some(file) = self.files.first() else {
            return self.class.map_or_else(|| "no file".to_owned(), |class| format!("no file: {class}"));
        };
        let name =
            file.names.first().map_or_else(|| "a file without a name".to_owned(), |name| name.shown().to_string());
        match &file.package {
            Some(package) => format!("{name}, of the package {}", package.shown()),
            None => name,
        }
    }

    /// Returns the same for machines.
    pub(in crate::verbs) fn json(&self) -> Value {
        let names = |file: &ByteOwner| {
            file.names.iter().map(|name| Value::Object(path_members("path", name))).collect::<Vec<_>>()
        };
        let file = |file: &ByteOwner| json!({ "names": names(file), "offset": file.offset, "package": file.package });
        json!({
            "volume": self.volume,
            "class": self.class,
            "files": self.files.iter().map(file).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::process::Command;

    use onefold_disk::FilePlacement;

    use super::*;

    /// Parts of a disk, each with its offset in the file.
    struct Parts(Vec<(Range<u64>, Option<u64>)>);

    impl Disk for Parts {
        fn size_bytes(&self) -> u64 {
            self.0.last().map_or(0, |(range, _)| range.end)
        }

        fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, DiskError> {
            Ok((offset < self.size_bytes()).then(|| offset..self.size_bytes()))
        }

        fn in_file(&self, offset: u64) -> Result<FilePlacement, DiskError> {
            let part = self.0.iter().find(|(range, _)| range.contains(&offset));
            Ok(part.map_or(FilePlacement { offset: None, length_bytes: 0 }, |(range, start)| FilePlacement {
                offset: start.map(|start| start + (offset - range.start)),
                length_bytes: range.end - offset,
            }))
        }

        fn read(&self, _: u64, into: &mut [u8]) -> Result<(), DiskError> {
            into.fill(0);
            Ok(())
        }
    }

    #[test]
    fn a_byte_of_the_file_is_found_on_the_disk() {
        let disk = Parts(vec![(0..100, Some(500)), (100..150, None), (150..200, Some(300))]);
        let found = [500, 599, 600, 300, 349, 350, 0].map(|offset| place_of(&disk, offset).unwrap());
        assert_eq!(found, [Some(0), Some(99), None, Some(150), Some(199), None, None]);
    }

    /// Regression: every byte of an overlay was called metadata.
    #[test]
    fn an_image_with_a_backing_file_tells_why_nothing_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let [base, overlay] = ["base.raw", "overlay.qcow2"].map(|name| folder.path().join(name));
        std::fs::write(&base, [1; 1 << 16]).unwrap();
        let mut make = Command::new("qemu-img");
        make.args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "base.raw"]).arg(&overlay);
        if !make.status().is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: qemu-img is not installed (Debian: qemu-utils)");
            return;
        }
        let told = owned_byte(&overlay, 0);
        assert_eq!(told, Err("the image has a backing file or a data file".to_owned()));
        assert!(owned_byte(&base, 0).is_ok(), "an image of one file");
    }

    #[test]
    fn what_a_guest_says_is_one_line_and_shown_safely() {
        let file = ByteOwner { names: vec![b"/a\nb".to_vec()], offset: 4096, package: Some("p\x1b 1 all".to_owned()) };
        let owned = OwnedByte { volume: Some("partition 1".to_owned()), class: None, files: vec![file] };
        let text = owned.lines().join("|");
        assert!(text.starts_with("in the guest, it is byte 4,096 of `/a"), "{text}");
        assert!(!text.contains(['\n', '\x1b']), "{text}");
        assert!(owned.short().starts_with("/a") && owned.short().contains("package"), "{}", owned.short());
        assert!(!owned.short().contains(['\n', '\x1b']), "{}", owned.short());
        let none = OwnedByte { class: Some("free"), files: Vec::new(), ..owned };
        assert_eq!(none.short(), "no file: free");
        assert_eq!(none.lines(), ["in the guest, no file has it (partition 1: free)"]);
        assert_eq!(OwnedByte::default().lines(), ["in the guest, it lies in no volume"]);
    }
}
