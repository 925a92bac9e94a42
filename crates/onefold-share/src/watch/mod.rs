//! The watch: scans and passes repeatedly, when it may, and keeps the locks of images that are in use on its host.
//!
//! In each round, the watch takes and keeps the locks of images that a process of this host has open for writing, so
//! that other hosts leave them to it. Then, if the time and the load of the machine allow, it scans files, and makes a
//! pass once enough work waits. Failures are reported, and the work is tried again in the next round: a daemon survives
//! temporary failures.
//!
//! It learns about the machine only through [`Machine`], clock, randomness and substrate.

mod files;
mod gate;
mod options;
mod own;
mod turns;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use onefold_substrate::{CpuTime, Machine, Substrate};

use self::files::FilesTurns;
use self::gate::Gate;
use self::own::Owner;
use self::turns::Turns;
use crate::format::FileNo;
use crate::format::watch::{WatchPhase, WatchStatus};
use crate::mend::{DoubtfulImagePolicy, mend};
use crate::pace::Pace;
use crate::pass::{PassError, pass};
use crate::run::Seams;
use crate::scan::{RereadPolicy, RetryTime, ScanOptions, ScanReport, scan};
use crate::state::files::Marks;
use crate::state::watches::WatchFile;
use crate::state::{State, StateError};

pub use self::options::{WatchEvent, WatchOptions};
pub use self::window::{Window, WindowError, Windows};

/// Maximum length of one sleep. A request to end the watch is noticed after it.
const SLEEP_MAX: Duration = Duration::from_millis(200);

/// Length in bytes that logs may always have: those of about 90 GiB of reading.
const LOG_BYTES_MIN: u64 = 256 << 20;
/// Length of waiting logs, in bytes, from which on a pass begins in the middle of a scan, if they are worth it.
const LOG_BYTES_WORTHWHILE: u64 = 32 << 20;

/// The watch's connections to the world.
pub struct Surroundings<'a, S: Substrate> {
    /// The connections that a run needs, too.
    pub seams: Seams<'a, S>,
    /// Processor time of this process.
    pub cpu: &'a dyn CpuTime,
    /// The machine.
    pub machine: &'a dyn Machine,
    /// Returns whether the watch should end. Asked often, by any thread.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

/// Watches until it is told to stop.
///
/// # Errors
/// If the state folder cannot be opened at first. Later failures are reported, and the work is tried again.
pub fn watch<S: Substrate>(
    surroundings: &Surroundings<'_, S>,
    options: &WatchOptions<'_>,
    tell: &mut dyn FnMut(WatchEvent<'_>),
) -> Result<(), StateError> {
    let clock = surroundings.seams.clock;
    let gate = Gate::new(clock, surroundings.machine, options, surroundings.stop);
    let wish = || gate.wish();
    let pace = Pace::new(options.limits, clock, surroundings.cpu, &wish).stopped_by(surroundings.stop);
    let status = WatchStatus {
        process: std::process::id(),
        host: surroundings.machine.name(),
        interval_seconds: u32::try_from(options.interval.as_secs()).unwrap_or(u32::MAX),
        ..WatchStatus::default()
    };
    let mut watcher = Watcher {
        surroundings,
        options,
        gate: &gate,
        pace: &pace,
        tell,
        status,
        scanned: ScanReport::default(),
        scan_time: Duration::ZERO,
        pass_time: Duration::ZERO,
        turns: Turns::default(),
        files: FilesTurns::default(),
        waiting_since: None,
        left: BTreeSet::new(),
        left_since: Duration::ZERO,
        passed_at: clock.monotonic(),
        gone: BTreeMap::new(),
        left_gone: BTreeSet::new(),
        waiting_images: Vec::new(),
        is_begun: false,
        is_unseen_told: false,
    };
    let mut is_first = true;
    while !(surroundings.stop)() {
        let worked = match surroundings.seams.open() {
            Err(error) if is_first => return Err(error),
            opened => opened.map_err(PassError::from).and_then(|state| watcher.work(&state)),
        };
        is_first = false;
        if let Err(error) = worked {
            watcher.tell_failure(&error);
            watcher.rest();
        }
    }
    Ok(())
}

struct Watcher<'a, S: Substrate> {
    surroundings: &'a Surroundings<'a, S>,
    options: &'a WatchOptions<'a>,
    gate: &'a Gate<'a>,
    pace: &'a Pace<'a>,
    tell: &'a mut dyn FnMut(WatchEvent<'_>),
    status: WatchStatus,
    /// All scans since the last pass, and their duration.
    scanned: ScanReport,
    scan_time: Duration,
    /// Duration of the last pass.
    pass_time: Duration,
    turns: Turns,
    files: FilesTurns,
    /// Since when logs have been waiting.
    waiting_since: Option<Duration>,
    /// Logs that a pass has left because other hosts have their files, and since when they are not counted.
    left: BTreeSet<String>,
    left_since: Duration,
    /// When the last pass ended, or this began.
    passed_at: Duration,
    /// Known images that were gone at the last look, by their numbers of blocks. One round later, the file system has
    /// dropped their blocks, too, and an image that was only being renamed is there again.
    gone: BTreeMap<FileNo, u64>,
    /// Gone images that a pass has left: they belong to other hosts.
    left_gone: BTreeSet<FileNo>,
    /// Images that could not be mended at the last look.
    waiting_images: Vec<PathBuf>,
    is_begun: bool,
    is_unseen_told: bool,
}

impl<S: Substrate> Watcher<'_, S> {
    /// Works on one state folder until it is told to stop, or the folder is replaced.
    fn work(&mut self, state: &State<'_, S>) -> Result<(), PassError> {
        let mut file = state.begin_watch()?;
        if !std::mem::replace(&mut self.is_begun, true) {
            (self.tell)(WatchEvent::Began);
        }
        let worked = self.work_with(state, &mut file);
        file.end();
        worked
    }

    fn work_with(&mut self, state: &State<'_, S>, file: &mut WatchFile<'_, S>) -> Result<(), PassError> {
        let mut owner = Owner::default();
        while !(self.surroundings.stop)() && state.is_current()? {
            match self.round(state, &mut owner, file) {
                Ok(()) => self.status.trouble = self.files.trouble(),
                Err(PassError::State(StateError::Interrupted)) if (self.surroundings.stop)() => return Ok(()),
                Err(PassError::State(StateError::Interrupted)) => (self.tell)(WatchEvent::LeftOff),
                Err(error) => return Err(error),
            }
            self.say(file, self.gate.closed().unwrap_or(WatchPhase::Waiting))?;
            self.rest();
        }
        Ok(())
    }

    fn round(&mut self, state: &State<'_, S>, owner: &mut Owner, file: &mut WatchFile<'_, S>) -> Result<(), PassError> {
        // First of all, because a user of an image with holes finds zeros.
        self.mend(state)?;
        let mut files = Marks::load(state)?;
        self.own(state, owner, &files)?;
        if self.gate.closed().is_some() {
            return Ok(());
        }
        self.share_files(state, file)?;
        if self.options.shares_files {
            // New images have got numbers.
            files = Marks::load(state)?;
        }
        let mut looked_at = 0;
        loop {
            self.say(file, WatchPhase::Scanning)?;
            let began = self.surroundings.seams.clock.monotonic();
            let known = files.iter().count();
            let scanned = self.scan(state, &mut files)?;
            if files.iter().count() > known {
                self.own(state, owner, &files)?;
            }
            self.scan_time += self.surroundings.seams.clock.monotonic().saturating_sub(began);
            self.add_scan(&scanned);
            let is_due = self.is_pass_due(state, &files)? || (scanned.is_cut_short && self.status.waiting_blocks > 0);
            if !is_due || self.gate.closed() == Some(WatchPhase::OutsideWindows) {
                return Ok(());
            }
            if !scanned.is_cut_short && self.gate.closed().is_some() {
                return Ok(());
            }
            self.say(file, WatchPhase::Sharing)?;
            // Scanning took time, and other hosts have found files meanwhile. A pass takes the log of an unknown file
            // for left over.
            files = Marks::load(state)?;
            let (waiting, began) = (self.status.waiting_blocks, self.passed_at);
            self.pass(state, &mut files)?;
            let has_ended = self.passed_at != began && waiting > 0;
            // The rest of the scan goes on at once, unless the pass was to use a window's end.
            looked_at += scanned.looked_at;
            let have_all_had_a_turn = looked_at >= scanned.files;
            if !scanned.is_cut_short || have_all_had_a_turn || !has_ended || self.gate.is_closing(self.pass_time) {
                return Ok(());
            }
        }
    }

    fn mend(&mut self, state: &State<'_, S>) -> Result<(), StateError> {
        let mended = mend(state, DoubtfulImagePolicy::Keep)?;
        let waiting: Vec<PathBuf> = mended.waiting().map(|image| image.path.clone()).collect();
        let is_news = mended.images.len() > waiting.len() || waiting != self.waiting_images;
        self.waiting_images = waiting;
        if is_news {
            (self.tell)(WatchEvent::Mended(&mended));
        }
        Ok(())
    }

    fn scan(&self, state: &State<'_, S>, files: &mut Marks) -> Result<ScanReport, StateError> {
        let before = state.backlog(&self.left, |number| files.is_selected(number, &self.options.selection))?;
        let index_bytes = state.index_stored()?.bytes;
        let log_bytes_max = self.options.log_bytes_max.unwrap_or((index_bytes / 2).max(LOG_BYTES_MIN));
        let clock = self.surroundings.seams.clock;
        let now = clock.now();
        let enough = |written: u64| {
            let waiting = before.bytes.saturating_add(written);
            let is_much =
                waiting >= LOG_BYTES_WORTHWHILE && before.is_worthwhile_with(written, self.options.batch_percent);
            let has_waited = self
                .waiting_since
                .is_some_and(|since| clock.monotonic().saturating_sub(since) >= self.options.wait_max);
            waiting > 0 && (waiting >= log_bytes_max || is_much || has_waited || self.gate.is_closing(self.pass_time))
        };
        let rereading = RereadPolicy {
            turn: &|stat| self.turns.of(stat, now),
            enough: &enough,
            map_bytes_min: self.options.map_bytes_min,
            failed: RetryTime::AfterPause,
        };
        let options = ScanOptions {
            selection: self.options.selection,
            threads: self.options.threads,
            stable_for: self.options.stable_for,
            rereading,
            ..ScanOptions::new(self.pace)
        };
        scan(state, files, &options)
    }

    fn pass(&mut self, state: &State<'_, S>, files: &mut Marks) -> Result<(), PassError> {
        let clock = self.surroundings.seams.clock;
        let began = clock.monotonic();
        let before = state.log_names()?;
        let passed = pass(state, files, &self.pass_options())?;
        self.pass_time = clock.monotonic().saturating_sub(began);
        let elapsed = self.pass_time + std::mem::take(&mut self.scan_time);
        let after = state.log_names()?;
        self.left = before.intersection(&after).cloned().collect();
        self.left_gone = files.gone(state, &self.options.selection).into_keys().collect();
        self.left_since = clock.monotonic();
        self.passed_at = self.left_since;
        self.waiting_since = None;
        self.status.waiting_blocks = 0;
        if !passed.has_found_work() {
            return Ok(());
        }
        self.status.passes += 1;
        self.status.last_pass = clock.now().seconds;
        self.status.shared_bytes += passed.shared.now;
        self.status.freed_bytes += passed.shared.freed;
        let scanned = std::mem::take(&mut self.scanned);
        (self.tell)(WatchEvent::Passed { scanned: &scanned, passed: &passed, elapsed });
        Ok(())
    }

    /// Returns whether enough work waits for a pass, or has waited long enough.
    fn is_pass_due(&mut self, state: &State<'_, S>, files: &Marks) -> Result<bool, StateError> {
        let now = self.surroundings.seams.clock.monotonic();
        if now.saturating_sub(self.left_since) >= self.options.wait_max {
            // Their files may be free by now.
            self.left.clear();
            self.left_gone.clear();
            self.left_since = now;
        }
        let includes = |number| files.is_selected(number, &self.options.selection);
        let mut backlog = state.backlog(&self.left, includes)?;
        let gone = files.gone(state, &self.options.selection);
        let still = gone.iter().filter(|(number, _)| self.gone.contains_key(number));
        backlog.add_gone(still.filter(|(number, _)| !self.left_gone.contains(number)).map(|(_, blocks)| *blocks));
        self.gone = gone;
        self.status.waiting_blocks = backlog.blocks;
        if backlog.is_empty() {
            self.waiting_since = None;
            // Deleted files and dead hosts leave no logs, so a pass checks for them.
            return Ok(now.saturating_sub(self.passed_at) >= self.options.wait_max);
        }
        let since = *self.waiting_since.get_or_insert(now);
        Ok(backlog.is_worthwhile(self.options.batch_percent) || now.saturating_sub(since) >= self.options.wait_max)
    }

    fn own(&mut self, state: &State<'_, S>, owner: &mut Owner, files: &Marks) -> Result<(), StateError> {
        let open = owner.own(state, files, self.surroundings.machine, &self.options.selection)?;
        self.turns.look(&open);
        let unseen = open.unseen_processes;
        self.status.owned = owner.count();
        if unseen > 0 && !self.is_unseen_told {
            self.is_unseen_told = true;
            (self.tell)(WatchEvent::Unseen(unseen));
        }
        Ok(())
    }

    fn add_scan(&mut self, scanned: &ScanReport) {
        let before = std::mem::replace(&mut self.scanned, scanned.clone());
        self.scanned.read_bytes += before.read_bytes;
        self.scanned.failing += before.failing;
        self.scanned.logged_blocks += before.logged_blocks;
    }

    fn say(&mut self, file: &mut WatchFile<'_, S>, phase: WatchPhase) -> Result<(), StateError> {
        self.status.phase = phase;
        self.status.updated = self.surroundings.seams.clock.now().seconds;
        file.say(&self.status)
    }

    fn tell_failure(&mut self, error: &PassError) {
        let trouble = Some(error.to_string());
        if self.status.trouble != trouble {
            (self.tell)(WatchEvent::Failed(error));
            self.status.trouble = trouble;
        }
    }

    /// Sleeps until the next round, or the next window, or until it is told to stop.
    fn rest(&self) {
        let clock = self.surroundings.seams.clock;
        let opens_in = self.options.windows.opens_in(self.surroundings.machine.time_of_day());
        let opens_in = opens_in.filter(|time| !time.is_zero()).unwrap_or(Duration::MAX);
        let ends = clock.monotonic().saturating_add(self.options.interval.min(opens_in));
        while !(self.surroundings.stop)() {
            let left = ends.saturating_sub(clock.monotonic());
            if left.is_zero() {
                return;
            }
            clock.sleep(left.min(SLEEP_MAX));
        }
    }
}
