//! The final report of `onefold share run`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_block::{BLOCK_BYTES_U64, Show};
use onefold_share::block_state::States;
use onefold_share::domain::Domain;
use onefold_share::pace::CallCounts;
use onefold_share::pass::{PassReport, ShareReport, Trouble};
use onefold_share::scan::{DomainCounts, ScanReport};
use onefold_share::state::Notice;
use onefold_share::without_index::WithoutIndexReport;
use onefold_substrate::SubstrateKind;
use serde_json::{Value, json};

use super::relief;
use super::saving;
use super::user_paths::UserPaths;
use crate::output::{TextTable, machine_name};
use crate::progress::duration;
use crate::size::{counted, human};

/// Maximum number of files named in the text; the JSON has all of them.
const NAMED_MAX: usize = 20;

/// All results of a run.
pub(crate) struct ShareResult {
    pub(crate) root: PathBuf,
    pub(crate) kind: SubstrateKind,
    pub(crate) is_dry_run: bool,
    pub(crate) scanned: ScanReport,
    /// Whether this user can see the domains of folders.
    pub(crate) sees_labels: bool,
    /// The place of the settings of domains, whether they exist or not.
    pub(crate) settings: PathBuf,
    pub(crate) passed: PassReport,
    /// Number of calls that cloned or shared.
    pub(crate) calls: CallCounts,
    pub(crate) space: Space,
    pub(crate) notices: Vec<Notice>,
    /// Lines about patterns of `--include` that no file has matched.
    pub(crate) unmatched: Vec<String>,
    /// Blocks that were shared before the run because the file system was full.
    pub(crate) relieved: Option<WithoutIndexReport>,
    /// Savings of sharing after the run; `None` if the maps of the files could not be read.
    pub(crate) states: Option<States>,
    /// Paths in the user's form.
    pub(crate) paths: UserPaths,
    pub(crate) scan_time: Duration,
    pub(crate) elapsed: Duration,
    pub(crate) memory_peak_bytes: Option<u64>,
}

/// Free space of the file system, in bytes; `None` if the file system did not report it.
pub(crate) struct Space {
    pub(crate) free_before: Option<u64>,
    pub(crate) free_after: Option<u64>,
}

impl Space {
    /// Returns the growth of free space, by the file system's own accounting. It includes the effect of other writers.
    pub(crate) fn gained(&self) -> Option<i64> {
        let (before, after) = (self.free_before?, self.free_after?);
        Some(i64::try_from(after).ok()? - i64::try_from(before).ok()?)
    }
}

impl ShareResult {
    /// Returns whether anything that was requested failed.
    pub(crate) fn has_failures(&self) -> bool {
        let trouble = &self.passed.trouble;
        trouble.is_full
            || !self.unmatched.is_empty()
            || !trouble.failed.is_empty()
            || self.notices.iter().any(Notice::is_failure)
    }

    /// Returns the number of bytes freed, by the maps of the files. Btrfs shows them to root only.
    fn freed(&self) -> Option<u64> {
        let ShareReport { freed, untold, .. } = self.passed.shared;
        (untold == 0).then_some(freed)
    }

    /// Returns the result for people.
    pub(crate) fn text(&self) -> String {
        let (scanned, shared, planned) = (&self.scanned, &self.passed.shared, &self.passed.planned);
        let mut table = TextTable::new(["", "bytes", "of"]);
        let mut row = |name: &str, bytes: u64, of: String| table.row([name.to_owned(), human(bytes), of]);
        row("looked at", scanned.bytes, files(scanned.files));
        row("read", scanned.read_bytes, files(scanned.files - scanned.unchanged));
        if scanned.once_bytes > 0 {
            row("not read: same place as other data", scanned.once_bytes, String::new());
        }
        if scanned.opted_out > 0 {
            table.row(["left alone: opted out".to_owned(), String::new(), files(scanned.opted_out)]);
        }
        for (domain, counts) in scanned.domains.iter().take(NAMED_MAX) {
            table.row([format!("in {}", domain_words(domain)), human(counts.bytes), files(counts.files)]);
        }
        let mut row = |name: &str, bytes: u64, of: String| table.row([name.to_owned(), human(bytes), of]);
        if self.is_dry_run {
            row("to be shared, or shared already", planned.targets * BLOCK_BYTES_U64, String::new());
            if let Some(bytes) = self.passed.to_free {
                row(to_free_words(self.kind), bytes, String::new());
            }
        } else {
            row("shared now", shared.now, String::new());
            row("already shared, not compared again", shared.before, String::new());
            if let Some(freed) = self.freed() {
                row("freed, by the maps of the files", freed, String::new());
            }
            if shared.rewritten > 0 {
                row("copied, so that old extents came free", shared.rewritten, String::new());
            }
            if shared.pinned > 0 {
                row("not freed: other blocks of the same extents are in use", shared.pinned, String::new());
            }
        }
        for (name, bytes) in [
            ("left alone: shorter than --min-run", shared.too_short),
            ("left alone: overwritten meanwhile", shared.differed),
            ("not shared: see below", shared.refused),
        ] {
            if bytes > 0 {
                row(name, bytes, String::new());
            }
        }
        let mut text = table.to_string();
        if let Some(gained) = self.space.gained().filter(|_| !self.is_dry_run) {
            let word = if gained < 0 { "less" } else { "more" };
            text.push_str(&format!("\n{} {word} free than before, by the file system", human(gained.unsigned_abs())));
        }
        text.push_str(&format!("\n{}, {}", self.kind, duration(self.elapsed.as_secs())));
        let relieved = self.relieved.as_ref().map(relief::line);
        for line in
            relieved.into_iter().chain(self.domain_lines()).chain(self.trouble_lines()).chain(self.unmatched.clone())
        {
            text.push('\n');
            text.push_str(&line);
        }
        text
    }

    /// Returns the last line: what sharing saves after the run.
    pub(crate) fn saving_line(&self) -> Option<String> {
        self.states.as_ref().map(saving::line)
    }

    /// Returns lines that explain several domains, and how to join them.
    fn domain_lines(&self) -> Vec<String> {
        let domains = &self.scanned.domains;
        let mut lines = Vec::new();
        if domains.len() > NAMED_MAX {
            lines.push(format!("and {} more domains; `--json` has them all", domains.len() - NAMED_MAX));
        }
        if domains.len() > 1 {
            let names: Vec<String> = domains.keys().take(2).map(Domain::to_string).collect();
            lines.push(format!(
                "blocks are shared within a domain only; to join these two, write the line `join {} = NAME` into `{}`, or put \
                 their folders into one with `onefold share domain set FOLDER NAME`",
                names.join(" "),
                self.settings.shown()
            ));
        }
        if !self.sees_labels {
            lines.push("domains that root has set for files and folders are not visible to this user".to_owned());
        }
        lines
    }

    fn trouble_lines(&self) -> Vec<String> {
        let mut lines = trouble_lines(&self.passed.trouble, &self.notices, self.kind, &|path| self.paths.of(path));
        let elsewhere = self.passed.logs_elsewhere;
        if elsewhere > 0 {
            lines.push(format!("{} left to a watch, a door or another host that has them", files(elsewhere)));
        }
        lines
    }

    /// Returns the result for machines.
    pub(crate) fn json(&self) -> Value {
        let (scanned, passed) = (&self.scanned, &self.passed);
        let (shared, planned, trouble) = (&passed.shared, &passed.planned, &passed.trouble);
        let times = &passed.times;
        json!({
            "root": machine_name(&self.root),
            "file_system": self.kind.to_string(),
            "dry_run": self.is_dry_run,
            "scanned": {
                "files": scanned.files,
                "unchanged_files": scanned.unchanged,
                "passed_over_files": scanned.passed_over,
                "opted_out_files": scanned.opted_out,
                "bytes": scanned.bytes,
                "read_bytes": scanned.read_bytes,
                "once_bytes": scanned.once_bytes,
                "domains": domains_json(&scanned.domains),
                "folder_domains_visible": self.sees_labels,
            },
            "would_free_bytes": self.passed.to_free.filter(|_| self.is_dry_run),
            "planned": {
                "new": planned.new,
                "promoted": planned.promoted,
                "targets": planned.targets,
                "stale": planned.stale,
                "collected": planned.collected,
                "elsewhere": planned.elsewhere,
            },
            "shared": {
                "now_bytes": shared.now,
                "before_bytes": shared.before,
                "freed_bytes": self.freed(),
                "pinned_bytes": shared.pinned,
                "rewritten_bytes": shared.rewritten,
                "zero_bytes": shared.zeros,
                "differed_bytes": shared.differed,
                "too_short_bytes": shared.too_short,
                "refused_bytes": shared.refused,
            },
            "without_index": self.relieved.as_ref().map(relief::json),
            "savings": self.states.as_ref().map(saving::json),
            "calls": { "clones": self.calls.clones, "shares": self.calls.shares },
            "free_bytes_before": self.space.free_before,
            "free_bytes_after": self.space.free_after,
            "index": passed.index.map(|(counts, bytes)| json!({
                "unique": counts.unique,
                "shared": counts.shared,
                "bytes": bytes,
            })),
            "trouble": trouble_json(trouble, &self.notices),
            "unmatched": self.unmatched,
            "seconds": self.elapsed.as_secs_f64(),
            "seconds_of": {
                "scan": self.scan_time.as_secs_f64(),
                "logs": times.logs.as_secs_f64(),
                "plan": times.plan.as_secs_f64(),
                "promote": times.promote.as_secs_f64(),
                "share": times.share.as_secs_f64(),
                "publish": times.publish.as_secs_f64(),
            },
            "memory_peak_bytes": self.memory_peak_bytes,
        })
    }
}

/// Returns the name of what a dry run would free.
pub(super) fn to_free_words(kind: SubstrateKind) -> &'static str {
    match kind {
        // An extent comes free as a whole.
        SubstrateKind::Btrfs => "would come free at most, by the maps of the files",
        _ => "would come free, by the maps of the files",
    }
}

/// Returns lines about failures with files, and their number. `user_path` returns a path in the user's form.
pub(super) fn trouble_lines(
    trouble: &Trouble,
    notices: &[Notice],
    kind: SubstrateKind,
    user_path: &dyn Fn(&Path) -> PathBuf,
) -> Vec<String> {
    let mut lines: Vec<String> = notices.iter().map(Notice::to_string).collect();
    let not_shared = |path: &Path, why: &dyn Display| format!("`{}` is not shared: {why}", user_path(path).shown());
    lines.extend(trouble.refused.iter().map(|(path, why)| not_shared(path, why)));
    lines.extend(trouble.failed.iter().map(|(path, why)| not_shared(path, why)));
    lines.extend(trouble.busy.keys().map(|path| format!("`{}` was busy; try again later", user_path(path).shown())));
    if lines.len() > NAMED_MAX {
        let left = lines.len() - NAMED_MAX;
        lines.truncate(NAMED_MAX);
        lines.push(format!("and {left} more; `--json` has them all"));
    }
    if let Some(left) = trouble.records_left {
        lines.push(format!(
            "sharing was stopped: the file system has {} left for its own records, and machines that write need some, \
             too; make room{}, and run it again",
            human(left),
            if kind == SubstrateKind::Btrfs { " (btrfs balance start -dusage=50)" } else { "" }
        ));
    } else if trouble.is_full {
        lines.push("the file system is full: sharing needs a little room for its own records".to_owned());
    }
    lines
}

/// Returns failures with files, for machines.
pub(super) fn trouble_json(trouble: &Trouble, notices: &[Notice]) -> Value {
    json!({
        "full": trouble.is_full,
        "records_left_bytes": trouble.records_left,
        "changed_blocks": trouble.changed,
        "refused": trouble.refused.iter().map(|(path, why)| told(path, why)).collect::<Vec<_>>(),
        "failed": trouble.failed.iter().map(|(path, why)| told(path, why)).collect::<Vec<_>>(),
        "busy": trouble.busy.keys().map(machine_name).collect::<Vec<_>>(),
        "notices": notices.iter().map(Notice::to_string).collect::<Vec<_>>(),
    })
}

fn told(path: &Path, why: &dyn Display) -> Value {
    json!({ "path": machine_name(path), "why": why.to_string() })
}

/// Returns the name of a domain in messages.
pub(super) fn domain_words(domain: &Domain) -> String {
    match domain {
        Domain::Owner(user) => format!("the domain of user {user}"),
        Domain::Named(name) => format!("the domain `{name}`"),
    }
}

/// Returns domains with their numbers of files, for machines.
pub(super) fn domains_json(domains: &BTreeMap<Domain, DomainCounts>) -> Value {
    let each = domains.iter();
    each.map(|(domain, counts)| json!({ "domain": domain.to_string(), "files": counts.files, "bytes": counts.bytes }))
        .collect()
}

pub(super) fn files(count: u64) -> String {
    counted(count, "file")
}
