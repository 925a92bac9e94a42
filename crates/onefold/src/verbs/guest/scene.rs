//! The tree of files that a verb works on: that of the system on a disk, or of a selected volume.

use onefold_block::Show;
use onefold_guest::error::GuestError;
use onefold_guest::guest::{Guest, GuestVolume};
use onefold_guest::machine::{Machine, MachineVolume, MissingMount, MissingReason, machines};
use onefold_guest::tree::{Links, ProblemLog, ResolvedFile, SystemIndex, Tree};
use onefold_guest::volume::VolumeOrigin;

use super::describe::{content, origin};
use super::ending::Ending;
use super::open::GuestImage;
use crate::cli::guest::GuestOpenArgs;
use crate::failure::{Failure, Outcome};

/// Assumed number of files of a file system that does not count them.
const FILES_UNKNOWN: u64 = 10_000_000;

/// A disk and the tree of files on it.
pub(super) struct Scene<'g, 'a> {
    pub(super) image: &'g GuestImage,
    pub(super) guest: &'g Guest<'a>,
    pub(super) tree: Tree<'g>,
    /// For each file system of the tree, its volume.
    volumes: Vec<usize>,
    /// Mounts of the system that the tree lacks.
    missing: Vec<UnmountedPath>,
    /// The mount points of volumes below the root.
    mounted: Vec<Vec<u8>>,
    /// Unreadable parts of the system's own texts.
    problems: ProblemLog,
}

/// A missing mount. The tree shows the directory under the mount point instead, which is not the guest's content there.
struct UnmountedPath {
    /// Its mount point, without links in the path.
    path: Vec<u8>,
    /// The missing mount and the reason, for people.
    why: String,
}

impl UnmountedPath {
    fn of(mount: &MissingMount, tree: &Tree<'_>) -> UnmountedPath {
        let (path, source) = (mount.entry.path.shown(), mount.entry.source_text.shown());
        let why = match mount.reason {
            MissingReason::NoVolume => {
                format!("the guest mounts `{source}` on `{path}`, but no readable volume matches")
            }
            MissingReason::NoDirectory => {
                format!("the guest mounts `{source}` on `{path}`, but one of the two is not a directory here")
            }
        };
        UnmountedPath { path: resolved(tree, &mount.entry.path), why }
    }
}

/// Returns a path without links in it, or the unchanged path if it leads nowhere.
fn resolved(tree: &Tree<'_>, path: &[u8]) -> Vec<u8> {
    tree.find(path, Links::Follow).map_or_else(|_| path.to_vec(), |found| found.path)
}

/// Returns whether a path is that of a directory, or lies below it.
fn is_at_or_below(path: &[u8], directory: &[u8]) -> bool {
    let names = |path| <[u8]>::split(path, |byte| *byte == b'/').filter(|name: &&[u8]| !name.is_empty());
    let mut path = names(path);
    names(directory).all(|name| path.next() == Some(name))
}

impl<'g, 'a> Scene<'g, 'a> {
    /// Returns the tree that the user means: that of the selected volume, of the only system on the disk, or of its
    /// only file system.
    pub(super) fn open(
        image: &'g GuestImage,
        guest: &'g Guest<'a>,
        arguments: &GuestOpenArgs,
    ) -> Outcome<Scene<'g, 'a>> {
        let cannot =
            |why: String| Failure::new(format!("cannot find the files of `{}`", image.path().shown())).because_of(why);
        if let Some(at) = chosen(guest, arguments).map_err(|why| cannot(why).hint(volumes_hint(guest)))? {
            return Scene::of_volume(image, guest, at).map_err(cannot);
        }
        let readable = ReadableVolumes::of(guest);
        let mut systems = machines(&readable.volumes);
        if systems.len() > 1 {
            let root = |system: &Machine<'_>| Some(readable.name(system.mounts.first()?.volume));
            let roots: Vec<String> = systems.iter().filter_map(root).collect();
            let why = format!("there are systems on {}", roots.join(" and on "));
            return Err(cannot(why).hint("choose one with --partition or --volume"));
        }
        if let Some(system) = systems.pop() {
            let volumes = system.mounts.iter().map(|mount| readable.place(mount.volume)).collect();
            let missing = system.missing.iter().map(|mount| UnmountedPath::of(mount, &system.tree)).collect();
            let below_root = system.mounts.iter().skip(1);
            let mounted = below_root.map(|mount| resolved(&system.tree, &mount.path)).collect();
            let Machine { tree, problems, .. } = system;
            return Ok(Scene { image, guest, tree, volumes, missing, mounted, problems });
        }
        match readable.places.as_slice() {
            [at] => Scene::of_volume(image, guest, *at).map_err(cannot),
            [] => Err(cannot("no file system on this disk can be read".to_owned()).hint(volumes_hint(guest))),
            _ => Err(cannot("there are several file systems, and no system".to_owned()).hint(volumes_hint(guest))),
        }
    }

    fn of_volume(image: &'g GuestImage, guest: &'g Guest<'a>, at: usize) -> Result<Scene<'g, 'a>, String> {
        let volume = guest.volumes().get(at).ok_or("there is no such volume")?;
        let holds = || format!("{} holds {}", origin(&volume.volume.origin), content(&volume.content));
        let system = volume.file_system().ok_or_else(holds)?;
        let (missing, mounted, problems) = (Vec::new(), Vec::new(), ProblemLog::default());
        Ok(Scene { image, guest, tree: Tree::new(system), volumes: vec![at], missing, mounted, problems })
    }

    /// Reports damage, doubts and missing mounts of the tree.
    pub(super) fn look_at(&self, ending: &mut Ending) {
        ending.look_at(self.image, self.guest, self.volumes.iter().copied());
        self.missing.iter().for_each(|missing| ending.warn(missing.why.clone()));
        ending.problems(&self.problems);
    }

    /// Returns the number of files that the file systems of the tree report.
    pub(super) fn files_used(&self) -> u64 {
        let systems = self.volumes.iter().filter_map(|at| self.guest.volumes().get(*at)?.file_system());
        systems.fold(0, |sum, system| sum.saturating_add(system.facts().files_used.unwrap_or(FILES_UNKNOWN)))
    }

    /// Returns why a path does not show the guest's content there; `None` if it does.
    fn missing_at(&self, path: &[u8]) -> Option<&str> {
        let covers = |missing: &&UnmountedPath| {
            let is_below = |mount: &Vec<u8>| is_at_or_below(path, mount) && is_at_or_below(mount, &missing.path);
            let is_deeper = |mount: &Vec<u8>| !is_at_or_below(&missing.path, mount);
            let is_mounted_again = self.mounted.iter().any(|mount| is_below(mount) && is_deeper(mount));
            is_at_or_below(path, &missing.path) && !is_mounted_again
        };
        self.missing.iter().find(covers).map(|missing| missing.why.as_str())
    }

    /// Returns the volume of a file system of the tree; `None` for an index of another tree.
    pub(super) fn volume(&self, system: SystemIndex) -> Option<&'g GuestVolume<'a>> {
        let at = self.volumes.get(usize::try_from(system.0).ok()?)?;
        self.guest.volumes().get(*at)
    }

    /// Returns the file of a path, or a failure that names similar paths. Below a missing mount, no path leads to the
    /// content of the directory under it, because the guest has other content there.
    pub(super) fn find(&self, path: &[u8], links: Links) -> Outcome<ResolvedFile> {
        let cannot = || format!("cannot find `{}` in the guest", path.shown());
        let is_elsewhere = |why: &str| {
            let failure = Failure::new(cannot()).because_of(why);
            failure.hint("--partition and --volume read a file system as it is")
        };
        let found = self.tree.find(path, links);
        let way = found.as_ref().map_or(path, |found| found.path.as_slice());
        if let Some(why) = self.missing_at(way) {
            return Err(is_elsewhere(why));
        }
        found.map_err(|error| {
            let failure = Failure::of_guest(cannot(), &error);
            if let GuestError::NotFound = error
                && let Some((link, target)) = self.tree.broken_link(path)
            {
                let leads = format!("`{}` is a symbolic link to `{}`", link.shown(), target.shown());
                return failure.hint(format!("{leads}, which leads to no file"));
            }
            let similar = match error {
                GuestError::NotFound => self.tree.similar(path),
                _ => Vec::new(),
            };
            let names: Vec<String> = similar.iter().map(|path| format!("`{}`", path.shown())).collect();
            match (names.is_empty(), error) {
                (true, GuestError::NotFound) => {
                    failure.hint("`onefold guest find IMAGE --name PATTERN` searches all of its folders")
                }
                (true, _) => failure,
                (false, _) => failure.hint(format!("there is {}", names.join(", "))),
            }
        })
    }
}

/// The volumes of a disk with readable file systems, in the form that a search for systems takes.
pub(super) struct ReadableVolumes<'g> {
    pub(super) volumes: Vec<MachineVolume<'g>>,
    /// Their indices in the guest.
    places: Vec<usize>,
}

impl<'g> ReadableVolumes<'g> {
    pub(super) fn of(guest: &'g Guest<'_>) -> ReadableVolumes<'g> {
        let mut readable = ReadableVolumes { volumes: Vec::new(), places: Vec::new() };
        for (at, volume) in guest.volumes().iter().enumerate() {
            let Some(system) = volume.file_system() else { continue };
            let partition = volume.partition.as_ref();
            let label = partition.map(|partition| partition.name.as_bytes().to_vec());
            readable.places.push(at);
            readable.volumes.push(MachineVolume {
                origin: volume.volume.origin.clone(),
                system,
                partition_uuid: partition.and_then(|partition| partition.uuid.clone()),
                partition_label: label.filter(|label| !label.is_empty()),
            });
        }
        readable
    }

    /// Returns the index in the guest of a volume in this list.
    pub(super) fn place(&self, volume: usize) -> usize {
        self.places.get(volume).copied().unwrap_or_default()
    }

    /// Returns the name of a volume in this list.
    pub(super) fn name(&self, volume: usize) -> String {
        self.volumes.get(volume).map_or_else(String::new, |volume| origin(&volume.origin))
    }
}

/// Returns the volume that the user selected, by its index.
pub(super) fn chosen(guest: &Guest<'_>, arguments: &GuestOpenArgs) -> Result<Option<usize>, String> {
    let wanted = match (arguments.partition, &arguments.volume) {
        (Some(number), _) => VolumeOrigin::Partition { number },
        (None, Some(volume)) => VolumeOrigin::Logical { group: volume.group.clone(), name: volume.name.clone() },
        (None, None) => return Ok(None),
    };
    let at = guest.volumes().iter().position(|volume| volume.volume.origin == wanted);
    at.map(Some).ok_or_else(|| format!("there is no {}", origin(&wanted)))
}

/// Returns the volumes that the user can select.
fn volumes_hint(guest: &Guest<'_>) -> String {
    let volume = |volume: &GuestVolume<'_>| format!("{} ({})", origin(&volume.volume.origin), content(&volume.content));
    let volumes: Vec<String> = guest.volumes().iter().map(volume).collect();
    match volumes.is_empty() {
        true => "the disk is empty".to_owned(),
        false => format!("the disk has these volumes: {}", volumes.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_below_another_by_whole_names() {
        for (path, directory, expected) in [
            ("/home", "/home", true),
            ("/home/anna", "/home/", true),
            ("//home//anna/", "/home", true),
            ("/home2", "/home", false),
            ("/", "/home", false),
            ("/home", "/", true),
            ("/srv/home", "/home", false),
        ] {
            assert_eq!(is_at_or_below(path.as_bytes(), directory.as_bytes()), expected, "{path} {directory}");
        }
    }
}
