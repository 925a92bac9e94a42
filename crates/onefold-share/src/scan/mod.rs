//! The scan: reads what changed since the last reading, and writes it down as write logs.
//!
//! A file with unchanged length and times is not opened for reading. In a changed file, the scan reads the ranges whose
//! place has changed since the last look, or that the file system reports as changed (`changes`). If that may miss
//! changes, the file has a *turn* in each scan (`turn`): a stretch of it is read, and the next turn goes on behind it.
//! Holes and unwritten blocks cost nothing. A place that this scan has read before is not read again (`places`).
//!
//! A scan ends early if it is told to, or if enough is known for a pass. Then it notes the file that it has reached,
//! and the next scan goes on there.

mod age;
mod blocks;
mod changes;
pub(crate) mod find;
mod known;
mod list;
mod options;
mod places;
mod turn;

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;

use onefold_block::Timestamp;
use onefold_substrate::{Access, FileStat, Substrate};

pub(crate) use self::age::{Age, TICK, is_stable};
use self::find::{ListedImage, SelectedFiles, find};
use self::known::{before_another_owner, before_own_change, forget_what_the_index_lost, is_unchanged};
pub use self::list::{ListedFile, list};
pub(crate) use self::options::REREAD_PERCENT;
pub use self::options::{
    DomainCounts, MAP_BYTES_MIN, RereadPolicy, RetryTime, ScanOptions, ScanProgress, ScanReport, Turn,
};
use self::places::ReadPlaces;
use self::turn::Subject;
use crate::digest::PIECE_BYTES;
use crate::domain::{DomainRules, Membership};
use crate::format::FileNo;
use crate::format::mark::MarkFlags;
use crate::format::stamp::Stamp;
use crate::state::files::{MarkUpdate, Marks, StampChange};
use crate::state::locks;
use crate::state::logs::LogList;
use crate::state::{Notice, State, StateError};

/// Bytes that are read between two reports of the progress.
const PROGRESS_BYTES: u64 = 64 * PIECE_BYTES as u64;

/// Looks at all files and writes logs of those that changed.
///
/// # Errors
/// Errors of the state folder. Files that cannot be read are reported and skipped.
pub fn scan<S: Substrate>(
    state: &State<'_, S>,
    files: &mut Marks,
    options: &ScanOptions<'_>,
) -> Result<ScanReport, StateError> {
    let mut scanned = ScanReport::default();
    let logs = state.list_logs()?;
    forget_what_the_index_lost(state, files, &logs)?;
    let now = state.now()?;
    let domains = DomainRules::of(state)?;
    let SelectedFiles { found, opted_out, unreadable } =
        find(state.substrate(), state.clock(), &|notice| state.notice(notice), files, &domains, &options.selection)?;
    scanned.passed_over = unreadable;
    scanned.opted_out = opted_out.len() as u64;
    // Passes drop what is known of them. If they come back, they are read.
    for number in opted_out.iter().filter_map(|handle| Some(files.of(handle)?.number)).collect::<Vec<_>>() {
        files.forget_scan(state, number)?;
    }
    let all_bytes = found.iter().map(|found| found.stat.length).sum();
    scanned.files += found.len() as u64;
    scanned.bytes = all_bytes;
    for found in &found {
        scanned.domains.entry(found.membership.domain.clone()).or_default().add(found.stat.length);
    }
    let cursor = state.scan_cursor()?;
    state.list_maps_again();
    let mut scan = Scan {
        state,
        files,
        domains,
        options,
        logs,
        scanned,
        progress: ScanProgress { all_bytes, ..ScanProgress::default() },
        log_bytes: 0,
        began: now,
        places: ReadPlaces::new(options.places_bytes),
    };
    let mut ahead: VecDeque<(ListedImage, bool)> = found.into_iter().map(|found| (found, false)).collect();
    // The files before the cursor had their turn last time.
    let before =
        ahead.iter().take_while(|(found, _)| cursor.as_ref().is_some_and(|cursor| found.path < *cursor)).count();
    ahead.rotate_left(before);
    let mut noted = cursor;
    let mut noted_at = 0;
    while let Some((found, is_second_try)) = ahead.pop_front() {
        let path = found.path.clone();
        let is_first = scan.progress.read_bytes == 0;
        // Whatever ends this process, the next scan goes on near here.
        if scan.progress.read_bytes >= noted_at + CURSOR_BYTES {
            state.set_scan_cursor(Some(&path))?;
            (noted, noted_at) = (Some(path.clone()), scan.progress.read_bytes);
        }
        let ended = match scan.look_at(found, now, is_second_try) {
            Ok(NextAction::GoOn) => {
                scan.scanned.looked_at += 1;
                continue;
            }
            Ok(NextAction::Later(found)) => {
                ahead.push_back((found, true));
                continue;
            }
            Ok(NextAction::Enough) => Ok(()),
            Err(StateError::Interrupted) => Err(StateError::Interrupted),
            Err(error) => return Err(error),
        };
        // A file that has had a whole scan to itself gives way to the others.
        let has_had_all = is_first && scan.progress.read_bytes > 0;
        let next = if has_had_all { ahead.front().map(|(found, _)| found.path.as_path()) } else { Some(&*path) };
        state.set_scan_cursor(next)?;
        scan.scanned.is_cut_short = true;
        return ended.map(|()| scan.scanned);
    }
    if noted.is_some() {
        state.set_scan_cursor(None)?;
    }
    Ok(scan.scanned)
}

/// Bytes that are read before the cursor is noted again.
const CURSOR_BYTES: u64 = 1 << 30;

/// A scan in progress.
struct Scan<'a, 'b, S: Substrate> {
    state: &'a State<'b, S>,
    files: &'a mut Marks,
    domains: DomainRules<'b, S>,
    options: &'a ScanOptions<'a>,
    logs: LogList,
    scanned: ScanReport,
    progress: ScanProgress,
    /// Bytes of the logs that the scan has written.
    log_bytes: u64,
    began: Timestamp,
    /// Digests that were read, by place.
    places: ReadPlaces,
}

/// The next action of a scan after a file.
enum NextAction {
    GoOn,
    /// Another host is reading the file. It may have finished by the time that all other files are done.
    Later(ListedImage),
    /// Enough is known for a pass.
    Enough,
}

impl<S: Substrate> Scan<'_, '_, S> {
    /// Returns the time up to which failed ranges are due.
    fn due_by(&self, now: Timestamp) -> Timestamp {
        match self.options.rereading.failed {
            RetryTime::AtOnce => Timestamp { seconds: i64::MAX, nanoseconds: 0 },
            RetryTime::AfterPause => now,
        }
    }

    fn is_unchanged(&self, stat: &FileStat, membership: &Membership, now: Timestamp) -> bool {
        is_unchanged(self.files, stat, membership, now, self.due_by(now))
    }

    fn look_at(&mut self, found: ListedImage, now: Timestamp, is_second_try: bool) -> Result<NextAction, StateError> {
        self.options.pace.boundary()?;
        let ListedImage { path, stat, membership, .. } = &found;
        let is_known = self.is_unchanged(stat, membership, now);
        if !is_known && !is_stable(stat, now, self.options.stable_for) {
            // The file gets a number all the same, so that a process that has it open can be found.
            self.files.number(self.state, &stat.handle, path, membership)?;
            self.scanned.unsettled += 1;
            return Ok(NextAction::GoOn);
        }
        if !is_known && (self.options.rereading.enough)(self.log_bytes) {
            return Ok(NextAction::Enough);
        }
        match self.scan_file(&found)? {
            LookOutcome::Busy if !is_second_try => return Ok(NextAction::Later(found)),
            LookOutcome::Busy => self.scanned.passed_over += 1,
            LookOutcome::Enough => return Ok(NextAction::Enough),
            LookOutcome::Done => {}
            LookOutcome::Failed(why) => {
                self.scanned.passed_over += 1;
                let path = found.path.clone();
                self.state.notice(Notice::Unreadable { path, why });
            }
        }
        self.progress.done_bytes += found.stat.length;
        if (self.options.progress)(self.progress).is_break() {
            return Err(StateError::Interrupted);
        }
        Ok(NextAction::GoOn)
    }
}

impl<S: Substrate> Scan<'_, '_, S> {
    /// Reads the changes of a file into logs, if no other host works on it.
    fn scan_file(&mut self, found: &ListedImage) -> Result<LookOutcome, StateError> {
        let ListedImage { path, stat, membership, .. } = found;
        let state = self.state;
        let number = self.files.number(state, &stat.handle, path, membership)?;
        if self.is_unchanged(stat, membership, state.now()?) {
            self.note_unchanged(number, found)?;
            return Ok(LookOutcome::Done);
        }
        let Some(_lock) = state.try_lock(&locks::Subject::File(stat.handle.clone()))? else {
            return Ok(LookOutcome::Busy);
        };
        let now = state.now()?;
        let before = self.files.of(&stat.handle).cloned();
        let opened = state.substrate().open(path, Access::Read);
        let (file, mut stat) = match opened.and_then(|file| state.substrate().stat(&file).map(|stat| (file, stat))) {
            Ok((file, now)) if now.handle == stat.handle => (file, now),
            // Another file has its name by now.
            Ok(_) => return Ok(LookOutcome::Done),
            Err(why) => return Ok(LookOutcome::Failed(why)),
        };
        // Another host may have read it a moment ago, or noted another tenant.
        self.files.reload(state, number)?;
        let noted = self.files.of(&stat.handle).map(|mark| &mark.membership);
        let membership = match self.domains.membership(path, &file, &stat, noted) {
            Ok(membership) => membership,
            Err(why) => return Ok(LookOutcome::Failed(why)),
        };
        let number = self.files.latest_number(state, &stat.handle, path, &membership)?;
        if self.files.get(number) != before.as_ref() {
            // That host's log comes before the one that is written now.
            self.logs = state.list_logs()?;
        }
        let mut waits = false;
        let before = before_another_owner(self.files, &stat, &membership)
            .or_else(|| before_own_change(self.files, state.substrate(), &file, &stat, &membership));
        if let Some(before) = before {
            let after = Stamp::of(&stat);
            waits = Age::of(&after, now) != Age::Settled;
            if !waits {
                self.files.note_owner(state, number, path, StampChange { before, after }, &membership)?;
            }
        }
        if waits || self.is_unchanged(&stat, &membership, now) {
            self.scanned.unchanged += 1;
            return Ok(LookOutcome::Done);
        }
        let mut age = Age::of(&Stamp::of(&stat), now);
        if age == Age::Ahead {
            (stat, age) = match wait_for_others_tick(state, &file, found) {
                Ok(waited) => waited,
                Err(why) => return Ok(LookOutcome::Failed(why)),
            };
        }
        let mark = self.files.get(number);
        let (scanned, flags) = mark.map_or((None, MarkFlags::default()), |mark| (mark.scanned, mark.flags));
        // Before its log is there, so that no host that sees the log takes the file for gone.
        self.files.note_read(state, number, path, &MarkUpdate { scanned: None, flags, membership: &membership })?;
        // Data in memory only has no place yet, or one that the map still shows as unwritten. It would be missed, and
        // the file's times do not change when it is written back. If this fails, reading fails, too.
        let _ = state.substrate().settle(&file);
        let key = state.key(&membership.domain);
        let is_reserved = Cell::new(None);
        let stamp = Stamp::of(&stat);
        let is_older = Age::of(&stamp, self.began) == Age::Settled;
        let subject = Subject {
            number,
            path,
            key: &key,
            file: &file,
            stat: &stat,
            age,
            now,
            is_reserved,
            older_domain: is_older.then_some(&membership.domain),
        };
        self.take_turn(&subject, scanned)
    }

    /// Counts a file that has not changed, and notes its path if that is a new one.
    fn note_unchanged(&mut self, number: FileNo, found: &ListedImage) -> Result<(), StateError> {
        self.scanned.unchanged += 1;
        if self.files.get(number).is_some_and(|mark| mark.path != found.path) {
            match self.state.try_lock(&locks::Subject::File(found.stat.handle.clone()))? {
                Some(_lock) => self.files.note_path(self.state, number, &found.path)?,
                // The host that has it may be about to write its mark. This host finds it there all the same.
                None => self.files.see_at(number, &found.path),
            }
        }
        Ok(())
    }
}

/// Waits until the clock that has set a file's time ahead of this host's clock has gone on by a tick since the file was
/// found. Every change from then on gets another time, whatever that clock shows. Returns the state of the file then;
/// it is `Recent` if it has changed meanwhile.
fn wait_for_others_tick<S: Substrate>(
    state: &State<'_, S>,
    file: &S::File,
    found: &ListedImage,
) -> io::Result<(FileStat, Age)> {
    let waited = state.clock().monotonic().saturating_sub(found.found_at);
    if waited < TICK {
        state.clock().sleep(TICK - waited);
    }
    let stat = state.substrate().stat(file)?;
    let is_same = Stamp::of(&stat) == Stamp::of(&found.stat);
    Ok((stat, if is_same { Age::Ahead } else { Age::Recent }))
}

/// Result of looking at a file.
enum LookOutcome {
    /// It had its turn.
    Done,
    /// Another host has it.
    Busy,
    /// It cannot be opened.
    Failed(io::Error),
    /// It had a part of its turn, and enough is known for a pass.
    Enough,
}
