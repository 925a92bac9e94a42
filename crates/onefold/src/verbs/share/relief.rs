//! `onefold share run` on a file system without room for its records: it first shares without an index.

use std::io;
use std::path::Path;

use onefold_block::Show;
use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_linux::{LinuxSubstrate, ProbeError};
use onefold_share::pass::PassError;
use onefold_share::policy::SharePolicy;
use onefold_share::run::{RunOptions, RunReport, Seams};
use onefold_share::state::{Notice, StateError};
use onefold_share::without_index::{WithoutIndexOptions, WithoutIndexReport, share_without_index};
use onefold_substrate::Sharing;
use serde_json::{Value, json};

use super::open::probe_failure;
use super::run::{pass_failure, state_failure};
use super::user_paths::UserPaths;
use crate::failure::{Failure, Outcome};
use crate::size::human;

/// Hint where a file system has room and refuses files nevertheless.
const OTHER_LIMITS: &str =
    "the file system has room: look whether a quota or the number of files (`df -i`) is the limit, and raise it";

/// Returns whether a probe failed because there was no room for its trial.
fn is_probe_full(error: &ProbeError) -> bool {
    matches!(error, ProbeError::Io { source, .. } if is_full(source))
}

/// Returns whether a run ended, or left work, because there was no room for records.
fn is_run_full(ran: &Result<RunReport, PassError>) -> bool {
    match ran {
        Ok(report) => report.passed.trouble.is_full || report.passed.trouble.records_left.is_some(),
        Err(PassError::State(StateError::Io { source, .. })) => is_full(source),
        Err(_) => false,
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Opens the file system of `paths` for the action `cannot`, and relieves it first if it has no room for the trial.
pub(super) fn open(
    cannot: &str,
    paths: &UserPaths,
    notices: &dyn Fn(Notice),
    options: Option<&WithoutIndexOptions<'_>>,
) -> Outcome<(LinuxSubstrate, Option<WithoutIndexReport>)> {
    let root = paths.root();
    let cannot = |error: ProbeError| probe_failure(cannot, &error);
    let error = match LinuxSubstrate::open(root, Path::new("")) {
        Ok(substrate) => return Ok((substrate, None)),
        Err(error) => error,
    };
    let Some(options) = options.filter(|_| is_probe_full(&error)) else { return Err(cannot(error)) };
    let substrate = LinuxSubstrate::look(root).map_err(cannot)?;
    let seams = Seams { substrate: &substrate, clock: &SystemClock, random: &SystemRandom, notices };
    let done = share_without_index(&seams, options).map_err(|error| state_failure(error, paths))?;
    let Some(done) = done else { return Err(limited(&substrate, cannot(error))) };
    match LinuxSubstrate::open(root, Path::new("")) {
        Ok(substrate) => Ok((substrate, Some(done))),
        Err(error) if is_probe_full(&error) && !done.has_room() => Err(still_full(root, &done)),
        Err(error) => Err(cannot(error)),
    }
}

/// Does a run. If the file system has no room for its records, this relieves it and does the run again.
pub(super) fn run(
    paths: &UserPaths,
    seams: &Seams<'_, LinuxSubstrate>,
    run: &RunOptions<'_>,
    relief: Option<&WithoutIndexOptions<'_>>,
    relieved: &mut Option<WithoutIndexReport>,
) -> Outcome<RunReport> {
    let ran = onefold_share::run(seams, run);
    let Some(options) = relief.filter(|_| is_run_full(&ran)) else {
        return ran.map_err(|error| pass_failure(error, paths));
    };
    let done = match *relieved {
        Some(done) => Some(done),
        None => share_without_index(seams, options).map_err(|error| state_failure(error, paths))?,
    };
    let Some(done) = done else { return ran.map_err(|error| limited(seams.substrate, pass_failure(error, paths))) };
    if relieved.replace(done).is_some() || done.shared == 0 {
        return ended(paths, ran, &done);
    }
    let mut again = onefold_share::run(seams, run);
    if let (Ok(again), Ok(first)) = (&mut again, ran) {
        again.add_earlier(first);
    }
    ended(paths, again, &done)
}

/// Returns the result of a run that had no room for its records.
fn ended(paths: &UserPaths, ran: Result<RunReport, PassError>, done: &WithoutIndexReport) -> Outcome<RunReport> {
    match ran {
        Err(_) if is_run_full(&ran) && !done.has_room() => Err(still_full(paths.root(), done)),
        ran => ran.map_err(|error| pass_failure(error, paths)),
    }
}

/// Adds a hint to the failure of a file system that sharing without an index cannot help.
fn limited(substrate: &LinuxSubstrate, failure: Failure) -> Failure {
    if SharePolicy::of(substrate.abilities()).is_declared() { failure } else { failure.hint(OTHER_LIMITS) }
}

/// Returns the failure for a file system that is still too full.
fn still_full(root: &Path, done: &WithoutIndexReport) -> Failure {
    let first =
        if done.shared > 0 { format!("; {} were shared without records", human(done.shared)) } else { String::new() };
    Failure::new("cannot share blocks")
        .because_of(format!(
            "the file system at `{}` has {} left, and the records of a run need about {}{first}",
            root.shown(),
            human(done.free),
            human(done.needed)
        ))
        .hint(format!("make {} of room, and run the command again", human(done.needed.saturating_sub(done.free))))
}

/// Returns the line for people.
pub(super) fn line(done: &WithoutIndexReport) -> String {
    format!("the file system was full: {} were shared first, without records", human(done.shared))
}

/// Returns the figures for machines.
pub(super) fn json(done: &WithoutIndexReport) -> Value {
    json!({
        "shared_bytes": done.shared,
        "read_bytes": done.read,
        "needed_bytes": done.needed,
        "free_bytes": done.free,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_how_much_room_is_needed() {
        let done = WithoutIndexReport { free: 1 << 20, needed: 5 << 20, shared: 8192, ..WithoutIndexReport::default() };
        let message = still_full(Path::new("/data"), &done).to_string();
        for part in
            ["`/data` has 1.00 MiB left", "need about 5.00 MiB", "8.00 KiB were shared", "make 4.00 MiB of room"]
        {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
