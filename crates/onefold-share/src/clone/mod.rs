//! Clones of templates that are known from the start: nobody has to read them.
//!
//! A clone that is left to the next scan is as good, and costs reading it. So where anything is in doubt, that is what
//! is done with it. In order:
//!
//! 1. The clone is made, of one moment of the source, under a name that nobody looks for. The source is recorded as its
//!    template, whatever is known of either.
//! 2. Afterwards the source still has the times that it had before it was read last: so that, and nothing else, is what
//!    the clone holds. A write in between would have changed them, and through whatever door: times are the kernel's.
//! 3. The clone's lock is taken, and its number, with a mark that says it was never read. Whoever finds it from here on
//!    leaves it alone, or, where the lock was lost, reads it.
//! 4. It gets its name.
//! 5. What is known of the source's blocks becomes a log of the clone's: or a block that is shared anew in the source
//!    would stay in the clone as it was. The next pass finds these blocks shared already.
//! 6. If nobody has written to the clone meanwhile, its mark says now that it was read.

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
use crate::format::mark::{Mark, MarkFlags, Stamp};
use crate::kept_map::KeptMap;
use crate::pace::Pace;
use crate::scan::MAP_BYTES_MIN;
use crate::state::files::Marks;
use crate::state::locks::Subject;
use crate::state::logs::LogOrder;
use crate::state::maps::MAPS_BYTES_MAX;
use crate::state::{State, StateError};
use crate::status::Standing;

/// Kernels note times in ticks of at most ten milliseconds: what is written after two of them has another time.
const TICKS: Duration = Duration::from_millis(20);
/// Beginning of the names that clones have before they get theirs.
const SCRATCH: &str = ".onefold-clone.";

/// How a clone is made.
pub struct CloneOptions<'a> {
    /// What becomes of a file that has the target's name.
    pub existing: Existing,
    /// For what does not fit into memory.
    pub temporary_folder: &'a Path,
    /// Memory for sorting, in bytes.
    pub memory_bytes: usize,
    /// To wait for times to pass.
    pub clock: &'a dyn Clock,
    /// For a name that nobody has.
    pub random: &'a dyn Random,
}

/// What becomes of a file that has the target's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and no clone is made.
    Keep,
    /// The clone takes its name, in one step.
    Replace,
}

/// A clone that was made.
#[derive(Debug)]
pub struct Cloned {
    /// Length in bytes.
    pub bytes: u64,
    /// What is known of it.
    pub known: Known,
    /// Why its template is not recorded; `None` where it is. Its blocks are counted as shared then.
    pub unrecorded: Option<io::Error>,
}

/// What is known of a clone.
#[derive(Debug)]
pub enum Known {
    /// As much as of its source: so many of its blocks. Nobody has to read it.
    Blocks(u64),
    /// Nothing, and the next scan reads it.
    LeftToScan(Unknown),
}

/// Why a clone is left to the next scan.
#[derive(Debug)]
pub enum Unknown {
    /// Nothing was ever read on this file system.
    NoState,
    /// The source was never read, or is to be read again.
    SourceUnread,
    /// The source changed since it was read, or while it was cloned.
    SourceChanged,
    /// The clone belongs to another domain than the source: what is known of the source's blocks says nothing there.
    OtherDomain,
    /// Somebody has written to the clone already, or works on it.
    CloneInUse,
    /// What is known of the source is damaged, or more work to look up than to read.
    NotWorthIt,
    /// Something failed.
    Failed(StateError),
}

/// Why there is no clone. Nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// The source cannot be opened.
    #[error("`{}`: {why}", path.shown())]
    Source {
        /// Its path.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// There is something of the target's name.
    #[error("`{}` exists", path.shown())]
    Exists {
        /// Its path.
        path: PathBuf,
    },
    /// A host may have left holes in the source, which were the clone's too, and nobody knew of those.
    #[error("a host that shared in it has died, or shares in it now: it may have holes that are to be mended")]
    Unmended,
    /// The source bears the target's name.
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
        /// Why.
        why: io::Error,
    },
}

/// Makes a clone of a file. Times and owner are those of a new file, its permissions those of the source as far as the
/// umask lets them.
///
/// # Errors
/// See [`CloneError`]. That nothing is known of the clone is no error.
pub fn clone<S: Substrate>(
    substrate: &S,
    state: Option<&State<'_, S>>,
    source: &Path,
    target: &Path,
    options: &CloneOptions<'_>,
) -> Result<Cloned, CloneError> {
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
        // A clone of an image that is in no tree of references would make one, apart from all others. Where it cannot
        // be taken into the common one, the two share with each other alone.
        let _ = state.take_into_tree(&from);
    }
    let scratch = scratch_path(target, options.random).map_err(of_target)?;
    let clone = substrate.create_clone(&from, &scratch)?;
    let unnamed = Unnamed { substrate, path: Some(scratch.clone()) };
    let unrecorded = template::record(substrate, &scratch, &before.handle).err();
    let made = substrate.stat(&clone).map_err(of_target)?;
    let after = substrate.stat(&from).map_err(of_source)?;
    substrate.sync(&clone).map_err(of_target)?;
    // A host may have begun to share meanwhile, and died at it.
    look_for_holes()?;

    let mut introduction = Introduction::new(state, source, &from, &before, &after);
    introduction.prepare(&clone, &made, target, options.clock);
    match options.existing {
        Existing::Replace => substrate.rename(&scratch, target).map_err(of_target)?,
        Existing::Keep => match substrate.link(&scratch, target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(CloneError::Exists { path: target.to_owned() });
            }
            linked => linked.map_err(of_target)?,
        },
    }
    // A link leaves the first name, which goes here.
    drop(unnamed);
    let known = introduction.finish(&clone, &from, &made, target, options);
    Ok(Cloned { bytes: made.length, known, unrecorded })
}

/// Looks at what bears the target's name. It may change at once: the name is taken in one step later.
fn check_target<S: Substrate>(
    substrate: &S,
    target: &Path,
    source: &FileStat,
    existing: Existing,
) -> Result<(), CloneError> {
    match substrate.open(target, Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(file) if substrate.stat(&file).is_ok_and(|stat| stat.handle == source.handle) => Err(CloneError::Same),
        _ if existing == Existing::Replace => Ok(()),
        // Whatever it is that cannot be opened, it is there.
        _ => Err(CloneError::Exists { path: target.to_owned() }),
    }
}

/// Returns a path beside the target that nobody has. Renames do not leave a subvolume, so it is not in the state
/// folder.
fn scratch_path(target: &Path, random: &dyn Random) -> io::Result<PathBuf> {
    let mut number = [0; 8];
    random.fill(&mut number)?;
    let name = format!("{SCRATCH}{:016x}", u64::from_le_bytes(number));
    Ok(target.parent().unwrap_or(Path::new("")).join(name))
}

/// A file that goes unless it gets another name.
struct Unnamed<'a, S: Substrate> {
    substrate: &'a S,
    path: Option<PathBuf>,
}

impl<S: Substrate> Drop for Unnamed<'_, S> {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // After a rename it is gone. What cannot be removed is an image as any other.
            let _ = self.substrate.remove(&path);
        }
    }
}

/// The way of a clone into the state folder.
enum Introduction<'a, 'b, S: Substrate> {
    /// It may go on.
    Open { state: &'a State<'b, S>, files: Marks, domains: DomainRules<'b, S>, source: FileNo, clone: Option<Taken<S>> },
    /// It is left to the scan.
    Ended(Unknown),
}

/// The clone's lock and number.
struct Taken<S: Substrate> {
    number: FileNo,
    _lock: crate::state::locks::Held<S>,
}

impl<'a, 'b, S: Substrate> Introduction<'a, 'b, S> {
    /// Returns one that goes on if the source was before the clone and is after it what it was when it was read.
    fn new(
        state: Option<&'a State<'b, S>>,
        source: &Path,
        from: &S::File,
        before: &FileStat,
        after: &FileStat,
    ) -> Introduction<'a, 'b, S> {
        let Some(state) = state else { return Introduction::Ended(Unknown::NoState) };
        let (files, domains) = match Marks::load(state).and_then(|files| Ok((files, DomainRules::of(state)?))) {
            Ok(loaded) => loaded,
            Err(error) => return Introduction::Ended(Unknown::Failed(error)),
        };
        let standing = |stat: &FileStat| files.of(&stat.handle).map(|mark| Standing::of(mark, Stamp::of(stat)));
        match (standing(before), standing(after)) {
            (Some(Standing::Current), Some(Standing::Current)) => {}
            (Some(Standing::Unread) | None, _) => return Introduction::Ended(Unknown::SourceUnread),
            _ => return Introduction::Ended(Unknown::SourceChanged),
        }
        let Some(mark) = files.of(&before.handle) else { return Introduction::Ended(Unknown::SourceUnread) };
        match domains.membership(source, from, after, Some(&mark.membership)) {
            Ok(now) if now.domain == mark.membership.domain => {
                let source = mark.number;
                Introduction::Open { state, files, domains, source, clone: None }
            }
            Ok(_) => Introduction::Ended(Unknown::SourceChanged),
            Err(why) => Introduction::Ended(Unknown::Failed(StateError::at(source)(why))),
        }
    }

    /// Takes the clone's lock and number, and waits until a later write gives it another time.
    fn prepare(&mut self, file: &S::File, made: &FileStat, target: &Path, clock: &dyn Clock) {
        let Introduction::Open { state, files, domains, source, clone } = self else { return };
        if !Mark::is_path_kept(target) {
            *self = Introduction::Ended(Unknown::NotWorthIt);
            return;
        }
        let membership = match domains.membership(target, file, made, None) {
            Ok(membership) if files.domain(*source) == Some(&membership.domain) => membership,
            Ok(_) => return *self = Introduction::Ended(Unknown::OtherDomain),
            Err(why) => return *self = Introduction::Ended(Unknown::Failed(StateError::at(target)(why))),
        };
        let mut take = || -> Result<Option<Taken<S>>, StateError> {
            let Some(lock) = state.try_lock(&Subject::File(made.handle.clone()))? else { return Ok(None) };
            Ok(Some(Taken { number: files.number(state, &made.handle, target, &membership)?, _lock: lock }))
        };
        match take() {
            Ok(Some(taken)) => *clone = Some(taken),
            Ok(None) => *self = Introduction::Ended(Unknown::CloneInUse),
            Err(error) => *self = Introduction::Ended(Unknown::Failed(error)),
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
    ) -> Known {
        let (state, mut files, source, clone) = match self {
            Introduction::Ended(why) => return Known::LeftToScan(why),
            Introduction::Open { clone: None, .. } => return Known::LeftToScan(Unknown::CloneInUse),
            Introduction::Open { state, files, source, clone: Some(clone), .. } => (state, files, source, clone),
        };
        let mut introduce = || -> Result<Known, StateError> {
            let Some(mut digests) = digests::of_file(state, from, source, made, options)? else {
                return Ok(Known::LeftToScan(Unknown::NotWorthIt));
            };
            let at = StateError::at(target);
            // So that a scan finds what is written to it from now on. Taken before the look at its times.
            let map =
                (made.length >= MAP_BYTES_MIN).then(|| KeptMap::load(state.substrate(), file, &Pace::unlimited()));
            let map = map.and_then(Result::ok).flatten();
            // Getting a name has changed one of its times, and it is not known when. The other one tells of writes.
            let stat = state.substrate().stat(file).map_err(at)?;
            if (stat.modified, stat.length) != (made.modified, made.length) {
                return Ok(Known::LeftToScan(Unknown::CloneInUse));
            }
            let notes = &mut || Ok(digests.next()?.map(Note::Written));
            let blocks = state.write_log(LogKind::Log, clone.number, LogOrder::default(), notes)?.blocks;
            if let Some(map) = map {
                state.write_map(clone.number, &map, MAPS_BYTES_MAX / 64)?;
            }
            // What was reserved in the source is in the clone.
            let flags = MarkFlags {
                is_reserved: files.get(source).is_some_and(|mark| mark.flags.is_reserved),
                is_ahead: false,
            };
            files.note_with(state, clone.number, target, Some(Stamp::of(&stat)), flags)?;
            Ok(Known::Blocks(blocks))
        };
        introduce().unwrap_or_else(|error| Known::LeftToScan(Unknown::Failed(error)))
    }
}
