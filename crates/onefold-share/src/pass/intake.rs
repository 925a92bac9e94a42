//! Intake of the logs: finds the logs of this pass, and reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use onefold_sort::SortWriter;
use onefold_substrate::Substrate;

use super::PassError;
use super::again::RereadCause;
use super::lists::LogContents;
use super::publish::{LOCK_PAUSE, LOCK_TRIES};
use super::resumption::{BatchSlots, ResumedFile};
use super::rows::{SeenContent, Target};
use super::run::{Pass, TakenLog};
use crate::format::log::{LogKind, LogRun};
use crate::format::{FileNo, FormatError};
use crate::state::logs::{LogError, LogName};

impl<S: Substrate> Pass<'_, '_, S> {
    /// Reads the logs of all files that this host has, or can have, and on which no other host works. Returns those
    /// that may be removed once the index is published.
    pub(super) fn take_logs(
        &mut self,
        told: &mut LogContents,
        targets: &mut SortWriter,
    ) -> Result<Vec<TakenLog>, PassError> {
        let ahead = self.free_logs()?;
        let claimed = self.claim(ahead.iter().map(|(file, _)| *file).collect())?;
        let slots = if claimed.is_empty() { None } else { BatchSlots::load(self.engine.state, self.engine.options)? };
        let mut done = Vec::new();
        for (file, log) in ahead {
            self.engine.options.pace.boundary()?;
            if !claimed.contains(&file) {
                self.engine.passed.logs_elsewhere += 1;
                continue;
            }
            if !self.engine.images.is_there(file)? {
                // The file may come back unchanged, under another name of its folder or in the selection.
                if self.engine.images.forget_scan(file)? {
                    self.engine.state.remove_log(&log)?;
                }
                continue;
            }
            // Requests are few, and short.
            let mut resumed = match &slots {
                Some(slots) if log.kind == LogKind::Log => ResumedFile::load(self.engine.state, slots, log.file)?,
                _ => None,
            };
            let read = self.read_log(file, &log, told, targets, resumed.as_mut());
            if let Some(resumed) = resumed {
                self.resumption.note(file, &resumed);
            }
            match read {
                Ok(()) => done.push((file, log)),
                Err(LogError::Each(error)) => return Err(error),
                // Another host had the file until a moment ago, and has taken the log in.
                Err(LogError::Log(FormatError::Io(why))) if why.kind() == io::ErrorKind::NotFound => continue,
                // The part that was read counts; the rest is found when the file is read again.
                Err(LogError::Log(why)) => {
                    if self.engine.images.forget_scan(file)? {
                        self.engine.state.refuse_log(&log, why)?;
                    }
                }
            }
            told.written.seal();
            self.engine.passed.logs += 1;
        }
        Ok(done)
    }

    /// Returns the logs of files that no host has, in the order in which they are to be read, each with the number that
    /// stands for its file.
    fn free_logs(&mut self) -> Result<Vec<TakenLog>, PassError> {
        let mut free = Vec::new();
        // Of two logs that report one block, the newer one is right, whichever number of their file they have. Requests
        // pass on what was known before any of them.
        let (requests, mut logs): (Vec<LogName>, Vec<LogName>) =
            self.engine.state.logs()?.into_iter().partition(|log| log.kind == LogKind::Request);
        logs.sort_by_key(LogName::order);
        let mut present = BTreeMap::new();
        for log in logs.into_iter().rev().chain(requests) {
            self.engine.options.pace.boundary()?;
            if !self.engine.images.is_selected(log.file) {
                self.engine.passed.logs_outside += 1;
                continue;
            }
            if log.kind == LogKind::Request && log.host != self.engine.state.host() {
                // Its writer may not have published the content of the log yet. The pass would wrongly take the content
                // for known.
                let is_present = match present.get(&log.host) {
                    Some(is_present) => *is_present,
                    None => self.engine.state.is_present(log.host)?,
                };
                present.insert(log.host, is_present);
                if is_present {
                    self.engine.passed.logs_elsewhere += 1;
                    continue;
                }
            }
            if self.engine.images.own(log.file)? {
                free.push((self.engine.images.first_number(log.file)?, log));
            } else {
                self.engine.passed.logs_elsewhere += 1;
            }
        }
        Ok(free)
    }

    /// Keeps other passes from working on files, and returns the files that this pass may work on. A dry run changes
    /// nothing, and looks at all files.
    fn claim(&mut self, wanted: BTreeSet<FileNo>) -> Result<BTreeSet<FileNo>, PassError> {
        if wanted.is_empty() || self.engine.options.is_dry_run {
            return Ok(wanted);
        }
        // A claim holds as long as its host is present.
        self.engine.state.be_present()?;
        for _ in 0..LOCK_TRIES {
            if let Some(claimed) = self.engine.state.claim(&wanted)? {
                self.has_claimed = !claimed.is_empty();
                return Ok(claimed);
            }
            self.engine.options.clock.sleep(LOCK_PAUSE);
            self.engine.options.pace.waited();
            self.engine.options.pace.boundary()?;
        }
        Ok(BTreeSet::new())
    }

    fn read_log(
        &mut self,
        file: FileNo,
        log: &LogName,
        told: &mut LogContents,
        targets: &mut SortWriter,
        mut resumed: Option<&mut ResumedFile<'_>>,
    ) -> Result<(), LogError<PassError>> {
        let LogContents { seen, written } = told;
        let is_reserved = self.engine.images.is_reserved(file);
        let is_unnoted = self.engine.images.is_unnoted(log);
        let is_log = log.kind == LogKind::Log;
        let mut told_blocks = 0;
        let read = self.engine.state.read_log_runs(log, |run| -> Result<(), PassError> {
            self.engine.options.pace.boundary()?;
            let LogRun { first, count, .. } = run;
            if is_unnoted {
                // A scan that did not know this log may have read these blocks later.
                self.engine.passed.trouble.again.add(file, first, count, RereadCause::Changed);
            }
            if is_log {
                told_blocks += count;
                written.add(file, first, count);
            }
            // Sealed logs are newer.
            let is_older = written.has(file);
            for block in run.written().into_iter().flatten() {
                self.engine.options.pace.boundary()?;
                let is_told = is_older && written.contains(file, block.block);
                if is_told || resumed.as_mut().is_some_and(|resumed| resumed.is_done(block)) {
                    continue;
                }
                match block.digest {
                    Some(digest) => seen.push(SeenContent { digest, file, block: block.block }.row())?,
                    // The user who reserved the space of the file wants to keep it.
                    None if is_reserved => {}
                    None => targets.push(Target { file, block: block.block, slot: None }.row())?,
                }
            }
            Ok(())
        });
        self.told_blocks += told_blocks;
        read
    }
}
