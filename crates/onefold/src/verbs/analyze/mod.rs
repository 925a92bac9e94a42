//! `onefold analyze`

mod found;
mod open;
mod report;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use onefold_block::Random;
use onefold_block::Show;
use onefold_block::random::SystemRandom;
use onefold_report::{AnalyzeError, Options, Progress, Shifts, SkippedImage, Stage, analyze, analyze_sample};
use parking_lot::Mutex;
use serde_json::Value;

use crate::cli::Talk;
use crate::cli::analyze::{AnalyzeArgs, GroupArg, ShareArg};
use crate::failure::{Exit, Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::memory;
use crate::output::analysis::{Cost, Details};
use crate::output::{Report, machine_name};
use crate::progress::Meter;
use crate::size::human;

use super::images::archived::STREAM_BYTES;
use super::images::{self, FoundImage, UnfitFile};
use found::AnalysisResult;
use open::OpeningOptions;
use report::ReportFile;

/// The least `--memory`: below it, buffers would be most of it.
const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// Memory of the process besides rows: buffers, the program itself.
const OVERHEAD_BYTES: u64 = 32 << 20;

pub(crate) fn run(arguments: &AnalyzeArgs, talk: Talk) -> Outcome<Report> {
    if arguments.memory.0 < MEMORY_BYTES_MIN {
        return Err(Failure::usage("cannot analyse with so little memory").because_of(format!(
            "--memory is {}, and an analysis needs at least {}",
            human(arguments.memory.0),
            human(MEMORY_BYTES_MIN)
        )));
    }
    check_share(arguments)?;
    let page = arguments.report.as_deref().map(ReportFile::at).transpose()?;
    let started = Instant::now();
    let interrupt = Interrupt::watch();
    let finding = images::find(&arguments.paths);
    check_groups(arguments, &finding.images)?;
    let (names, group_of) = groups(arguments);
    let how = OpeningOptions {
        format: arguments.format.map(Into::into),
        backing_from: arguments.backing_from.clone(),
        interrupt: interrupt.clone(),
    };
    let images: Vec<_> = finding.images.iter().map(|found| open::image(found, &how, group_of(found))).collect();
    let is_archived = |found: &FoundImage| matches!(found, FoundImage::Archived(_));
    let archived_bytes = if finding.images.iter().any(is_archived) { STREAM_BYTES } else { 0 };
    let options = Options {
        memory_bytes: arguments.memory.0 - OVERHEAD_BYTES - archived_bytes,
        folder: arguments.temporary.folder(),
        key: key()?,
        groups: names,
        shifts: if arguments.shifts { Shifts::All } else { Shifts::No },
        files: arguments.files,
        explain: open::explain,
    };
    let shown = StageProgress { meter: Mutex::new(None), quiet: talk.quiet, interrupt };
    let result = match arguments.sample {
        None => analyze(&images, &options, &shown).map(|found| AnalysisResult::Whole(Box::new(found))),
        Some(share) => {
            analyze_sample(&images, &options, share.0, &shown).map(|found| AnalysisResult::Sampled(Box::new(found)))
        }
    };
    shown.finish();
    let mut found = result.map_err(|error| failure(&error))?;
    let unfit_exit = finding.unfit.iter().fold(Exit::Done, |exit, unfit| exit.worse(unfit.why.exit));
    let left_out =
        |unfit: UnfitFile| SkippedImage { name: machine_name(&unfit.path), why: open::explain_failure(&unfit.why) };
    found.leave_out(finding.unfit.into_iter().map(left_out));
    // An image that cannot be read weighs more than skipped damage.
    let exit = match (found.left_out().is_empty(), found.has_damage()) {
        (false, _) => unfit_exit.worse(Exit::Failed),
        (true, true) => Exit::Damage,
        (true, false) => Exit::Done,
    };
    found.leave_out(finding.repeated.into_iter().map(left_out));
    if found.is_nothing() {
        return Err(Failure { exit, ..nothing(found.left_out()) });
    }
    let cost = Cost { seconds: started.elapsed().as_secs_f64(), memory_peak_bytes: memory::peak_bytes() };
    if let Some(page) = page {
        page.write(&found.page(&cost))?;
    }
    // With files, there are so many values that making both takes a part of the time.
    let (text, json) = match talk.json {
        true => (String::new(), found.json(&cost)),
        false => {
            let details = if arguments.details { Details::Shown } else { Details::LeftOut };
            (found.text(&cost, details), Value::Null)
        }
    };
    Ok(Report { text, json, exit })
}

/// Refuses a share of a sample that stands for itself and counts as a path, as in `--sample 8`.
fn check_share(arguments: &AnalyzeArgs) -> Outcome<()> {
    let looks_like_share = |path: &&PathBuf| path.to_str().is_some_and(|text| text.parse::<ShareArg>().is_ok());
    match arguments.paths.iter().find(looks_like_share).filter(|path| arguments.sample.is_some() && !path.exists()) {
        None => Ok(()),
        Some(share) => Err(Failure::usage("cannot analyse the images")
            .because_of(format!("`{}` is not a file", share.shown()))
            .hint(format!("for a share, write --sample={}", share.shown()))),
    }
}

/// Refuses a group whose pattern takes no image: most likely a spelling error.
fn check_groups(arguments: &AnalyzeArgs, images: &[FoundImage]) -> Outcome<()> {
    let takes_nothing = |group: &&GroupArg| !images.iter().any(|found| group.takes(found.path()));
    match arguments.group.iter().find(takes_nothing).filter(|_| !images.is_empty()) {
        None => Ok(()),
        Some(group) => Err(Failure::usage("cannot analyse the images").because_of(format!(
            "no image matches the pattern `{}` of the group `{}`",
            group.pattern.as_str(),
            group.name
        ))),
    }
}

/// Returns the names of the groups, and what tells the group of an image.
fn groups(arguments: &AnalyzeArgs) -> (Vec<String>, impl Fn(&FoundImage) -> Option<usize>) {
    let mut names: Vec<String> = Vec::new();
    let mut patterns = Vec::new();
    for group in &arguments.group {
        let at = names.iter().position(|name| *name == group.name).unwrap_or_else(|| {
            names.push(group.name.clone());
            names.len() - 1
        });
        patterns.push((at, group));
    }
    let group_of =
        move |found: &FoundImage| patterns.iter().find(|(_, group)| group.takes(found.path())).map(|&(at, _)| at);
    (names, group_of)
}

/// Returns a secret for this run's fingerprints.
fn key() -> Outcome<[u8; 32]> {
    let mut key = [0; 32];
    SystemRandom.fill(&mut key).map_err(|error| Failure::of_io("cannot get random bytes", &error))?;
    Ok(key)
}

fn failure(error: &AnalyzeError) -> Failure {
    match error {
        AnalyzeError::Interrupted => {
            Failure::interrupted("analysing").hint("nothing was changed, and no temporary file is left")
        }
        AnalyzeError::Spill { .. } => Failure::new("cannot analyse the images")
            .because(error)
            .hint("name a directory with more room with --temporary, or give more --memory"),
        AnalyzeError::TooManyImages(_) | AnalyzeError::TooManyGroups(_) => {
            Failure::usage("cannot analyse the images").because(error)
        }
    }
}

/// Returns the failure where no image could be read.
fn nothing(left_out: &[SkippedImage]) -> Failure {
    let failure = Failure::new("cannot analyse anything");
    if left_out.is_empty() {
        return failure.because_of("the folders hold no file of 1 MiB or more");
    }
    let tell =
        |failure: Failure, left: &SkippedImage| failure.because_of(format!("`{}`: {}", left.name.shown(), left.why));
    left_out.iter().fold(failure, tell)
}

/// Shows progress: one meter for each stage.
struct StageProgress {
    meter: Mutex<Option<(Stage, Meter)>>,
    quiet: bool,
    interrupt: Interrupt,
}

impl StageProgress {
    fn finish(&self) {
        if let Some((_, meter)) = self.meter.lock().take() {
            meter.finish();
        }
    }
}

impl Progress for StageProgress {
    fn update(&self, stage: Stage, done: u64, total: u64) -> ControlFlow<()> {
        let mut shown = self.meter.lock();
        if !matches!(*shown, Some((shown, _)) if shown == stage) {
            if let Some((_, meter)) = shown.take() {
                meter.finish();
            }
            let doing = match stage {
                Stage::Reading => "reading",
                Stage::Counting => "counting",
            };
            *shown = Some((stage, Meter::new(doing, self.quiet, self.interrupt.clone())));
        }
        match &*shown {
            Some((_, meter)) => meter.show_bytes(done, total),
            None => ControlFlow::Continue(()),
        }
    }
}
