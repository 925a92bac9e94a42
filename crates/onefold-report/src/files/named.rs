//! Finds the owner of each file of a disk by its paths in the trees of its systems.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use onefold_guest::content::VolumeContent;
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::FileKind;
use onefold_guest::guest::{Guest, GuestVolume};
use onefold_guest::machine::{Machine, MachineVolume, machines};
use onefold_guest::packages::{self, Owners, Package, PackageDatabase, PackageState};
use onefold_guest::tree::{Crossing, GuestFile, Links, SystemIndex, Tree, Visitor, WalkEntry, WalkError, WalkStep};
use onefold_sort::SortWriter;

use super::allowance::ExtentAllowance;
use super::analysis::MisalignedCause;
use super::doubts::Doubts;
use super::error::{MapError, SurveyError};
use super::names::{Names, PackageId, folder_of};
use super::rows::name_row;
use super::uses::volume_name;

/// Number of files and extents between two checks for an interruption by the user.
const FILES_PER_QUESTION: u64 = 1024;

/// State for writing names and extents.
pub(super) struct NameWriter<'n> {
    pub(super) names: &'n mut Names,
    /// Why the bytes of each volume cross blocks, if they do.
    pub(super) causes: &'n [Option<MisalignedCause>],
    pub(super) rows: &'n mut SortWriter,
    pub(super) doubts: &'n mut Doubts,
    /// Receives each installed package: name and version.
    pub(super) package: &'n mut dyn FnMut(&Package),
    /// Returns whether to continue.
    pub(super) go_on: &'n dyn Fn() -> ControlFlow<()>,
    /// Volumes whose files have been named, by their index in the guest.
    pub(super) walked: BTreeSet<usize>,
    /// Number of files and extents that were read.
    pub(super) files: u64,
    pub(super) extents_left: ExtentAllowance,
}

impl NameWriter<'_> {
    /// Writes the owners of all files of a disk, and their extents.
    pub(super) fn all(&mut self, guest: &Guest<'_>) -> Result<(), MapError> {
        let (places, volumes) = readable(guest);
        let machines = machines(&volumes);
        let volumes_of = |machine: &Machine<'_>| -> Vec<usize> {
            machine.mounts.iter().filter_map(|mount| places.get(mount.volume).copied()).collect()
        };
        // A volume with a system is walked as the root of that system, where its packages are known.
        self.walked.extend(machines.iter().filter_map(|machine| volumes_of(machine).first().copied()));
        for (system, machine) in machines.iter().enumerate() {
            self.machine(system, machine, &volumes_of(machine))?;
        }
        for (volume, place) in volumes.iter().zip(&places) {
            if self.walked.insert(*place) {
                self.walk(&Tree::new(volume.system), &[*place], None)?;
            }
        }
        for (at, volume) in guest.volumes().iter().enumerate() {
            if let Some(system) = volume.file_system() {
                let name = volume_name(&volume.volume.origin);
                self.extents(at, &shown(&name), &volume.reader, system)?;
            }
        }
        Ok(())
    }

    fn machine(&mut self, system: usize, machine: &Machine<'_>, volumes: &[usize]) -> Result<(), MapError> {
        for missing in &machine.missing {
            let path = String::from_utf8_lossy(&missing.entry.path).into_owned();
            self.doubts
                .note(format!("what the guest mounts on `{}` is not on this disk, or cannot be read", shown(&path)));
        }
        let database = match packages::open(&machine.tree) {
            Ok(database) => database,
            Err(GuestError::Disk(error)) => return Err(GuestError::Disk(error).into()),
            // The records of another package manager are not damaged.
            Err(error @ GuestError::Unsupported(_)) => {
                self.doubts.note(format!("its packages are not known: {error}"));
                None
            }
            Err(error) => {
                self.doubts.note_damage(format!("its packages are not known: {error}"));
                None
            }
        };
        let Some(database) = database else { return self.walk(&machine.tree, volumes, None) };
        let is_installed = |package: &&Package| package.state != PackageState::ConfigurationOnly;
        database.packages().iter().filter(is_installed).for_each(|package| (self.package)(package));
        let owners = Owners::read(&machine.tree, database.as_ref());
        let problems = database.problems().count();
        if problems > 0 {
            self.doubts.note_damage(format!("{problems} parts of its package database cannot be read"));
        }
        self.walk(&machine.tree, volumes, Some(&SystemPackages { system, database: database.as_ref(), owners }))
    }

    /// Writes the owners of the files of a tree; `volumes` are those of its file systems. Skips mounts of volumes that
    /// were already walked.
    fn walk(
        &mut self,
        tree: &Tree<'_>,
        volumes: &[usize],
        packages: Option<&SystemPackages<'_>>,
    ) -> Result<(), MapError> {
        let root = match tree.find(b"/", Links::Keep) {
            Ok(root) => root,
            Err(GuestError::Disk(error)) => return Err(GuestError::Disk(error).into()),
            Err(error) => {
                self.doubts.note_damage(format!("a root directory cannot be read: {error}"));
                return Ok(());
            }
        };
        let entered = BTreeSet::from([SystemIndex(0)]);
        let mut visitor = NameVisitor { naming: self, volumes, entered, packages, failed: None, unread: 0 };
        let outcome = tree.walk(&root, Crossing::Enter, &mut visitor);
        let (failed, unread) = (visitor.failed, visitor.unread);
        match outcome {
            Err(GuestError::Disk(error)) => return Err(GuestError::Disk(error).into()),
            Err(error) => self.doubts.note_damage(format!("a root directory cannot be read: {error}")),
            Ok(()) => {}
        }
        if unread > 0 {
            self.doubts.note_damage(format!("{unread} files or directories cannot be read"));
        }
        failed.map_or(Ok(()), Err)
    }

    fn name(
        &mut self,
        file: GuestFile,
        path: &[u8],
        volumes: &[usize],
        packages: Option<&SystemPackages<'_>>,
    ) -> Result<(), MapError> {
        self.ask()?;
        let at = usize::try_from(file.system.0).ok().and_then(|system| volumes.get(system)).copied();
        let Some(at) = at else { return Ok(()) };
        let cause = self.causes.get(at).copied().flatten();
        let package = packages.and_then(|packages| packages.of(file));
        let name_of = |id: PackageId| {
            let found = packages.and_then(|packages| packages.database.packages().get(id.package));
            found.map_or_else(String::new, |package| package.name.clone())
        };
        let owner = self.names.file(package, cause, folder_of(path), name_of);
        name_row(at, file.file, owner).map_or(Ok(()), |row| Ok(self.rows.push(row)?))
    }

    /// Returns an error if the user wants to stop.
    pub(super) fn ask(&mut self) -> Result<(), MapError> {
        self.files += 1;
        if self.files.is_multiple_of(FILES_PER_QUESTION) && (self.go_on)().is_break() {
            return Err(MapError::Ended(SurveyError::Interrupted));
        }
        Ok(())
    }
}

/// Returns a name from the guest in the form for messages.
fn shown(name: &str) -> String {
    onefold_block::Show::shown(name).to_string()
}

/// The packages of a system, and their files.
struct SystemPackages<'p> {
    system: usize,
    database: &'p dyn PackageDatabase,
    owners: Owners,
}

impl SystemPackages<'_> {
    fn of(&self, file: GuestFile) -> Option<PackageId> {
        Some(PackageId { system: self.system, package: self.owners.package(file)? })
    }
}

/// Writes the owner of each file of a walk.
struct NameVisitor<'v, 'n> {
    naming: &'v mut NameWriter<'n>,
    volumes: &'v [usize],
    /// The file systems that this walk of the tree is the first to enter.
    entered: BTreeSet<SystemIndex>,
    packages: Option<&'v SystemPackages<'v>>,
    failed: Option<MapError>,
    unread: u64,
}

impl NameVisitor<'_, '_> {
    /// Returns whether this walk names the files of a file system, and does so only through this place in the tree.
    fn is_first(&mut self, system: SystemIndex) -> bool {
        if self.entered.contains(&system) {
            return true;
        }
        let at = usize::try_from(system.0).ok().and_then(|at| self.volumes.get(at));
        let is_first = at.is_some_and(|at| self.naming.walked.insert(*at));
        if is_first {
            self.entered.insert(system);
        }
        is_first
    }
}

impl Visitor for NameVisitor<'_, '_> {
    fn visit(&mut self, entry: &WalkEntry<'_>) -> WalkStep {
        if !self.is_first(entry.file.system) {
            return WalkStep::Skip;
        }
        if matches!(entry.kind, FileKind::Regular | FileKind::Other)
            && let Err(error) = self.naming.name(entry.file, entry.path, self.volumes, self.packages)
        {
            self.failed = Some(error);
            return WalkStep::Stop;
        }
        WalkStep::Enter
    }

    fn failed(&mut self, _: &[u8], _: WalkError) {
        self.unread += 1;
    }
}

/// Returns the volumes of a disk with readable file systems, and their indices in the guest.
fn readable<'g>(guest: &'g Guest<'_>) -> (Vec<usize>, Vec<MachineVolume<'g>>) {
    let volumes = guest.volumes().iter().enumerate();
    let machine_volume = |(at, volume): (usize, &'g GuestVolume<'_>)| {
        let partition = volume.partition.as_ref();
        let label = partition.map(|partition| partition.name.as_bytes().to_vec());
        let found = MachineVolume {
            origin: volume.volume.origin.clone(),
            system: volume.file_system()?,
            partition_uuid: partition.and_then(|partition| partition.uuid.clone()),
            partition_label: label.filter(|label| !label.is_empty()),
        };
        Some((at, found))
    };
    volumes.filter_map(machine_volume).unzip()
}

/// Records uncertain facts about the volumes of a disk, and damage. Damage is known only after everything was read.
pub(super) fn note_doubts(guest: &Guest<'_>, doubts: &mut Doubts) {
    for problem in guest.table().iter().flat_map(|table| &table.problems) {
        doubts.note_damage(problem.to_string());
    }
    if let Some(why) = guest.doubt() {
        doubts.note(format!("no volume is sure: {}", shown(why)));
    }
    if guest.budget().is_short() {
        doubts.note("its maps need more memory than there is for them: what did not fit counts as in doubt".to_owned());
    }
    if guest.budget().has_too_many() {
        doubts.note("its maps have more pieces than are kept: what did not fit counts as in doubt".to_owned());
    }
    for (at, volume) in guest.volumes().iter().enumerate() {
        let name = volume_name(&volume.volume.origin);
        let name = shown(&name);
        let damaged = match &volume.content {
            VolumeContent::FileSystem(system) => {
                if let Some(why) = volume.content.whole_because() {
                    doubts.note(format!("{name} is unsure: {why}"));
                } else if guest.doubt().is_none() && guest.counts_whole(at) {
                    doubts.note(format!("{name} is unsure: it overlaps another volume, or its group is damaged"));
                }
                system.damage().count()
            }
            VolumeContent::PhysicalVolume(physical) => physical.damage.len() as u64,
            // A variant that its reader refuses is not damaged, nor is content without a reader.
            VolumeContent::NotRead(found) if found.is_refused => {
                doubts.note(format!("{name} is not read: {} cannot be read", found.name));
                0
            }
            VolumeContent::Failed(error) => {
                doubts.note_damage(format!("{name} cannot be read: {error}"));
                0
            }
            VolumeContent::Swap(_) | VolumeContent::NotRead(_) | VolumeContent::Unknown => 0,
        };
        if damaged > 0 {
            doubts.note_damage(format!("{name}: {damaged} damaged parts were skipped"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_guest::memory::MemoryFileSystem;

    #[test]
    fn a_volume_that_is_mounted_often_is_walked_once() {
        let (mut root, mut home) = (MemoryFileSystem::default(), MemoryFileSystem::default());
        root.write("/etc/passwd", "");
        (0..100).for_each(|number| _ = root.directory(&format!("/mnt/{number}")));
        (0..50).for_each(|number| _ = home.write(&format!("/{number}"), ""));
        let mut tree = Tree::new(&root);
        let mut volumes = vec![3];
        for number in 0..100 {
            // Every tenth mount is the root itself.
            let (place, system) = if number % 10 == 0 { (3, &root) } else { (5, &home) };
            tree.mount(format!("/mnt/{number}").as_bytes(), system).unwrap();
            volumes.push(place);
        }
        let mut rows = SortWriter::new(&std::env::temp_dir(), 1 << 20);
        let mut naming = NameWriter {
            names: &mut Names::new(1 << 20),
            causes: &[],
            rows: &mut rows,
            doubts: &mut Doubts::default(),
            package: &mut |_| {},
            go_on: &|| ControlFlow::Continue(()),
            walked: BTreeSet::from([3]),
            files: 0,
            extents_left: ExtentAllowance::new(0),
        };
        naming.walk(&tree, &volumes, None).unwrap();
        assert_eq!(naming.walked, BTreeSet::from([3, 5]));
        assert_eq!(rows.finish().unwrap().count(), 51);
    }
}
