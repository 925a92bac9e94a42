//! `onefold guest who`

use std::collections::{BTreeMap, BTreeSet};

use onefold_block::Show;
use onefold_guest::filesystem::{AllocationClass, FileKind, FileNumber, FileSystem};
use onefold_guest::guest::{Guest, Owner, OwnerFile};
use onefold_guest::tree::{Crossing, Links, Tree, Visitor, WalkEntry, WalkError, WalkStep};
use serde_json::{Map, Value, json};

use super::describe::{class_name, content, extent_kind_name, origin, path_members};
use super::ending::Ending;
use super::open::{self, GuestImage};
use crate::cli::Talk;
use crate::cli::guest::GuestWhoArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Report;
use crate::size::{grouped, human};

/// Maximum number of names of a file that are reported.
const NAMES_MAX: usize = 20;

pub(super) fn run(arguments: &GuestWhoArgs, talk: Talk) -> Outcome<Report> {
    let image = open::one(&arguments.image, talk)?;
    let size_bytes = image.disk.size_bytes();
    let (places, outside): (Vec<u64>, Vec<u64>) =
        arguments.places.iter().map(|place| place.0).partition(|place| *place < size_bytes);
    let mut ending = Ending::of_one(&image);
    for place in outside {
        let (size, exact) = (human(size_bytes), grouped(size_bytes));
        let why = format!("`{}` is {size} long ({exact} bytes)", image.path().shown());
        ending.failed(Failure::new(format!("byte {} is behind the end of the disk", grouped(place))).because_of(why));
    }
    image.with_guest(&arguments.image.open, |guest| {
        let cannot = || "cannot find the owners of these bytes";
        let owners = guest.owners(&places).map_err(|error| Failure::of_guest(cannot(), &error))?;
        tell(&image, guest, &owners, ending)
    })
}

fn tell(image: &GuestImage, guest: &Guest<'_>, owners: &[Owner], mut ending: Ending) -> Outcome<Report> {
    let volumes: BTreeSet<usize> = owners.iter().filter_map(|owner| Some(owner.volume?.0)).collect();
    let mut names = BTreeMap::new();
    for at in &volumes {
        if let Some(system) = guest.volumes().get(*at).and_then(|volume| volume.file_system()) {
            let of_volume = owners.iter().filter(|owner| owner.volume.is_some_and(|(volume, _)| volume == *at));
            let files = of_volume.flat_map(|owner| &owner.files).map(|owner| owner.file).collect();
            names.insert(*at, names_of(system, files, &mut ending)?);
        }
    }
    ending.look_at(image, guest, volumes);
    // The owner of a byte is known even if its offset in the image file cannot be read.
    let mut in_file = |owner: &Owner| match guest.disk().in_file(owner.place) {
        Ok(found) => found.offset.map_or(FilePosition::Nowhere, FilePosition::At),
        Err(error) => {
            let cannot = format!("cannot find byte {} in the file of `{}`", owner.place, image.path().shown());
            ending.failed(Failure::of_guest(cannot, &error.into()));
            FilePosition::NotRead
        }
    };
    let reports: Vec<OwnerReport<'_>> =
        owners.iter().map(|owner| OwnerReport { owner, guest, names: &names, in_file: in_file(owner) }).collect();
    let text: Vec<String> = reports.iter().map(OwnerReport::text).collect();
    let mut json = Map::new();
    json.insert("owners".to_owned(), reports.iter().map(OwnerReport::json).collect());
    json.extend(ending.tell());
    Ok(Report { text: text.join("\n"), json: Value::Object(json), exit: ending.exit() })
}

/// Paths by file, for each volume.
type VolumePaths = BTreeMap<usize, BTreeMap<FileNumber, Vec<Vec<u8>>>>;

/// An owner, with everything reported about it.
struct OwnerReport<'t> {
    owner: &'t Owner,
    guest: &'t Guest<'t>,
    names: &'t VolumePaths,
    in_file: FilePosition,
}

/// The place in the image file of a byte of the disk.
#[derive(Clone, Copy)]
enum FilePosition {
    At(u64),
    /// The file does not contain the byte unchanged.
    Nowhere,
    /// The place cannot be read.
    NotRead,
}

impl FilePosition {
    fn offset(self) -> Option<u64> {
        match self {
            FilePosition::At(offset) => Some(offset),
            FilePosition::Nowhere | FilePosition::NotRead => None,
        }
    }
}

impl OwnerReport<'_> {
    fn paths(&self, file: FileNumber) -> &[Vec<u8>] {
        let names = self.owner.volume.and_then(|(volume, _)| self.names.get(&volume));
        names.and_then(|names| names.get(&file)).map_or(&[], Vec::as_slice)
    }

    /// Returns the owner of the byte above the level of files.
    fn whose(&self) -> String {
        let Some((at, offset)) = self.owner.volume else { return "in no volume".to_owned() };
        let Some(volume) = self.guest.volumes().get(at) else { return "in no volume".to_owned() };
        let name = origin(&volume.volume.origin);
        match (self.owner.class, volume.file_system()) {
            (Some(class), Some(system)) => {
                let block = offset / system.facts().block_bytes.max(1);
                format!("{name}, block {block} of {}: {}", system.facts().kind, class_name(class))
            }
            _ => format!("{name}, byte {offset}: {}", content(&volume.content)),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{}: {}", self.owner.place, self.whose());
        match self.in_file {
            FilePosition::NotRead => {}
            FilePosition::At(offset) if offset == self.owner.place => {}
            FilePosition::At(offset) => text.push_str(&format!("\n  byte {offset} of the image file")),
            FilePosition::Nowhere => text.push_str("\n  nowhere in the image file as it is"),
        }
        for file in &self.owner.files {
            let paths: Vec<String> = self.paths(file.file).iter().map(|path| path.shown().to_string()).collect();
            let paths = if paths.is_empty() { "no name".to_owned() } else { paths.join(", ") };
            let past = if is_past_end(file) { ", past its end" } else { "" };
            let kind = extent_kind_name(file.kind);
            text.push_str(&format!("\n  {paths} (number {}), byte {}{past}, {kind}", file.file.0, file.offset));
        }
        text
    }

    fn json(&self) -> Value {
        let volume = self.owner.volume.and_then(|(at, _)| self.guest.volumes().get(at));
        let files: Vec<Value> = self.owner.files.iter().map(|file| self.file_json(file)).collect();
        json!({
            "place": self.owner.place,
            "in_file": self.in_file.offset(),
            "volume": volume.map(|volume| origin(&volume.volume.origin)),
            "volume_offset": self.owner.volume.map(|(_, offset)| offset),
            "class": self.owner.class.map(class_name),
            "is_free": self.owner.class == Some(AllocationClass::Free),
            "files": files,
        })
    }

    fn file_json(&self, file: &OwnerFile) -> Value {
        let paths: Vec<Value> =
            self.paths(file.file).iter().map(|path| Value::Object(path_members("path", path))).collect();
        json!({
            "number": file.file.0,
            "offset": file.offset,
            "is_past_end": is_past_end(file),
            "is_directory": file.file_kind == FileKind::Directory,
            "kind": extent_kind_name(file.kind),
            "names": paths,
        })
    }
}

fn is_past_end(file: &OwnerFile) -> bool {
    file.offset >= file.size_bytes
}

/// Returns the paths of files within their own file system.
fn names_of(
    system: &dyn FileSystem,
    files: BTreeSet<FileNumber>,
    ending: &mut Ending,
) -> Outcome<BTreeMap<FileNumber, Vec<Vec<u8>>>> {
    if files.is_empty() {
        return Ok(BTreeMap::new());
    }
    // Files without a name of their own are reported through the files that they belong to.
    let mut belonging = Vec::new();
    for file in &files {
        match system.belongs_to(*file) {
            Ok(Some((owner, suffix))) => belonging.push((*file, owner, suffix)),
            Ok(None) => {}
            Err(error) => ending.failed_path(format!("number {}", file.0).as_bytes(), &error),
        }
    }
    let files = files.into_iter().chain(belonging.iter().map(|(_, owner, _)| *owner)).collect();
    let mut namer = PathCollector { files, names: BTreeMap::new(), ending };
    let tree = Tree::new(system);
    let cannot = || "cannot read the root directory";
    let root = tree.find(b"/", Links::Keep).map_err(|error| Failure::of_guest(cannot(), &error))?;
    namer.note(root.file.file, b"/");
    tree.walk(&root, Crossing::Stay, &mut namer).map_err(|error| Failure::of_guest(cannot(), &error))?;
    let mut names = namer.names;
    for (file, owner, suffix) in belonging {
        let with_suffix = |path: &Vec<u8>| [path.strip_suffix(b"/").unwrap_or(path), suffix.as_slice()].concat();
        let paths = names.get(&owner).map(|paths| paths.iter().map(with_suffix).collect()).unwrap_or_default();
        names.insert(file, paths);
    }
    Ok(names)
}

/// Collects the names of some files in a walk over all files.
struct PathCollector<'e> {
    files: BTreeSet<FileNumber>,
    names: BTreeMap<FileNumber, Vec<Vec<u8>>>,
    ending: &'e mut Ending,
}

impl PathCollector<'_> {
    fn note(&mut self, file: FileNumber, path: &[u8]) {
        if self.files.contains(&file) {
            let names = self.names.entry(file).or_default();
            if names.len() < NAMES_MAX {
                names.push(path.to_vec());
            }
        }
    }
}

impl Visitor for PathCollector<'_> {
    fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep {
        self.note(entry.file.file, entry.path);
        WalkStep::Enter
    }

    fn failed(&mut self, path: &[u8], error: WalkError) {
        self.ending.failed_walk(path, &error);
    }
}
