//! An archive of one image, servers and clients of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use onefold_block::clock::SystemClock;
use onefold_block::random::{Random, SeededRandom, SystemRandom};
use onefold_disk::{Disk, DiskError};
use onefold_image::ImageName;
use onefold_image::archive::{Archive, ArchiveError, ImageRecord};
use onefold_image::capture::{CaptureOptions, Scope, Source, capture};
use onefold_image::format::descriptor::UnitKind;
use onefold_image::install::{FileTarget, FreeSectorPolicy, InstallError, InstallOptions, Target, install};
use onefold_image::served::ChunkMethod;
use onefold_image::store::{MemoryStore, Store};

use onefold_net::{ImageServer, LogLine, RemoteArchive, RemoteOptions, RemovalPolicy, ServerOptions};
use parking_lot::Mutex;

/// Long enough for many chunks: noise does not compress.
pub(crate) const DISK_BYTES: usize = 24 << 20;

/// A disk in memory.
pub(crate) struct Noise(pub(crate) Vec<u8>);

impl Disk for Noise {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn next_data(&self, offset: u64) -> Result<Option<std::ops::Range<u64>>, DiskError> {
        Ok((offset < self.size_bytes()).then(|| offset..self.size_bytes()))
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let start = usize::try_from(offset).unwrap();
        into.copy_from_slice(&self.0[start..start + into.len()]);
        Ok(())
    }
}

/// An archive with an image `lab/web` of noise.
pub(crate) struct Fixture {
    store: Arc<MemoryStore>,
    pub(crate) disk: Noise,
}

impl Fixture {
    pub(crate) fn new(bytes: usize) -> Fixture {
        let random = SeededRandom::new(7);
        let mut noise = vec![0; bytes];
        random.fill(&mut noise).unwrap();
        // Zeros and repetitions, as on a real disk.
        noise[bytes / 2..bytes / 2 + (1 << 20)].fill(0);
        noise.copy_within(0..1 << 20, bytes - (1 << 20));
        let fixture = Fixture { store: Arc::new(MemoryStore::default()), disk: Noise(noise) };
        Archive::create(fixture.store.clone(), UnitKind::Fixed { unit_bytes: 64 << 10 }, &random).unwrap();
        fixture.capture("lab/web");
        fixture
    }

    pub(crate) fn archive(&self) -> Arc<Archive> {
        Arc::new(Archive::open(self.store()).unwrap())
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    pub(crate) fn capture(&self, name: &str) -> ImageRecord {
        self.capture_disk(name, &self.disk)
    }

    pub(crate) fn capture_disk(&self, name: &str, disk: &Noise) -> ImageRecord {
        let (archive, random) = (self.archive(), SystemRandom);
        let folder = tempfile::tempdir().unwrap();
        let options = CaptureOptions {
            name: ImageName::new(name).unwrap(),
            began: onefold_block::Timestamp { seconds: 5, nanoseconds: 0 },
            scope: Scope::Allocated,
            exact: false,
            threads: 2,
            memory_bytes: 0,
            level: 1,
            folder: folder.path(),
        };
        let mut writer = archive.writer(&SystemClock, &random, "host").unwrap();
        let source = Source { disk, has_changed: &|| Ok(false) };
        capture(&archive, &mut writer, source, &options, &|_| ControlFlow::Continue(())).unwrap();
        archive.find(&options.name, None).unwrap()
    }

    /// Deletes all packs, as a collection does once no image needs them.
    pub(crate) fn delete_packs(&self) {
        for object in self.store.list("packs/", None).unwrap() {
            self.store.delete(&object.name).unwrap();
        }
    }

    /// Serves without encryption.
    pub(crate) fn serve(&self, address: &str) -> RunningServer {
        self.serve_with(&ServerOptions { address: address.parse().unwrap(), ..server_options() })
    }

    pub(crate) fn serve_with(&self, options: &ServerOptions) -> RunningServer {
        self.serve_logged(options).0
    }

    /// Serves, and returns the lines about machines that the server writes to its log.
    pub(crate) fn serve_logged(&self, options: &ServerOptions) -> (RunningServer, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&lines);
        let on_line = Box::new(move |line: LogLine<'_>| {
            if let LogLine::Machine(text) = line {
                log.lock().push(text.to_owned());
            }
        });
        let server = ImageServer::listen(self.archive(), options, on_line).unwrap();
        let (address, stop) = (server.address(), Arc::new(AtomicBool::new(false)));
        let is_stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || server.run(&|| is_stopped.load(Ordering::Relaxed)));
        (RunningServer { address, stop, thread: Some(thread) }, lines)
    }
}

/// A server on a thread, which ends when this is dropped.
pub(crate) struct RunningServer {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Returns the parameters of a server at a free port of this machine, without encryption.
pub(crate) fn server_options() -> ServerOptions {
    ServerOptions {
        address: ([127, 0, 0, 1], 0).into(),
        interface: None,
        memory_bytes: 64 << 20,
        identity: None,
        tokens: None,
        digests: None,
        removal: RemovalPolicy::Finish,
        multicast: None,
        chunks: ChunkMethod::OnDemand,
    }
}

pub(crate) fn options(patience: Duration) -> RemoteOptions {
    RemoteOptions {
        ca: None,
        pin: None,
        token: None,
        allow_http: false,
        patience,
        first_patience: patience,
        on_wait: Box::new(|_, _| ()),
    }
}

pub(crate) fn open(address: SocketAddr, patience: Duration) -> Result<RemoteArchive, ArchiveError> {
    RemoteArchive::open(&format!("http://{address}"), options(patience)).unwrap()
}

/// Installs the newest image over noise, and calls `on_progress` with the bytes so far.
pub(crate) fn install_over_noise(
    remote: RemoteArchive,
    path: &Path,
    on_progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<u8>, InstallError> {
    let record = remote.records().last().unwrap().clone();
    let (manifest, _) = remote.manifest(&record)?;
    let mut noise = vec![0; usize::try_from(manifest.size_bytes).unwrap()];
    SeededRandom::new(99).fill(&mut noise).unwrap();
    std::fs::write(path, &noise).unwrap();
    let target = FileTarget::open(path, onefold_image::install::Content::Overwrite).unwrap();
    let options = InstallOptions {
        free: FreeSectorPolicy::Leave,
        verify: true,
        threads: 2,
        memory_bytes: 64 << 20,
        fresh: false,
        fit: false,
        start_bytes: 0,
    };
    install(&remote.into_images(), &manifest, &target, &options, &|progress| {
        on_progress(progress.done_bytes);
        ControlFlow::Continue(())
    })?;
    let mut installed = noise;
    target.read(0, &mut installed).unwrap();
    Ok(installed)
}

/// Sends one request as it is, and returns the head and the body of the answer.
pub(crate) fn raw_request(address: SocketAddr, request: impl AsRef<[u8]>) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    // A server that refuses a request need not read all of it, and may end the connection with an error.
    let _ = stream.write_all(request.as_ref());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
    let body = answer.split_off(end);
    (String::from_utf8(answer).unwrap().to_ascii_lowercase(), body)
}

pub(crate) fn get(address: SocketAddr, path: &str, headers: &str) -> (String, Vec<u8>) {
    raw_request(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n"))
}

pub(crate) fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name} in {head}"))
}
