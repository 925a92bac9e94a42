//! The scan: reads what changed since it was last read, and writes it down as write logs.
//!
//! A file that has its length and times as they were is not opened for reading. A changed one is read where it has data,
//! once; holes and blocks that are only set aside cost nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use onefold_block::substrate::{Access, FileHandle, FileStat, ListedKind, Reader};
use onefold_block::{BLOCK_BYTES_U64, FingerprintKey, Substrate, Timestamp};

use crate::digest::{Digester, PIECE_BYTES, Piece};
use crate::domain::{Domain, DomainRules, Membership};
use crate::extents::Extents;
use crate::format::log::{LogKind, Note, Written};
use crate::format::mark::{Mark, MarkFlags, Stamp};
use crate::format::{FileBlock, FileNo};
use crate::opt_out::OptOuts;
use crate::pace::Pace;
use crate::selection::Selection;
use crate::state::files::{Files, Noted};
use crate::state::locks::Subject;
use crate::state::{Notice, State, StateError, StateFolder};

/// Read between two looks at the progress.
const PROGRESS_BYTES: u64 = 64 * PIECE_BYTES as u64;

/// After such a time the next change of a file has another time than the last one.
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// What is scanned, and how.
pub struct ScanOptions<'a> {
    /// Which files are looked at.
    pub selection: Selection<'a>,
    /// Threads that read and digest; none where the caller does that, and nothing is read ahead.
    pub threads: usize,
    /// Files whose content changed less long ago are left for another time.
    pub stable_for: Duration,
    /// How hard it works.
    pub pace: &'a Pace<'a>,
    /// Told of each file's end and every few pieces on the way; `Break` ends the scan.
    pub progress: &'a dyn Fn(ScanProgress) -> ControlFlow<()>,
}

/// How far a scan has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanProgress {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes of the files that are done, however much of them was read.
    pub done_bytes: u64,
    /// Bytes of all files.
    pub all_bytes: u64,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Files that were looked at.
    pub files: u64,
    /// Files that had not changed.
    pub unchanged: u64,
    /// Files that are opted out: not in any of the other numbers.
    pub opted_out: u64,
    /// Files that had changed too short a time ago to be read.
    pub unsettled: u64,
    /// Files that were passed over because they cannot be read, or because a door of another host has them.
    pub passed_over: u64,
    /// Apparent length of all files, in bytes.
    pub bytes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Blocks written to logs.
    pub logged_blocks: u64,
    /// The domains that the files belong to.
    pub domains: BTreeMap<Domain, DomainCounts>,
}

/// Files of a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainCounts {
    /// How many.
    pub files: u64,
    /// Their apparent length, in bytes.
    pub bytes: u64,
}

impl DomainCounts {
    pub(crate) fn add(&mut self, bytes: u64) {
        (self.files, self.bytes) = (self.files + 1, self.bytes + bytes);
    }
}

/// An image file that was found.
struct Found {
    path: PathBuf,
    stat: FileStat,
    /// When all files had been found, by the clock that is never set.
    found_at: Duration,
    membership: Membership,
}

/// Looks at all files and writes logs of those that changed.
///
/// # Errors
/// Those of the state folder. Files that cannot be read are told of and passed over.
pub fn scan<S: Substrate>(
    state: &State<'_, S>,
    files: &mut Files,
    options: &ScanOptions<'_>,
) -> Result<Scanned, StateError> {
    let mut scanned = Scanned::default();
    forget_what_the_index_lost(state, files)?;
    let now = state.now()?;
    let domains = DomainRules::of(state)?;
    let (found, opted_out) = find(state, files, &domains, options, &mut scanned)?;
    scanned.opted_out = opted_out.len() as u64;
    // Passes drop what is known of them: should they come back, they are read.
    for number in opted_out.iter().filter_map(|handle| Some(files.of(handle)?.number)).collect::<Vec<_>>() {
        files.forget_scan(state, number)?;
    }
    let all_bytes = found.iter().map(|found| found.stat.length).sum();
    let mut progress = ScanProgress { all_bytes, ..ScanProgress::default() };
    scanned.files += found.len() as u64;
    scanned.bytes = all_bytes;
    for found in &found {
        scanned.domains.entry(found.membership.domain.clone()).or_default().add(found.stat.length);
    }
    let mut ahead: VecDeque<(Found, bool)> = found.into_iter().map(|found| (found, false)).collect();
    while let Some((found, is_second_try)) = ahead.pop_front() {
        options.pace.boundary()?;
        let Found { path, stat, membership, .. } = &found;
        if !is_stable(stat, now, options.stable_for) && !is_unchanged(files, stat, membership, now) {
            // It is known all the same: whoever has it open is to be found.
            files.number(state, &stat.handle, path, membership)?;
            scanned.unsettled += 1;
            continue;
        }
        let looked = scan_file(state, (&mut *files, &domains), options, &found, now, &mut scanned, &mut progress)?;
        if matches!(looked, Looked::Busy) {
            if is_second_try {
                scanned.passed_over += 1;
            } else {
                // Another host reads it now. By the time that all the others are done it may have ended.
                ahead.push_back((found, true));
                continue;
            }
        }
        progress.done_bytes += stat.length;
        if let Looked::Failed(why) = looked {
            scanned.passed_over += 1;
            state.notice(Notice::Unreadable { path: found.path, why });
        }
        if (options.progress)(progress).is_break() {
            return Err(StateError::Interrupted);
        }
    }
    Ok(scanned)
}

/// Returns all files that are wanted, in order of their paths, and each only once; and those that are opted out, whatever
/// name they are found by.
fn find<S: Substrate>(
    state: &State<'_, S>,
    files: &Files,
    domains: &DomainRules<'_, S>,
    options: &ScanOptions<'_>,
    scanned: &mut Scanned,
) -> Result<(Vec<Found>, BTreeSet<FileHandle>), StateError> {
    let mut found: BTreeMap<FileHandle, Found> = BTreeMap::new();
    let mut opted_out = BTreeSet::new();
    let opt_outs = OptOuts::new(state.substrate());
    // Folders that are still to be listed, and files that were named.
    let mut ahead: Vec<(PathBuf, Option<ListedKind>)> =
        options.selection.roots().iter().map(|root| (root.clone(), None)).collect();
    while let Some((path, kind)) = ahead.pop() {
        if StateFolder::has(&path) {
            continue;
        }
        let listed = match kind {
            Some(ListedKind::File) => Err(io::ErrorKind::NotADirectory.into()),
            _ => state.substrate().list(&path),
        };
        let outcome = match listed {
            Ok(listed) => {
                for entry in listed {
                    let below = path.join(&entry.name);
                    if entry.kind != ListedKind::Other && options.selection.wants(&below, entry.kind) {
                        ahead.push((below, Some(entry.kind)));
                    }
                }
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => look(state, files, domains, &opt_outs, &path),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(Sight::NotWanted) => {}
            Ok(Sight::OptedOut(handle)) => drop(opted_out.insert(handle)),
            // Of several names always the same one: marks have it, and are written anew where it is another.
            Ok(Sight::Image(stat, _)) if found.get(&stat.handle).is_some_and(|found| found.path < path) => {}
            Ok(Sight::Image(stat, membership)) => {
                let seen = Found { path, stat, membership, found_at: Duration::ZERO };
                found.insert(seen.stat.handle.clone(), seen);
            }
            // It was removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && kind.is_some() => {}
            Err(why) => {
                scanned.passed_over += 1;
                state.notice(Notice::Unreadable { path, why });
            }
        }
    }
    opted_out.retain(|handle| !found.contains_key(handle));
    let found_at = state.clock().monotonic();
    let mut found: Vec<Found> = found.into_values().map(|found| Found { found_at, ..found }).collect();
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok((found, opted_out))
}

/// A file that a scan came across.
enum Sight {
    /// It is too short to be shared, or its path too long to be noted.
    NotWanted,
    /// It is opted out.
    OptedOut(FileHandle),
    /// It is an image of a domain.
    Image(FileStat, Membership),
}

fn look<S: Substrate>(
    state: &State<'_, S>,
    files: &Files,
    domains: &DomainRules<'_, S>,
    opt_outs: &OptOuts<'_, S>,
    path: &Path,
) -> io::Result<Sight> {
    let file = state.substrate().open(path, Access::Read)?;
    let stat = state.substrate().stat(&file)?;
    if stat.length < BLOCK_BYTES_U64 || !Mark::is_path_kept(path) {
        return Ok(Sight::NotWanted);
    }
    if opt_outs.of(path)?.is_some() {
        return Ok(Sight::OptedOut(stat.handle));
    }
    let before = files.of(&stat.handle).map(|mark| &mark.membership);
    let membership = domains.membership(path, &file, &stat, before)?;
    Ok(Sight::Image(stat, membership))
}

/// Reads a file into a log, if it has changed since it was read and nobody else works on it.
fn scan_file<S: Substrate>(
    state: &State<'_, S>,
    (files, domains): (&mut Files, &DomainRules<'_, S>),
    options: &ScanOptions<'_>,
    found: &Found,
    began: Timestamp,
    scanned: &mut Scanned,
    progress: &mut ScanProgress,
) -> Result<Looked, StateError> {
    let Found { path, stat, membership, .. } = found;
    let number = files.number(state, &stat.handle, path, membership)?;
    if is_unchanged(files, stat, membership, began) {
        scanned.unchanged += 1;
        if files.get(number).is_some_and(|mark| mark.path != *path) {
            match state.try_lock(&Subject::File(stat.handle.clone()))? {
                Some(_lock) => files.note_path(state, number, path)?,
                // Who has it may be about to write its mark. This host finds it there all the same.
                None => files.see_at(number, path),
            }
        }
        return Ok(Looked::Done);
    }
    let Some(_lock) = state.try_lock(&Subject::File(stat.handle.clone()))? else { return Ok(Looked::Busy) };
    let now = state.now()?;
    let opened = state.substrate().open(path, Access::Read);
    let (file, mut stat) = match opened.and_then(|file| state.substrate().stat(&file).map(|stat| (file, stat))) {
        Ok((file, now)) if now.handle == stat.handle => (file, now),
        // Another file has its name meanwhile.
        Ok(_) => return Ok(Looked::Done),
        Err(why) => return Ok(Looked::Failed(why)),
    };
    // Another host may have read it a moment ago, or noted another tenant.
    files.reload(state, number)?;
    let before = files.of(&stat.handle).map(|mark| &mark.membership);
    let membership = match domains.membership(path, &file, &stat, before) {
        Ok(membership) => membership,
        Err(why) => return Ok(Looked::Failed(why)),
    };
    let number = files.latest_number(state, &stat.handle, path, &membership)?;
    if is_unchanged(files, &stat, &membership, began) {
        scanned.unchanged += 1;
        return Ok(Looked::Done);
    }
    if let Some(flags) = has_only_another_owner(files, &stat, &membership) {
        let stamp = Stamp::of(&stat);
        if Age::of(&stamp, now) == Age::Settled {
            files.note_read(state, number, path, &Noted { scanned: Some(stamp), flags, membership: &membership })?;
        }
        scanned.unchanged += 1;
        return Ok(Looked::Done);
    }
    let mut age = Age::of(&Stamp::of(&stat), now);
    if age == Age::Ahead {
        (stat, age) = match wait_for_others_tick(state, &file, found) {
            Ok(waited) => waited,
            Err(why) => return Ok(Looked::Failed(why)),
        };
    }
    let stamp = Stamp::of(&stat);
    let mark = files.get(number);
    let (was_read, known) = mark.map_or((false, MarkFlags::default()), |mark| (mark.scanned.is_some(), mark.flags));
    // Before its log is there, so that nobody who sees the log takes the file for gone.
    files.note_read(state, number, path, &Noted { scanned: None, flags: known, membership: &membership })?;
    // What is only in memory has no place yet, or one that the map still shows as set aside: it would be missed, and its
    // times say nothing when it goes there. Where that fails, reading does, too.
    let _ = state.substrate().settle(&file);
    let key = state.key(&membership.domain);
    let read = read_into_log(state, (number, &key), &file, stat.length, options, progress)?;
    scanned.logged_blocks += read.logged;
    scanned.read_bytes += read.bytes;
    // Whoever could not be read as a whole is read again next time. So is who changed a moment ago: the next change may get
    // the same time. Noted while nobody else can read it, so that of two hosts the later one has the last word.
    let is_done = read.failed.is_none() && age != Age::Recent;
    let flags = MarkFlags {
        is_reserved: known.is_reserved || (!was_read && !read.has_hole),
        is_ahead: is_done && age == Age::Ahead,
    };
    files.note_with(state, number, path, is_done.then_some(stamp), flags)?;
    Ok(read.failed.map_or(Looked::Done, Looked::Failed))
}

/// Waits until the clock that has given a file a time ahead of this host's has gone on by a tick since the file was found: every
/// change from then on gets another time, whatever that clock shows. Returns what the file is then; it is `Recent` where it has
/// changed meanwhile.
fn wait_for_others_tick<S: Substrate>(
    state: &State<'_, S>,
    file: &S::File,
    found: &Found,
) -> io::Result<(FileStat, Age)> {
    let waited = state.clock().monotonic().saturating_sub(found.found_at);
    if waited < TICK {
        state.clock().sleep(TICK - waited);
    }
    let stat = state.substrate().stat(file)?;
    let is_same = Stamp::of(&stat) == Stamp::of(&found.stat);
    Ok((stat, if is_same { Age::Ahead } else { Age::Recent }))
}

/// What came of looking at a file.
enum Looked {
    /// It is known as it is now.
    Done,
    /// Another host has it.
    Busy,
    /// It cannot be read, or not as a whole.
    Failed(io::Error),
}

/// An index that was lost is found again by reading all that is not in logs.
fn forget_what_the_index_lost<S: Substrate>(state: &State<'_, S>, files: &mut Files) -> Result<(), StateError> {
    if state.has_index()? {
        return Ok(());
    }
    let logged: BTreeSet<FileNo> = state.logs()?.into_iter().map(|log| log.file).collect();
    let lost: Vec<FileNo> = files.iter().map(|mark| mark.number).filter(|number| !logged.contains(number)).collect();
    lost.into_iter().try_for_each(|number| files.forget_scan(state, number))
}

/// Tells whether a file is as it was when it was read, in the domain in which it was read. One whose time was ahead then is not
/// taken for that once the clock has come there: a change at that moment would have had the same time.
fn is_unchanged(files: &Files, stat: &FileStat, membership: &Membership, now: Timestamp) -> bool {
    let stamp = Stamp::of(stat);
    let is_due = |mark: &Mark| mark.flags.is_ahead && Age::of(&stamp, now) != Age::Ahead;
    let mark = files.of(&stat.handle).filter(|mark| mark.membership.domain == membership.domain);
    mark.is_some_and(|mark| mark.scanned == Some(stamp) && !is_due(mark))
}

/// Tells whether a file was given to another owner since it was read, within its domain, and nothing tells of another change:
/// libvirt does so with each image of a machine that starts or stops. Where somebody has written and set the time back
/// as well, that costs what could have been shared, until the next change. Returns what its mark notes besides.
fn has_only_another_owner(files: &Files, stat: &FileStat, membership: &Membership) -> Option<MarkFlags> {
    let mark = files.of(&stat.handle).filter(|mark| mark.membership.domain == membership.domain)?;
    let same = mark.scanned.is_some_and(|then| (then.length, then.modified) == (stat.length, stat.modified));
    (same && mark.membership.owner != stat.owner && !mark.flags.is_ahead).then_some(mark.flags)
}

/// Tells whether a file's content has not changed for so long. Of a time that is ahead, which anybody may have set, the one
/// that nobody sets counts.
fn is_stable(stat: &FileStat, now: Timestamp, stable_for: Duration) -> bool {
    let changed = if stat.modified > now { stat.changed } else { stat.modified };
    stable_for.is_zero()
        || nanoseconds(now) - nanoseconds(changed) >= i128::try_from(stable_for.as_nanos()).unwrap_or(i128::MAX)
}

pub(crate) fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

/// How old the times of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// So old that a change later than now has other times.
    Settled,
    /// A change may get the same times still.
    Recent,
    /// The last change was in the future: another host's clock is ahead, or this one was set back.
    Ahead,
}

impl Age {
    /// Returns how old times are. Kernels note them in ticks, of up to ten milliseconds.
    ///
    /// Each change of the content sets the time of the last change, which nobody sets otherwise. So the time of the content may
    /// be ahead for ever, as anybody sets it, if the other one is not.
    pub(crate) fn of(stamp: &Stamp, now: Timestamp) -> Age {
        const TICKS: i128 = TICK.as_nanos() as i128;
        let age = |time| nanoseconds(now) - nanoseconds(time);
        let is_recent = |time| (0..TICKS).contains(&age(time));
        match age(stamp.changed) {
            changed if changed <= -TICKS => Age::Ahead,
            changed if changed < TICKS || is_recent(stamp.modified) => Age::Recent,
            _ => Age::Settled,
        }
    }
}

/// What came of reading a file.
struct Read {
    logged: u64,
    bytes: u64,
    failed: Option<io::Error>,
    /// Whether the file has a hole, or may have one.
    has_hole: bool,
}

fn read_into_log<S: Substrate>(
    state: &State<'_, S>,
    (number, key): (FileNo, &FingerprintKey),
    file: &S::File,
    length: u64,
    options: &ScanOptions<'_>,
    progress: &mut ScanProgress,
) -> Result<Read, StateError> {
    thread::scope(|scope| {
        let digester = Digester::new(options.threads, scope);
        let mut blocks = Blocks::new(state.substrate(), options.pace, file, length, (digester, key));
        let (done_before, read_before) = (progress.done_bytes, progress.read_bytes);
        let mut told = 0;
        let logged = state.write_log(LogKind::Log, number, state.last_log_of(number)?, &mut || {
            options.pace.go_on().map_err(|_| io::ErrorKind::Interrupted)?;
            let written = blocks.next().map(Note::Written);
            if blocks.read_bytes >= told + PROGRESS_BYTES {
                told = blocks.read_bytes;
                progress.read_bytes = read_before + told;
                progress.done_bytes = done_before + blocks.offset;
                if (options.progress)(*progress).is_break() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
            }
            Ok(written)
        });
        *progress = ScanProgress { done_bytes: done_before, read_bytes: read_before + blocks.read_bytes, ..*progress };
        let logged = logged?;
        let has_hole = blocks.has_hole || blocks.map.is_none();
        Ok(Read { logged: logged.blocks, bytes: blocks.read_bytes, failed: blocks.failed, has_hole })
    })
}

/// The blocks of a file that hold data, in order, with their digests.
struct Blocks<'a, S: Substrate> {
    substrate: &'a S,
    pace: &'a Pace<'a>,
    file: &'a S::File,
    map: Option<Extents>,
    digester: Digester<'a>,
    key: &'a FingerprintKey,
    /// Where the next piece is looked for; the file's last whole block ends at `end`.
    offset: u64,
    end: u64,
    /// What the digester's threads read by.
    reader: Option<Arc<dyn Reader>>,
    /// The piece whose blocks are being returned, and the next of them.
    piece: Option<(Piece, usize)>,
    read_bytes: u64,
    /// The first error; what could not be read is left out.
    failed: Option<io::Error>,
    /// Whether the map has shown a hole. What is set aside is none.
    has_hole: bool,
}

impl<'a, S: Substrate> Blocks<'a, S> {
    fn new(
        substrate: &'a S,
        pace: &'a Pace<'a>,
        file: &'a S::File,
        length: u64,
        (digester, key): (Digester<'a>, &'a FingerprintKey),
    ) -> Blocks<'a, S> {
        // What is behind the highest block that can be written down is never shared.
        let end = (length / BLOCK_BYTES_U64).min(FileBlock::LIMIT) * BLOCK_BYTES_U64;
        let map = Some(Extents::new());
        Blocks {
            substrate,
            pace,
            file,
            map,
            digester,
            key,
            offset: 0,
            end,
            reader: substrate.reader(file),
            piece: None,
            read_bytes: 0,
            failed: None,
            has_hole: false,
        }
    }

    fn next(&mut self) -> Option<Written> {
        loop {
            if let Some((piece, next)) = &mut self.piece {
                if let Some(digest) = piece.digests.get(*next) {
                    let block = FileBlock(piece.offset / BLOCK_BYTES_U64 + *next as u64);
                    *next += 1;
                    return Some(Written { block, digest: *digest });
                }
                let (mut piece, _) = self.piece.take()?;
                self.read_bytes += piece.read_bytes;
                if let Some(why) = piece.failed.take() {
                    self.failed.get_or_insert(why);
                }
                self.digester.give_back(piece);
            }
            while self.digester.has_room() && self.ask_piece() {}
            self.piece = Some((self.digester.take()?, 0));
        }
    }

    /// Has the next piece with data read and digested. Returns false at the end of the file.
    fn ask_piece(&mut self) -> bool {
        while self.offset < self.end {
            let (from, to) = self.data_from(self.offset);
            self.offset = to.min(self.end);
            if from >= self.offset {
                continue;
            }
            // A shared file lies in many small parts, which are read as one where no hole is between them.
            let most = self.end.min(from + PIECE_BYTES as u64);
            let mut to = to.min(most);
            while to < most {
                let (start, end) = self.data_from(to);
                if start != to || start == end {
                    break;
                }
                to = end.min(most);
            }
            self.offset = to;
            self.pace.read(to - from);
            let length = usize::try_from(to - from).expect("at most a piece");
            let (substrate, file) = (self.substrate, self.file);
            // It may have become shorter: then less is in the piece, or nothing.
            self.digester.ask(self.key, from, length, self.reader.as_ref(), |offset, into| {
                substrate.read_at(file, offset, into)
            });
            return true;
        }
        false
    }

    /// Returns where the next data is, in whole blocks; all of the rest where the file system has no maps.
    fn data_from(&mut self, offset: u64) -> (u64, u64) {
        let Some(map) = &mut self.map else { return (offset, u64::MAX) };
        match map.at(self.substrate, self.file, offset) {
            Ok(placed) if placed.is_data => {
                let end = offset.saturating_add(placed.length).div_ceil(BLOCK_BYTES_U64);
                (offset, end.saturating_mul(BLOCK_BYTES_U64))
            }
            Ok(placed) => {
                self.has_hole |= placed.is_hole;
                // A block that begins in a hole and ends in data is read from its beginning.
                let end = offset.saturating_add(placed.length) / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
                let end = end.max(offset + BLOCK_BYTES_U64);
                (end, end)
            }
            Err(_) => {
                self.map = None;
                (offset, u64::MAX)
            }
        }
    }
}
