//! Content of files of a really mounted pool: reading, writing, mapping, holes, clones.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use common::mapping::SharedMapping;
use common::{TestMount, can_mount, noise, run};
use onefold_block::AlignedBuffer;
use onefold_block::random::SeededRandom;
use onefold_export::StBlocks;
use rustix::fs::{FallocateFlags, SeekFrom, XattrFlags, copy_file_range, fallocate, seek};
use rustix::io::Errno;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

fn open_direct(mount: &TestMount, name: &str) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(mount.path(name)).unwrap()
}

/// Mounts a new pool whose `st_blocks` show mapped blocks.
fn mount_showing_mapped_blocks() -> TestMount {
    TestMount::with(common::new_pool(), |options| options.st_blocks = StBlocks::Mapped)
}

/// Drops the kernel's cache of `file`, so that the next read reaches the pool.
fn drop_cache(file: &File) {
    file.sync_all().unwrap();
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

#[test]
fn random_reads_and_writes_agree_with_a_plain_array_in_every_way_of_access() {
    if !can_mount() {
        return;
    }
    const BYTES: usize = 3 * MIB + 1234;
    let mount = TestMount::new();
    let random = SeededRandom::new(11);
    let below = |bound: usize| usize::try_from(random.below(bound as u64)).unwrap();
    let cached = mount.create("file");
    cached.set_len(BYTES as u64).unwrap();
    let direct = open_direct(&mount, "file");
    let synchronous = OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(mount.path("file")).unwrap();
    let mut model = vec![0; BYTES];
    for round in 0..300 {
        let data = noise(round, 1 + below(200 * KIB));
        let at = below(BYTES - data.len());
        match round % 4 {
            0 => {
                // The kernel refuses all but whole blocks at block boundaries.
                let (at, blocks) = (at / 4096 * 4096, data.len() / 4096);
                let data = AlignedBuffer::copy_of(&data[..blocks * 4096]);
                direct.write_all_at(&data, at as u64).unwrap();
                model[at..at + data.len()].copy_from_slice(&data);
            }
            1 => {
                synchronous.write_all_at(&data, at as u64).unwrap();
                model[at..at + data.len()].copy_from_slice(&data);
            }
            _ => {
                cached.write_all_at(&data, at as u64).unwrap();
                model[at..at + data.len()].copy_from_slice(&data);
            }
        }
        let (at, bytes) = (below(BYTES), 1 + below(100 * KIB));
        let bytes = bytes.min(BYTES - at);
        let mut found = vec![0; bytes];
        cached.read_exact_at(&mut found, at as u64).unwrap();
        assert!(found == model[at..at + bytes], "round {round}");
    }
    drop_cache(&cached);
    assert!(fs::read(mount.path("file")).unwrap() == model);
    drop((cached, direct, synchronous));
    let mount = mount.remount();
    assert!(fs::read(mount.path("file")).unwrap() == model);
    mount.end();
}

#[test]
fn large_direct_requests_arrive_whole() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let data = AlignedBuffer::copy_of(&noise(1, 8 * MIB));
    mount.create("file");
    let file = open_direct(&mount, "file");
    file.write_all_at(&data, 0).unwrap();
    let mut found = AlignedBuffer::zeroed(data.block_count());
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == data);
    // Past the end a direct read is short.
    file.set_len(8 * MIB as u64 - 1000).unwrap();
    assert_eq!(file.read_at(&mut found, 0).unwrap(), 8 * MIB - 1000);
    drop(file);
    mount.end();
}

#[test]
fn a_shared_mapping_and_direct_access_see_each_other() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    mount.create("file").set_len(MIB as u64).unwrap();
    let direct = open_direct(&mount, "file");
    // Mapping a file that is open for direct access requires FUSE_DIRECT_IO_ALLOW_MMAP.
    let mapping = SharedMapping::new(&direct, MIB).unwrap();
    assert_eq!(mapping.get(5000), 0);
    mapping.set(5000, 42);
    mapping.sync().unwrap();
    let mut block = AlignedBuffer::zeroed(1);
    direct.read_exact_at(&mut block, 4096).unwrap();
    assert_eq!(block[5000 - 4096], 42);
    block.fill(7);
    direct.write_all_at(&block, 4096).unwrap();
    assert_eq!(mapping.get(5000), 7);
    drop((mapping, direct));
    mount.end();
}

#[test]
fn what_a_mapping_wrote_is_there_after_a_remount() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let file = mount.create("file");
    file.set_len(64 * KIB as u64).unwrap();
    let mapping = SharedMapping::new(&file, 64 * KIB).unwrap();
    for at in (0..64 * KIB).step_by(1000) {
        mapping.set(at, 9);
    }
    drop((mapping, file));
    let mount = mount.remount();
    let content = fs::read(mount.path("file")).unwrap();
    assert!((0..64 * KIB).all(|at| content[at] == if at % 1000 == 0 { 9 } else { 0 }));
    mount.end();
}

#[test]
fn holes_are_found_and_zeros_become_holes() {
    if !can_mount() {
        return;
    }
    let mount = mount_showing_mapped_blocks();
    let file = mount.create("file");
    file.set_len(10 * MIB as u64).unwrap();
    file.write_all_at(&noise(1, 8192), 4 * MIB as u64).unwrap();
    file.write_all_at(&vec![0; MIB], 6 * MIB as u64).unwrap();
    let at = |from| seek(&file, from);
    assert_eq!(at(SeekFrom::Data(0)), Ok(4 * MIB as u64));
    assert_eq!(at(SeekFrom::Hole(4 * MIB as u64)), Ok(4 * MIB as u64 + 8192));
    assert_eq!(at(SeekFrom::Data(5 * MIB as u64)), Err(Errno::NXIO), "zeros are stored as nothing");
    assert_eq!(at(SeekFrom::Hole(5 * MIB as u64)), Ok(5 * MIB as u64));
    assert_eq!(at(SeekFrom::Hole(11 * MIB as u64)), Err(Errno::NXIO));
    assert_eq!(file.metadata().unwrap().blocks(), 16);
    drop(file);
    mount.end();
}

#[test]
fn fallocate_extends_keeps_punches_and_zeroes() {
    if !can_mount() {
        return;
    }
    let mount = mount_showing_mapped_blocks();
    let file = mount.create("file");
    let allocate = |flags, offset, bytes| fallocate(&file, flags, offset, bytes);
    let size = || file.metadata().unwrap().len();
    allocate(FallocateFlags::KEEP_SIZE, 0, MIB as u64).unwrap();
    assert_eq!(size(), 0);
    assert_eq!(file.metadata().unwrap().blocks(), 2048, "reserved space counts");
    allocate(FallocateFlags::empty(), 0, MIB as u64).unwrap();
    assert_eq!(size(), MIB as u64);
    let data = noise(1, MIB);
    file.write_all_at(&data, 0).unwrap();
    allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4000, 8192).unwrap();
    allocate(FallocateFlags::ZERO_RANGE, MIB as u64 - 100, 200).unwrap();
    assert_eq!(size(), MIB as u64 + 100);
    let mut model = data;
    model[4000..4000 + 8192].fill(0);
    model.truncate(MIB - 100);
    model.resize(MIB + 100, 0);
    drop_cache(&file);
    assert!(fs::read(mount.path("file")).unwrap() == model);
    assert_eq!(allocate(FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(Errno::OPNOTSUPP));
    drop(file);
    mount.end();
}

#[test]
fn copying_a_range_shares_blocks_and_stays_apart_afterwards() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let data = noise(1, 16 * MIB);
    let source = mount.create("source");
    source.write_all_at(&data, 0).unwrap();
    let target = mount.create("target");
    // Cached pages of the target must be dropped.
    target.write_all_at(&noise(2, MIB), 0).unwrap();
    source.sync_all().unwrap();
    let free = || rustix::fs::statvfs(mount.root()).unwrap().f_bfree;
    let before = free();
    let mut copied = 0;
    while copied < data.len() {
        let (mut from, mut to) = (copied as u64, copied as u64);
        let count = copy_file_range(&source, Some(&mut from), &target, Some(&mut to), data.len() - copied).unwrap();
        assert!(count > 0);
        copied += count;
    }
    target.sync_all().unwrap();
    assert!(before.saturating_sub(free()) < 1024, "16 MiB take less than 4");
    assert!(fs::read(mount.path("target")).unwrap() == data);
    source.write_all_at(b"changed", 5000).unwrap();
    assert!(fs::read(mount.path("target")).unwrap() == data);
    drop((source, target));
    let mount = mount.remount();
    assert!(fs::read(mount.path("target")).unwrap() == data);
    mount.end();
}

#[test]
fn cp_makes_a_sparse_copy_and_a_clone() {
    if !can_mount() {
        return;
    }
    let mount = mount_showing_mapped_blocks();
    let outside = tempfile::NamedTempFile::new().unwrap();
    outside.as_file().set_len(64 * MIB as u64).unwrap();
    outside.as_file().write_all_at(&noise(1, 300 * KIB), 10 * MIB as u64 + 512).unwrap();
    let (base, clone) = (mount.path("base.raw"), mount.path("vm1.raw"));
    run("cp", &["--sparse=always".as_ref(), outside.path().as_os_str(), base.as_os_str()]);
    run("cp", &["--reflink=auto".as_ref(), base.as_os_str(), clone.as_os_str()]);
    run("cmp", &[outside.path().as_os_str(), clone.as_os_str()]);
    for path in [base, clone] {
        assert!(fs::metadata(path).unwrap().blocks() <= 76 * 8, "holes stay holes");
    }
    mount.end();
}

#[test]
fn blocks_cover_the_length_so_that_cp_clones_sparse_images() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let base = mount.create("base.raw");
    base.set_len(512 * MIB as u64).unwrap();
    base.write_all_at(&noise(1, 64 * MIB), MIB as u64).unwrap();
    base.sync_all().unwrap();
    assert_eq!(base.metadata().unwrap().blocks(), 512 * MIB as u64 / 512);
    let mut client = onefold_export::control::ControlClient::connect(&mount.root()).unwrap();
    let accepted = client.stat().unwrap().activity.blocks_accepted;
    run("cp", &["--reflink=auto".as_ref(), mount.path("base.raw").as_os_str(), mount.path("vm1.raw").as_os_str()]);
    assert_eq!(client.stat().unwrap().activity.blocks_accepted, accepted, "nothing was written");
    run("cmp", &[mount.path("base.raw").as_os_str(), mount.path("vm1.raw").as_os_str()]);
    drop((base, client));
    mount.end();
}

/// Seen: tar stored an empty disk of 2 GB as 2 GB of zeros, because `st_blocks` showed the length whatever the file
/// held.
#[test]
fn little_data_shows_as_what_is_mapped_and_a_setting_goes_before() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let sectors = |name: &str| fs::metadata(mount.path(name)).unwrap().blocks();
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(mount.path(name), "user.onefold.st_blocks", value, XattrFlags::empty())
    };
    let length = 1 << 30;
    mount.create("empty").set_len(length).unwrap();
    assert_eq!(sectors("empty"), 1, "none at all would mean that nobody has to look");
    let little = mount.create("little");
    little.set_len(length).unwrap();
    little.write_all_at(&noise(1, 3 * MIB), 5 * MIB as u64).unwrap();
    assert_eq!(sectors("little"), 3 * MIB as u64 / 512);

    set("little", b"length").unwrap();
    assert_eq!(sectors("little"), length / 512);
    set("little", b"mapped").unwrap();
    assert_eq!(sectors("little"), 3 * MIB as u64 / 512);
    assert_eq!(set("little", b"little"), Err(Errno::INVAL));

    fs::create_dir(mount.path("folder")).unwrap();
    set("folder", b"length").unwrap();
    mount.create("folder/file").set_len(length).unwrap();
    assert_eq!(sectors("folder/file"), length / 512, "as its folder");
    rustix::fs::removexattr(mount.path("folder/file"), "user.onefold.st_blocks").unwrap();
    assert_eq!(sectors("folder/file"), 1);
    drop(little);
    mount.end();
}

#[test]
fn a_file_may_be_large_but_not_larger_than_16_tib() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let file = mount.create("file");
    file.write_all_at(b"far", (8 << 40) - 3).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 8 << 40);
    let error = file.write_all_at(b"too far", 17 << 40).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::FBIG));
    let error = file.set_len(17 << 40).unwrap_err();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::FBIG));
    let mut found = [0; 3];
    file.read_exact_at(&mut found, (8 << 40) - 3).unwrap();
    assert_eq!(&found, b"far");
    drop(file);
    mount.end();
}

#[test]
fn unknown_ioctls_are_refused_as_such() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::new();
    let file = mount.create("file");
    // FICLONE never reaches a FUSE file system; tools fall back to copy_file_range.
    let error = rustix::fs::ioctl_ficlone(&file, &file).unwrap_err();
    assert!(matches!(error, Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL), "{error}");
    drop(file);
    mount.end();
}

#[test]
fn the_writeback_cache_loses_nothing() {
    if !can_mount() {
        return;
    }
    let mount = TestMount::with(common::new_pool(), |options| options.writeback_cache = true);
    let file = mount.create("file");
    let data = noise(3, 2 * MIB + 77);
    for (index, piece) in data.chunks(1000).enumerate() {
        file.write_all_at(piece, index as u64 * 1000).unwrap();
    }
    drop(file);
    let mount = mount.remount();
    assert!(fs::read(mount.path("file")).unwrap() == data);
    mount.end();
}
