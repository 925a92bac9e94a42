//! `onefold pool dedup`: finds equal blocks that a pool's writes did not find.
//!
//! Runs the engine of `onefold share` over the pool in this process, once for each sharing domain. With `--files`,
//! equal files of guests share their blocks before that. The engine's records lie in the pool meanwhile, and are
//! removed at the end: otherwise they would keep blocks that no file has any more, until the next run.

mod places;
mod result;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use std::time::Instant;

use onefold_block::Show;
use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_linux::ProcessCpu;
use onefold_pool::{Dedup, MEMORY_BYTES_MIN, OpenOptions, Pool, PoolError, PoolSubstrate};
use onefold_share::pace::{Limits, Pace, Wish};
use onefold_share::pass::{PassError, PassOptions};
use onefold_share::run::{RunOptions, RunReport, Seams};
use onefold_share::scan::{RereadPolicy, ScanOptions, ScanProgress};
use onefold_share::selection::Selection;
use onefold_share::state::{Notice, StateError};
use onefold_substrate::ListedKind;

use self::places::{DomainFolder, attr_at, not_ours, places, remove_state};
use self::result::DedupResult;
use crate::cli::Talk;
use crate::cli::pool::DedupArgs;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::locate::{self, PoolTarget};
use crate::output::Report;
use crate::store::open_pool;
use crate::verbs::run_meter::RunMeter;
use crate::verbs::share::by_files;

/// Divisor of `--memory`: this share is for sorting.
const SORTING_SHARE: u64 = 4;
/// Minimum of `--memory`: the rest must suffice for the pool.
const MEMORY_LEAST: u64 = MEMORY_BYTES_MIN * SORTING_SHARE / (SORTING_SHARE - 1) + 1;

pub(super) fn run(arguments: &DedupArgs, talk: Talk) -> Outcome<Report> {
    const CANNOT: &str = "cannot share blocks of the pool";
    let started = Instant::now();
    let path = match locate::locate(&arguments.pool)? {
        PoolTarget::Offline(path) => path,
        PoolTarget::Served(path) => return Err(locate::served(format!("{CANNOT} `{}`", path.shown()), &path)),
        PoolTarget::Mounted { mount, .. } => {
            let mountpoint = mount.mountpoint.shown();
            return Err(Failure::new(format!("{CANNOT} mounted at `{mountpoint}`"))
                .because_of("it needs a pool that no other process uses")
                .hint(format!("`onefold pool umount {mountpoint}` first")));
        }
        PoolTarget::Stale(mount) => return Err(locate::stale(&mount)),
    };
    let cannot = || format!("{CANNOT} `{}`", path.shown());
    let memory = arguments.open.memory.0;
    if memory < MEMORY_LEAST {
        return Err(Failure::usage(cannot()).because_of("--memory is less than 86M"));
    }
    let of_pool = |error: &PoolError| Failure::of_pool(cannot(), error);
    let sorting = memory / SORTING_SHARE;
    let pool = open_pool(&path, OpenOptions { memory_bytes: memory - sorting, ..OpenOptions::default() })?;
    let run = DedupRun {
        pool: &pool,
        cannot: &cannot,
        temporary: &arguments.temporary.folder(),
        sorting_bytes: usize::try_from(sorting).unwrap_or(usize::MAX),
        talk,
        interrupt: Interrupt::watch(),
        shares_files: arguments.files,
        is_dry_run: arguments.dry_run,
    };
    let mut findings = DedupResult::new(&path, arguments.dry_run);
    let places = places(&pool).map_err(|error| of_pool(&error))?;
    for place in &places {
        if let Some(found) = not_ours(&pool, place).map_err(|error| of_pool(&error))? {
            return Err(Failure::new(cannot())
                .because_of(format!("`/{}` is where its records would lie, and none of them", found.shown()))
                .hint("mount the pool and rename it"));
        }
    }
    // Removes records that a killed run has left.
    remove_all_state(&pool, &places).map_err(|error| of_pool(&error))?;
    let before = stored_bytes(&pool).map_err(|error| of_pool(&error))?;
    let done = places.iter().try_for_each(|place| run.share_place(place, &places, &mut findings));
    // The records are removed after any outcome.
    let after = remove_all_state(&pool, &places).and_then(|()| stored_bytes(&pool));
    let closed = pool.close();
    done?;
    findings.freed_bytes = before.saturating_sub(after.map_err(|error| of_pool(&error))?);
    closed.map_err(|error| of_pool(&error))?;
    findings.domains = places.len();
    findings.elapsed = started.elapsed();
    let exit = findings.exit();
    Ok(Report { text: findings.text(), json: findings.json(), exit })
}

/// A run over one pool.
struct DedupRun<'a> {
    pool: &'a Pool,
    cannot: &'a dyn Fn() -> String,
    temporary: &'a Path,
    sorting_bytes: usize,
    talk: Talk,
    interrupt: Interrupt,
    /// Whether equal files of guests share first.
    shares_files: bool,
    is_dry_run: bool,
}

/// The files of a place that are scanned, and those that may be shared in.
#[derive(Clone, Copy)]
struct FileSelection<'a> {
    scanned: &'a dyn Fn(&Path, ListedKind) -> bool,
    shared: &'a dyn Fn(&Path, ListedKind) -> bool,
}

impl DedupRun<'_> {
    /// Shares equal blocks below one place, except below other places.
    fn share_place(&self, place: &DomainFolder, places: &[DomainFolder], findings: &mut DedupResult) -> Outcome<()> {
        let opened = PoolSubstrate::open(self.pool, &place.path);
        let substrate = opened.map_err(|error| Failure::of_io((self.cannot)(), &error))?;
        let notices = RefCell::new(Vec::new());
        let take_notice = |notice: Notice| notices.borrow_mut().push(notice);
        let opted_out = RefCell::new(BTreeSet::new());
        let wants = |path: &Path, kind: ListedKind| match kind {
            ListedKind::File => {
                // A file that cannot be inspected fails later, when it is read.
                let is_off = attr_at(self.pool, place, path).is_ok_and(|attr| attr.dedup == Dedup::Off);
                if is_off {
                    opted_out.borrow_mut().insert(path.to_owned());
                }
                !is_off
            }
            _ => !places.iter().any(|other| other.path == place.path.join(path)),
        };
        // The pool itself refuses files with deduplication switched off, wherever a pass meets them.
        let is_below = |path: &Path, kind| {
            kind == ListedKind::File || !places.iter().any(|other| other.path == place.path.join(path))
        };
        let ran = self.run(&substrate, &take_notice, &FileSelection { scanned: &wants, shared: &is_below });
        findings.notices.extend(notices.take());
        findings.opted_out += opted_out.borrow().len() as u64;
        let RunReport { files, scanned, passed, .. } = ran?;
        if let Some(files) = files {
            findings.add_files(place, files);
        }
        findings.add(place, &scanned, &passed);
        Ok(())
    }

    fn run(
        &self,
        substrate: &PoolSubstrate<'_>,
        notices: &dyn Fn(Notice),
        wanted: &FileSelection<'_>,
    ) -> Outcome<RunReport> {
        let meter = RunMeter::new(self.talk.quiet, self.interrupt.clone());
        let interrupt = &self.interrupt;
        let wish = || if interrupt.is_asked() { Wish::StopNow } else { Wish::GoOn };
        let stop = || interrupt.is_asked();
        let pace = Pace::new(Limits::default(), &SystemClock, &ProcessCpu, &wish).stopped_by(&stop);
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let roots = [PathBuf::new()];
        let show_pass = |at| meter.show_pass(at);
        let pass = |selects| PassOptions {
            selection: Selection::new(&roots, selects),
            memory_bytes: self.sorting_bytes,
            threads,
            is_dry_run: self.is_dry_run,
            progress: &show_pass,
            ..PassOptions::new(self.temporary, &pace, &SystemClock)
        };
        let examining = |done_bytes, all_bytes| meter.show_scan(ScanProgress { done_bytes, all_bytes, read_bytes: 0 });
        // Files with deduplication switched off are not examined either.
        let by_files = self.shares_files.then(|| by_files::options(pass(wanted.scanned), &examining));
        let options = RunOptions {
            files: by_files.as_ref(),
            scan: ScanOptions {
                selection: Selection::new(&roots, wanted.scanned),
                threads,
                // Nothing is kept for a later run.
                rereading: RereadPolicy { map_bytes_min: u64::MAX, ..RereadPolicy::default() },
                progress: &|at| meter.show_scan(at),
                ..ScanOptions::new(&pace)
            },
            pass: pass(wanted.shared),
            mend_wait: Duration::ZERO,
            step: &|step| meter.begin(step),
        };
        let seams = Seams { substrate, clock: &SystemClock, random: &SystemRandom, notices };
        let ran = onefold_share::run(&seams, &options);
        meter.finish();
        ran.map_err(|error| match &error {
            PassError::State(StateError::Interrupted) => self.failure(&error, true),
            PassError::Io(_) => self
                .failure(&error, false)
                .hint("name a directory with more room with --temporary, or give more --memory"),
            PassError::State(_) | PassError::Index { .. } | PassError::Unmended { .. } | PassError::Undeclared => {
                self.failure(&error, false)
            }
        })
    }

    fn failure(&self, error: &dyn std::error::Error, is_interrupted: bool) -> Failure {
        if is_interrupted {
            let hint = "every file has the content that it had; what was shared so far stays shared";
            return Failure::interrupted("sharing").hint(hint);
        }
        Failure::new((self.cannot)()).because(error)
    }
}

fn remove_all_state(pool: &Pool, places: &[DomainFolder]) -> Result<(), PoolError> {
    places.iter().try_for_each(|place| remove_state(pool, place))
}

/// Returns the number of bytes in a pool's blocks, once no block waits to be freed.
fn stored_bytes(pool: &Pool) -> Result<u64, PoolError> {
    while pool.reclaim()? {}
    pool.commit()?;
    let stat = pool.stat()?;
    Ok(stat.unique_bytes + stat.shared_bytes)
}
