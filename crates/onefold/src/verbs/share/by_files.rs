//! The report of `share run --files` about the files of guests that it shared first.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_block::Show;
use onefold_block::random::SystemRandom;
use onefold_share::files::{FilesOptions, FilesReport, ReadScope, Tier, TierCounts};
use onefold_share::pass::{PassOptions, PassReport, ShareReport};
use onefold_substrate::SubstrateKind;
use serde_json::{Value, json};

use super::given_up::{given_up_json, given_up_lines};
use super::result::{trouble_json, trouble_lines};
use crate::output::machine_name;
use crate::size::human;

/// Maximum number of images named in the text; the JSON has all of them.
const NAMED_MAX: usize = 10;

/// Returns the options for sharing files of guests first: all kinds of claims that may show that files are equal.
pub(in crate::verbs) fn options<'a>(
    pass: PassOptions<'a>,
    examining: &'a dyn Fn(u64, u64) -> ControlFlow<()>,
) -> FilesOptions<'a> {
    let (tiers, reading) = (&Tier::ALL, ReadScope::default());
    FilesOptions {
        pass,
        tiers,
        reading,
        random: &SystemRandom,
        since: None,
        common: None,
        stable_for: Duration::ZERO,
        is_full: false,
        examining,
    }
}

/// Returns whether anything that was requested failed.
pub(super) fn has_failures(passed: &PassReport) -> bool {
    passed.trouble.is_full || !passed.trouble.failed.is_empty()
}

fn sum(files: &FilesReport, of: impl Fn(&TierCounts) -> u64) -> u64 {
    files.tiers.iter().map(|(_, counts)| of(counts)).fold(0, u64::saturating_add)
}

fn freed(shared: &ShareReport) -> Option<u64> {
    (shared.untold == 0).then_some(shared.freed)
}

/// Returns the result for people.
pub(super) fn lines(
    files: &FilesReport,
    kind: SubstrateKind,
    is_dry_run: bool,
    user_path: &dyn Fn(&Path) -> PathBuf,
) -> Vec<String> {
    let believed = human(sum(files, |counts| counts.believed));
    let shared = &files.passed.shared;
    let mut lines = vec![if is_dry_run {
        format!("by files of guests: {believed} believed equal")
    } else {
        let freed = freed(shared).map(|bytes| format!(", {} freed", human(bytes))).unwrap_or_default();
        let (now, before) = (human(shared.now), human(shared.before));
        format!(
            "by files of guests, first: {believed} believed equal, {now} shared now{freed}, {before} already shared"
        )
    }];
    if files.is_unchanged {
        lines.push("no image has changed since an earlier run, which has looked at all of them".to_owned());
    }
    let (unchanged, images) = (files.examined.unchanged_images, files.examined.images);
    if unchanged > 0 && !files.is_unchanged {
        lines.push(format!(
            "{unchanged} of {images} images have not changed since an earlier run, and were not examined"
        ));
    }
    let named = |(path, why): &(PathBuf, String)| {
        format!("`{}` is shared by content only: {}", user_path(path).shown(), why.shown())
    };
    lines.extend(files.failed.iter().take(NAMED_MAX).map(named));
    if files.failed.len() > NAMED_MAX {
        lines.push(format!("and {} more; `--json` has them all", files.failed.len() - NAMED_MAX));
    }
    // Notices are reported once for the whole run.
    lines.extend(trouble_lines(&files.passed.trouble, &[], kind, user_path));
    lines.extend(given_up_lines(&files.given_up, NAMED_MAX, user_path));
    lines
}

/// Returns the result for machines.
pub(super) fn json(files: &FilesReport) -> Value {
    let shared = &files.passed.shared;
    json!({
        "unchanged": files.is_unchanged,
        "images": files.examined.images,
        "unchanged_images": files.examined.unchanged_images,
        "unchanged_databases": files.examined.unchanged_databases,
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
        "given_up": given_up_json(&files.given_up),
        "trouble": trouble_json(&files.passed.trouble, &[]),
        "seconds_of": { "find": files.find_time.as_secs_f64(), "share": files.share_time.as_secs_f64() },
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;
    use std::time::Duration;

    use onefold_share::files::{ExaminationReport, GivenUpImages};

    use super::*;

    fn report(passed: PassReport) -> FilesReport {
        FilesReport {
            is_unchanged: false,
            examined: ExaminationReport::default(),
            tiers: Vec::new(),
            packages: Vec::new(),
            given_up: Vec::new(),
            failed: Vec::new(),
            strangers: Vec::new(),
            unstable: Vec::new(),
            passed,
            find_time: Duration::ZERO,
            share_time: Duration::ZERO,
        }
    }

    /// Regression: a run exited with a failure that it did not report.
    #[test]
    fn what_made_the_run_fail_is_in_the_report() {
        let mut files = report(PassReport::default());
        files.passed.trouble.failed.insert("a.raw".into(), io::Error::other("the disk is broken"));
        assert!(has_failures(&files.passed));
        let text = lines(&files, SubstrateKind::Xfs, false, &|path| path.to_owned()).join("\n");
        assert!(text.contains("`a.raw` is not shared: the disk is broken"), "{text}");
        assert_eq!(json(&files)["trouble"]["failed"][0]["path"], "a.raw");

        let mut files = report(PassReport::default());
        files.passed.trouble.is_full = true;
        assert!(has_failures(&files.passed));
        let text = lines(&files, SubstrateKind::Xfs, false, &|path| path.to_owned()).join("\n");
        assert!(text.contains("the file system is full"), "{text}");
        assert_eq!(json(&files)["trouble"]["full"], true);
    }

    #[test]
    fn images_that_were_given_up_are_named() {
        let mut files = report(PassReport::default());
        let [one, other] = ["one.raw", "other.raw"].map(PathBuf::from);
        files.given_up = vec![(Tier::Digest, GivenUpImages::Pair { one, other })];
        let text = lines(&files, SubstrateKind::Xfs, false, &|path| path.to_owned()).join("\n");
        assert!(text.contains("`one.raw` and `other.raw` differ"), "{text}");
        assert_eq!(json(&files)["given_up"][0]["other"], "other.raw");
        assert!(!has_failures(&files.passed));
    }
}
