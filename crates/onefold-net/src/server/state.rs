//! State that all answers share: the archive, threads that read it, and memory.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use onefold_disk::{Disk, DiskError};
use onefold_image::archive::{Archive, ArchiveError, ImageRecord};
use onefold_image::served::ServedArchive;
use onefold_image::{ArchivedDisk, ImageName};
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::ahead::ReadAhead;
use super::body::owned;
use super::chunk_lists::ChunkLists;
use super::connection::{Activity, AtWork};
use super::digests::DiskDigests;
use super::machines::Machines;
use super::multicast::Sessions;
use super::room::{AnswerRoom, Room};
use super::tokens::{Rights, TokenFile};
use super::{LogHook, LogLine, RemovalPolicy, ServerOptions};
use crate::NetError;

/// Maximum number of threads that read the archive at once. Most of them wait for a store.
pub(super) const READERS_MAX: usize = 16;
/// Maximum number of manifests that are read at once.
const MANIFESTS_MAX: usize = 2;
/// Divisor for the share of the memory that recent units get, and answers as well.
pub(super) const SHARE: usize = 4;
/// Number of images that are open for reading of any range, and the divisor for the memory of each.
const DISKS_MAX: usize = 4;
const DISK_SHARE: usize = 16;
/// Bytes of an image that are read at once, and the room that an answer of them takes: one piece is sent while the next
/// one is read.
const RAW_PIECE_BYTES: u64 = 256 << 10;
const RAW_ROOM_BYTES: usize = 1 << 20;
/// How old the list of images may be.
const LIST_AGE: Duration = Duration::from_secs(1);

/// The archive, and what its answers may take.
pub(super) struct ServerState {
    served: ServedArchive,
    readers: Readers,
    /// Turns to read a manifest, whose length is not known before.
    manifests: Arc<Semaphore>,
    room: Room,
    disk_bytes: usize,
    /// `None` if the server asks for no token.
    tokens: Option<TokenFile>,
    chunk_lists: ChunkLists,
    ahead: ReadAhead,
    /// The last one used comes first.
    disks: Mutex<Vec<OpenDisk>>,
    /// When the ledger was read last.
    listed: Mutex<Option<Instant>>,
    sessions: Option<Arc<Sessions>>,
    digests: DiskDigests,
    machines: Machines,
    removal: RemovalPolicy,
    on_line: LogHook,
}

/// Turns to read the archive.
struct Readers(Arc<Semaphore>);

impl Readers {
    /// Returns so many turns.
    fn new(count: usize) -> Readers {
        Readers(Arc::new(Semaphore::new(count)))
    }

    /// Runs `work` on a thread of its own when it is its turn.
    ///
    /// A client may give a request up, and make another one at once. The work goes on, so its turn lasts as long. But
    /// a request that is given up while it waits for its turn costs nothing.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let turn = Arc::clone(&self.0).acquire_owned().await.ok()?;
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        done.await.ok()
    }
}

#[derive(Clone)]
struct OpenDisk {
    digest: [u8; 32],
    disk: Arc<ArchivedDisk>,
}

impl std::fmt::Debug for ServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerState").field("served", &self.served).finish_non_exhaustive()
    }
}

impl ServerState {
    pub(super) fn new(
        served: ServedArchive,
        options: &ServerOptions,
        tokens: Option<TokenFile>,
        sessions: Option<Sessions>,
        digests: DiskDigests,
        on_line: LogHook,
    ) -> ServerState {
        let memory_bytes = options.memory_bytes;
        ServerState {
            served,
            readers: Readers::new(READERS_MAX),
            manifests: Arc::new(Semaphore::new(MANIFESTS_MAX)),
            room: Room::new(memory_bytes / SHARE),
            disk_bytes: memory_bytes / DISK_SHARE,
            tokens,
            chunk_lists: ChunkLists::new(memory_bytes / DISK_SHARE),
            ahead: ReadAhead::new(memory_bytes / SHARE),
            disks: Mutex::default(),
            listed: Mutex::default(),
            sessions: sessions.map(Arc::new),
            digests,
            machines: Machines::default(),
            removal: options.removal,
            on_line,
        }
    }

    pub(super) fn archive(&self) -> &Arc<Archive> {
        self.served.archive()
    }

    /// Returns the tokens, if clients need one.
    pub(super) fn tokens(&self) -> Option<&TokenFile> {
        self.tokens.as_ref()
    }

    /// Returns the sessions of multicast, if there are any.
    pub(super) fn sessions(&self) -> Option<&Arc<Sessions>> {
        self.sessions.as_ref()
    }

    /// Returns the digests of disks.
    pub(super) fn digests(&self) -> &DiskDigests {
        &self.digests
    }

    /// Returns the machines that install images.
    pub(super) fn machines(&self) -> &Machines {
        &self.machines
    }

    /// Returns whether installations end once their image is removed.
    pub(super) fn ends_removed(&self) -> bool {
        self.removal == RemovalPolicy::End
    }

    /// Writes a line about a machine to the log.
    pub(super) fn log(&self, line: &str) {
        (self.on_line)(LogLine::Machine(line));
    }

    /// Returns the chunks of images that clients have stated.
    pub(super) fn chunk_lists(&self) -> &ChunkLists {
        &self.chunk_lists
    }

    /// Returns the clients for which chunks are read ahead.
    pub(super) fn ahead(&self) -> &ReadAhead {
        &self.ahead
    }

    /// Reports an error that is not the client's.
    pub(super) fn report(&self, error: &dyn std::error::Error) {
        (self.on_line)(LogLine::Trouble(&format!("a request failed: {error}")));
    }

    /// Reports that the file of tokens cannot be used.
    pub(super) fn report_tokens(&self, error: &NetError) {
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
        (self.on_line)(LogLine::Trouble(&format!("no token is valid now: {error}{cause}")));
    }

    /// Waits for memory for an answer of so many bytes.
    pub(super) async fn room(&self, activity: &Arc<Activity>, bytes: usize) -> AnswerRoom {
        let _at_work = AtWork::begin(activity);
        self.room.take(activity.client(), bytes).await
    }

    /// Takes the memory for an answer of so many bytes in total, if it is free now. Returns whether it is.
    pub(super) fn grow(&self, room: &mut AnswerRoom, bytes: usize) -> bool {
        self.room.grow(room, bytes)
    }

    /// Waits until a manifest may be read.
    pub(super) async fn manifest_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.manifests.acquire().await.ok()
    }

    /// Returns a turn to read a manifest if one is free now.
    pub(super) fn free_manifest_turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.manifests).try_acquire_owned().ok()
    }

    /// Runs `work`, which reads the archive, on a thread of its own.
    pub(super) async fn work<T: Send + 'static>(
        self: &Arc<Self>,
        activity: &Arc<Activity>,
        work: impl FnOnce(&ServerState) -> T + Send + 'static,
    ) -> Option<T> {
        let _at_work = AtWork::begin(activity);
        let state = Arc::clone(self);
        self.readers.run(move || work(&state)).await
    }

    /// Runs `work`, which reads a manifest, when it is its turn: few manifests are read at once.
    ///
    /// Only reading takes a turn: a request waits for memory before or after, so it keeps no other one from its turn.
    pub(super) async fn read_manifest<T: Send + 'static>(
        self: &Arc<Self>,
        activity: &Arc<Activity>,
        work: impl FnOnce(&ServerState) -> T + Send + 'static,
    ) -> Option<T> {
        let _at_work = AtWork::begin(activity);
        let turn = Arc::clone(&self.manifests).acquire_owned().await.ok()?;
        let read = self.work(activity, move |state| {
            let read = work(state);
            drop(turn);
            read
        });
        read.await
    }

    pub(super) fn served(&self) -> &ServedArchive {
        &self.served
    }

    /// Reads on in the ledger, unless that was done a moment ago, so that new and removed images are known.
    pub(super) fn refresh(&self) {
        let is_due = {
            let mut listed = self.listed.lock();
            let is_due = listed.is_none_or(|listed| listed.elapsed() >= LIST_AGE);
            if is_due {
                *listed = Some(Instant::now());
            }
            is_due
        };
        // The images that were known before are served on.
        if is_due && let Err(error) = self.archive().refresh() {
            self.report(&error);
        }
    }

    /// Returns all images that a client may read.
    pub(super) fn images(&self, rights: &Rights) -> Vec<ImageRecord> {
        self.refresh();
        let mut images = self.archive().images();
        images.retain(|record| rights.include(&record.image.name));
        images
    }

    /// Returns the image with a name, and a version if one is given, if the client may read it.
    pub(super) fn find(&self, rights: &Rights, name: &ImageName, version: Option<u32>) -> Option<ImageRecord> {
        self.refresh();
        if rights.include(name) { self.archive().find(name, version) } else { None }
    }

    /// Returns the image whose manifest has this digest, if the client may read it.
    pub(super) fn find_digest(&self, rights: &Rights, digest: [u8; 32]) -> Option<ImageRecord> {
        self.images(rights).into_iter().find(|record| record.digest == digest)
    }

    /// Returns the disk of an image if it is open.
    pub(super) fn open_disk(&self, record: &ImageRecord) -> Option<Arc<ArchivedDisk>> {
        let mut disks = self.disks.lock();
        let at = disks.iter().position(|open| open.digest == record.digest)?;
        disks[..=at].rotate_right(1);
        Some(Arc::clone(&disks[0].disk))
    }

    /// Returns the disk of an image. Reads its manifest if it is not open.
    pub(super) fn disk(&self, record: &ImageRecord) -> Result<Arc<ArchivedDisk>, ArchiveError> {
        if let Some(disk) = self.open_disk(record) {
            return Ok(disk);
        }
        let manifest = self.archive().manifest(record)?;
        let archive = Arc::clone(self.archive());
        let disk = Arc::new(ArchivedDisk::new(archive, manifest, self.disk_bytes));
        let mut disks = self.disks.lock();
        disks.insert(0, OpenDisk { digest: record.digest, disk: Arc::clone(&disk) });
        disks.truncate(DISKS_MAX);
        Ok(disk)
    }

    /// Reads a range of a disk piece by piece, each when the one before is being sent.
    pub(super) async fn stream(
        self: &Arc<Self>,
        activity: Arc<Activity>,
        disk: Arc<ArchivedDisk>,
        range: std::ops::Range<u64>,
    ) -> Receiver<io::Result<Bytes>> {
        let (sender, receiver) = mpsc::channel(1);
        let room = Arc::new(self.room(&activity, RAW_ROOM_BYTES).await);
        let state = Arc::clone(self);
        tokio::spawn(async move {
            let mut offset = range.start;
            while offset < range.end {
                let length = RAW_PIECE_BYTES.min(range.end - offset);
                let from = Arc::clone(&disk);
                let read = state.work(&activity, move |state| state.piece(&from, offset, length)).await;
                let piece = read.unwrap_or_else(|| Err(io::Error::other("a thread of the server failed")));
                let is_over = piece.is_err();
                if sender.send(piece.map(|piece| owned(piece, &room))).await.is_err() || is_over {
                    return;
                }
                offset += length;
            }
        });
        receiver
    }

    fn piece(&self, disk: &ArchivedDisk, offset: u64, length: u64) -> io::Result<Bytes> {
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        disk.read(offset, &mut bytes).map_err(|error: DiskError| {
            self.report(&error);
            io::Error::other(error)
        })?;
        Ok(Bytes::from(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Requests that are made and reset again would otherwise have the server read the archive without bound.
    #[test]
    fn work_keeps_its_turn_when_its_request_is_given_up() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let readers = Readers::new(2);
        let (started, starts) = mpsc::channel();
        let (finish, finished) = mpsc::channel::<()>();
        let free = || readers.0.available_permits();
        runtime.block_on(async {
            let work = readers.run(move || {
                started.send(()).unwrap();
                finished.recv().unwrap();
            });
            let given_up = tokio::time::timeout(Duration::from_millis(50), work).await;
            assert!(given_up.is_err());
        });
        starts.recv().unwrap();
        assert_eq!(free(), 1, "the work goes on");
        finish.send(()).unwrap();
        let began = Instant::now();
        while free() != 2 {
            assert!(began.elapsed() < Duration::from_secs(10));
            thread::sleep(Duration::from_millis(1));
        }
    }
}
