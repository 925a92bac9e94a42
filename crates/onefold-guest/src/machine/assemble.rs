//! Finds the systems among the volumes of a disk, and assembles the tree of each.

use super::fstab::{self, FstabEntry};
use super::{Machine, MachineKind, MachineVolume, linux, program};
use crate::filesystem::FileSystem;
use crate::tree::{Links, Problem, ProblemLog, Tree};

/// A volume in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its mount point. Bytes of the guest.
    pub path: Vec<u8>,
    /// Index among the volumes that [`machines`] received.
    pub volume: usize,
}

/// A mount of a system that is missing in its tree here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingMount {
    /// The line of `/etc/fstab`.
    pub entry: FstabEntry,
    /// The reason why it is missing.
    pub reason: MissingReason,
}

/// Why a mount is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MissingReason {
    /// No readable volume of the disk has this name.
    NoVolume,
    /// The path does not lead to a directory.
    NoDirectory,
}

/// Maximum number of steps for the paths of all mounts of a system: 65 names in short directories for each of a
/// thousand mounts.
const STEPS_MAX: u64 = 1 << 16;
/// A file of Windows. Its file system ignores case.
const WINDOWS_KERNEL: &[u8] = b"/Windows/System32/ntoskrnl.exe";
const WINDOWS_REGISTRY: &[u8] = b"/Windows/System32/config/SYSTEM";

/// Returns the installed systems of a disk, in the order of the volumes with their roots.
///
/// A volume with `/etc/os-release`, or with a table of mounts and a list of users, is the root of a Linux system. If
/// two volumes have the name that a system mounts, as copies have, the first one is used.
#[must_use]
pub fn machines<'a>(volumes: &[MachineVolume<'a>]) -> Vec<Machine<'a>> {
    let mut machines = Vec::new();
    for (index, volume) in volumes.iter().enumerate() {
        let tree = Tree::new(volume.system);
        match kind_of(&tree) {
            Some(MachineKind::Linux) => machines.push(linux_machine(volumes, index, tree)),
            Some(MachineKind::Windows) => machines.push(windows_machine(index, tree)),
            None => {}
        }
    }
    machines
}

/// Returns the family of the system whose root a volume is. After an error on the way, the family is unknown.
fn kind_of(tree: &Tree<'_>) -> Option<MachineKind> {
    // A link counts even if its target does not exist, because the target may be on another volume.
    let has = |path: &[u8]| tree.find(path, Links::Keep).is_ok();
    if has(b"/etc/os-release") || has(b"/usr/lib/os-release") || (has(b"/etc/fstab") && has(b"/etc/passwd")) {
        return Some(MachineKind::Linux);
    }
    (has(WINDOWS_KERNEL) || has(WINDOWS_REGISTRY)).then_some(MachineKind::Windows)
}

fn windows_machine<'a>(index: usize, tree: Tree<'a>) -> Machine<'a> {
    let problems = ProblemLog::default();
    let architecture = program::of_program(&tree, WINDOWS_KERNEL, &problems);
    Machine {
        kind: MachineKind::Windows,
        tree,
        mounts: vec![Mount { path: b"/".to_vec(), volume: index }],
        missing: Vec::new(),
        release: None,
        host_name: None,
        architecture,
        kernels: Vec::new(),
        problems,
    }
}

fn linux_machine<'a>(volumes: &[MachineVolume<'a>], root: usize, tree: Tree<'a>) -> Machine<'a> {
    let problems = ProblemLog::default();
    let text = problems.skip(fstab::PATH, tree.read_path(fstab::PATH, linux::TEXT_BYTES_MAX)).unwrap_or_default();
    let mut entries = fstab::parse(&text, &problems);
    let of_root = entries.iter().find(|entry| entry.path == b"/");
    let disk = of_root.and_then(|entry| entry.source.disk()).map(<[u8]>::to_vec);
    entries.retain(|entry| entry.path != b"/");
    // A mount may be below another one, and a bind mount below any of them. So shorter paths come first.
    entries.sort_by_key(|entry| (entry.is_bind(), names_in(&entry.path)));
    let mounts = vec![Mount { path: b"/".to_vec(), volume: root }];
    let mut mounting = TreeAssembly { volumes, disk, tree, mounts, steps_left: STEPS_MAX };
    let missing = entries.into_iter().filter_map(|entry| mounting.add(entry)).collect();
    if mounting.steps_left == 0 {
        let problem = "the paths of its mounts lead through more names and long directories than are looked up";
        problems.note(Problem::of_file(fstab::PATH, problem));
    }
    let TreeAssembly { tree, mounts, .. } = mounting;
    Machine {
        kind: MachineKind::Linux,
        mounts,
        missing,
        release: linux::release(&tree, &problems),
        host_name: linux::host_name(&tree, &problems),
        architecture: linux::architecture(&tree, &problems),
        kernels: linux::kernels(&tree, &problems),
        tree,
        problems,
    }
}

/// Returns the number of names in a path.
fn names_in(path: &[u8]) -> usize {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).count()
}

/// A tree while its mounts are added.
struct TreeAssembly<'v, 'a> {
    volumes: &'v [MachineVolume<'a>],
    /// The system's name for the disk, if its table contains it.
    disk: Option<Vec<u8>>,
    tree: Tree<'a>,
    mounts: Vec<Mount>,
    /// Remaining steps for the paths of mounts.
    steps_left: u64,
}

impl TreeAssembly<'_, '_> {
    /// Mounts the file system of a line of the table. If this is not possible, returns the line with the reason.
    fn add(&mut self, entry: FstabEntry) -> Option<MissingMount> {
        if entry.is_bind() {
            let outcome = self.tree.bind_within(&entry.source_text, &entry.path, &mut self.steps_left);
            return outcome.err().map(|_| MissingMount { entry, reason: MissingReason::NoDirectory });
        }
        let disk = self.disk.as_deref();
        let is_named = |(_, volume): &(usize, &MachineVolume<'_>)| entry.source.is_of(volume, disk);
        let Some((index, volume)) = self.volumes.iter().enumerate().find(is_named) else {
            return Some(MissingMount { entry, reason: MissingReason::NoVolume });
        };
        let system: &dyn FileSystem = volume.system;
        if self.tree.mount_within(&entry.path, system, &mut self.steps_left).is_err() {
            return Some(MissingMount { entry, reason: MissingReason::NoDirectory });
        }
        self.mounts.push(Mount { path: entry.path, volume: index });
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Architecture;
    use crate::memory::MemoryFileSystem;
    use crate::volume::VolumeOrigin;

    fn partition(number: u32, system: &MemoryFileSystem) -> MachineVolume<'_> {
        let origin = VolumeOrigin::Partition { number };
        MachineVolume { origin, system, partition_uuid: None, partition_label: None }
    }

    /// The header of a program for x86_64.
    const PROGRAM: &[u8] = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0";

    fn debian(table: &str) -> MemoryFileSystem {
        let mut root = MemoryFileSystem::new("aaaa", b"root");
        root.symlink("/etc/os-release", "../usr/lib/os-release");
        root.write("/usr/lib/os-release", "ID=debian\nVERSION_ID=\"12\"\n");
        root.write("/etc/fstab", table);
        root.write("/etc/hostname", "web-1\n");
        root.symlink("/bin", "usr/bin");
        root.symlink("/usr/bin/sh", "dash");
        root.write("/usr/bin/dash", PROGRAM);
        for path in ["/boot", "/home", "/srv/data", "/export"] {
            root.directory(path);
        }
        root
    }

    #[test]
    fn a_system_is_seen_with_everything_that_it_mounts() {
        let root = debian(
            "UUID=AAAA / ext4\nUUID=b-1 /boot/efi vfat\nLABEL=boot /boot ext4\n/dev/sda3 /home ext4\n\
            /home/people /export none bind\nUUID=gone /srv/data xfs\nUUID=AAAA /none ext4\nnas:/x /export nfs\n",
        );
        let mut boot = MemoryFileSystem::new("", b"boot");
        boot.directory("/efi");
        boot.write("/vmlinuz-6.1.0-25-amd64", "");
        let mut efi = MemoryFileSystem::new("B-1", b"");
        efi.write("/EFI/debian/shimx64.efi", "");
        let mut home = MemoryFileSystem::new("", b"");
        home.write("/people/anna/notes", "");
        let volumes = [partition(1, &efi), partition(2, &boot), partition(3, &home), partition(4, &root)];
        let found = machines(&volumes);
        let [machine] = &found[..] else { panic!("{found:?}") };
        let mounts: Vec<(&[u8], usize)> = machine.mounts.iter().map(|at| (at.path.as_slice(), at.volume)).collect();
        assert_eq!(mounts, [(&b"/"[..], 3), (b"/boot", 1), (b"/home", 2), (b"/boot/efi", 0)]);
        for path in ["/boot/efi/EFI/debian/shimx64.efi", "/home/people/anna/notes", "/export/anna/notes"] {
            assert!(machine.tree.find(path.as_bytes(), Links::Keep).is_ok(), "{path}");
        }
        let missing: Vec<_> = machine.missing.iter().map(|at| (at.entry.path.as_slice(), at.reason)).collect();
        let expected = [
            (&b"/none"[..], MissingReason::NoDirectory),
            (b"/export", MissingReason::NoVolume),
            (b"/srv/data", MissingReason::NoVolume),
        ];
        assert_eq!(missing, expected);
        assert_eq!(machine.release.as_ref().unwrap().id, "debian");
        assert_eq!(machine.host_name.as_deref(), Some(&b"web-1"[..]));
        assert_eq!(machine.architecture, Some(Architecture::X86_64));
        assert_eq!(machine.kernels[0].version, b"6.1.0-25-amd64");
        assert_eq!(machine.problems.count(), 0);
    }

    #[test]
    fn the_disk_is_the_one_that_the_root_is_named_by() {
        let root = debian("/dev/vdb1 / ext4\n/dev/vda2 /srv/data ext4\n/dev/vdb2 /home ext4\n");
        let home = MemoryFileSystem::default();
        let volumes = [partition(1, &root), partition(2, &home)];
        let found = machines(&volumes);
        assert_eq!(found[0].mounts[1], Mount { path: b"/home".to_vec(), volume: 1 });
        assert_eq!(found[0].missing[0].entry.path, b"/srv/data");
    }

    #[test]
    fn several_systems_are_listed_and_volumes_without_one_are_not() {
        let first = debian("LABEL=data /srv/data ext4");
        let mut second = MemoryFileSystem::default();
        second.write("/etc/fstab", "");
        second.write("/etc/passwd", "");
        let mut windows = MemoryFileSystem::default();
        windows.write("/Windows/System32/ntoskrnl.exe", b"MZ");
        let mut data = MemoryFileSystem::new("", b"data");
        data.write("/etc/passwd", "a copy");
        let mut usr = MemoryFileSystem::default();
        usr.write("/lib/os-release", "ID=debian");
        let systems = [&first, &data, &usr, &second, &windows];
        let volumes: Vec<_> = (1..).zip(systems).map(|(number, system)| partition(number, system)).collect();
        let found = machines(&volumes);
        let found: Vec<_> = found.iter().map(|machine| (machine.kind, machine.mounts[0].volume)).collect();
        assert_eq!(found, [(MachineKind::Linux, 0), (MachineKind::Linux, 3), (MachineKind::Windows, 4)]);
    }

    #[test]
    fn mounts_with_too_many_names_are_missing_and_a_problem() {
        let root = debian(&format!("LABEL=data /home{} ext4\n", "/.".repeat(2000)).repeat(40));
        let data = MemoryFileSystem::new("", b"data");
        let volumes = [partition(1, &root), partition(2, &data)];
        let found = machines(&volumes);
        assert_eq!((found[0].mounts.len(), found[0].missing.len()), (33, 8));
        let problem =
            "/etc/fstab: the paths of its mounts lead through more names and long directories than are looked up";
        assert_eq!(found[0].problems.first()[0].to_string(), problem);
    }

    #[test]
    fn a_table_that_cannot_be_read_is_a_problem_and_the_system_is_there() {
        let mut root = debian("");
        let table = root.write("/etc/fstab", "x");
        root.stat_mut(table).unwrap().size_bytes = 1 << 60;
        let volumes = [partition(1, &root)];
        let found = machines(&volumes);
        assert_eq!(found[0].problems.first()[0].to_string(), "/etc/fstab: a text of this length cannot be read");
        assert_eq!(found[0].release.as_ref().unwrap().version, "12");
    }
}
