//! Clones of templates whose content is known from the start, so that no scan has to read them.
//!
//! A clone that is left to the next scan is as good, but has to be read. So this is done in all cases of doubt. In
//! order:
//!
//! 1. Make the clone, of one moment of the source, under a temporary name that no scan lists. Record the source as its
//!    template, whatever is known of either.
//! 2. Check that the source still has the times that it had before it was last read. Then the clone holds exactly the
//!    content that was read. A write in between would have changed the times, through whatever door: the kernel sets
//!    them.
//! 3. Take the clone's lock, and a number with a mark that says it was never read. A host that finds the clone from
//!    here on leaves it alone or, if the lock was lost, reads it.
//! 4. Give the clone its name.
//! 5. Write the known digests of the source's blocks into a log of the clone. Without it, a block that is shared anew
//!    in the source would stay as it was in the clone. The next pass finds these blocks shared already.
//! 6. If nobody has written to the clone meanwhile, change its mark to say that it was read.

mod digests;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_block::{Clock, Random, Show};
use onefold_substrate::{Access, FileStat, ShareError, Substrate};

use crate::block_state::template;
use crate::domain::DomainRules;
use crate::format::FileNo;
use crate::format::log::{LogKind, Note};
use crate::format::mark::{Mark, MarkFlags};
use crate::format::stamp::Stamp;
use crate::kept_map::KeptMap;
use crate::pace::Pace;
use crate::scan::MAP_BYTES_MIN;
use crate::state::files::Marks;
use crate::state::locks::Subject;
use crate::state::logs::LogOrder;
use crate::state::{State, StateError};
use crate::status::FileStanding;

/// Kernels note times in ticks of at most ten milliseconds: a write after two of them gets another time.
const TICKS: Duration = Duration::from_millis(20);
/// Prefix of the temporary names of clones.
const SCRATCH: &str = ".onefold-clone.";

/// Options of a clone.
pub struct CloneOptions<'a> {
    /// Treatment of an existing file with the target's name.
    pub existing: ExistingFilePolicy,
    /// Folder for data that does not fit into memory.
    pub temporary_folder: &'a Path,
    /// Memory for sorting, in bytes.
    pub memory_bytes: usize,
    /// Clock for waiting until times have passed.
    pub clock: &'a dyn Clock,
    /// Source of unused names.
    pub random: &'a dyn Random,
}

/// Treatment of an existing file with the target's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingFilePolicy {
    /// It stays, and no clone is made.
    Keep,
    /// The clone takes its name, in one step.
    Replace,
}

/// A clone that was made.
#[derive(Debug)]
pub struct CloneReport {
    /// Length in bytes.
    pub bytes: u64,
    /// How far its content is known.
    pub known: Registration,
    /// Why its template is not recorded; `None` if it is. Without a record, its blocks are counted as shared.
    pub unrecorded: Option<io::Error>,
}

/// How far the content of a clone is known.
#[derive(Debug)]
pub enum Registration {
    /// As far as that of its source: this number of its blocks. It need not be read.
    Blocks(u64),
    /// Not at all; the next scan reads it.
    LeftToScan(ScanReason),
}

/// Why a clone is left to the next scan.
#[derive(Debug)]
pub enum ScanReason {
    /// Nothing was ever read on this file system.
    NoState,
    /// The source was never read, or is to be read again.
    SourceUnread,
    /// The source changed after it was read, or while it was cloned.
    SourceChanged,
    /// The clone belongs to another domain than the source, so the digests of the source's blocks are of no use.
    OtherDomain,
    /// Another process has already written to the clone, or works on it.
    CloneInUse,
    /// The knowledge about the source is damaged, or more work to look up than reading the clone.
    NotWorthIt,
    /// Something failed.
    Failed(StateError),
}

/// Why there is no clone. All traces of it were removed.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// The source cannot be opened.
    #[error("`{}`: {why}", path.shown())]
    Source {
        /// Its path.
        path: PathBuf,
        /// The error.
        why: io::Error,
    },
    /// Something with the target's name exists.
    #[error("`{}` exists", path.shown())]
    Exists {
        /// Its path.
        path: PathBuf,
    },
    /// A host may have left holes in the source. The clone would have them, too, and no host would know.
    #[error("a host that shared in it has died, or shares in it now: it may have holes that are to be mended")]
    Unmended,
    /// The source has the target's name.
    #[error("source and target are one file")]
    Same,
    /// The file system does not clone this file.
    #[error("{0}")]
    Clone(#[from] ShareError),
    /// The clone cannot be made durable, or cannot get its name.
    #[error("`{}`: {why}", path.shown())]
    Target {
        /// Its path.
        path: PathBuf,
        /// The error.
        why: io::Error,
    },
}

/// Makes a clone of a file. Times and owner are those of a new file, its permissions those of the source as far as the
/// umask allows.
///
/// # Errors
/// See [`CloneError`]. If nothing is known of the clone, this is no error.
pub fn clone<S: Substrate>(
    substrate: &S,
    state: Option<&State<'_, S>>,
    source: &Path,
    target: &Path,
    options: &CloneOptions<'_>,
) -> Result<CloneReport, CloneError> {
    let of_source = |why| CloneError::Source { path: source.to_owned(), why };
    let of_target = |why| CloneError::Target { path: target.to_owned(), why };
    let from = substrate.open(source, Access::Read).map_err(of_source)?;
    let before = substrate.stat(&from).map_err(of_source)?;
    check_target(substrate, target, &before, options.existing)?;
    let in_two_steps = state.filter(|state| state.policy().is_declared());
    let look_for_holes = || {
        let Some(state) = in_two_steps else { return Ok(()) };
        let is_declared = state.is_declared(&before.handle).map_err(|error| of_source(io::Error::other(error)))?;
        if is_declared { Err(CloneError::Unmended) } else { Ok(()) }
    };
    look_for_holes()?;
    if let Some(state) = in_two_steps {
        // A clone of an image that is in no tree of references would make a tree of its own. If the image cannot join
        // the common tree, the two share only with each other.
        let _ = state.take_into_tree(&from);
    }
    let scratch = scratch_path(target, options.random).map_err(of_target)?;
    let clone = substrate.create_clone(&from, &scratch)?;
    let unnamed = UnnamedFile { substrate, path: Some(scratch.clone()) };
    let unrecorded = template::record(substrate, &scratch, &before.handle).err();
    let made = substrate.stat(&clone).map_err(of_target)?;
    let after = substrate.stat(&from).map_err(of_source)?;
    substrate.sync(&clone).map_err(of_target)?;
    // A host may have begun to share meanwhile, and died during it.
    look_for_holes()?;

    let mut introduction = Introduction::new(state, source, &from, &before, &after);
    introduction.prepare(&clone, &made, target, options.clock);
    match options.existing {
        ExistingFilePolicy::Replace => substrate.rename(&scratch, target).map_err(of_target)?,
        ExistingFilePolicy::Keep => match substrate.link(&scratch, target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(CloneError::Exists { path: target.to_owned() });
            }
            linked => linked.map_err(of_target)?,
        },
    }
    // A link keeps the first name, which is removed here.
    drop(unnamed);
    let known = introduction.finish(&clone, &from, &made, target, options);
    Ok(CloneReport { bytes: made.length, known, unrecorded })
}

/// Checks the file with the target's name. It may change at once: the name is taken in one step later.
fn check_target<S: Substrate>(
    substrate: &S,
    target: &Path,
    source: &FileStat,
    existing: ExistingFilePolicy,
) -> Result<(), CloneError> {
    match substrate.open(target, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(file) if substrate.stat(&file).is_ok_and(|stat| stat.handle == source.handle) => Err(CloneError::Same),
        _ if existing == ExistingFilePolicy::Replace => Ok(()),
        // Whatever it is that cannot be opened, it exists.
        _ => Err(CloneError::Exists { path: target.to_owned() }),
    }
}

/// Returns an unused path beside the target. It is not in the state folder, because renames cannot leave a subvolume.
fn scratch_path(target: &Path, random: &dyn Random) -> io::Result<PathBuf> {
    let mut number = [0; 8];
    random.fill(&mut number)?;
    let name = format!("{SCRATCH}{:016x}", u64::from_le_bytes(number));
    Ok(target.parent().unwrap_or(Path::new("")).join(name))
}

/// A file that is removed unless it gets another name.
struct UnnamedFile<'a, S: Substrate> {
    substrate: &'a S,
    path: Option<PathBuf>,
}

impl<S: Substrate> Drop for UnnamedFile<'_, S> {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // After a rename the path no longer exists. A file that cannot be removed is an image like any other.
            let _ = self.substrate.remove(&path);
        }
    }
}

/// The registration of a clone in the state folder.
enum Introduction<'a, 'b, S: Substrate> {
    /// It may continue.
    Open {
        state: &'a State<'b, S>,
        files: Marks,
        domains: DomainRules<'b, S>,
        source: FileNo,
        clone: Option<CloneLock<S>>,
    },
    /// It is left to the scan.
    Ended(ScanReason),
}

/// The clone's lock and number.
struct CloneLock<S: Substrate> {
    number: FileNo,
    _lock: crate::state::locks::LockGuard<S>,
}

impl<'a, 'b, S: Substrate> Introduction<'a, 'b, S> {
    /// Returns an open registration, if the source had the same times before and after cloning as when it was read.
    fn new(
        state: Option<&'a State<'b, S>>,
        source: &Path,
        from: &S::File,
        before: &FileStat,
        after: &FileStat,
    ) -> Introduction<'a, 'b, S> {
        let Some(state) = state else { return Introduction::Ended(ScanReason::NoState) };
        let (files, domains) = match Marks::load(state).and_then(|files| Ok((files, DomainRules::of(state)?))) {
            Ok(loaded) => loaded,
            Err(error) => return Introduction::Ended(ScanReason::Failed(error)),
        };
        let standing = |stat: &FileStat| files.of(&stat.handle).map(|mark| FileStanding::of(mark, Stamp::of(stat)));
        match (standing(before), standing(after)) {
            (Some(FileStanding::Current), Some(FileStanding::Current)) => {}
            (Some(FileStanding::Unread) | None, _) => return Introduction::Ended(ScanReason::SourceUnread),
            _ => return Introduction::Ended(ScanReason::SourceChanged),
        }
        let Some(mark) = files.of(&before.handle) else { return Introduction::Ended(ScanReason::SourceUnread) };
        match domains.membership(source, from, after, Some(&mark.membership)) {
            Ok(now) if now.domain == mark.membership.domain => {
                let source = mark.number;
                Introduction::Open { state, files, domains, source, clone: None }
            }
            Ok(_) => Introduction::Ended(ScanReason::SourceChanged),
            Err(why) => Introduction::Ended(ScanReason::Failed(StateError::at(source)(why))),
        }
    }

    /// Takes the clone's lock and number, and waits until a later write gives it another time.
    fn prepare(&mut self, file: &S::File, made: &FileStat, target: &Path, clock: &dyn Clock) {
        let Introduction::Open { state, files, domains, source, clone } = self else { return };
        if !Mark::is_path_kept(target) {
            *self = Introduction::Ended(ScanReason::NotWorthIt);
            return;
        }
        let membership = match domains.membership(target, file, made, None) {
            Ok(membership) if files.domain(*source) == Some(&membership.domain) => membership,
            Ok(_) => return *self = Introduction::Ended(ScanReason::OtherDomain),
            Err(why) => return *self = Introduction::Ended(ScanReason::Failed(StateError::at(target)(why))),
        };
        let mut take = || -> Result<Option<CloneLock<S>>, StateError> {
            let Some(lock) = state.try_lock(&Subject::File(made.handle.clone()))? else { return Ok(None) };
            Ok(Some(CloneLock { number: files.number(state, &made.handle, target, &membership)?, _lock: lock }))
        };
        match take() {
            Ok(Some(taken)) => *clone = Some(taken),
            Ok(None) => *self = Introduction::Ended(ScanReason::CloneInUse),
            Err(error) => *self = Introduction::Ended(ScanReason::Failed(error)),
        }
        clock.sleep(TICKS);
    }

    /// Writes the log, and the mark that says that the clone was read.
    fn finish(
        self,
        file: &S::File,
        from: &S::File,
        made: &FileStat,
        target: &Path,
        options: &CloneOptions<'_>,
    ) -> Registration {
        let (state, mut files, source, clone) = match self {
            Introduction::Ended(why) => return Registration::LeftToScan(why),
            Introduction::Open { clone: None, .. } => return Registration::LeftToScan(ScanReason::CloneInUse),
            Introduction::Open { state, files, source, clone: Some(clone), .. } => (state, files, source, clone),
        };
        let mut introduce = || -> Result<Registration, StateError> {
            let Some(mut digests) = digests::of_file(state, from, source, made, options)? else {
                return Ok(Registration::LeftToScan(ScanReason::NotWorthIt));
            };
            let at = StateError::at(target);
            // With it, a scan finds later writes. It is loaded before the look at the times.
            let map =
                (made.length >= MAP_BYTES_MIN).then(|| KeptMap::load(state.substrate(), file, &Pace::unlimited()));
            let map = map.and_then(Result::ok).flatten();
            // Naming the clone has changed one of its times, at an unknown moment. The other time shows writes.
            let stat = state.substrate().stat(file).map_err(at)?;
            if (stat.modified, stat.length) != (made.modified, made.length) {
                return Ok(Registration::LeftToScan(ScanReason::CloneInUse));
            }
            let notes = &mut || Ok(digests.next()?.map(Note::Written));
            let blocks = state.write_log(LogKind::Log, clone.number, LogOrder::default(), notes)?.blocks;
            // A map is a hint. Without it the next scan reads the clone again.
            state.keep_map(clone.number, map.as_ref()).ok();
            // Space that was reserved in the source is also reserved in the clone.
            let flags = MarkFlags {
                is_reserved: files.get(source).is_some_and(|mark| mark.flags.is_reserved),
                is_ahead: false,
            };
            files.note_with(state, clone.number, target, Some(Stamp::of(&stat)), flags)?;
            Ok(Registration::Blocks(blocks))
        };
        introduce().unwrap_or_else(|error| Registration::LeftToScan(ScanReason::Failed(error)))
    }
}
