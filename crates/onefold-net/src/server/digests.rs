//! SHA-256 and SHA-512 of disks as `raw` serves them, for programs that compare what they have read.
//!
//! They are computed at the first request, one disk at a time, on a thread that gives way to all others. Then a folder
//! keeps them for good: the disk of a manifest never changes. Until they are known, clients are asked to come back.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use onefold_disk::{Disk, DiskError};
use onefold_image::archive::ImageRecord;
use onefold_image::{ArchiveId, UnitName};
use parking_lot::Mutex;
use sha2::{Digest, Sha256, Sha512};

use super::connection::Activity;
use super::routes::{LOOK_AGAIN, Problem, SMALL_BYTES, hexadecimal, image_of, no_answer, set, unit_name, whole};
use super::state::ServerState;
use super::tokens::Rights;

/// Maximum number of disks that wait to be read.
const WAITING_MAX: usize = 64;
/// Maximum number of disks whose digests are in memory.
const KNOWN_MAX: usize = 4096;
/// How long a disk that could not be read is not tried again.
const FAILED_FOR: Duration = Duration::from_secs(60);
/// Bounds of the time after which a client comes back, in seconds.
const RETRY_MIN: u64 = 1;
const RETRY_MAX: u64 = 60;
/// Bytes that are read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Priority of the thread: other threads get ten times as much of a busy processor, and it still gets on.
const PRIORITY: i32 = 10;
/// Beginning of the name of a file that is not complete, and how old it is when nothing completes it any more.
const BEGUN: &str = ".begun-";
const BEGUN_FOR: Duration = Duration::from_secs(3600);
/// Name of a disk in a line of digests, as clients save it.
const NAME: &str = "raw";

/// The digests of one disk, in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawDigests {
    sha256: String,
    sha512: String,
}

/// A kind of digest.
#[derive(Clone, Copy, Debug)]
enum DigestKind {
    Sha256,
    Sha512,
}

impl DigestKind {
    /// Returns the ending of its address.
    fn name(self) -> &'static str {
        match self {
            DigestKind::Sha256 => "sha256",
            DigestKind::Sha512 => "sha512",
        }
    }
}

/// The digests of all disks, by the digest of the manifest.
#[derive(Debug)]
pub(super) struct DiskDigests {
    /// Folder that keeps them; `None` if they are computed again after a start.
    folder: Option<PathBuf>,
    state: Mutex<DigestState>,
}

#[derive(Debug, Default)]
struct DigestState {
    known: HashMap<[u8; 32], RawDigests>,
    /// Disks that could not be read, and when that was.
    failed: HashMap<[u8; 32], Instant>,
    /// Disks that are to be read. The thread works on the first one.
    waiting: VecDeque<ImageRecord>,
    /// Since when, how far, and of how many bytes.
    running: Option<(Instant, u64, u64)>,
    is_stopped: bool,
}

/// State of the digests of a disk.
#[derive(Debug, PartialEq, Eq)]
enum DigestAnswer {
    Known(RawDigests),
    /// It is not known yet. A client should come back after so many seconds.
    Later(u64),
    /// The disk could not be read.
    Failed,
}

impl RawDigests {
    /// Returns the line that `sha256sum` or `sha512sum` prints.
    fn line(&self, kind: DigestKind) -> String {
        let digest = match kind {
            DigestKind::Sha256 => &self.sha256,
            DigestKind::Sha512 => &self.sha512,
        };
        format!("{digest}  {NAME}\n")
    }

    /// Returns the text of a kept file: both lines.
    fn text(&self) -> String {
        self.line(DigestKind::Sha256) + &self.line(DigestKind::Sha512)
    }

    fn parse(text: &str) -> Option<RawDigests> {
        let mut digests = text.lines().map(|line| line.strip_suffix(NAME)?.strip_suffix("  "));
        let of_length = |digest: &str, digits: usize| {
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            (digest.len() == digits && digest.bytes().all(is_digit)).then(|| digest.to_owned())
        };
        let (sha256, sha512) = (of_length(digests.next()??, 64)?, of_length(digests.next()??, 128)?);
        digests.next().is_none().then_some(RawDigests { sha256, sha512 })
    }
}

impl DiskDigests {
    /// Returns the digests of the disks of an archive. `folder` keeps them, in a folder of this archive that is made
    /// when the first one is known: servers of several archives may have the same `folder`.
    pub(super) fn new(folder: Option<PathBuf>, archive: ArchiveId) -> DiskDigests {
        let folder = folder.map(|folder| folder.join(archive.to_string()));
        DiskDigests { folder, state: Mutex::default() }
    }

    /// Ends the thread that reads disks.
    pub(super) fn stop(&self) {
        self.state.lock().is_stopped = true;
    }

    /// Returns what is known of the disk of an image, and whether a thread is to begin with it.
    fn find(&self, record: &ImageRecord, now: Instant) -> (DigestAnswer, bool) {
        if let Some(known) = self.state.lock().known.get(&record.digest) {
            return (DigestAnswer::Known(known.clone()), false);
        }
        if let Some(kept) = self.kept(&record.digest) {
            self.state.lock().know(record.digest, kept.clone());
            return (DigestAnswer::Known(kept), false);
        }
        let mut state = self.state.lock();
        // The thread may have done with the disk meanwhile.
        if let Some(known) = state.known.get(&record.digest) {
            return (DigestAnswer::Known(known.clone()), false);
        }
        state.failed.retain(|_, at| now.saturating_duration_since(*at) < FAILED_FOR);
        if state.failed.contains_key(&record.digest) {
            return (DigestAnswer::Failed, false);
        }
        let place = state.waiting.iter().position(|waiting| waiting.digest == record.digest);
        let is_idle = state.waiting.is_empty();
        if place.is_none() && state.waiting.len() < WAITING_MAX {
            state.waiting.push_back(record.clone());
        }
        let seconds = if place.is_some_and(|place| place > 0) { RETRY_MAX } else { state.left_seconds(now) };
        (DigestAnswer::Later(seconds), is_idle)
    }

    /// Returns the digests that the folder has of a disk.
    fn kept(&self, digest: &[u8; 32]) -> Option<RawDigests> {
        let path = self.folder.as_ref()?.join(hexadecimal(digest));
        RawDigests::parse(&fs::read_to_string(path).ok()?)
    }

    /// Keeps digests. The file appears whole or not at all; without it they are computed again after a start.
    fn keep(&self, digest: &[u8; 32], digests: &RawDigests) -> std::io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        fs::create_dir_all(folder)?;
        let mut file = tempfile::Builder::new().prefix(BEGUN).tempfile_in(folder)?;
        file.write_all(digests.text().as_bytes())?;
        file.persist(folder.join(hexadecimal(digest))).map_err(|error| error.error)?;
        Ok(())
    }

    /// Deletes the kept digests of images that are gone, and files that were never completed. Others stay: the folder
    /// may have files of the user.
    fn forget(&self, images: &[ImageRecord]) {
        let Some(entries) = self.folder.as_ref().and_then(|folder| fs::read_dir(folder).ok()) else { return };
        let digests: HashSet<[u8; 32]> = images.iter().map(|record| record.digest).collect();
        for entry in entries.flatten() {
            let is_gone = entry.file_name().to_str().is_some_and(|name| match unit_name(name) {
                Some(UnitName(digest)) => !digests.contains(&digest),
                None => name.starts_with(BEGUN) && age(&entry).is_some_and(|age| age >= BEGUN_FOR),
            });
            if is_gone {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Reads the disks that wait with `read`, one after the other, until none is left. A disk whose reading panics
    /// counts as unreadable, because others would wait for it for ever.
    fn read_waiting(&self, read: &dyn Fn(&ImageRecord) -> Result<Option<RawDigests>, ()>) {
        let mut next = self.state.lock().waiting.front().cloned();
        while let Some(record) = next {
            let done = catch_unwind(AssertUnwindSafe(|| read(&record))).unwrap_or(Err(()));
            next = self.state.lock().finish(record.digest, done);
        }
    }

    /// Notes how far a disk was read. Returns false if the server ends.
    fn note(&self, began: Instant, done_bytes: u64, total_bytes: u64) -> bool {
        let mut state = self.state.lock();
        state.running = Some((began, done_bytes, total_bytes));
        !state.is_stopped
    }
}

/// Returns the time since the last change of a file, by its dates.
fn age(entry: &fs::DirEntry) -> Option<Duration> {
    entry.metadata().ok()?.modified().ok()?.elapsed().ok()
}

impl DigestState {
    fn know(&mut self, digest: [u8; 32], digests: RawDigests) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(digest, digests);
    }

    /// Notes the outcome of the disk that was read, and returns the next one. Both are one step: as long as a disk
    /// waits, there is a thread, and a request begins another one only if none waits.
    fn finish(&mut self, digest: [u8; 32], done: Result<Option<RawDigests>, ()>) -> Option<ImageRecord> {
        self.running = None;
        self.waiting.pop_front();
        match done {
            Ok(Some(done)) => self.know(digest, done),
            Ok(None) => self.waiting.clear(),
            Err(()) => _ = self.failed.insert(digest, Instant::now()),
        }
        self.waiting.front().cloned()
    }

    /// Returns how many seconds the running disk will take yet, as far as that can be told.
    fn left_seconds(&self, now: Instant) -> u64 {
        let Some((began, done_bytes, total_bytes)) = self.running else { return RETRY_MIN };
        let passed = now.saturating_duration_since(began).as_millis();
        let left = passed * u128::from(total_bytes.saturating_sub(done_bytes)) / u128::from(done_bytes.max(1)) / 1000;
        u64::try_from(left).unwrap_or(RETRY_MAX).clamp(RETRY_MIN, RETRY_MAX)
    }
}

/// Reads the disks that wait.
fn read_waiting(state: &ServerState) {
    // On Linux this is the priority of the calling thread.
    let _ = rustix::process::setpriority_process(None, PRIORITY);
    state.digests().read_waiting(&|record| {
        // It may have been removed while it waited.
        let is_there = state.archive().images().iter().any(|image| image.digest == record.digest);
        if is_there { read_disk(state, record) } else { Err(()) }
    });
}

/// Returns the digests of a disk; `None` if the server ends meanwhile. An error has been reported.
fn read_disk(state: &ServerState, record: &ImageRecord) -> Result<Option<RawDigests>, ()> {
    let disk = state.disk(record).map_err(|error| state.report(&error))?;
    let digests =
        digests_of(&*disk, &mut |began, done_bytes, total_bytes| state.digests().note(began, done_bytes, total_bytes));
    let digests = digests.map_err(|error| state.report(&error))?;
    if let Some(digests) = &digests {
        state.digests().forget(&state.archive().images());
        if let Err(error) = state.digests().keep(&record.digest, digests) {
            state.report(&error);
        }
    }
    Ok(digests)
}

/// Reads a disk. `note` gets the time of the beginning, the bytes that were read, and those of the disk. When it
/// returns false, there is no result.
fn digests_of(
    disk: &dyn Disk,
    note: &mut dyn FnMut(Instant, u64, u64) -> bool,
) -> Result<Option<RawDigests>, DiskError> {
    let (mut sha256, mut sha512) = (Sha256::new(), Sha512::new());
    let (began, size_bytes) = (Instant::now(), disk.size_bytes());
    let (mut offset, mut piece) = (0, Vec::new());
    while offset < size_bytes {
        if !note(began, offset, size_bytes) {
            return Ok(None);
        }
        let length = PIECE_BYTES.min(size_bytes - offset);
        piece.resize(usize::try_from(length).unwrap_or(0), 0);
        disk.read(offset, &mut piece)?;
        sha256.update(&piece);
        sha512.update(&piece);
        offset += length;
    }
    let (sha256, sha512) = (hexadecimal(&sha256.finalize()), hexadecimal(&sha512.finalize()));
    Ok(Some(RawDigests { sha256, sha512 }))
}

/// Returns the SHA-256 of a disk.
pub(super) async fn sha256(
    state: State<Arc<ServerState>>,
    activity: Extension<Arc<Activity>>,
    rights: Extension<Rights>,
    image: Path<String>,
    headers: HeaderMap,
) -> Response {
    digest(state, activity, rights, image, headers, DigestKind::Sha256).await
}

/// Returns the SHA-512 of a disk.
pub(super) async fn sha512(
    state: State<Arc<ServerState>>,
    activity: Extension<Arc<Activity>>,
    rights: Extension<Rights>,
    image: Path<String>,
    headers: HeaderMap,
) -> Response {
    digest(state, activity, rights, image, headers, DigestKind::Sha512).await
}

async fn digest(
    State(state): State<Arc<ServerState>>,
    Extension(activity): Extension<Arc<Activity>>,
    Extension(rights): Extension<Rights>,
    Path(image): Path<String>,
    headers: HeaderMap,
    kind: DigestKind,
) -> Response {
    let Some((name, version)) = image_of(&image) else { return no_answer(&state, &Problem::Missing) };
    let room = state.room(&activity, SMALL_BYTES).await;
    let shared = Arc::clone(&state);
    let found = state.work(&activity, move |state| {
        let record = state.find(&rights, &name, version)?;
        let (answer, is_first) = state.digests().find(&record, Instant::now());
        if is_first {
            let thread = std::thread::Builder::new().name("digests".to_owned());
            if thread.spawn(move || read_waiting(&shared)).is_err() {
                state.digests().state.lock().waiting.clear();
            }
        }
        Some((answer, record))
    });
    match found.await {
        Some(Some((DigestAnswer::Known(digests), record))) => {
            let (line, validator) = (digests.line(kind), format!("{}-{}", kind.name(), hexadecimal(&record.digest)));
            let mut response = whole(&headers, &validator, LOOK_AGAIN, vec![line.into()], room);
            set(&mut response, CONTENT_TYPE, "text/plain; charset=utf-8");
            response
        }
        Some(Some((DigestAnswer::Later(seconds), _))) => {
            let mut response = Response::new(Body::from("the digests of this disk are being computed\n"));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            set(&mut response, RETRY_AFTER, &seconds.to_string());
            set(&mut response, CACHE_CONTROL, "no-store");
            set(&mut response, CONTENT_TYPE, "text/plain; charset=utf-8");
            response
        }
        Some(Some((DigestAnswer::Failed, _))) | None => no_answer(&state, &Problem::Server),
        Some(None) => no_answer(&state, &Problem::Missing),
    }
}

#[cfg(test)]
mod tests {
    use onefold_block::Timestamp;
    use onefold_image::{ImageName, ImageVersion, ObjectId, WriterId};

    use super::*;

    fn record(number: u8) -> ImageRecord {
        ImageRecord {
            image: ImageVersion { name: ImageName::new("web").unwrap(), version: number.into() },
            manifest: ObjectId { writer: WriterId([number; 16]), random: [number; 8] },
            digest: [number; 32],
            packs: 1,
            added: Timestamp { seconds: 0, nanoseconds: 0 },
        }
    }

    /// The thread ends only if no disk waits, and a request begins a thread only then.
    #[test]
    fn one_thread_reads_all_disks() {
        let (digests, now) = (DiskDigests::new(None, ArchiveId([1; 16])), Instant::now());
        let later = |number, begins| assert_eq!(digests.find(&record(number), now), (DigestAnswer::Later(1), begins));
        later(1, true);
        later(2, false);
        let known = RawDigests { sha256: "1".to_owned(), sha512: "2".to_owned() };
        let finish = |number: u8| digests.state.lock().finish([number; 32], Ok(Some(known.clone())));
        assert_eq!(finish(1).map(|next| next.digest), Some([2; 32]));
        assert_eq!(digests.find(&record(1), now), (DigestAnswer::Known(known.clone()), false));
        later(3, false);
        assert_eq!(finish(2).map(|next| next.digest), Some([3; 32]));
        assert!(finish(3).is_none());
        later(4, true);
        assert!(digests.state.lock().finish([4; 32], Err(())).is_none());
        assert_eq!(digests.find(&record(4), now), (DigestAnswer::Failed, false));
    }

    #[test]
    fn a_disk_whose_reading_panics_does_not_keep_others_waiting() {
        let (digests, now) = (DiskDigests::new(None, ArchiveId([1; 16])), Instant::now());
        let known = RawDigests { sha256: "1".to_owned(), sha512: "2".to_owned() };
        assert!(digests.find(&record(1), now).1 && !digests.find(&record(2), now).1);
        digests.read_waiting(&|disk| match disk.digest[0] {
            1 => panic!("the disk"),
            _ => Ok(Some(known.clone())),
        });
        assert_eq!(digests.find(&record(1), now), (DigestAnswer::Failed, false));
        assert_eq!(digests.find(&record(2), now), (DigestAnswer::Known(known.clone()), false));
    }
}
