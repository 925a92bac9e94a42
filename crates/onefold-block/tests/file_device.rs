//! Tests the contract of `BlockDevice` over real files, against the operating system.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;

use onefold_block::device::{DeviceError, FileDevice, OpenMode};
use onefold_block::random::{Random, SeededRandom};
use onefold_block::{AlignedBuffer, BLOCK_BYTES, BLOCK_BYTES_U64, BlockDevice, BlockNo, ReadOp, WriteOp};
use onefold_testing::device::MemoryDevice;
use tempfile::TempDir;

const BLOCKS: u64 = 600;

/// A folder on a real disk, where O_DIRECT takes effect.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn sparse_file(folder: &Path, block_count: u64) -> PathBuf {
    let path = folder.join("device");
    File::create(&path).unwrap().set_len(block_count * BLOCK_BYTES_U64).unwrap();
    path
}

fn open(path: &Path) -> FileDevice {
    FileDevice::open(path, OpenMode::ReadWrite).unwrap()
}

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    result.map(|_| ()).unwrap_err().kind()
}

/// A buffer of whole blocks that starts at an address that O_DIRECT accepts, or just after one.
struct TestBuffer {
    memory: AlignedBuffer,
    start: usize,
    length: usize,
}

impl TestBuffer {
    fn random(random: &SeededRandom, blocks: usize) -> TestBuffer {
        let mut memory = AlignedBuffer::zeroed(blocks + 1);
        random.fill(&mut memory).unwrap();
        let start = if random.below(3) == 0 { 8 } else { 0 };
        TestBuffer { memory, start, length: blocks * BLOCK_BYTES }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.length]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.length]
    }
}

/// Returns places of up to `count` operations that do not overlap: (first block, blocks).
fn places(random: &SeededRandom, count: u64) -> Vec<(BlockNo, usize)> {
    let mut places = Vec::new();
    let mut next = random.below(20);
    for _ in 0..count {
        let blocks = 1 + random.below(if random.below(8) == 0 { 300 } else { 4 });
        if next + blocks > BLOCKS {
            break;
        }
        places.push((BlockNo(next), usize::try_from(blocks).unwrap()));
        next += blocks + if random.below(2) == 0 { 0 } else { random.below(20) };
    }
    places.sort_by_key(|(first, _)| first.0 % 7);
    places
}

#[test]
fn a_file_agrees_with_memory_under_random_operations() {
    let folder = folder();
    let (file, memory) = (open(&sparse_file(folder.path(), BLOCKS)), MemoryDevice::new(BLOCKS));
    let random = SeededRandom::new(11);
    for _ in 0..300 {
        let operations = random.below(60);
        let places = places(&random, operations);
        let mut buffers: Vec<_> = places.iter().map(|(_, blocks)| TestBuffer::random(&random, *blocks)).collect();
        let both = places.iter().zip(&mut buffers);
        match random.below(5) {
            0 => {
                for ((first, _), buffer) in both.take(5) {
                    file.write(*first, buffer.bytes()).unwrap();
                    memory.write(*first, buffer.bytes()).unwrap();
                }
            }
            1 | 2 => {
                let batch: Vec<_> =
                    both.map(|((first, _), buffer)| WriteOp { first: *first, from: buffer.bytes() }).collect();
                file.write_batch(&batch).unwrap();
                memory.write_batch(&batch).unwrap();
            }
            3 => {
                let batch = both.map(|((first, _), buffer)| ReadOp { first: *first, into: buffer.bytes_mut() });
                file.read_batch(&mut batch.collect::<Vec<_>>()).unwrap();
                for ((first, blocks), buffer) in places.iter().zip(&buffers) {
                    let mut expected = vec![0; blocks * BLOCK_BYTES];
                    memory.read(*first, &mut expected).unwrap();
                    assert!(buffer.bytes() == expected, "{blocks} blocks at {first}");
                }
            }
            _ => {
                for ((first, blocks), buffer) in both.take(3) {
                    file.read(*first, buffer.bytes_mut()).unwrap();
                    let mut expected = vec![0; blocks * BLOCK_BYTES];
                    memory.read(*first, &mut expected).unwrap();
                    assert!(buffer.bytes() == expected, "{blocks} blocks at {first}");
                    file.discard(*first, *blocks as u64).unwrap();
                    memory.discard(*first, *blocks as u64).unwrap();
                }
            }
        }
    }
    file.sync().unwrap();
}

/// Regression: a loop device counted as endless, although its writes take room of the file system under its file.
#[test]
fn a_loop_device_has_the_room_of_the_file_behind_it() {
    let folder = folder();
    let file = sparse_file(folder.path(), BLOCKS);
    let attached = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
    let Some(attached) = attached.ok().filter(|output| output.status.success()) else {
        eprintln!("skipped: no loop device can be had");
        return;
    };
    let device = String::from_utf8(attached.stdout).unwrap();
    let room = open(Path::new(device.trim())).room_blocks();
    assert!(Command::new("losetup").args(["--detach", device.trim()]).status().unwrap().success());
    assert!(room.is_some_and(|blocks| blocks > 0), "{room:?}");
}

#[test]
fn threads_that_outnumber_the_rings_all_get_their_blocks() {
    let folder = folder();
    let device = open(&sparse_file(folder.path(), BLOCKS));
    let mut content = AlignedBuffer::zeroed(usize::try_from(BLOCKS).unwrap());
    SeededRandom::new(5).fill(&mut content).unwrap();
    device.write(BlockNo(0), &content).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..12 {
            let (device, content) = (&device, &content);
            scope.spawn(move || {
                let random = SeededRandom::new(thread);
                for _ in 0..30 {
                    let firsts: Vec<_> = (0..40).map(|_| random.below(BLOCKS)).collect();
                    let mut buffer = AlignedBuffer::zeroed(firsts.len());
                    let ops = firsts.iter().zip(buffer.blocks_mut());
                    let mut batch: Vec<_> = ops.map(|(first, into)| ReadOp { first: BlockNo(*first), into }).collect();
                    device.read_batch(&mut batch).unwrap();
                    for (first, block) in firsts.into_iter().zip(buffer.blocks()) {
                        assert!(content.block(usize::try_from(first).unwrap()).unwrap() == block);
                    }
                }
            });
        }
    });
}

#[test]
fn a_device_has_one_writer_or_many_readers() {
    let folder = folder();
    let path = sparse_file(folder.path(), 4);
    let is_in_use = |mode| matches!(FileDevice::open(&path, mode), Err(DeviceError::InUse { .. }));
    let writer = open(&path);
    assert!(is_in_use(OpenMode::ReadWrite) && is_in_use(OpenMode::ReadOnly));
    drop(writer);
    let reader = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
    let other_reader = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
    assert!(is_in_use(OpenMode::ReadWrite));
    drop((reader, other_reader));
    open(&path);
}

#[test]
fn a_reader_reads_and_its_writes_are_refused() {
    let folder = folder();
    let path = sparse_file(folder.path(), 4);
    open(&path).write(BlockNo(2), &[5; BLOCK_BYTES]).unwrap();
    let reader = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
    let mut block = [0; BLOCK_BYTES];
    reader.read(BlockNo(2), &mut block).unwrap();
    assert_eq!(block, [5; BLOCK_BYTES]);
    assert_eq!(kind(reader.write(BlockNo(2), &block)), ErrorKind::PermissionDenied);
    assert_eq!(kind(reader.write_batch(&[WriteOp { first: BlockNo(2), from: &block }])), ErrorKind::PermissionDenied);
    assert_eq!(kind(reader.discard(BlockNo(2), 1)), ErrorKind::PermissionDenied);
}

#[test]
fn what_is_no_device_is_refused() {
    let folder = folder();
    let open = |path: &Path| FileDevice::open(path, OpenMode::ReadWrite).unwrap_err();
    assert!(matches!(open(folder.path()), DeviceError::Unsuitable { .. }));
    assert!(matches!(open(Path::new("/dev/null")), DeviceError::Unsuitable { .. }));
    let missing = open(&folder.path().join("missing"));
    assert!(matches!(missing, DeviceError::Io { op: "open", source, .. } if source.kind() == ErrorKind::NotFound));
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(matches!(open(&pipe), DeviceError::Unsuitable { .. }), "and nobody waits for its other end");
}

#[test]
fn transfers_past_the_end_fail_without_growing_the_file() {
    let folder = folder();
    let path = sparse_file(folder.path(), 4);
    let (device, two) = (open(&path), AlignedBuffer::zeroed(2));
    assert_eq!(kind(device.write(BlockNo(3), &two)), ErrorKind::InvalidInput);
    assert_eq!(kind(device.write(BlockNo(u64::MAX), &two)), ErrorKind::InvalidInput);
    assert_eq!(kind(device.read(BlockNo(4), &mut two.clone())), ErrorKind::InvalidInput);
    assert_eq!(kind(device.discard(BlockNo(3), 2)), ErrorKind::InvalidInput);
    assert_eq!(kind(device.write(BlockNo(0), &two[..100])), ErrorKind::InvalidInput);
    let batch = [WriteOp { first: BlockNo(0), from: &two }, WriteOp { first: BlockNo(3), from: &two }];
    assert_eq!(kind(device.write_batch(&batch)), ErrorKind::InvalidInput);
    assert_eq!(path.metadata().unwrap().len(), 4 * BLOCK_BYTES_U64);
}

#[test]
fn a_file_that_grew_has_more_blocks_and_a_partial_one_does_not_count() {
    let folder = folder();
    let path = sparse_file(folder.path(), 4);
    let device = open(&path);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(6 * BLOCK_BYTES_U64 + 100).unwrap();
    device.write(BlockNo(5), &[1; BLOCK_BYTES]).unwrap();
    assert_eq!(device.block_count().unwrap(), 6);
    assert_eq!(kind(device.write(BlockNo(6), &[1; BLOCK_BYTES])), ErrorKind::InvalidInput);
}

#[test]
fn a_file_cut_short_behind_the_devices_back_ends_reads_with_an_error() {
    let folder = folder();
    let path = sparse_file(folder.path(), 100);
    let device = open(&path);
    File::options().write(true).open(&path).unwrap().set_len(50 * BLOCK_BYTES_U64).unwrap();
    assert_eq!(kind(device.read(BlockNo(60), &mut AlignedBuffer::zeroed(1))), ErrorKind::UnexpectedEof);
    assert_eq!(kind(device.read(BlockNo(49), &mut AlignedBuffer::zeroed(2))), ErrorKind::UnexpectedEof);
    let mut buffer = AlignedBuffer::zeroed(3);
    let ops = [10, 99, 30].into_iter().zip(buffer.blocks_mut());
    let mut batch: Vec<_> = ops.map(|(first, into)| ReadOp { first: BlockNo(first), into }).collect();
    assert_eq!(kind(device.read_batch(&mut batch)), ErrorKind::UnexpectedEof);
}

#[test]
fn discarded_space_goes_back_to_the_file_system() {
    use std::os::unix::fs::MetadataExt;
    let folder = folder();
    let path = sparse_file(folder.path(), 256);
    let device = open(&path);
    device.write(BlockNo(0), &vec![1; 256 * BLOCK_BYTES]).unwrap();
    device.sync().unwrap();
    let before = path.metadata().unwrap().blocks();
    device.discard(BlockNo(64), 128).unwrap();
    device.sync().unwrap();
    let after = path.metadata().unwrap();
    assert_eq!(after.len(), 256 * BLOCK_BYTES_U64);
    assert!(after.blocks() <= before - 128 * 8 + 16, "{} of {before} sectors left", after.blocks());
}

/// The folder in which the test below finds a file system of 256 KiB when it runs itself again inside one.
const SMALL_FOLDER: &str = "ONEFOLD_TEST_SMALL_FOLDER";

#[test]
fn a_full_file_system_under_a_sparse_file_is_storage_full() {
    if let Some(folder) = std::env::var_os(SMALL_FOLDER) {
        let device = open(&sparse_file(Path::new(&folder), 1000));
        let block = AlignedBuffer::zeroed(1);
        let first_failed = (0..1000).find_map(|index| device.write(BlockNo(index), &block).err());
        assert_eq!(first_failed.unwrap().kind(), ErrorKind::StorageFull);
        let batch = [700, 800].map(|first| WriteOp { first: BlockNo(first), from: &block });
        assert_eq!(kind(device.write_batch(&batch)), ErrorKind::StorageFull);
        device.write(BlockNo(0), &block).unwrap();
        device.sync().unwrap();
        return;
    }
    let folder = folder();
    let script = "mount -t tmpfs -o size=256k tmpfs \"$0\" || exit 77; exec \"$1\" --exact \"$2\"";
    let name = "a_full_file_system_under_a_sparse_file_is_storage_full";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).arg(folder.path());
    command.arg(std::env::current_exe().unwrap()).arg(name).env(SMALL_FOLDER, folder.path());
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) if output.status.code() == Some(101) => {
            panic!("{}", String::from_utf8_lossy(&output.stdout));
        }
        other => println!("skipped: no small file system can be mounted here: {other:?}"),
    }
}
