//! The tree of files that a verb works on: that of the system on a disk, or of a volume that was chosen.

use onefold_block::Show;
use onefold_guest::error::GuestError;
use onefold_guest::guest::{Guest, GuestVolume};
use onefold_guest::machine::{Machine, MachineVolume, machines};
use onefold_guest::tree::{Found, Links, SystemIndex, Tree};
use onefold_guest::volume::VolumeOrigin;

use super::describe::{content, origin};
use super::open::OpenImage;
use crate::cli::guest::GuestOpenArgs;
use crate::failure::{Failure, Outcome};

/// A disk and the tree of files on it.
pub(super) struct Scene<'g, 'a> {
    pub(super) image: &'g OpenImage,
    pub(super) guest: &'g Guest<'a>,
    pub(super) tree: Tree<'g>,
    /// For each file system of the tree, its volume.
    volumes: Vec<usize>,
}

impl<'g, 'a> Scene<'g, 'a> {
    /// Returns the tree that the user means: that of the chosen volume, of the one system on the disk, or of its one file
    /// system.
    pub(super) fn open(
        image: &'g OpenImage,
        guest: &'g Guest<'a>,
        arguments: &GuestOpenArgs,
    ) -> Outcome<Scene<'g, 'a>> {
        let cannot =
            |why: String| Failure::new(format!("cannot find the files of `{}`", image.path().shown())).because_of(why);
        if let Some(at) = chosen(guest, arguments).map_err(|why| cannot(why).hint(volumes_hint(guest)))? {
            return Scene::of_volume(image, guest, at).map_err(cannot);
        }
        let readable = Readable::of(guest);
        let mut systems = machines(&readable.volumes);
        if systems.len() > 1 {
            let root = |system: &Machine<'_>| Some(readable.name(system.mounts.first()?.volume));
            let roots: Vec<String> = systems.iter().filter_map(root).collect();
            let why = format!("there are systems on {}", roots.join(" and on "));
            return Err(cannot(why).hint("choose one with --partition or --volume"));
        }
        if let Some(system) = systems.pop() {
            let volumes = system.mounts.iter().map(|mount| readable.place(mount.volume)).collect();
            return Ok(Scene { image, guest, tree: system.tree, volumes });
        }
        match readable.places.as_slice() {
            [at] => Scene::of_volume(image, guest, *at).map_err(cannot),
            [] => Err(cannot("no file system on this disk can be read".to_owned()).hint(volumes_hint(guest))),
            _ => Err(cannot("there are several file systems, and no system".to_owned()).hint(volumes_hint(guest))),
        }
    }

    fn of_volume(image: &'g OpenImage, guest: &'g Guest<'a>, at: usize) -> Result<Scene<'g, 'a>, String> {
        let volume = guest.volumes().get(at).ok_or("there is no such volume")?;
        let holds = || format!("{} holds {}", origin(&volume.volume.origin), content(&volume.content));
        let system = volume.file_system().ok_or_else(holds)?;
        Ok(Scene { image, guest, tree: Tree::new(system), volumes: vec![at] })
    }

    /// Returns the volumes of the tree, by their places in the guest.
    pub(super) fn volumes(&self) -> Vec<usize> {
        self.volumes.clone()
    }

    /// Returns the volume of a file system of the tree; `None` for an index of another tree.
    pub(super) fn volume(&self, system: SystemIndex) -> Option<&'g GuestVolume<'a>> {
        let at = self.volumes.get(usize::try_from(system.0).ok()?)?;
        self.guest.volumes().get(*at)
    }

    /// Returns the file of a path, or a failure that names similar paths.
    pub(super) fn find(&self, path: &[u8], links: Links) -> Outcome<Found> {
        self.tree.find(path, links).map_err(|error| {
            let failure = Failure::of_guest(format!("cannot find `{}` in the guest", path.shown()), &error);
            let similar = match error {
                GuestError::NotFound => self.tree.similar(path),
                _ => Vec::new(),
            };
            let names: Vec<String> = similar.iter().map(|path| format!("`{}`", path.shown())).collect();
            match names.is_empty() {
                true => failure,
                false => failure.hint(format!("there is {}", names.join(", "))),
            }
        })
    }
}

/// The volumes of a disk whose file systems can be read, as a search for systems takes them.
pub(super) struct Readable<'g> {
    pub(super) volumes: Vec<MachineVolume<'g>>,
    /// Their places in the guest.
    places: Vec<usize>,
}

impl<'g> Readable<'g> {
    pub(super) fn of(guest: &'g Guest<'_>) -> Readable<'g> {
        let mut readable = Readable { volumes: Vec::new(), places: Vec::new() };
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

    /// Returns the place in the guest of a volume here.
    fn place(&self, volume: usize) -> usize {
        self.places.get(volume).copied().unwrap_or_default()
    }

    /// Returns the name of a volume here.
    pub(super) fn name(&self, volume: usize) -> String {
        self.volumes.get(volume).map_or_else(String::new, |volume| origin(&volume.origin))
    }
}

/// Returns the volume that the user chose, by its place.
pub(super) fn chosen(guest: &Guest<'_>, arguments: &GuestOpenArgs) -> Result<Option<usize>, String> {
    let wanted = match (arguments.partition, &arguments.volume) {
        (Some(number), _) => VolumeOrigin::Partition { number },
        (None, Some(volume)) => VolumeOrigin::Logical { group: volume.group.clone(), name: volume.name.clone() },
        (None, None) => return Ok(None),
    };
    let at = guest.volumes().iter().position(|volume| volume.volume.origin == wanted);
    at.map(Some).ok_or_else(|| format!("there is no {}", origin(&wanted)))
}

/// Returns what there is to be chosen.
fn volumes_hint(guest: &Guest<'_>) -> String {
    let volume = |volume: &GuestVolume<'_>| format!("{} ({})", origin(&volume.volume.origin), content(&volume.content));
    let volumes: Vec<String> = guest.volumes().iter().map(volume).collect();
    match volumes.is_empty() {
        true => "the disk is empty".to_owned(),
        false => format!("on the disk are {}", volumes.join(", ")),
    }
}
