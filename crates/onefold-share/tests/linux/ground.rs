//! Where the tests take place: file systems in files in memory, mounted where nobody else sees them.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use onefold_block::BLOCK_BYTES;
use onefold_block::random::{Random, SeededRandom};
use onefold_linux::{LinuxFile, LinuxSubstrate};
use onefold_substrate::{Access, At, ComparisonResult, Files, MappedExtent, ShareError, Sharing, SubstrateKind};
use rustix::fs::{Advice, FallocateFlags};
use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::UnshareFlags;
use tempfile::TempDir;

pub(crate) const K: u64 = onefold_block::BLOCK_BYTES_U64;
/// Root's state folder.
pub(crate) const FOLDER: &str = ".onefold";
pub(crate) const MIB: u64 = 1 << 20;

/// The least that mkfs.xfs makes is 300 MiB.
const DEVICE_BYTES: u64 = 320 * MIB;

/// How a file system is made and mounted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    /// The program that makes it, and its arguments.
    pub(crate) mkfs: &'static [&'static str],
    /// Options of the mount.
    pub(crate) options: &'static str,
    pub(crate) device_bytes: u64,
}

pub(crate) const XFS: Recipe =
    Recipe { mkfs: &["mkfs.xfs", "-q", "-m", "reflink=1"], options: "loop", device_bytes: DEVICE_BYTES };
pub(crate) const BTRFS: Recipe = Recipe { mkfs: &["mkfs.btrfs", "-q"], options: "loop", device_bytes: DEVICE_BYTES };

/// A private place with mounts in it. They go with it, also when a test fails; and with the process, when it is killed:
/// no other sees them.
pub(crate) struct PrivateMounts {
    folder: TempDir,
}

impl PrivateMounts {
    /// Returns none, and says why, where nothing can be mounted.
    pub(crate) fn new() -> Option<PrivateMounts> {
        if !rustix::process::geteuid().is_root() {
            return skip("only root can mount file systems");
        }
        if let Err(error) = enter_private_mounts() {
            return skip(&format!("this process gets no mounts of its own: {error}"));
        }
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // In memory, where making a file system durable costs nothing.
        if let Err(error) = run("mount", ["-t", "tmpfs", "-o", "mode=755", "tmpfs", folder.path().to_str().unwrap()]) {
            return skip(&error);
        }
        Some(PrivateMounts { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a file system and mounts it; returns where. None, and says why, where there is no program that makes it.
    pub(crate) fn mount(&self, name: &str, recipe: Recipe) -> Option<PathBuf> {
        let (image, mount_point) = (self.path().join(format!("{name}.img")), self.path().join(name));
        File::create(&image).unwrap().set_len(recipe.device_bytes).unwrap();
        let mut make = Command::new(recipe.mkfs[0]);
        let starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
        let made = make.args(&recipe.mkfs[1..]).arg(&image).output();
        drop(starting);
        match made {
            Err(error) => return skip(&format!("cannot run {}: {error}", recipe.mkfs[0])),
            Ok(output) => assert!(output.status.success(), "{make:?}: {}", String::from_utf8_lossy(&output.stderr)),
        }
        std::fs::create_dir(&mount_point).unwrap();
        self.mount_again(name, recipe).map_or_else(|error| skip(&error), |()| Some(mount_point))
    }

    /// Mounts what was unmounted.
    pub(crate) fn mount_again(&self, name: &str, recipe: Recipe) -> Result<(), String> {
        let (image, mount_point) = (self.path().join(format!("{name}.img")), self.path().join(name));
        run("mount", [OsStr::new("-o"), recipe.options.as_ref(), image.as_ref(), mount_point.as_ref()])
    }
}

impl Drop for PrivateMounts {
    fn drop(&mut self) {
        let path = self.folder.path();
        if !soon(|| run("umount", [OsStr::new("-R"), path.as_ref()]).is_ok()) {
            // Something is still open in a test that failed.
            let _ = run("umount", [OsStr::new("-R"), OsStr::new("-l"), path.as_ref()]);
        }
    }
}

/// A substrate over a file system made for it.
pub(crate) struct Ground {
    pub(crate) substrate: LinuxSubstrate,
    pub(crate) root: PathBuf,
    /// After the substrate: it must be closed before the unmount.
    pub(crate) place: PrivateMounts,
}

/// Runs a test on XFS and on Btrfs.
pub(crate) fn on_each(test: impl Fn(&Ground)) {
    on(XFS, &test);
    on(BTRFS, &test);
}

/// Runs a test on a file system made and mounted so.
pub(crate) fn on(recipe: Recipe, test: impl Fn(&Ground)) {
    let Some(place) = PrivateMounts::new() else { return };
    let Some(root) = place.mount("root", recipe) else { return };
    let substrate = LinuxSubstrate::open(&root, Path::new("")).unwrap();
    test(&Ground { substrate, root, place });
}

impl Ground {
    pub(crate) fn kind(&self) -> SubstrateKind {
        self.substrate.abilities().kind
    }

    /// Creates a file with this content, on the disk. On Btrfs a file of at least 1 MiB lies in one extent.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> LinuxFile {
        let file = self.substrate.create(Path::new(name)).unwrap();
        // Btrfs would cut the extent in two if another process called `sync` in the middle of the write.
        if self.kind() == SubstrateKind::Btrfs && content.len() as u64 >= MIB {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, content.len() as u64).unwrap();
        }
        self.substrate.write_at(&file, 0, content).unwrap();
        self.substrate.sync(&file).unwrap();
        file
    }

    pub(crate) fn open(&self, name: &str, access: Access) -> LinuxFile {
        self.substrate.open(Path::new(name), access).unwrap()
    }

    /// Returns all of a file as it is on the disk, not as it is remembered.
    pub(crate) fn content(&self, name: &str) -> Vec<u8> {
        let file = self.open(name, Access::Read);
        rustix::fs::syncfs(&file).unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let mut content = vec![0; self.substrate.stat(&file).unwrap().length as usize];
        assert_eq!(self.substrate.read_at(&file, 0, &mut content).unwrap(), content.len());
        content
    }

    pub(crate) fn share(
        &self,
        from: (&LinuxFile, u64),
        into: (&LinuxFile, u64),
        blocks: u64,
    ) -> Result<ComparisonResult, ShareError> {
        let (source, into) = (At { file: from.0, offset: from.1 * K }, At { file: into.0, offset: into.1 * K });
        self.substrate.share(source, into, blocks * K)
    }

    /// Returns the whole map of a file, and how many calls it took.
    pub(crate) fn map(&self, file: &LinuxFile) -> (Vec<MappedExtent>, usize) {
        let (mut all, mut calls) = (Vec::<MappedExtent>::new(), 0);
        loop {
            let extents = self.substrate.extents(file, all.last().map_or(0, MappedExtent::end)).unwrap();
            calls += 1;
            if extents.is_empty() {
                return (all, calls);
            }
            all.extend(extents);
        }
    }

    /// Returns where on the device the data of a block lies.
    pub(crate) fn place_of(&self, file: &LinuxFile, block: u64) -> Option<u64> {
        self.substrate.extents(file, block * K).unwrap().first().filter(|extent| extent.offset == block * K)?.place
    }

    /// Returns where on the device a block lies, in whichever extent.
    pub(crate) fn offset_of(&self, file: &LinuxFile, block: u64) -> Option<u64> {
        let extents = self.substrate.extents(file, block * K).unwrap();
        let extent = extents.iter().find(|extent| (extent.offset..extent.end()).contains(&(block * K)))?;
        Some(extent.place? + (block * K - extent.offset))
    }

    /// Returns the room once everything that was freed is free: the kernel does that later, in the background.
    pub(crate) fn settled_room(&self) -> u64 {
        let settle = || {
            rustix::fs::syncfs(File::open(&self.root).unwrap().as_fd()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            self.substrate.room().unwrap().free
        };
        let mut room = settle();
        for _ in 0..20 {
            let again = settle();
            if again == room {
                break;
            }
            room = again;
        }
        room
    }
}

/// Returns blocks of which no two are equal, nor compressible.
pub(crate) fn random_blocks(seed: u64, blocks: usize) -> Vec<u8> {
    let mut bytes = vec![0; blocks * BLOCK_BYTES];
    SeededRandom::new(seed).fill(&mut bytes).unwrap();
    bytes
}

/// Held for writing while a program is started: until the child runs it, the child has all descriptors of this process,
/// and with them its locks. Whatever takes a lock that was held before holds it for reading (see [`no_child`]).
pub(crate) static STARTING: RwLock<()> = RwLock::new(());

/// Waits until no child has descriptors of this process, and keeps it so while the guard lives. A thread that has one
/// takes no second one, and starts no program.
pub(crate) fn no_child() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a program; its word when it fails.
pub(crate) fn run<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> Result<(), String> {
    let mut command = Command::new(program);
    let _starting = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    match command.args(arguments).output() {
        Err(error) => Err(format!("cannot run {program}: {error}")),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Waits until something is so; returns whether it became so. What was closed can stay open for a moment: other tests
/// start programs, and a child has all descriptors of its parent until its own program begins.
pub(crate) fn soon(is_so: impl Fn() -> bool) -> bool {
    for _ in 0..200 {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Says on stderr, past the test harness, which keeps it for failures, that the test is skipped.
pub(crate) fn skip<T>(why: &str) -> Option<T> {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {}: {why}", thread.name().unwrap_or("a test"));
    None
}

thread_local! {
    /// Whether the thread has mounts of its own already.
    static HAS_PRIVATE_MOUNTS: Cell<bool> = const { Cell::new(false) };
}

/// Gives the calling thread, and what it starts, mounts that nobody else sees.
#[expect(unsafe_code, reason = "a thread may leave more than its mounts by the call")]
fn enter_private_mounts() -> Result<(), String> {
    if HAS_PRIVATE_MOUNTS.get() {
        return Ok(());
    }
    // SAFETY: the descriptors stay common to all threads; only the view of mounts is the thread's own from here on.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.map_err(|errno| errno.to_string())?;
    run("mount", ["--make-rprivate", "/"])?;
    leave_others().map_err(|error| error.to_string())?;
    HAS_PRIVATE_MOUNTS.set(true);
    Ok(())
}

/// Takes away, in a new mount namespace, what other tests have mounted. The copy would keep their file systems in use
/// after they have unmounted them.
fn leave_others() -> std::io::Result<()> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let temporary = std::env::temp_dir();
    let is_of_tests =
        |mount: &Path| mount.starts_with(&temporary) || target.is_some_and(|folder| mount.starts_with(folder));
    let mounts = std::fs::read_to_string("/proc/thread-self/mounts")?;
    // The last one first: it may lie in an earlier one.
    for line in mounts.lines().rev() {
        let mut words = line.split(' ').skip(1);
        let (Some(mount), Some(kind)) = (words.next().map(Path::new), words.next()) else { continue };
        if kind == "fuse.onefold" || is_of_tests(mount) && mount != temporary {
            // Its owner may have unmounted it by now.
            let _ = unmount(mount, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }
    Ok(())
}
