//! What `share run --files` says of the files of guests that it shared first.

use std::ops::ControlFlow;

use onefold_block::Show;
use onefold_block::random::SystemRandom;
use onefold_share::files::{FilesOptions, FilesReport, Reading, Tier, TierCounts};
use onefold_share::pass::{PassOptions, Passed, Shared};
use serde_json::{Value, json};

use crate::output::machine_name;
use crate::size::human;

/// Images that are named in the text; all of them are in the JSON.
const NAMED_MAX: usize = 10;

/// Returns how files of guests are shared first: by all that may show that they are equal.
pub(super) fn options<'a>(
    pass: PassOptions<'a>,
    examining: &'a dyn Fn(u64, u64) -> ControlFlow<()>,
) -> FilesOptions<'a> {
    let (tiers, reading) = (&Tier::ALL, Reading::default());
    FilesOptions { pass, tiers, reading, random: &SystemRandom, since: None, common: None, examining }
}

/// Tells whether something could not be done that was asked for.
pub(super) fn has_failures(passed: &Passed) -> bool {
    passed.trouble.is_full || !passed.trouble.failed.is_empty()
}

fn sum(files: &FilesReport, of: impl Fn(&TierCounts) -> u64) -> u64 {
    files.tiers.iter().map(|(_, counts)| of(counts)).fold(0, u64::saturating_add)
}

fn freed(shared: &Shared) -> Option<u64> {
    (shared.untold == 0).then_some(shared.freed)
}

/// Returns the result for people.
pub(super) fn lines(files: &FilesReport, is_dry_run: bool) -> Vec<String> {
    let believed = human(sum(files, |counts| counts.believed));
    let shared = &files.passed.shared;
    let mut lines = vec![if is_dry_run {
        format!("by files of guests: {believed} believed equal")
    } else {
        let freed = freed(shared).map(|bytes| format!(", {} freed", human(bytes))).unwrap_or_default();
        let (now, before) = (human(shared.now), human(shared.before));
        format!("by files of guests, first: {believed} believed equal, {now} shared now{freed}, {before} shared before")
    }];
    let named = |(path, why): &(std::path::PathBuf, String)| {
        format!("`{}` is shared by content only: {}", path.shown(), why.shown())
    };
    lines.extend(files.failed.iter().take(NAMED_MAX).map(named));
    if files.failed.len() > NAMED_MAX {
        lines.push(format!("and {} more; `--json` has them all", files.failed.len() - NAMED_MAX));
    }
    lines
}

/// Returns the result for machines.
pub(super) fn json(files: &FilesReport) -> Value {
    let shared = &files.passed.shared;
    json!({
        "images_with_packages": files.examined.images_with_packages,
        "files": files.examined.files,
        "believed_bytes": sum(files, |counts| counts.believed),
        "compared_bytes": sum(files, TierCounts::compared),
        "differed_bytes": sum(files, |counts| counts.differed),
        "now_bytes": shared.now,
        "before_bytes": shared.before,
        "freed_bytes": freed(shared),
        "failed": files.failed.iter().map(|(path, why)| json!({ "path": machine_name(path), "why": why }))
            .collect::<Vec<_>>(),
        "seconds_of": { "find": files.find_time.as_secs_f64(), "share": files.share_time.as_secs_f64() },
    })
}
