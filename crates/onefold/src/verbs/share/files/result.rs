//! The final report of `onefold share files`.

use std::path::PathBuf;
use std::time::Duration;

use onefold_block::Show;
use onefold_share::files::{FilesReport, PackageBytes, TierCounts};
use onefold_share::pace::CallCounts;
use onefold_share::pass::ShareReport;
use onefold_share::state::Notice;
use onefold_substrate::SubstrateKind;
use serde_json::{Value, json};

use crate::output::{TextTable, machine_name};
use crate::progress::duration;
use crate::size::human;
use crate::verbs::share::common::UsedVolume;
use crate::verbs::share::given_up::{given_up_json, given_up_lines};
use crate::verbs::share::result::{Space, files, to_free_words, trouble_json, trouble_lines};
use crate::verbs::share::user_paths::UserPaths;

/// Maximum number of packages and images named in the text; the JSON has all of them.
const NAMED_MAX: usize = 20;

/// All results of a run over guest files.
pub(super) struct FilesFindings {
    pub(super) root: PathBuf,
    /// Paths in the user's form.
    pub(super) paths: UserPaths,
    pub(super) kind: SubstrateKind,
    pub(super) is_dry_run: bool,
    pub(super) report: FilesReport,
    pub(super) volume: Option<UsedVolume>,
    /// Number of sharing calls.
    pub(super) calls: CallCounts,
    pub(super) space: Space,
    pub(super) notices: Vec<Notice>,
    /// Lines about patterns of `--include` that no file has matched.
    pub(super) unmatched: Vec<String>,
    pub(super) elapsed: Duration,
    pub(super) memory_peak_bytes: Option<u64>,
}

impl FilesFindings {
    /// Returns whether anything that was requested failed.
    pub(super) fn has_failures(&self) -> bool {
        let trouble = &self.report.passed.trouble;
        let is_volume_full = self.volume.as_ref().is_some_and(UsedVolume::has_failed);
        !self.unmatched.is_empty()
            || is_volume_full
            || trouble.is_full
            || !trouble.failed.is_empty()
            || self.notices.iter().any(Notice::is_failure)
    }

    /// Returns the number of bytes freed, by the maps of the files. Btrfs shows them to root only.
    fn freed(&self) -> Option<u64> {
        let ShareReport { freed, untold, .. } = self.report.passed.shared;
        (untold == 0).then_some(freed)
    }

    fn sum(&self, of: impl Fn(&TierCounts) -> u64) -> u64 {
        self.report.tiers.iter().map(|(_, counts)| of(counts)).fold(0, u64::saturating_add)
    }

    /// Returns the result for people.
    pub(super) fn text(&self) -> String {
        let mut text = self.table().to_string();
        if let Some(gained) = self.space.gained().filter(|_| !self.is_dry_run) {
            let word = if gained < 0 { "less" } else { "more" };
            text.push_str(&format!("\n{} {word} free than before, by the file system", human(gained.unsigned_abs())));
        }
        let (find, share) = (self.report.find_time, self.report.share_time);
        let times = format!("finding {}, sharing {}", seconds(find), seconds(share));
        text.push_str(&format!("\n{}, {}: {times}", self.kind, duration(self.elapsed.as_secs())));
        if self.report.is_unchanged {
            text.push_str(
                "\nno image has changed since an earlier run, which has looked at all of them; `--full` does so again",
            );
        }
        if let Some(volume) = &self.volume {
            text.push('\n');
            text.push_str(&volume.text());
        }
        for line in self.package_lines().into_iter().chain(self.trouble_lines()) {
            text.push('\n');
            text.push_str(&line);
        }
        text
    }

    fn table(&self) -> TextTable {
        let FilesReport { examined, tiers, passed, .. } = &self.report;
        let mut table = TextTable::new(["", "bytes", "of"]);
        let count = |count: u64, word: &str| format!("{count} {word}");
        table.row(["images examined".to_owned(), String::new(), files(examined.images)]);
        if examined.unchanged_images > 0 {
            table.row(["unchanged, and not examined".to_owned(), String::new(), files(examined.unchanged_images)]);
        }
        if examined.unchanged_databases > 0 {
            let count = files(examined.unchanged_databases);
            table.row(["changed, with known packages".to_owned(), String::new(), count]);
        }
        table.row(["images with packages".to_owned(), String::new(), files(examined.images_with_packages)]);
        table.row(["packages examined".to_owned(), String::new(), count(examined.packages, "packages")]);
        table.row(["files of guests examined".to_owned(), String::new(), files(examined.files)]);
        if examined.older_packages > 0 || examined.older_files > 0 {
            let name = "left out by --since".to_owned();
            table.row([name.clone(), String::new(), count(examined.older_packages, "packages")]);
            table.row([name, String::new(), format!("{} of no package", files(examined.older_files))]);
        }
        let mut row = |name: String, bytes: u64| table.row([name, human(bytes), String::new()]);
        if examined.digested_bytes > 0 {
            row("read as whole files, and digested".to_owned(), examined.digested_bytes);
        }
        for (tier, counts) in tiers {
            row(format!("believed equal, {tier}"), counts.believed);
        }
        if self.is_dry_run {
            if let Some(bytes) = passed.to_free {
                row(to_free_words(self.kind).to_owned(), bytes);
            }
        } else {
            row("compared".to_owned(), self.sum(TierCounts::compared));
            if self.sum(|counts| counts.second) > 0 {
                row("different, and tried with a second image".to_owned(), self.sum(|counts| counts.second));
            }
            row("shared now".to_owned(), passed.shared.now);
            row("already shared, not compared again".to_owned(), passed.shared.before);
            if let Some(freed) = self.freed() {
                row("freed, by the maps of the files".to_owned(), freed);
            }
            if passed.shared.rewritten > 0 {
                row("copied, so that old extents came free".to_owned(), passed.shared.rewritten);
            }
            if passed.shared.pinned > 0 {
                row("not freed: other blocks of the same extents are in use".to_owned(), passed.shared.pinned);
            }
        }
        for (name, bytes) in [
            ("left alone: different", self.sum(|counts| counts.differed)),
            ("left alone: misaligned", examined.misaligned_bytes),
            ("left alone: too small for a block (resident)", examined.resident_bytes),
            (
                "left alone: set aside or holes",
                examined.unwritten_bytes.saturating_add(self.sum(|counts| counts.empty)),
            ),
            ("left alone: encrypted or compressed by the guest", examined.encoded_bytes),
            ("left alone: compressed in the image, or absent from it", examined.unmapped_bytes),
            ("left alone: shorter than --min-run", passed.shared.too_short),
            ("left alone: too many files claim a block", self.sum(|counts| counts.crowded)),
            ("left alone: of images that mostly differ in a tier", self.sum(|counts| counts.given_up)),
            ("left alone: of images that another host has", self.sum(|counts| counts.elsewhere)),
            ("left alone: of images that may not be read or changed", self.sum(|counts| counts.barred)),
            ("not shared: see below", passed.shared.refused),
        ] {
            if bytes > 0 {
                row(name.to_owned(), bytes);
            }
        }
        table
    }

    /// Returns lines that name the packages with the most bytes.
    fn package_lines(&self) -> Vec<String> {
        let bytes = |package: &PackageBytes| if self.is_dry_run { package.believed } else { package.shared };
        let mut packages: Vec<_> = self
            .report
            .packages
            .iter()
            .map(|(name, package)| (bytes(package), name))
            .filter(|(bytes, _)| *bytes > 0)
            .collect();
        packages.sort_by(|one, two| (two.0, one.1).cmp(&(one.0, two.1)));
        if packages.is_empty() {
            return Vec::new();
        }
        let verb = if self.is_dry_run { "would share, or share already" } else { "share since now" };
        let mut lines = vec![format!("files of these packages {verb}:")];
        lines.extend(
            packages.iter().take(NAMED_MAX).map(|(bytes, name)| format!("  {}: {}", name.shown(), human(*bytes))),
        );
        if packages.len() > NAMED_MAX {
            lines.push(format!("  and {} more; `--json` has them all", packages.len() - NAMED_MAX));
        }
        lines
    }

    fn trouble_lines(&self) -> Vec<String> {
        let report = &self.report;
        let mut lines = trouble_lines(&report.passed.trouble, &self.notices, self.kind, &|path| self.paths.of(path));
        lines.extend(self.unmatched.iter().cloned());
        for (path, why) in report.failed.iter().take(NAMED_MAX) {
            lines.push(format!("`{}` is left to `share run`: {}", self.paths.of(path).shown(), why.shown()));
        }
        if report.failed.len() > NAMED_MAX {
            lines.push(format!("and {} more; `--json` has them all", report.failed.len() - NAMED_MAX));
        }
        lines.extend(given_up_lines(&report.given_up, NAMED_MAX, &|path| self.paths.of(path)));
        for path in report.strangers.iter().take(NAMED_MAX) {
            lines.push(format!(
                "`{}` was not made from the template: it has less than a half of its packages; run `onefold share files` \
                 on it without --since",
                self.paths.of(path).shown()
            ));
        }
        if report.strangers.len() > NAMED_MAX {
            lines.push(format!("and {} more; `--json` has them all", report.strangers.len() - NAMED_MAX));
        }
        if report.examined.surplus_files > 0 {
            lines
                .push("an image has more files, or longer ones, than it has room for: not all are examined".to_owned());
        }
        if report.examined.images_with_packages == 0 {
            lines.push("no package database was found; `onefold share run` finds equal blocks by content".to_owned());
        }
        lines
    }

    /// Returns the result for machines.
    pub(super) fn json(&self) -> Value {
        let FilesReport {
            examined, tiers, packages, given_up, failed, strangers, passed, find_time, share_time, ..
        } = &self.report;
        let shared = &passed.shared;
        json!({
            "root": machine_name(&self.root),
            "file_system": self.kind.to_string(),
            "dry_run": self.is_dry_run,
            "unchanged": self.report.is_unchanged,
            "examined": {
                "images": examined.images,
                "unchanged_images": examined.unchanged_images,
                "unchanged_databases": examined.unchanged_databases,
                "images_with_packages": examined.images_with_packages,
                "packages": examined.packages,
                "older_packages": examined.older_packages,
                "files": examined.files,
                "older_files": examined.older_files,
                "empty_files": examined.empty_files,
                "surplus_files": examined.surplus_files,
                "resident_bytes": examined.resident_bytes,
                "misaligned_bytes": examined.misaligned_bytes,
                "unwritten_bytes": examined.unwritten_bytes,
                "encoded_bytes": examined.encoded_bytes,
                "digested_bytes": examined.digested_bytes,
                "unmapped_bytes": examined.unmapped_bytes,
            },
            "tiers": tiers.iter().map(|(tier, counts)| json!({
                "tier": tier.number(),
                "believed_bytes": counts.believed,
                "compared_bytes": counts.compared(),
                "shared_bytes": counts.shared,
                "before_bytes": counts.before,
                "repeated_bytes": counts.repeated,
                "differed_bytes": counts.differed,
                "differed_before_bytes": counts.differed_before,
                "empty_bytes": counts.empty,
                "too_short_bytes": counts.too_short,
                "refused_bytes": counts.refused,
                "barred_bytes": counts.barred,
                "elsewhere_bytes": counts.elsewhere,
                "second_bytes": counts.second,
                "crowded_bytes": counts.crowded,
                "given_up_bytes": counts.given_up,
            })).collect::<Vec<_>>(),
            "packages": packages.iter().map(|(name, bytes)| json!({
                "package": name,
                "believed_bytes": bytes.believed,
                "shared_bytes": bytes.shared,
            })).collect::<Vec<_>>(),
            "shared": {
                "now_bytes": shared.now,
                "before_bytes": shared.before,
                "repeated_bytes": shared.repeated,
                "freed_bytes": self.freed(),
                "pinned_bytes": shared.pinned,
                "rewritten_bytes": shared.rewritten,
                "differed_bytes": shared.differed,
                "too_short_bytes": shared.too_short,
                "refused_bytes": shared.refused,
                "elsewhere_bytes": shared.elsewhere,
                "barred_bytes": shared.barred,
            },
            "would_free_bytes": passed.to_free.filter(|_| self.is_dry_run),
            "common": self.volume.as_ref().map(UsedVolume::json),
            "calls": { "clones": self.calls.clones, "shares": self.calls.shares },
            "free_bytes_before": self.space.free_before,
            "free_bytes_after": self.space.free_after,
            "failed": failed.iter().map(|(path, why)| json!({ "path": machine_name(path), "why": why })).collect::<Vec<_>>(),
            "strangers": strangers.iter().map(machine_name).collect::<Vec<_>>(),
            "given_up": given_up_json(given_up),
            "trouble": trouble_json(&passed.trouble, &self.notices),
            "unmatched": self.unmatched,
            "seconds": self.elapsed.as_secs_f64(),
            "seconds_of": { "find": find_time.as_secs_f64(), "share": share_time.as_secs_f64() },
            "memory_peak_bytes": self.memory_peak_bytes,
        })
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
