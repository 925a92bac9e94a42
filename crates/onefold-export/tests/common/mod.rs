//! A pool in memory, really mounted.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part of this")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

pub mod doors;
pub mod false_mount;
pub mod held;
pub mod mapping;
pub mod probe;
pub mod ring;
pub mod volumes;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions as FileOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onefold_block::BlockDevice;
use onefold_block::clock::SystemClock;
use onefold_block::random::SeededRandom;
use onefold_export::{EndError, MountOptions, ServeError, Stopper, mount};
use onefold_pool::check::{CheckOptions, check};
use onefold_pool::{CreateOptions, Environment, MEMORY_BYTES_MIN, NoProgress, OpenOptions, Pool};
use onefold_testing::device::{MemoryDevice, ThrottledDevice};

/// Blocks of the test pools: 1 GiB.
const BLOCKS: u64 = 1 << 18;

/// Returns whether this process can mount; tests that need to are skipped otherwise.
pub fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("skipped: mounting needs root and /dev/fuse");
    }
    can
}

/// Returns whether Linux has at least this version.
pub fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

pub fn environment() -> Environment {
    Environment { clock: Arc::new(SystemClock), random: Arc::new(SeededRandom::new(7)) }
}

/// Returns a device with an empty pool.
pub fn new_pool() -> Arc<MemoryDevice> {
    new_pool_of(BLOCKS)
}

/// Returns a device of `blocks` blocks with an empty pool.
pub fn new_pool_of(blocks: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(blocks));
    let seam: Arc<dyn BlockDevice> = device.clone();
    Pool::create(&seam, &CreateOptions::default(), &environment()).unwrap();
    device
}

/// Returns a new pool on a device so slow that writes of some mebibytes wait for it.
pub fn slow_pool() -> Arc<ThrottledDevice<MemoryDevice>> {
    Arc::new(ThrottledDevice::new(MemoryDevice::from(new_pool().image()), 16 << 20))
}

/// A mounted pool. Unmounted when dropped.
pub struct TestMount<D: BlockDevice + 'static = MemoryDevice> {
    directory: tempfile::TempDir,
    device: Arc<D>,
    pub stopper: Stopper,
    server: Option<JoinHandle<Result<(), ServeError>>>,
}

impl TestMount {
    /// Mounts a new pool.
    pub fn new() -> TestMount {
        TestMount::with(new_pool(), |_| ())
    }

    /// Unmounts and mounts again.
    pub fn remount(self) -> TestMount {
        TestMount::with(self.end(), |_| ())
    }
}

impl<D: BlockDevice + 'static> TestMount<D> {
    /// Mounts the pool on `device` with changed options.
    pub fn with(device: Arc<D>, change: impl FnOnce(&mut MountOptions)) -> TestMount<D> {
        TestMount::opened(device, OpenOptions::default(), change)
    }

    /// Opens the pool on `device` and mounts it with changed options.
    pub fn opened(device: Arc<D>, open: OpenOptions, change: impl FnOnce(&mut MountOptions)) -> TestMount<D> {
        let directory = tempfile::tempdir().unwrap();
        let mut options = MountOptions::new("test.pool");
        options.control_directory = Some(directory.path().join("run"));
        change(&mut options);
        // Other users reach the mount through this directory.
        std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mountpoint = directory.path().join("mnt");
        std::fs::create_dir(&mountpoint).unwrap();
        let open = OpenOptions { memory_bytes: MEMORY_BYTES_MIN, read_only: options.read_only, ..open };
        let pool = Arc::new(Pool::open(device.clone(), open, environment()).unwrap());
        let daemon = mount(pool, &mountpoint, &options).unwrap();
        let stopper = daemon.stopper();
        let server = thread::spawn(move || daemon.serve());
        TestMount { directory, device, stopper, server: Some(server) }
    }

    /// Returns the mount point.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    /// Returns the path of `name` in the mount.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root().join(name)
    }

    /// Lets the kernel hold back more than the few mebibytes of changes that it allows a FUSE mount.
    pub fn hold_back_much(&self) {
        let minor = libc::minor(std::fs::metadata(self.root()).unwrap().dev());
        std::fs::write(format!("/sys/class/bdi/0:{minor}/max_ratio"), "100").unwrap();
    }

    /// Returns the device under the pool.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Creates `name` and opens it for reading and writing.
    pub fn create(&self, name: &str) -> File {
        FileOptions::new().read(true).write(true).create_new(true).open(self.path(name)).unwrap()
    }

    /// Waits for an unmount by another process and returns the daemon's result.
    pub fn wait(mut self) -> (Arc<D>, Result<(), ServeError>) {
        let result = self.server.take().unwrap().join().unwrap();
        (self.device.clone(), result)
    }

    /// Retries while the mount is in use: a program that another test is just starting holds all open files of this
    /// process until it is loaded, and a mount namespace of another test begins with a copy of every mount.
    fn unmount_when_unused(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Err(error) = self.stopper.try_end() {
            let is_passing = match &error {
                EndError::Busy | EndError::StillHeld(_) => true,
                EndError::Held(holder) => holder.process.is_some(),
                EndError::Clients { .. } | EndError::Refused { .. } => false,
            };
            assert!(is_passing && Instant::now() < deadline, "{error}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Unmounts, checks the pool and returns its device.
    pub fn end(self) -> Arc<D> {
        self.unmount_when_unused();
        let (device, result) = self.wait();
        result.unwrap();
        assert_clean_on(&*device);
        device
    }
}

impl<D: BlockDevice + 'static> Drop for TestMount<D> {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // A test has failed: files that it has open must not keep the mount.
            let _ = self.stopper.stop();
            let _ = server.join();
        }
    }
}

/// Panics if a check of the pool on `device` finds a problem.
pub fn assert_clean(device: &MemoryDevice) {
    assert_clean_on(device);
}

/// Like [`assert_clean`], for any device.
pub fn assert_clean_on(device: &dyn BlockDevice) {
    let options = CheckOptions { memory_bytes: MEMORY_BYTES_MIN, verify_data: true, ..CheckOptions::default() };
    let report = check(device, &options, &NoProgress).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// Runs a program to its end and returns its output; panics if it fails.
pub fn run(program: &str, arguments: &[&OsStr]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns `bytes` bytes from a seed; no two of their blocks are equal.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    onefold_block::Random::fill(&SeededRandom::new(seed), &mut data).unwrap();
    data
}
