//! `onefold share watch`

mod lines;
mod watchdog;

use std::io::{self, Write};
use std::path::Path;
use std::process;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_block::shown::ShownText;
use onefold_linux::{LinuxMachine, LinuxSubstrate, ProcessCpu};
use onefold_share::pass::PassError;
use onefold_share::policy::SharePolicy;
use onefold_share::run::Seams;
use onefold_share::scan::MAP_BYTES_MIN;
use onefold_share::selection::Selection;
use onefold_share::state::Notice;
use onefold_share::watch::{Surroundings, WatchEvent, WatchOptions, Windows, watch};
use onefold_substrate::Sharing;
use sd_notify::NotifyState;
use serde_json::Value;

use self::lines::{WatchLine, WatchedPlace};
use self::watchdog::Watchdog;
use super::limits::{check_memory, limits};
use super::patterns::NamePatterns;
use super::root::{RootedPaths, locate};
use super::run::{open_substrate, pass_failure, space, state_failure};
use super::user_paths::UserPaths;
use crate::cli::Talk;
use crate::cli::share::ShareWatchArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::open_files;
use crate::output::{Document, Report};

/// Maximum time for the report of a hanging call.
const REPORT_TIME_MAX: Duration = Duration::from_secs(5);

/// Minimum of `--interval`: each look lists all folders and inspects all processes.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

pub(super) fn run(arguments: &ShareWatchArgs, talk: Talk) -> Outcome<Report> {
    if arguments.interval < INTERVAL_MIN {
        return Err(Failure::usage("cannot share blocks").because_of("--interval is less than 100ms"));
    }
    let memory_bytes = check_memory(arguments.work.memory)?;
    let limits = limits(arguments.work.limits)?;
    let interrupt = Interrupt::watch();
    open_files::raise_limit();
    let RootedPaths { root, paths } = locate(&arguments.paths)?;
    let substrate = open_substrate(&arguments.paths, &root, arguments.consent, arguments.root)?;
    let user_paths = UserPaths::new(&root, &arguments.paths, &paths);
    if arguments.files && SharePolicy::of(substrate.abilities()).is_declared() {
        return Err(pass_failure(PassError::Undeclared, &user_paths));
    }
    let place = WatchedPlace { root: &root, kind: substrate.abilities().kind, user_paths: &user_paths };
    let patterns = NamePatterns::new(&root, &arguments.work);
    let is_wanted = |path: &Path, kind| patterns.wants(path, kind);
    let options = WatchOptions {
        selection: Selection::new(&paths, &is_wanted),
        shares_files: arguments.files,
        threads: threads(arguments.work.limits.cpu_limit),
        temporary_folder: &arguments.work.temporary.folder(),
        memory_bytes,
        min_run_bytes: arguments.work.min_run.0,
        space: space(arguments.work.space),
        limits,
        interval: arguments.interval,
        windows: Windows(arguments.window.clone()),
        load_max: arguments.max_load,
        stable_for: arguments.stable_for,
        batch_percent: arguments.batch,
        wait_max: arguments.max_wait,
        log_bytes_max: arguments.max_logs.map(|size| size.0),
        map_bytes_min: MAP_BYTES_MIN,
    };
    let watchdog = Watchdog::default();
    let surroundings = Surroundings {
        seams: Seams {
            substrate: &substrate,
            clock: &SystemClock,
            random: &SystemRandom,
            notices: &|notice: Notice| print(&WatchLine::notice(notice, &user_paths), talk),
        },
        cpu: &ProcessCpu,
        machine: &LinuxMachine::new(&substrate),
        stop: &|| {
            watchdog.sign();
            interrupt.is_asked()
        },
    };
    let watched = thread::scope(|scope| {
        let is_guarded = !arguments.max_hang.is_zero();
        let guard = is_guarded.then(|| scope.spawn(|| guard(&watchdog, arguments.max_hang, &substrate, talk)));
        let watched = watch(&surroundings, &options, &mut |event| {
            if matches!(event, WatchEvent::Began) {
                // Without a service manager, nobody listens.
                let _ = sd_notify::notify(&[NotifyState::Ready]);
            }
            print(&WatchLine::event(&event, &place), talk);
        });
        watchdog.end();
        if let Some(guard) = guard {
            guard.thread().unpark();
        }
        watched
    });
    watched.map_err(|error| state_failure(error, &user_paths))?;
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    Ok(Report::done("", Value::Null))
}

/// Ends the process if a call hangs. Reports it, and releases the locks first, because the kernel closes no file of a
/// process whose call does not return.
fn guard(watchdog: &Watchdog, limit: Duration, substrate: &LinuxSubstrate, talk: Talk) {
    if !watchdog.wait(limit, || substrate.calls()) {
        return;
    }
    // The reader of the report may hang, too.
    let (reported, report) = mpsc::channel();
    let line = WatchLine::hung(limit, SharePolicy::of(substrate.abilities()).is_declared());
    thread::spawn(move || {
        print(&line, talk);
        let _ = sd_notify::notify(&[NotifyState::Status(&line.text), NotifyState::Stopping]);
        let _ = reported.send(());
    });
    let _ = report.recv_timeout(REPORT_TIME_MAX);
    substrate.give_up_locks();
    process::exit(Exit::Failed.code().into());
}

/// Returns the number of threads that read and digest: no more than may work at once.
fn threads(cpu_limit: Option<u32>) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let wanted = cpu_limit.map_or(cores, |percent| usize::try_from(percent.div_ceil(100)).unwrap_or(cores));
    cores.min(wanted)
}

/// Prints a line. A reader that has stopped reading does not end the watch.
fn print(line: &WatchLine, talk: Talk) {
    let _ = if talk.json {
        writeln!(io::stdout().lock(), "{}", Document::line(&line.json))
    } else if line.is_trouble {
        writeln!(io::stderr().lock(), "{}", ShownText::line(&line.text))
    } else {
        writeln!(io::stdout().lock(), "{}", ShownText::line(&line.text))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_limit_leaves_as_many_threads_as_it_has_use_for() {
        let cores = thread::available_parallelism().unwrap().get();
        assert_eq!(threads(None), cores);
        assert_eq!(threads(Some(1)), 1);
        assert_eq!(threads(Some(100)), 1);
        assert_eq!(threads(Some(101)), cores.min(2));
        assert_eq!(threads(Some(100_000)), cores);
    }
}
