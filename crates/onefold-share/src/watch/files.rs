//! Equal files of guests, in a watch: once a package database has changed, they are shared before anything is scanned.
//!
//! A look at a database costs a look-up of a few of its files. So an update of many guests is shared a round later, and
//! a machine that writes to its logs is examined only when something else changes.

use std::ops::ControlFlow;

use onefold_substrate::Substrate;

use super::{WatchEvent, Watcher};
use crate::files::{FilesOptions, Reading, Tier, share_files};
use crate::format::watch::WatchPhase;
use crate::pass::{PassError, PassOptions};
use crate::scan::TICK;
use crate::state::State;
use crate::state::watches::WatchFile;

impl<S: Substrate> Watcher<'_, S> {
    /// Shares equal files of guests, if that is wanted and a package database has changed.
    pub(super) fn share_files(&mut self, state: &State<'_, S>, file: &mut WatchFile<'_, S>) -> Result<(), PassError> {
        if !self.options.shares_files {
            return Ok(());
        }
        self.say(file, WatchPhase::Scanning)?;
        self.pace.begin();
        let look = self.databases.again(state, &self.options.selection, self.pace)?;
        if look.changed == 0 {
            self.databases = look;
            return Ok(());
        }
        self.say(file, WatchPhase::Sharing)?;
        let surroundings = self.surroundings;
        let seams = &surroundings.seams;
        let began = seams.clock.monotonic();
        let options = FilesOptions {
            pass: self.pass_options(),
            tiers: &Tier::ALL,
            reading: Reading::default(),
            random: seams.random,
            since: None,
            common: None,
            examining: &|_, _| ControlFlow::Continue(()),
        };
        let report = share_files(state, &options)?;
        // As in a run: the scan trusts files that are older than itself.
        seams.clock.sleep(2 * TICK);
        let elapsed = seams.clock.monotonic().saturating_sub(began);
        self.status.shared_bytes += report.passed.shared.now;
        self.status.freed_bytes += report.passed.shared.freed;
        (self.tell)(WatchEvent::FilesShared { changed: look.changed, report: &report, elapsed });
        // Only now: what a failure has left is shared in the next round.
        self.databases = look;
        Ok(())
    }

    /// Returns how blocks are shared.
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
