//! `onefold share files`

mod result;
mod since;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_linux::ProcessCpu;
use onefold_share::files::{FilesOptions, ReadScope, share_files};
use onefold_share::pace::{Pace, Wish};
use onefold_share::pass::{PassOptions, PassProgress};
use onefold_share::run::{RunStep, Seams};
use onefold_share::scan::ScanProgress;
use onefold_share::selection::Selection;
use onefold_share::state::Notice;
use onefold_substrate::Sharing;

use self::result::FilesFindings;
use super::common::{RunImages, UsedVolume};
use super::limits::{check_memory, limits};
use super::patterns::NamePatterns;
use super::result::Space;
use super::root::{RootedPaths, locate};
use super::run::{free_bytes, open_substrate, pass_failure, space, state_failure};
use super::user_paths::UserPaths;
use crate::cli::Talk;
use crate::cli::share::{Comparison, ExperimentArgs, ShareGuestsArgs};
use crate::cli::share_work::{ConsentArgs, RootArgs};
use crate::failure::{Exit, Outcome};
use crate::interrupt::Interrupt;
use crate::memory;
use crate::open_files;
use crate::output::Report;
use crate::verbs::run_meter::RunMeter;

pub(crate) fn run(arguments: &ShareGuestsArgs, talk: Talk) -> Outcome<Report> {
    let memory_bytes = check_memory(arguments.work.memory)?;
    let limits = limits(arguments.work.limits)?;
    let started = Instant::now();
    let since = arguments.since.as_deref().map(since::read).transpose()?;
    let interrupt = Interrupt::watch();
    open_files::raise_limit();
    let RootedPaths { root, paths } = locate(&arguments.paths)?;
    // Where shares may leave holes, nothing is shared; `share_files` reports that.
    let consent = ConsentArgs { accept_mending: true };
    let substrate = open_substrate(&arguments.paths, &root, consent, RootArgs { accept_writable_root: true })?;
    let notices = RefCell::new(Vec::new());
    let user_paths = UserPaths::new(&root, &arguments.paths, &paths);
    let note = |notice: Notice| notices.borrow_mut().push(notice.with_path(|path| user_paths.of(path)));
    let meter = RunMeter::new(talk.quiet, interrupt.clone());
    let wish = || if interrupt.is_asked() { Wish::StopNow } else { Wish::GoOn };
    let stop = || interrupt.is_asked();
    let pace = Pace::new(limits, &SystemClock, &ProcessCpu, &wish).stopped_by(&stop);
    let patterns = NamePatterns::new(&root, &arguments.work);
    let is_wanted = |path: &Path, kind| patterns.wants(path, kind);
    let temporary = arguments.work.temporary.folder();
    let seams = Seams { substrate: &substrate, clock: &SystemClock, random: &SystemRandom, notices: &note };
    let state = seams.open().map_err(|error| state_failure(error, &user_paths))?;
    let used = || RunImages {
        root: &root,
        paths: &paths,
        user_paths: &user_paths,
        selection: Selection::new(&paths, &is_wanted),
        memory_bytes,
        temporary_folder: &temporary,
        is_dry_run: arguments.dry_run,
        pace: &pace,
    };
    let volume = arguments.common.then(|| UsedVolume::find(&state, &used())).transpose()?;
    let options = FilesOptions {
        pass: PassOptions {
            selection: Selection::new(&paths, &is_wanted),
            memory_bytes,
            min_run_bytes: arguments.work.min_run.0,
            joins_runs: !arguments.experiments.no_join,
            space: space(arguments.work.space),
            threads: thread::available_parallelism().map_or(1, usize::from),
            is_dry_run: arguments.dry_run,
            progress: &|at| show_pass(&meter, at),
            ..PassOptions::new(&temporary, &pace, &SystemClock)
        },
        tiers: &arguments.tiers,
        reading: reading(arguments.experiments),
        random: &SystemRandom,
        since: since.as_ref(),
        stable_for: Duration::ZERO,
        is_full: arguments.full,
        common: volume.as_ref().map(UsedVolume::source),
        examining: &|done_bytes, all_bytes| meter.show_scan(ScanProgress { done_bytes, all_bytes, read_bytes: 0 }),
    };
    let free_before = free_bytes(&substrate, &root);
    meter.begin(RunStep::Scan);
    let shared = share_files(&state, &options);
    meter.finish();
    let report = shared.map_err(|error| pass_failure(error, &user_paths))?;
    drop(state);
    let result = FilesFindings {
        report,
        volume,
        kind: substrate.abilities().kind,
        is_dry_run: arguments.dry_run,
        calls: pace.calls(),
        space: Space { free_before, free_after: free_bytes(&substrate, &root) },
        notices: notices.take(),
        unmatched: patterns.unmatched_lines(),
        elapsed: started.elapsed(),
        memory_peak_bytes: memory::peak_bytes(),
        paths: user_paths.clone(),
        root,
    };
    let exit = if result.has_failures() { Exit::Failed } else { Exit::Done };
    Ok(Report { text: result.text(), json: result.json(), exit })
}

/// Shows the progress of sharing, which begins once the pass is planned.
fn show_pass(meter: &RunMeter, at: PassProgress) -> ControlFlow<()> {
    if matches!(at, PassProgress::Planned { .. }) {
        meter.begin(RunStep::Pass);
    }
    meter.show_pass(at)
}

fn reading(arguments: ExperimentArgs) -> ReadScope {
    match (arguments.whole_files, arguments.compare) {
        (true, _) => ReadScope::WholeFiles,
        (false, Comparison::Read) => ReadScope::Files,
        (false, Comparison::Kernel) => ReadScope::Probes,
    }
}
