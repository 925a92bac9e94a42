//! The systems of a guest: the installed ones, with all file systems that they mount, and file systems that belong to
//! no system.

use onefold_guest::filesystem::FileSystem;
use onefold_guest::guest::Guest;
use onefold_guest::machine::{MachineVolume, machines};
use onefold_guest::tree::{SystemIndex, Tree};
use onefold_guest::volume::VolumeReader;

use super::IdentifyError;

/// A tree of a guest, and the volumes of its file systems.
pub(super) struct System<'g> {
    /// Its index among all systems of the guest.
    pub(super) at: u32,
    pub(super) tree: Tree<'g>,
    /// The volume of each file system of the tree.
    readers: Vec<&'g VolumeReader<'g>>,
}

impl System<'_> {
    /// Returns the volume of a file system of the tree.
    pub(super) fn reader(&self, system: SystemIndex) -> Option<&VolumeReader<'_>> {
        self.readers.get(usize::try_from(system.0).ok()?).copied()
    }
}

/// Calls `visit` with each system of a guest, then with each file system that belongs to no system. If one fails, it
/// goes on with the others, and returns the first error.
///
/// # Errors
/// Errors of `visit`.
pub(super) fn each_system<'g>(
    guest: &'g Guest<'g>,
    visit: &mut dyn FnMut(&System<'g>) -> Result<(), IdentifyError>,
) -> Result<(), IdentifyError> {
    let (mut volumes, mut readers) = (Vec::new(), Vec::new());
    for volume in guest.volumes() {
        let Some(system) = volume.file_system() else { continue };
        let partition = volume.partition.as_ref();
        let label = partition.map(|partition| partition.name.as_bytes().to_vec());
        readers.push(&volume.reader);
        volumes.push(MachineVolume {
            origin: volume.volume.origin.clone(),
            system,
            partition_uuid: partition.and_then(|partition| partition.uuid.clone()),
            partition_label: label.filter(|label| !label.is_empty()),
        });
    }
    let mut is_of_a_system = vec![false; volumes.len()];
    let (mut first_error, mut at) = (None, 0);
    let mut each = |tree, readers| {
        let system = System { at, tree, readers };
        at += 1;
        match visit(&system) {
            Err(error @ (IdentifyError::Temporary(_) | IdentifyError::Stopped(_))) => Err(error),
            Err(error) => {
                first_error.get_or_insert(error);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    };
    for machine in machines(&volumes) {
        let of_mounts = machine.mounts.iter().map(|mount| mount.volume);
        let of_tree: Option<Vec<_>> = of_mounts.clone().map(|volume| readers.get(volume).copied()).collect();
        of_mounts.filter_map(|volume| is_of_a_system.get_mut(volume).map(|is| *is = true)).for_each(drop);
        if let Some(readers) = of_tree {
            each(machine.tree, readers)?;
        }
    }
    for ((volume, reader), is_known) in volumes.iter().zip(&readers).zip(&is_of_a_system) {
        if !is_known {
            let system: &'g dyn FileSystem = volume.system;
            each(Tree::new(system), vec![*reader])?;
        }
    }
    first_error.map_or(Ok(()), Err)
}
