//! `onefold share run`

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_linux::{LinuxSubstrate, ProcessCpu};
use onefold_share::block_state::{self, CountOptions, States};
use onefold_share::files::FilesReport;
use onefold_share::mend::MendReport;
use onefold_share::pace::{Pace, Wish};
use onefold_share::pass::{PassError, PassOptions, SpaceOptions};
use onefold_share::policy::SharePolicy;
use onefold_share::run::{RunOptions, RunReport, Seams};
use onefold_share::scan::{ScanOptions, ScanProgress};
use onefold_share::selection::Selection;
use onefold_share::state::{Notice, State, StateError};
use onefold_share::without_index::WithoutIndexOptions;
use onefold_substrate::{Names, Sharing, Substrate};
use rustix::fs::{CWD, Mode, OFlags};

use super::by_files;
use super::limits::{check_memory, limits};
use super::mend::{self, MEND_WAIT};
use super::open::{IDENTITY_LOST, SETTINGS_HINT, append, cannot_share, check_root, distrust_hint, probe_failure};
use super::patterns::NamePatterns;
use super::relief;
use super::result::{ShareResult, Space};
use super::root::{RootedPaths, locate};
use super::states;
use super::user_paths::UserPaths;
use crate::cli::Talk;
use crate::cli::share::ShareRunArgs;
use crate::cli::share_work::{ConsentArgs, RootArgs, SpaceArgs};
use crate::failure::{Exit, Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::memory;
use crate::open_files;
use crate::output::Report;
use crate::verbs::run_meter::RunMeter;

/// Maximum time to count what sharing saves after a run, beside a part of the time of the run itself.
const COUNT_TIME: Duration = Duration::from_secs(10);
const COUNT_PART: u32 = 10;

pub(crate) fn run(arguments: &ShareRunArgs, talk: Talk) -> Outcome<Report> {
    let memory_bytes = check_memory(arguments.work.memory)?;
    let (limits, started) = (limits(arguments.work.limits)?, Instant::now());
    let interrupt = Interrupt::watch();
    // Locks, logs and the files of a batch are open at once.
    open_files::raise_limit();
    let RootedPaths { root, paths } = locate(&arguments.paths)?;
    let (notices, user_paths) = (RefCell::new(Vec::new()), UserPaths::new(&root, &arguments.paths, &paths));
    let note = |notice: Notice| notices.borrow_mut().push(notice.with_path(|path| user_paths.of(path)));
    let meter = RunMeter::new(talk.quiet, interrupt.clone());
    let (wish, stop) = (|| if interrupt.is_asked() { Wish::StopNow } else { Wish::GoOn }, || interrupt.is_asked());
    let pace = Pace::new(limits, &SystemClock, &ProcessCpu, &wish).stopped_by(&stop);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let patterns = NamePatterns::new(&root, &arguments.work);
    let is_wanted = |path: &Path, kind| patterns.wants(path, kind);
    let selection = Selection::new(&paths, &is_wanted);
    let temporary = arguments.work.temporary.folder();
    let show_relief = |at| meter.show_relief(at);
    let relief = relief_options(arguments, memory_bytes, selection, &pace, &show_relief);
    let relief = (!arguments.dry_run).then_some(&relief);
    let opened = relief::open(&cannot_share(&arguments.paths), &user_paths, &note, relief);
    meter.finish();
    let (substrate, mut relieved) = opened?;
    check_run_allowed(&substrate, arguments)?;
    let free_before = OnceCell::new();
    let pass = PassOptions {
        selection,
        memory_bytes,
        min_run_bytes: arguments.work.min_run.0,
        space: space(arguments.work.space),
        threads,
        is_dry_run: arguments.dry_run,
        progress: &|at| meter.show_pass(at),
        ..PassOptions::new(&temporary, &pace, &SystemClock)
    };
    let examining = |done_bytes, all_bytes| meter.show_scan(ScanProgress { done_bytes, all_bytes, read_bytes: 0 });
    let files = by_files::options(pass, &examining);
    let options = RunOptions {
        files: arguments.files.then_some(&files),
        scan: ScanOptions {
            selection,
            threads,
            // Nothing is sorted at that time.
            places_bytes: memory_bytes / 2,
            progress: &|at| meter.show_scan(at),
            ..ScanOptions::new(&pace)
        },
        pass,
        mend_wait: MEND_WAIT,
        step: &|step| {
            free_before.get_or_init(|| free_bytes(&substrate, &root));
            meter.begin(step);
        },
    };
    let seams = Seams { substrate: &substrate, clock: &SystemClock, random: &SystemRandom, notices: &note };
    let ran = relief::run(&user_paths, &seams, &options, relief, &mut relieved);
    meter.finish();
    let RunReport { mended, files, scanned, scan_time, passed, settings } = ran?;
    let space = Space { free_before: free_before.get().copied().flatten(), free_after: free_bytes(&substrate, &root) };
    let result = ShareResult {
        relieved: relieved.filter(|done| done.shared > 0),
        states: count_states(&substrate, &temporary, &counting_is_over(&interrupt, started)),
        paths: user_paths.clone(),
        root: root.clone(),
        kind: substrate.abilities().kind,
        is_dry_run: arguments.dry_run,
        scanned,
        sees_labels: substrate.reads_trusted_attributes(),
        settings: root.join(settings),
        passed,
        calls: pace.calls(),
        space,
        notices: notices.take(),
        unmatched: patterns.unmatched_lines(),
        scan_time,
        elapsed: started.elapsed(),
        memory_peak_bytes: memory::peak_bytes(),
    };
    Ok(report(&result, &mended, files.as_ref()))
}

/// Returns the options for sharing without an index.
fn relief_options<'a>(
    arguments: &ShareRunArgs,
    memory_bytes: usize,
    selection: Selection<'a>,
    pace: &'a Pace<'a>,
    progress: &'a dyn Fn(ScanProgress) -> ControlFlow<()>,
) -> WithoutIndexOptions<'a> {
    let min_run_bytes = arguments.work.min_run.0;
    WithoutIndexOptions { selection, memory_bytes: memory_bytes / 2, min_run_bytes, pace, progress }
}

/// Returns the final report of a run.
fn report(result: &ShareResult, mended: &MendReport, files: Option<&FilesReport>) -> Report {
    let files_failed = files.is_some_and(|files| by_files::has_failures(&files.passed));
    let has_failed = result.has_failures() || files_failed || mended.left().next().is_some();
    let exit = if has_failed { Exit::Failed } else { Exit::Done };
    let (mut text, mut json) = (result.text(), result.json());
    append(&mut text, &mend::lines(mended, &result.paths));
    json["mended"] = mend::json(mended);
    if let Some(files) = files {
        let told: BTreeSet<String> = text.lines().map(str::to_owned).collect();
        let lines = by_files::lines(files, result.kind, result.is_dry_run, &|path| result.paths.of(path));
        // Both parts may have met the same trouble.
        append(&mut text, lines.iter().filter(|line| !told.contains(*line)));
        json["files"] = by_files::json(files);
    }
    append(&mut text, &result.saving_line());
    Report { text, json, exit }
}

/// Returns whether counting what sharing saves is to end: the user wants the run to end, or counting has taken long
/// beside the run, which began at `started`.
fn counting_is_over(interrupt: &Interrupt, started: Instant) -> impl Fn() -> bool + use<'_> {
    let most = COUNT_TIME + started.elapsed() / COUNT_PART;
    let began = Instant::now();
    move || interrupt.is_asked() || began.elapsed() > most
}

/// Counts what sharing saves after a run. `None` if that fails or is over first: the run itself has succeeded.
fn count_states(substrate: &LinuxSubstrate, temporary_folder: &Path, is_over: &dyn Fn() -> bool) -> Option<States> {
    let state = State::look(substrate, &SystemClock, &|_| {}).ok()??;
    let options = CountOptions { since: None, temporary_folder, memory_bytes: states::MEMORY_BYTES };
    block_state::count_until(&state, &options, is_over).ok()
}

/// Returns how a pass frees space.
pub(super) fn space(arguments: SpaceArgs) -> SpaceOptions {
    SpaceOptions { rewrite_percent: arguments.rewrite, keeps_copies_small: !arguments.no_small_copies }
}

/// Opens the file system of the paths that the user gave, if blocks can be shared on it.
pub(super) fn open_substrate(
    given: &[PathBuf],
    root: &Path,
    consent: ConsentArgs,
    accepted: RootArgs,
) -> Outcome<LinuxSubstrate> {
    let substrate =
        LinuxSubstrate::open(root, Path::new("")).map_err(|error| probe_failure(&cannot_share(given), &error))?;
    check_allowed(&substrate, consent, accepted)?;
    Ok(substrate)
}

/// Checks that this run may work on a file system. A run that shares nothing leaves no holes.
fn check_run_allowed<S: Substrate>(substrate: &S, arguments: &ShareRunArgs) -> Outcome<()> {
    let consent = ConsentArgs { accept_mending: arguments.consent.accept_mending || arguments.dry_run };
    let accepted = RootArgs { accept_writable_root: arguments.root.accept_writable_root || arguments.dry_run };
    check_allowed(substrate, consent, accepted)
}

/// Refuses a file system on which sharing takes the user's consent, without it.
fn check_allowed<S: Substrate>(substrate: &S, consent: ConsentArgs, accepted: RootArgs) -> Outcome<()> {
    if SharePolicy::of(substrate.abilities()).is_declared() && !consent.accept_mending {
        return Err(without_consent());
    }
    check_root("cannot share blocks", substrate, accepted)
}

/// OCFS2 shares in two steps, between which a block reads as zeros: docs/decisions/0024-sharing-file-systems.md.
fn without_consent() -> Failure {
    Failure::new("cannot share blocks")
        .because_of(
            "on OCFS2, a host that dies while it shares leaves holes in images, until `onefold share mend` has filled them \
             on any host",
        )
        .hint(
            "give --accept-mending if nothing uses the images of a host that died before they are mended; or use XFS or \
             Btrfs, or a pool",
        )
}

/// Returns the free space once all freed space has reached the file system's accounting.
pub(super) fn free_bytes(substrate: &LinuxSubstrate, root: &Path) -> Option<u64> {
    // Without the sync, some file systems report values that are some seconds old.
    let folder = rustix::fs::openat(CWD, root, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    rustix::fs::syncfs(&folder).ok()?;
    substrate.room().ok().map(|room| room.free)
}

/// Returns the failure for a state folder that keeps blocks from being shared.
pub(super) fn state_failure(error: StateError, paths: &UserPaths) -> Failure {
    let error = &error.with_paths(|path| paths.of(path));
    match error {
        StateError::Interrupted => interrupted(),
        StateError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Failure::new("cannot share blocks")
                .because(error)
                .hint("run the command as root, or as a user who may write into the root of the file system")
        }
        StateError::Untrusted { why, .. } => {
            Failure::new("cannot share blocks").because(error).hint(distrust_hint(*why))
        }
        StateError::Newer { .. } => Failure::new("cannot share blocks")
            .because(error)
            .hint("use the newer version on this host, too; or delete the folder, and all is found again"),
        StateError::IdentityLost { .. } => Failure::new("cannot share blocks").because(error).hint(IDENTITY_LOST),
        StateError::Settings { .. } => Failure::new("cannot share blocks").because(error).hint(SETTINGS_HINT),
        StateError::Io { .. } | StateError::Restless | StateError::Damaged { .. } => {
            Failure::new("cannot share blocks").because(error)
        }
    }
}

pub(super) fn pass_failure(error: PassError, paths: &UserPaths) -> Failure {
    let error = match error {
        PassError::State(error) => return state_failure(error, paths),
        PassError::Unmended { path, why } => PassError::Unmended { path: paths.of(&path), why },
        error => error,
    };
    let failure = Failure::new("cannot share blocks").because(&error);
    match error {
        PassError::State(_) => failure,
        PassError::Unmended { .. } => {
            failure.hint("look at the disk, keep the image from being used, and run `onefold share mend`")
        }
        PassError::Io(_) => failure.hint("name a directory with more room with --temporary, or give more --memory"),
        PassError::Undeclared => failure.hint("share by content with `onefold share run`"),
        PassError::Index { .. } => failure.hint("it was dropped; run the command again: it reads all images anew"),
    }
}

fn interrupted() -> Failure {
    Failure::interrupted("sharing").hint("every file has the content that it had; what was read or shared is kept")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use onefold_substrate::UserNo;
    use onefold_testing::simulated::{SimulatedFileSystem, SimulationOptions};

    use super::*;
    use crate::cli::share::ShareCommand;
    use crate::cli::{Cli, Command};

    #[test]
    fn counting_ends_when_the_user_wants_that_or_it_has_taken_long() {
        let interrupt = Interrupt::default();
        let is_over = counting_is_over(&interrupt, Instant::now());
        assert!(!is_over());
        interrupt.ask();
        assert!(is_over());
    }

    /// Returns why a run with these flags may not work on a file system whose root folder belongs to a user.
    fn refusal(options: SimulationOptions, owner: u32, flags: &str) -> Option<String> {
        let file_system = SimulatedFileSystem::new(&SimulationOptions { images: 0, ..options });
        file_system.protect("", UserNo(owner), 0o755).unwrap();
        let line = format!("onefold share run images {flags}");
        let Command::Share(ShareCommand::Run(arguments)) =
            Cli::try_parse_from(line.split_whitespace()).unwrap().command
        else {
            panic!("it is a run")
        };
        check_run_allowed(&file_system.observe().substrate, &arguments).err().map(|failure| failure.to_string())
    }

    #[test]
    fn a_file_system_on_which_sharing_takes_consent_is_refused_without_it() {
        let two_steps = || SimulationOptions::default().in_two_steps(|_| None);
        let is_about = |refusal: Option<String>, flag: &str| refusal.is_some_and(|refusal| refusal.contains(flag));
        assert!(is_about(refusal(two_steps(), 0, ""), "--accept-mending"));
        assert_eq!(refusal(two_steps(), 0, "--accept-mending"), None);
        // Another user can put an earlier state folder there.
        assert!(is_about(refusal(two_steps(), 7, "--accept-mending"), "--accept-writable-root"));
        assert_eq!(refusal(two_steps(), 7, "--accept-mending --accept-writable-root"), None);
        assert_eq!(refusal(two_steps(), 7, "--dry-run"), None);
        assert_eq!(refusal(SimulationOptions::default(), 7, ""), None, "a state folder is only hints there");
    }

    #[test]
    fn who_has_not_agreed_to_holes_is_told_of_them() {
        let message = without_consent().to_string();
        assert!(["OCFS2", "leaves holes", "share mend", "--accept-mending"].iter().all(|part| message.contains(part)));
        assert!(!message.contains("  on"), "{message}");
    }
}
