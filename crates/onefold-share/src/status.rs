//! The status of sharing: known files, pending work, and current locks. It is read without disturbing running work.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use onefold_block::{BLOCK_BYTES_U64, Show};
use onefold_substrate::{Access, Substrate, is_gone};

use crate::domain::Domain;
use crate::extents::Extents;
use crate::format::mark::Mark;
use crate::format::shard::EntryCounts;
use crate::format::stamp::Stamp;
use crate::mend::{DeclaredShares, declared};
use crate::noted_stamps;
use crate::opt_out::OptOuts;
use crate::policy::UnneededSlots;
use crate::scan::DomainCounts;
use crate::state::ask::{StoredFiles, WaitingLogs};
use crate::state::files::Marks;
use crate::state::watches::SeenWatch;
use crate::state::{State, StateError};

/// The status of a state folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Image files.
    pub files: FileCounts,
    /// The domains in which existing files were seen last.
    pub domains: BTreeMap<Domain, DomainCounts>,
    /// Logs that the next pass takes in.
    pub waiting: WaitingLogs,
    /// Entries of the index; `None` if a part of it is damaged.
    pub entries: Option<EntryCounts>,
    /// The files of the index.
    pub index: StoredFiles,
    /// The arena.
    pub arena: ArenaCounts,
    /// Locks that are held; `None` if the file system does not report them.
    pub locks: Option<Vec<LockHeld>>,
    /// The status of watches, on any host.
    pub watches: Vec<SeenWatch>,
    /// Number of half-written files of hosts, which the next run removes; `None` if that is not known.
    pub left_over: Option<u64>,
    /// Shares that hosts have declared, and are making or died during.
    pub declared: Vec<DeclaredShares>,
}

/// Numbers of image files by state. The first is the sum of the others, except those of bytes and `failing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Files that have ever been seen.
    pub known: u64,
    /// Files that are as they were when they were read.
    pub current: u64,
    /// Files that changed since, or were not read to their end.
    pub changed: u64,
    /// Files that are opted out.
    pub opted_out: u64,
    /// Files that have moved or are gone.
    pub gone: u64,
    /// Files that cannot be opened.
    pub unreadable: u64,
    /// Existing files with ranges that could not be read, or shared, and are tried again after pauses. Not part of the
    /// sum.
    pub failing: u64,
    /// Total length of these ranges, in bytes.
    pub failing_bytes: u64,
    /// Length of existing files, in bytes.
    pub bytes: u64,
}

/// Contents of the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaCounts {
    /// Arena files.
    pub files: u64,
    /// Slots that hold a block.
    pub slots: u64,
    /// Slots with a block to which nothing else refers or, if space is freed by whole extents, to whose extent nothing
    /// else refers. `None` if the file system does not report this.
    pub unneeded: Option<u64>,
}

/// A held lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHeld {
    /// The subject of the lock.
    pub subject: LockSubject,
    /// The process, if it is on this host.
    pub process: Option<u32>,
}

/// The subject of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockSubject {
    /// An image file, by its path.
    Image(PathBuf),
    /// Another subject, by the name of the lock: a part of the index, an arena file, an unknown image.
    Other(String),
}

/// Reads the status of a state folder.
///
/// # Errors
/// Errors of the device; `Newer`. Damaged files are reported as notices.
pub fn status<S: Substrate>(state: &State<'_, S>) -> Result<Status, StateError> {
    let files = Marks::load(state)?;
    let work = state.work()?;
    let locks = work.as_ref().map(|work| {
        let held = work.locks.iter();
        held.map(|lock| LockHeld { subject: subject(&lock.name, &files), process: lock.process }).collect()
    });
    let entries = match state.count_entries() {
        Ok(entries) => Some(entries),
        Err(StateError::Damaged { path, why }) => {
            state.notice(crate::state::Notice::Useless { path, why });
            None
        }
        Err(error) => return Err(error),
    };
    let (file_counts, domains) = count_files(state, &files);
    Ok(Status {
        files: file_counts,
        domains,
        waiting: state.waiting()?,
        entries,
        index: state.index_stored()?,
        arena: count_slots(state)?,
        locks,
        watches: state.watches()?,
        left_over: work.map(|work| work.left_over),
        declared: declared(state)?,
    })
}

/// The state of a file in comparison with its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileStanding {
    /// As it was when it was read.
    Current,
    /// Changed since.
    Changed,
    /// Never read to its end, or to be read again.
    Unread,
}

impl FileStanding {
    /// Returns the standing of a file with this stamp.
    #[must_use]
    pub fn of(mark: &Mark, now: Stamp) -> FileStanding {
        match mark.scanned {
            Some(stamp) if stamp == now => FileStanding::Current,
            Some(_) => FileStanding::Changed,
            None if mark.reading.is_known => FileStanding::Changed,
            None => FileStanding::Unread,
        }
    }

    /// Returns the standing of an open file with this stamp. A file of which only Onefold has changed attributes since
    /// it was read is current: the next run does not read it.
    pub(crate) fn of_file<S: Substrate>(mark: &Mark, substrate: &S, file: &S::File, now: Stamp) -> FileStanding {
        let is_own = |then: &Stamp| !mark.flags.is_ahead && noted_stamps::is_own_change(substrate, file, then, &now);
        if mark.scanned.as_ref().is_some_and(is_own) { FileStanding::Current } else { FileStanding::of(mark, now) }
    }
}

fn count_files<S: Substrate>(state: &State<'_, S>, files: &Marks) -> (FileCounts, BTreeMap<Domain, DomainCounts>) {
    let (mut counts, mut domains) = (FileCounts::default(), BTreeMap::<Domain, DomainCounts>::new());
    let opt_outs = OptOuts::new(state.substrate());
    for mark in files.of_files() {
        counts.known += 1;
        let looked = || -> io::Result<Option<(u64, FileStanding, bool)>> {
            let file = state.substrate().open(&mark.path, Access::Read)?;
            let stat = state.substrate().stat(&file)?;
            if stat.handle != mark.handle {
                return Ok(None);
            }
            let stamp = Stamp::of(&stat);
            let standing = FileStanding::of_file(mark, state.substrate(), &file, stamp);
            Ok(Some((stamp.length, standing, opt_outs.of(&mark.path)?.is_some())))
        };
        let counter = match looked() {
            Ok(Some((length, standing, is_opted_out))) => {
                counts.bytes += length;
                domains.entry(mark.membership.domain.clone()).or_default().add(length);
                let failing: u64 = mark.reading.failed().map(|again| again.length).sum();
                counts.failing += u64::from(failing > 0);
                counts.failing_bytes += failing;
                match standing {
                    _ if is_opted_out => &mut counts.opted_out,
                    FileStanding::Current => &mut counts.current,
                    FileStanding::Changed | FileStanding::Unread => &mut counts.changed,
                }
            }
            Ok(None) => &mut counts.gone,
            Err(error) if is_gone(&error) => &mut counts.gone,
            Err(_) => &mut counts.unreadable,
        };
        *counter += 1;
    }
    (counts, domains)
}

fn count_slots<S: Substrate>(state: &State<'_, S>) -> Result<ArenaCounts, StateError> {
    let mut counts = ArenaCounts::default();
    let mut unneeded = 0;
    for number in state.arenas()? {
        let Some(file) = state.open_arena(number, Access::Read)? else { continue };
        counts.files += 1;
        let extents = Extents::load(state.substrate(), &file).map_err(StateError::at(&PathBuf::from("arena")))?;
        for extent in extents.iter().filter(|extent| !extent.is_unwritten) {
            let slots = extent.length.div_ceil(BLOCK_BYTES_U64);
            counts.slots += slots;
            unneeded += if extent.is_shared { 0 } else { slots };
        }
    }
    counts.unneeded = (state.policy().unneeded == UnneededSlots::Told).then_some(unneeded);
    Ok(counts)
}

/// Returns the subject of the lock with this name.
fn subject(name: &std::path::Path, files: &Marks) -> LockSubject {
    let name = name.to_str().map_or_else(|| name.shown().to_string(), str::to_owned);
    let image = name.strip_prefix("file.").and_then(|handle| {
        let mark = files.iter().find(|mark| mark.handle.to_string() == handle)?;
        Some(mark.path.clone())
    });
    image.map_or(LockSubject::Other(name), LockSubject::Image)
}
