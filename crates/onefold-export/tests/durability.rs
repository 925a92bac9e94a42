//! What each system call has made durable when it returns, on a really mounted pool.
//!
//! The daemon is killed, or the power cut, right after the call: the pool's device then holds everything written to it,
//! or everything written before its last flush. The pool's own timer does not run. `docs/guide/promises.md` lists the
//! promises that these tests prove.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::fs::{self, File, OpenOptions as FileOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::mapping::SharedMapping;
use common::{TestMount, assert_clean, can_mount, environment, new_pool_of, noise, run};
use onefold_block::AlignedBuffer;
use onefold_export::{KernelOption, MountOptions};
use onefold_pool::{Ino, MEMORY_BYTES_MIN, OpenOptions, Pool, PoolError};
use onefold_testing::device::{CrashPlan, Event, MemoryDevice, MemoryImage, RecordingDevice};
use rustix::fs::{CWD, FileType, Mode, mknodat};

const BLOCKS: u64 = 16_384;
const NEVER_MS: u32 = u32::MAX;

/// A mounted pool on a device that records its flushes.
struct Trial {
    mount: TestMount<RecordingDevice>,
    device: Arc<RecordingDevice>,
}

impl Trial {
    fn new(commit_interval_ms: u32) -> Trial {
        Trial::with(commit_interval_ms, |_| ())
    }

    fn with(commit_interval_ms: u32, change: impl FnOnce(&mut MountOptions)) -> Trial {
        let device = Arc::new(RecordingDevice::new(new_pool_of(BLOCKS).image()));
        let open = OpenOptions { commit_interval_ms, ..OpenOptions::default() };
        let mount = TestMount::opened(device.clone(), open, change);
        Trial { mount, device }
    }

    /// Returns the device as it is if the daemon is killed now, and if the power is cut now.
    fn ends(&self) -> [(&'static str, MemoryImage); 2] {
        let recording = self.device.recording();
        let flushed = recording.events().iter().rposition(|event| matches!(event, Event::Sync)).unwrap_or(0);
        let cut = recording.image_after(flushed, &CrashPlan::with_seed(1));
        [("killed", self.device.image()), ("power cut", cut)]
    }

    /// Panics unless `name` holds one of `contents` after either end; `None` means no such file.
    #[track_caller]
    fn assert_left(&self, name: &str, contents: &[Option<&[u8]>]) {
        for (end, image) in self.ends() {
            let left = content(image, name);
            let length = left.as_ref().map(Vec::len);
            assert!(contents.contains(&left.as_deref()), "{end}: `{name}` has {length:?} bytes, or others");
        }
    }

    /// Panics unless each of these names is in the root, or is not, as given, after either end.
    #[track_caller]
    fn assert_names(&self, names: &[(&str, bool)]) {
        for (end, image) in self.ends() {
            let pool = opened(image);
            for (name, is_there) in names {
                let found = pool.lookup(Ino::ROOT, name.as_bytes());
                assert_eq!(found.is_ok(), *is_there, "{end}: `{name}`: {found:?}");
            }
        }
    }

    fn create(&self, name: &str) -> File {
        self.mount.create(name)
    }

    /// Makes a durable file with this content.
    fn old(&self, name: &str, content: &[u8]) -> File {
        let file = self.create(name);
        file.write_all_at(content, 0).unwrap();
        file.sync_all().unwrap();
        file
    }
}

/// Opens a sound pool from a device's content.
fn opened(image: MemoryImage) -> Pool {
    let device = Arc::new(MemoryDevice::from(image));
    assert_clean(&device);
    let options = OpenOptions { memory_bytes: MEMORY_BYTES_MIN, background: false, ..OpenOptions::default() };
    Pool::open(device, options, environment()).unwrap()
}

/// Opens a pool from a device's content and returns the content of a file in the root.
fn content(image: MemoryImage, name: &str) -> Option<Vec<u8>> {
    let pool = opened(image);
    let attr = match pool.lookup(Ino::ROOT, name.as_bytes()) {
        Err(PoolError::NotFound) => return None,
        found => found.unwrap(),
    };
    let mut bytes = vec![0; usize::try_from(attr.size_bytes).unwrap()];
    assert_eq!(pool.read(attr.ino, 0, &mut bytes).unwrap(), bytes.len());
    Some(bytes)
}

#[test]
fn fsync_and_fdatasync_make_data_length_name_and_all_earlier_changes_durable() {
    if !can_mount() {
        return;
    }
    let trial = Trial::new(NEVER_MS);
    for (number, sync) in (0..).zip([File::sync_all, File::sync_data]) {
        let (data, other) = (noise(number, 300_001), noise(10 + number, 50_000));
        let [name, earlier] = ["file", "earlier"].map(|name| format!("{name}{number}"));
        trial.create(&earlier).write_all_at(&other, 0).unwrap();
        let file = trial.create(&name);
        file.write_all_at(&data, 0).unwrap();
        sync(&file).unwrap();
        trial.assert_left(&name, &[Some(&data)]);
        trial.assert_left(&earlier, &[Some(&other)]);
    }
}

/// Regression: the kernel takes the option and shows it, but leaves it to the daemon, which did nothing.
#[test]
fn with_sync_or_dirsync_each_change_of_a_name_is_durable_when_it_returns() {
    if !can_mount() {
        return;
    }
    for option in [KernelOption::Sync, KernelOption::Dirsync] {
        let trial = Trial::with(NEVER_MS, |options| options.kernel_options = vec![option]);
        let path = |name: &str| trial.mount.path(name);
        drop(trial.create("made"));
        trial.assert_names(&[("made", true)]);
        fs::create_dir(path("folder")).unwrap();
        trial.assert_names(&[("folder", true)]);
        fs::rename(path("made"), path("renamed")).unwrap();
        trial.assert_names(&[("made", false), ("renamed", true)]);
        fs::hard_link(path("renamed"), path("linked")).unwrap();
        trial.assert_names(&[("linked", true)]);
        std::os::unix::fs::symlink("linked", path("symbolic")).unwrap();
        trial.assert_names(&[("symbolic", true)]);
        mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        trial.assert_names(&[("pipe", true)]);
        fs::remove_file(path("renamed")).unwrap();
        trial.assert_names(&[("renamed", false)]);
        fs::remove_dir(path("folder")).unwrap();
        trial.assert_names(&[("folder", false), ("linked", true)]);
    }
}

#[test]
fn a_write_with_o_sync_or_o_dsync_is_durable_when_it_returns() {
    if !can_mount() {
        return;
    }
    let trial = Trial::new(NEVER_MS);
    for (number, flag) in (0..).zip([libc::O_SYNC, libc::O_DSYNC]) {
        let (name, data) = (format!("file{number}"), noise(number, 70_000));
        let path = trial.mount.path(&name);
        let file = FileOptions::new().write(true).create_new(true).custom_flags(flag).open(path).unwrap();
        file.write_all_at(&data[..50_000], 0).unwrap();
        trial.assert_left(&name, &[Some(&data[..50_000])]);
        file.write_all_at(&data[50_000..], 50_000).unwrap();
        trial.assert_left(&name, &[Some(&data)]);
    }
}

#[test]
fn msync_makes_a_mapping_durable() {
    if !can_mount() {
        return;
    }
    let trial = Trial::new(NEVER_MS);
    let mut data = noise(1, 8192);
    let file = trial.old("file", &data);
    let mapping = SharedMapping::new(&file, 8192).unwrap();
    mapping.set(5000, !data[5000]);
    mapping.sync().unwrap();
    data[5000] = !data[5000];
    trial.assert_left("file", &[Some(&data)]);
}

#[test]
fn a_write_or_a_close_alone_leaves_the_old_content_or_the_new() {
    if !can_mount() {
        return;
    }
    let trial = Trial::new(NEVER_MS);
    let (old, new) = (noise(1, 40_960), noise(2, 40_960));
    for flags in [0, libc::O_DIRECT] {
        let name = format!("file{flags}");
        drop(trial.old(&name, &old));
        let file = FileOptions::new().write(true).custom_flags(flags).open(trial.mount.path(&name)).unwrap();
        file.write_all_at(&AlignedBuffer::copy_of(&new), 0).unwrap();
        trial.assert_left(&name, &[Some(&old), Some(&new)]);
        drop(file);
        trial.assert_left(&name, &[Some(&old), Some(&new)]);
    }
}

#[test]
fn a_write_becomes_durable_by_itself_within_the_commit_interval() {
    if !can_mount() {
        return;
    }
    let trial = Trial::new(100);
    let data = noise(1, 40_960);
    trial.create("file").write_all_at(&data, 0).unwrap();
    let started = Instant::now();
    while trial.ends().into_iter().any(|(_, image)| content(image, "file").as_ref() != Some(&data)) {
        assert!(started.elapsed() < Duration::from_secs(30), "nothing was committed");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// In `syncfs`, the kernel only hands over its cached changes and sends a FUSE file system no request. Before Linux
/// 6.16 it does not wait for the handover.
#[test]
fn syncfs_hands_over_what_the_kernel_has_cached_and_an_fsync_makes_it_durable() {
    if !can_mount() {
        return;
    }
    let trial = Trial::new(NEVER_MS);
    let (old, mut new) = (noise(1, 4096), noise(1, 4096));
    let file = trial.old("file", &old);
    let mapping = SharedMapping::new(&file, 4096).unwrap();
    mapping.set(7, !old[7]);
    new[7] = !old[7];
    let root = File::open(trial.mount.root()).unwrap();
    rustix::fs::syncfs(&root).unwrap();
    trial.assert_left("file", &[Some(&old), Some(&new)]);
    // If the kernel has waited, an fsync of any file is enough: the changes already belong to the pool.
    if common::kernel_is_at_least(6, 16) {
        root.sync_all().unwrap()
    } else {
        file.sync_all().unwrap()
    }
    trial.assert_left("file", &[Some(&new)]);
}

#[test]
fn names_change_whole_and_are_durable_with_the_next_fsync_of_anything() {
    if !can_mount() {
        return;
    }
    let trial = Trial::new(NEVER_MS);
    let (one, two) = (noise(1, 30_000), noise(2, 20_000));
    drop((trial.old("one", &one), trial.old("two", &two), trial.old("gone", &one), trial.old("linked", &two)));
    let any = trial.create("any");
    any.sync_all().unwrap();
    let path = |name: &str| trial.mount.path(name);

    fs::rename(path("one"), path("two")).unwrap();
    trial.assert_left("two", &[Some(&two), Some(&one)]);
    any.sync_all().unwrap();
    trial.assert_left("two", &[Some(&one)]);
    trial.assert_left("one", &[None]);

    fs::remove_file(path("gone")).unwrap();
    trial.assert_left("gone", &[Some(&one), None]);
    any.sync_data().unwrap();
    trial.assert_left("gone", &[None]);

    fs::hard_link(path("linked"), path("again")).unwrap();
    trial.assert_left("again", &[None, Some(&two)]);
    trial.assert_left("linked", &[Some(&two)]);
    File::open(trial.mount.root()).unwrap().sync_all().unwrap();
    trial.assert_left("again", &[Some(&two)]);
}

/// Writing a new file, fsync, and renaming it over the old one: the method of editors and package managers.
#[test]
fn a_file_that_replaces_another_by_rename_is_the_old_one_or_the_new_one() {
    if !can_mount() {
        return;
    }
    let trial = Trial::new(NEVER_MS);
    let versions: Vec<Vec<u8>> = (0..).zip(10..18).map(|(seed, blocks)| noise(seed, 999 * blocks)).collect();
    drop(trial.old("settings", &versions[0]));
    for pair in versions.windows(2) {
        let mut beside = trial.create("settings.new");
        beside.write_all(&pair[1]).unwrap();
        beside.sync_all().unwrap();
        trial.assert_left("settings", &[Some(&pair[0])]);
        fs::rename(trial.mount.path("settings.new"), trial.mount.path("settings")).unwrap();
        trial.assert_left("settings", &[Some(&pair[0]), Some(&pair[1])]);
        beside.sync_all().unwrap();
        trial.assert_left("settings", &[Some(&pair[1])]);
    }
}

#[test]
fn a_clone_is_whole_or_not_there_and_durable_with_an_fsync() {
    if !can_mount() {
        return;
    }
    let trial = Trial::new(NEVER_MS);
    let data = noise(1, 600 * 4096);
    drop(trial.old("source", &data));
    run("cp", &[trial.mount.path("source").as_os_str(), trial.mount.path("clone").as_os_str()]);
    trial.assert_left("clone", &[None, Some(b""), Some(&data)]);
    File::open(trial.mount.path("clone")).unwrap().sync_all().unwrap();
    trial.assert_left("clone", &[Some(&data)]);
}

#[test]
fn everything_is_durable_when_an_unmount_has_returned() {
    if !can_mount() {
        return;
    }
    let trial = Trial::new(NEVER_MS);
    let data = noise(1, 200_000);
    trial.create("file").write_all_at(&data, 0).unwrap();
    let Trial { mount, device } = trial;
    mount.end();
    let events = device.recording().events().len();
    let last_change = device.recording().events().iter().rposition(|event| !matches!(event, Event::Sync));
    assert!(last_change.unwrap() + 1 < events, "the last write was flushed");
    assert_eq!(content(device.image(), "file"), Some(data));
}
