//! The folder in which runs survive the process. It is a cache: it may be lost, old or damaged at any time.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, OFlags};

use super::run::{IndexRun, RunError};
use crate::ArchiveId;

/// Maximum length of all runs that the cache keeps of all archives.
const CACHE_BYTES_MAX: u64 = 4 << 30;
/// Ending of the names of runs.
const ENDING: &str = "run";
/// Maximum number of files of an archive that are looked at. All count, and all are removed to make room.
const FILES_MAX: usize = 64;
/// A run that is of no use to a ledger stays this long if another may be further.
const UNUSED_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The cache of one archive in one store.
#[derive(Debug)]
pub(super) struct Cache {
    /// The folder for all archives.
    all: PathBuf,
    folder: PathBuf,
    archive: ArchiveId,
}

impl Cache {
    /// Returns the cache of an archive in the folder for all archives. `place` tells its store from others with the
    /// same archive: their segments may have the same names and say less.
    pub(super) fn new(all: &Path, archive: ArchiveId, place: &[u8]) -> Cache {
        let place = blake3::hash(place).to_hex();
        let folder = all.join(format!("{:032x}-{}", u128::from_be_bytes(archive.0), &place[..16]));
        Cache { all: all.to_owned(), folder, archive }
    }

    /// Returns the folder for new files, and makes it if need be. Returns `None` if it is not that of this user alone:
    /// what others write there would not be harmful, but what they read might.
    pub(super) fn folder(&self) -> Option<&Path> {
        for folder in [&self.all, &self.folder] {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return None,
                Ok(()) | Err(_) => {}
            }
            if !is_private(folder) {
                return None;
            }
        }
        Some(&self.folder)
    }

    fn is_private(&self) -> bool {
        is_private(&self.all) && is_private(&self.folder)
    }

    /// Returns the runs of the archive, the longest first. Removes damaged ones.
    pub(super) fn runs(&self) -> Vec<IndexRun> {
        let mut runs: Vec<IndexRun> = Vec::new();
        if !self.is_private() {
            return runs;
        }
        for path in files_in(&self.folder).take(FILES_MAX) {
            match open(&path, self.archive) {
                Ok(run) => runs.push(run),
                Err(RunError::Damaged) => remove(&path),
                Err(RunError::Io(_)) => {}
            }
        }
        // The time says which archives are in use.
        if let Ok(folder) = File::open(&self.folder) {
            let _ = folder.set_modified(SystemTime::now());
        }
        runs.sort_by_key(|run| std::cmp::Reverse(run.entries()));
        runs
    }

    /// Gives a run a name in the cache, unless it is too long. Removes the runs of archives that were not used for the
    /// longest time, so that the cache stays within its bound. Any failure costs only time.
    pub(super) fn keep(&self, run: &mut IndexRun) {
        if run.path.is_some() || !self.is_private() || !self.make_room(run.length_bytes()) {
            return;
        }
        let Ok(random) = File::open("/dev/urandom").and_then(|mut file| {
            let mut bytes = [0; 8];
            io::Read::read_exact(&mut file, &mut bytes).map(|()| u64::from_le_bytes(bytes))
        }) else {
            return;
        };
        let path = self.folder.join(format!("{random:016x}.{ENDING}"));
        // The folder is private already.
        let _ = run.file().set_permissions(Permissions::from_mode(0o600));
        let unnamed = format!("/proc/self/fd/{}", run.file().as_raw_fd());
        if rustix::fs::linkat(CWD, unnamed, CWD, &path, AtFlags::SYMLINK_FOLLOW).is_ok() {
            run.path = Some(path);
        }
    }

    /// Makes room for so many bytes. Returns whether there is.
    fn make_room(&self, bytes: u64) -> bool {
        let mut others: Vec<(SystemTime, PathBuf, u64)> = Vec::new();
        let mut used = length_of(&self.folder).saturating_add(bytes);
        if used > CACHE_BYTES_MAX {
            return false;
        }
        for entry in fs::read_dir(&self.all).into_iter().flatten().flatten() {
            let path = entry.path();
            let modified = entry.metadata().ok().filter(fs::Metadata::is_dir).and_then(|folder| folder.modified().ok());
            if let Some(modified) = modified.filter(|_| path != self.folder) {
                let length = length_of(&path);
                used = used.saturating_add(length);
                others.push((modified, path, length));
            }
        }
        others.sort();
        for (_, folder, length) in others {
            if used <= CACHE_BYTES_MAX {
                break;
            }
            files_in(&folder).for_each(|path| remove(&path));
            let _ = fs::remove_dir(&folder);
            used = used.saturating_sub(length);
        }
        used <= CACHE_BYTES_MAX
    }
}

/// Removes a file of the cache, as far as that is possible. Processes that have it open keep it.
pub(super) fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}

fn is_private(folder: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0)
}

/// Returns whether a run has been of no use for so long that no process will want it.
pub(super) fn is_old(run: &IndexRun) -> bool {
    let age = run.file().metadata().and_then(|found| found.modified()).ok().and_then(|made| made.elapsed().ok());
    age.is_some_and(|age| age > UNUSED_MAX)
}

/// Returns the runs in the folder of an archive.
fn files_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == ENDING))
}

fn length_of(folder: &Path) -> u64 {
    files_in(folder).filter_map(|path| fs::symlink_metadata(path).ok()).map(|found| found.len()).sum()
}

fn open(path: &Path, archive: ArchiveId) -> Result<IndexRun, RunError> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(i32::try_from(flags).unwrap_or(0)).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() > CACHE_BYTES_MAX {
        return Err(RunError::Damaged);
    }
    let mut run = match IndexRun::open(file, archive) {
        // A file that ends early was cut short.
        Err(RunError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(RunError::Damaged),
        run => run?,
    };
    run.path = Some(path.to_owned());
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: only some of the files of a folder counted, and were removed to make room.
    #[test]
    fn all_runs_count_and_go_however_many_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let all = folder.path().join("cache");
        let cache = |number: u8| Cache::new(&all, ArchiveId([number; 16]), b"place");
        let fill = |cache: &Cache| {
            let folder = cache.folder().unwrap();
            for number in 0..110 {
                File::create(folder.join(format!("{number}.{ENDING}"))).unwrap().set_len(40 << 20).unwrap();
            }
        };
        let (own, other) = (cache(1), cache(2));
        fill(&other);
        own.folder().unwrap();
        assert!(own.make_room(1));
        assert!(!other.folder.exists(), "110 runs of 40 MiB are too long");
        fill(&own);
        assert!(!own.make_room(1), "its own are too long, too");
    }
}
