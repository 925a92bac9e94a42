//! Sharing of equal guest files in a watch: once a package database has changed, files are shared before anything is
//! scanned.
//!
//! A look at a database costs a look-up of a few of its files. So an update of many guests is shared a round later, and
//! a machine that writes to its logs is examined only when something else changes.
//!
//! Any guest can change its database at any time, and then all images are searched. So this part of a watch gets a
//! small part of the watch's time, and a failure in it is no reason to skip the scan.

use std::ops::ControlFlow;
use std::time::Duration;

use onefold_substrate::Substrate;

use super::{WatchEvent, Watcher};
use crate::files::{DatabaseLook, FilesOptions, ReadScope, RetryPause, Tier, share_files};
use crate::format::watch::WatchPhase;
use crate::pass::{PassError, PassOptions};
use crate::scan::TICK;
use crate::state::watches::WatchFile;
use crate::state::{State, StateError};

/// Pause after each turn of files, as a multiple of the turn's duration.
const PAUSE_FACTOR: u32 = 10;

/// Sharing of files between the rounds of a watch.
#[derive(Debug, Default)]
pub(super) struct FilesTurns {
    /// The package databases when files were last shared.
    databases: DatabaseLook,
    /// When files may be shared again; `None` before the first time.
    due: Option<Duration>,
    /// Why files could not be shared in the last round that tried. The same failure is not reported twice in a row.
    trouble: Option<String>,
    /// The pause until files are tried again that were busy when they were last shared.
    busy: Option<RetryPause>,
    /// Whether the end of a window cut the last attempt off. The next round scans first. Otherwise a search that takes
    /// longer than each window would keep the watch from ever scanning.
    was_cut: bool,
}

impl FilesTurns {
    /// Returns the last failure.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    fn is_due(&self, now: Duration) -> bool {
        self.due.is_none_or(|due| now >= due)
    }

    /// Returns whether there is reason to share, after a look that found so many changed images.
    fn wants(&self, changed: u64, now: Duration) -> bool {
        changed > 0 || self.busy.is_some_and(|busy| busy.is_over(now))
    }

    /// Notes work from `began` to `now`.
    fn worked(&mut self, began: Duration, now: Duration) {
        self.due = Some(now.saturating_add(now.saturating_sub(began).saturating_mul(PAUSE_FACTOR)));
    }
}

impl<S: Substrate> Watcher<'_, S> {
    /// Shares equal files of guests, if that is wanted, a package database has changed, and the turn of files has come.
    /// A failure is reported, and the round goes on.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(super) fn share_files(&mut self, state: &State<'_, S>, file: &mut WatchFile<'_, S>) -> Result<(), PassError> {
        let clock = self.surroundings.seams.clock;
        let began = clock.monotonic();
        let was_cut = std::mem::take(&mut self.files.was_cut);
        // The end of a window is reserved for the pass.
        let has_turn = !was_cut && self.files.is_due(began) && !self.gate.is_closing(self.pass_time);
        if !self.options.shares_files || !has_turn {
            return Ok(());
        }
        let outcome = self.share_changed_files(state, file);
        // Looks count, too: looks at hostile images read much.
        self.files.worked(began, clock.monotonic());
        let trouble = match outcome {
            Ok(()) => None,
            Err(PassError::State(StateError::Interrupted)) => {
                self.files.was_cut = true;
                return Err(StateError::Interrupted.into());
            }
            Err(error) => {
                let trouble = Some(error.to_string());
                if self.files.trouble != trouble {
                    (self.tell)(WatchEvent::Failed(&error));
                }
                trouble
            }
        };
        self.files.trouble = trouble;
        Ok(())
    }

    fn share_changed_files(&mut self, state: &State<'_, S>, file: &mut WatchFile<'_, S>) -> Result<(), PassError> {
        self.say(file, WatchPhase::Scanning)?;
        self.pace.begin();
        let look = self.files.databases.again(state, &self.options.selection, self.options.stable_for, self.pace)?;
        let surroundings = self.surroundings;
        let seams = &surroundings.seams;
        if !self.files.wants(look.changed, seams.clock.monotonic()) {
            self.files.databases = look;
            return Ok(());
        }
        self.say(file, WatchPhase::Sharing)?;
        let began = seams.clock.monotonic();
        let options = FilesOptions {
            pass: self.pass_options(),
            tiers: &Tier::ALL,
            reading: ReadScope::default(),
            random: seams.random,
            since: None,
            common: None,
            stable_for: self.options.stable_for,
            is_full: false,
            examining: &|_, _| ControlFlow::Continue(()),
        };
        let report = share_files(state, &options)?;
        // As in a run: the scan trusts files that are older than itself.
        seams.clock.sleep(2 * TICK);
        let elapsed = seams.clock.monotonic().saturating_sub(began);
        self.status.shared_bytes += report.passed.shared.now;
        self.status.freed_bytes += report.passed.shared.freed;
        (self.tell)(WatchEvent::FilesShared { changed: look.changed, report: &report, elapsed });
        let trouble = &report.passed.trouble;
        if !trouble.is_full {
            // Only now: after a failure, a later turn shares the rest.
            self.files.databases = look.without(&report.unstable, &self.files.databases);
            let busy = RetryPause::after(self.files.busy, seams.clock.monotonic());
            self.files.busy = (!trouble.busy.is_empty()).then_some(busy);
        }
        Ok(())
    }

    /// Returns the options for sharing blocks.
    pub(super) fn pass_options(&self) -> PassOptions<'_> {
        PassOptions {
            selection: self.options.selection,
            memory_bytes: self.options.memory_bytes,
            min_run_bytes: self.options.min_run_bytes,
            space: self.options.space,
            threads: self.options.threads,
            ..PassOptions::new(self.options.temporary_folder, self.pace, self.surroundings.seams.clock)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_wait_for_ten_times_as_long_as_their_turn_took() {
        let seconds = Duration::from_secs;
        let mut turns = FilesTurns::default();
        assert!(turns.is_due(Duration::ZERO));
        turns.worked(seconds(5), seconds(8));
        assert_eq!([8, 37, 38, 1000].map(|now| turns.is_due(seconds(now))), [false, false, true, true]);
        turns.worked(Duration::ZERO, Duration::MAX);
        assert!(!turns.is_due(Duration::MAX - seconds(1)));
    }

    /// Regression: as long as one image was busy, each turn searched all of them.
    #[test]
    fn files_that_were_busy_are_tried_again_after_a_pause_or_when_a_database_changes() {
        let seconds = Duration::from_secs;
        let busy = Some(RetryPause::after(None, seconds(5)));
        let (calm, waiting) = (FilesTurns::default(), FilesTurns { busy, ..FilesTurns::default() });
        let wants = |turns: &FilesTurns, changed, now| turns.wants(changed, seconds(now));
        assert_eq!([wants(&calm, 0, 9000), wants(&calm, 1, 0)], [false, true]);
        assert_eq!([wants(&waiting, 0, 64), wants(&waiting, 0, 65), wants(&waiting, 1, 5)], [false, true, true]);
    }
}
