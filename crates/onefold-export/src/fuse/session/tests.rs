//! Simulates kernels of other versions than the one that runs the tests: a socket stands for `/dev/fuse`.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use onefold_block::{AlignedBuffer, BlockDevice};
use onefold_pool::{
    CreateOptions, Environment, FileKind, MEMORY_BYTES_MIN, NewFile, OpenOptions, Pool, TestLimits, WriteStart,
};
use onefold_testing::device::MemoryDevice;

use super::super::server::REQUEST_START;
use super::*;

// From `linux/fuse.h`.
const INIT: u32 = 26;
const OPEN: u32 = 14;
const WRITE: u32 = 16;
const FOPEN_DIRECT_IO: u32 = 1;
const FOPEN_KEEP_CACHE: u32 = 1 << 1;
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
/// In the second word of abilities.
const DIRECT_IO_ALLOW_MMAP: u32 = 1 << 4;
const REPLY_HEADER_BYTES: usize = 16;

/// A simulated kernel that has set up a connection.
struct FakeKernel {
    socket: UnixDatagram,
    device: FuseDevice,
    server: Server,
    pool: Arc<Pool>,
}

impl FakeKernel {
    /// Returns a kernel of version 7.`minor` that offers all abilities of the first word, and `more_abilities` of the
    /// second.
    fn new(minor: u32, more_abilities: u32) -> FakeKernel {
        FakeKernel::with(minor, more_abilities, OpenOptions { background: false, ..OpenOptions::default() })
    }

    /// Like [`FakeKernel::new`], with a pool opened with `options`.
    fn with(minor: u32, more_abilities: u32, options: OpenOptions) -> FakeKernel {
        let (socket, other) = UnixDatagram::pair().unwrap();
        let device = FuseDevice::from(OwnedFd::from(other));
        let offer: Vec<u8> =
            [7, minor, 1 << 17, u32::MAX, more_abilities].iter().flat_map(|word| word.to_ne_bytes()).collect();
        socket.send(&request(INIT, 0, &offer)).unwrap();
        let agreed = agree(&device, false).unwrap();
        let mut reply = [0; REPLY_HEADER_BYTES + 64];
        assert_eq!(socket.recv(&mut reply).unwrap(), reply.len());
        let taken = u32::from_ne_bytes(reply[REPLY_HEADER_BYTES + 32..][..4].try_into().unwrap());
        assert_eq!(taken & !more_abilities, 0, "what was not offered is not taken");

        let pool = pool(options);
        let options = MountOptions::new("test.pool");
        let filesystem = PoolFilesystem::new(Arc::clone(&pool), &options, PathBuf::new());
        let server = Server::new(filesystem, &options, agreed);
        FakeKernel { socket, device, server, pool }
    }

    /// Makes a file.
    fn create(&self) -> Ino {
        let new = NewFile { kind: FileKind::Regular, mode: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        self.pool.create_file(Ino::ROOT, b"file", &new).unwrap().ino
    }

    /// Opens a file and returns the flags of the door's answer.
    fn open(&self, node: Ino, flags: i32) -> u32 {
        let body = [flags.to_ne_bytes(), [0; 4]].concat();
        let request = request(OPEN, node.0, &body);
        let mut buffer = AlignedBuffer::zeroed(2);
        buffer[REQUEST_START..REQUEST_START + request.len()].copy_from_slice(&request);
        let received = self.server.look_at(&buffer, request.len()).unwrap();
        self.server.answer(&received, WriteStart::ByWorker, &mut buffer, &self.device);
        let mut reply = [0; REPLY_HEADER_BYTES + 16];
        assert_eq!(self.socket.recv(&mut reply).unwrap(), reply.len());
        assert_eq!(reply[4..8], [0; 4], "no error");
        u32::from_ne_bytes(reply[REPLY_HEADER_BYTES + 8..][..4].try_into().unwrap())
    }
}

fn pool(options: OpenOptions) -> Arc<Pool> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(4096));
    Pool::create(&device, &CreateOptions::default(), &Environment::system()).unwrap();
    let options = OpenOptions { memory_bytes: MEMORY_BYTES_MIN, ..options };
    Arc::new(Pool::open(device, options, Environment::system()).unwrap())
}

fn request(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(40 + body.len()).unwrap();
    let mut bytes = [length.to_ne_bytes(), opcode.to_ne_bytes()].concat();
    bytes.extend([1_u64.to_ne_bytes(), node.to_ne_bytes()].concat());
    bytes.extend([0; 16]);
    bytes.extend(body);
    bytes
}

/// Regression, found by reading: a file opened with O_DIRECT bypassed the page cache on every kernel. Kernels before
/// 6.6 then allow no shared mappings of the file, and keep cached pages that a direct write makes stale. A reader
/// through the page cache saw old content.
#[test]
fn kernels_that_cannot_keep_the_page_cache_right_beside_direct_requests_do_o_direct_their_own_way() {
    let bypass = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
    for (minor, more_abilities, expected) in [
        (31, 0, FOPEN_KEEP_CACHE),
        (38, !DIRECT_IO_ALLOW_MMAP, FOPEN_KEEP_CACHE),
        (39, DIRECT_IO_ALLOW_MMAP, bypass),
        (44, u32::MAX, bypass),
    ] {
        let kernel = FakeKernel::new(minor, more_abilities);
        let file = kernel.create();
        let asked = FOPEN_KEEP_CACHE | bypass;
        assert_eq!(kernel.open(file, libc::O_RDWR | libc::O_DIRECT) & asked, expected, "kernel 7.{minor}");
        assert_eq!(kernel.open(file, libc::O_RDWR) & asked, FOPEN_KEEP_CACHE, "kernel 7.{minor}");
    }
}

/// Regression, found in a review: the receiving thread left a write to itself and found another request before it began
/// the write. Answering that request can wait for a thread that waits for the range of the write.
#[test]
fn a_write_is_handed_over_where_another_request_is_there_already() {
    let test_limits = TestLimits { late_after: 0, ..TestLimits::default() };
    // The timer's commit would also carry the write out.
    let options = OpenOptions { test_limits, commit_interval_ms: 3_600_000, ..OpenOptions::default() };
    let kernel = FakeKernel::with(44, u32::MAX, options);
    let file = kernel.create();
    let flags = rustix::fs::fcntl_getfl(&kernel.device).unwrap();
    rustix::fs::fcntl_setfl(&kernel.device, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    let leader = kernel.server.leader();
    leader.take();
    let mut buffer = AlignedBuffer::zeroed(4);
    let mut receive = |sent: &[u8], begins| {
        kernel.socket.send(sent).unwrap();
        let received = kernel.server.receive(&leader, &mut buffer, &kernel.device, Some(&kernel.device)).unwrap();
        let (bytes, device) = received.unwrap();
        assert_eq!(bytes, sent.len());
        let received = kernel.server.look_at(&buffer, bytes).unwrap();
        assert_eq!(kernel.server.begins(&received, &leader, false), begins);
        if begins == WriteStart::ByCaller {
            kernel.server.answer(&received, begins, &mut buffer, device);
        }
    };
    // Handle, offset, length, flags of the write, owner of locks, flags of the opening.
    let mut write = [0; 40];
    write[16..20].copy_from_slice(&4096_u32.to_ne_bytes());
    // A newly started worker may find the write before it sleeps.
    let is_left = (0..100).any(|number| {
        receive(&request(WRITE, file.0, &[&write[..], &[number; 4096]].concat()), WriteStart::ByCaller);
        thread::sleep(Duration::from_millis(10));
        kernel.pool.blocks_behind() > 0
    });
    assert!(is_left, "the workers sleep");
    receive(&request(OPEN, file.0, &[0; 8]), WriteStart::ByWorker);
    let patience = Instant::now() + Duration::from_secs(20);
    while kernel.pool.blocks_behind() > 0 {
        assert!(Instant::now() < patience, "nobody begins");
        thread::sleep(Duration::from_millis(1));
    }
    kernel.pool.close().unwrap();
}
