//! The final report of `onefold pool dedup`.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onefold_block::{BLOCK_BYTES_U64, Show};
use onefold_share::files::{FilesReport, TierCounts};
use onefold_share::pass::{PassReport, Trouble};
use onefold_share::scan::ScanReport;
use onefold_share::state::Notice;
use serde_json::{Value, json};

use super::places::DomainFolder;
use crate::failure::Exit;
use crate::output::{TextTable, machine_name};
use crate::progress::duration;
use crate::size::{counted, human};

/// Maximum number of files named in the text; the JSON has all of them.
const NAMED_MAX: usize = 20;

/// All results of a run.
#[derive(Debug, Default)]
pub(super) struct DedupResult {
    path: PathBuf,
    /// Number of places that were shared separately.
    pub(super) domains: usize,
    files: u64,
    bytes: u64,
    read_bytes: u64,
    /// Number of files with deduplication switched off.
    pub(super) opted_out: u64,
    shared_bytes: u64,
    differed_bytes: u64,
    pub(super) freed_bytes: u64,
    /// The plan of a dry run; `None` for a run that shares.
    dry: Option<DryResult>,
    /// Results for equal files of guests; `None` if these were not requested.
    by_files: Option<FilesResult>,
    /// Files that were left alone, with the reasons.
    left: Vec<(PathBuf, String)>,
    has_failed: bool,
    is_full: bool,
    pub(super) notices: Vec<Notice>,
    pub(super) elapsed: Duration,
}

/// The plan of a dry run.
#[derive(Clone, Copy, Debug, Default)]
struct DryResult {
    /// Blocks that are equal to others, by their fingerprints.
    equal_bytes: u64,
    /// Blocks of these that only one file refers to.
    to_free_bytes: u64,
}

/// Results for equal files of guests.
#[derive(Debug, Default)]
struct FilesResult {
    images: u64,
    images_with_packages: u64,
    files: u64,
    believed_bytes: u64,
    compared_bytes: u64,
    differed_bytes: u64,
    shared_bytes: u64,
    before_bytes: u64,
    /// Files whose guests were not examined, or not completely, with the reasons: they are shared by content.
    unexamined: Vec<(PathBuf, String)>,
}

impl DedupResult {
    /// Returns the results of a run over the pool at `path` that has done nothing yet.
    pub(super) fn new(path: &Path, is_dry_run: bool) -> DedupResult {
        DedupResult { path: path.to_owned(), dry: is_dry_run.then(DryResult::default), ..DedupResult::default() }
    }

    /// Adds the results for one place.
    pub(super) fn add(&mut self, place: &DomainFolder, scanned: &ScanReport, passed: &PassReport) {
        self.files += scanned.files;
        self.bytes += scanned.bytes;
        self.read_bytes += scanned.read_bytes;
        self.shared_bytes += passed.shared.now;
        self.differed_bytes += passed.shared.differed;
        if let Some(dry) = &mut self.dry {
            dry.equal_bytes += passed.planned.targets * BLOCK_BYTES_U64;
            dry.to_free_bytes += passed.to_free.unwrap_or(0);
        }
        self.add_trouble(place, &passed.trouble);
    }

    /// Adds the results for equal files of guests in one place. Differing files are no damage here, because guests only
    /// claim that files are equal.
    pub(super) fn add_files(&mut self, place: &DomainFolder, report: FilesReport) {
        self.add_trouble(place, &report.passed.trouble);
        let sum = |of: &dyn Fn(&TierCounts) -> u64| report.tiers.iter().map(|(_, counts)| of(counts)).sum::<u64>();
        let found = self.by_files.get_or_insert_default();
        found.images += report.examined.images;
        found.images_with_packages += report.examined.images_with_packages;
        found.files += report.examined.files;
        found.believed_bytes += sum(&|counts| counts.believed);
        found.compared_bytes += sum(&TierCounts::compared);
        found.differed_bytes += sum(&|counts| counts.differed);
        found.shared_bytes += report.passed.shared.now;
        found.before_bytes += report.passed.shared.before;
        found.unexamined.extend(report.failed.into_iter().map(|(path, why)| (place.path.join(path), why)));
    }

    fn add_trouble(&mut self, place: &DomainFolder, trouble: &Trouble) {
        self.is_full |= trouble.is_full;
        self.has_failed |= !trouble.failed.is_empty();
        let mut leave = |path: &Path, why: &dyn Display| self.left.push((place.path.join(path), why.to_string()));
        trouble.refused.iter().for_each(|(path, why)| leave(path, why));
        trouble.failed.iter().for_each(|(path, why)| leave(path, why));
        let full = "one of its blocks has the maximum number of references";
        trouble.busy.keys().for_each(|path| leave(path, &full));
    }

    /// Returns how the command ends. No other process writes meanwhile, so a block that differs from what was stored is
    /// damaged.
    pub(super) fn exit(&self) -> Exit {
        if self.differed_bytes > 0 {
            Exit::Damage
        } else if self.is_full || self.has_failed || !self.notices.is_empty() {
            Exit::Failed
        } else {
            Exit::Done
        }
    }

    /// Returns the result for people.
    pub(super) fn text(&self) -> String {
        let mut table = TextTable::new(["", "bytes", "of"]);
        let mut row = |name: &str, bytes: u64, of: String| table.row([name.to_owned(), human(bytes), of]);
        if let Some(found) = &self.by_files {
            row("believed equal, by files of guests", found.believed_bytes, files(found.files));
            if self.dry.is_none() {
                row("shared by files of guests", found.shared_bytes, String::new());
            }
        }
        row("looked at", self.bytes, files(self.files));
        row("read", self.read_bytes, String::new());
        match &self.dry {
            Some(dry) => row("equal to other blocks", dry.equal_bytes, String::new()),
            None => row("shared now", self.shared_bytes, String::new()),
        }
        if self.differed_bytes > 0 {
            row("left alone: changed since it was stored", self.differed_bytes, String::new());
        }
        match &self.dry {
            Some(dry) => row("would come free", dry.to_free_bytes, String::new()),
            None => row("freed", self.freed_bytes, String::new()),
        }
        let mut text = format!("{table}\n{}", duration(self.elapsed.as_secs()));
        for line in self.lines() {
            text.push('\n');
            text.push_str(&line);
        }
        text.push('\n');
        text.push_str(&self.verdict());
        text
    }

    /// Returns the outcome in one sentence.
    fn verdict(&self) -> String {
        if let Some(dry) = &self.dry {
            return format!("{} would come free; nothing was changed", human(dry.to_free_bytes));
        }
        let found = match (self.freed_bytes, self.shared_bytes) {
            (0, 0) => format!("{}: no equal blocks that the pool did not share already", files(self.files)),
            (0, shared) => format!("{} of equal blocks are shared; nothing came free yet", human(shared)),
            (freed, _) => format!("{} came free", human(freed)),
        };
        match self.exit() {
            Exit::Damage => format!("{found}, and {} of data are damaged", human(self.differed_bytes)),
            Exit::Failed => format!("{found}, but not all could be shared"),
            Exit::Done | Exit::Usage | Exit::Interrupted => format!("{found}; no damage"),
        }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.notices.iter().map(Notice::to_string).collect();
        let unexamined = self.by_files.iter().flat_map(|found| &found.unexamined);
        let by_content =
            |(path, why): &(PathBuf, String)| format!("`{}` is shared by content only: {}", path.shown(), why.shown());
        // These make the command fail, so they come first in case not all lines are shown.
        lines.extend(self.left.iter().map(|(path, why)| format!("`{}` is not shared: {why}", path.shown())));
        lines.extend(unexamined.map(by_content));
        if lines.len() > NAMED_MAX {
            let left = lines.len() - NAMED_MAX;
            lines.truncate(NAMED_MAX);
            lines.push(format!("and {left} more; `--json` has them all"));
        }
        if self.opted_out > 0 {
            lines.push(format!("{} left alone: deduplication is switched off for them", files(self.opted_out)));
        }
        if self.domains > 1 {
            lines.push(format!("{} sharing domains, each by itself", self.domains));
        }
        if self.is_full {
            lines.push("the pool is full: sharing needs a little room for its records".to_owned());
        }
        if self.differed_bytes > 0 {
            lines.push("`onefold pool scrub` names the files with damaged data".to_owned());
        }
        lines
    }

    /// Returns the result for machines.
    pub(super) fn json(&self) -> Value {
        let left = self.left.iter().map(|(path, why)| json!({ "path": machine_name(path), "why": why }));
        json!({
            "path": machine_name(&self.path),
            "domains": self.domains,
            "files": self.files,
            "opted_out_files": self.opted_out,
            "looked_at_bytes": self.bytes,
            "read_bytes": self.read_bytes,
            "shared_bytes": self.shared_bytes,
            "differed_bytes": self.differed_bytes,
            "by_files": self.by_files.as_ref().map(FilesResult::json),
            "freed_bytes": self.freed_bytes,
            "dry_run": self.dry.is_some(),
            "would_free_bytes": self.dry.map(|dry| dry.to_free_bytes),
            "full": self.is_full,
            "left": left.collect::<Vec<_>>(),
            "notices": self.notices.iter().map(Notice::to_string).collect::<Vec<_>>(),
            "seconds": self.elapsed.as_secs_f64(),
        })
    }
}

impl FilesResult {
    fn json(&self) -> Value {
        let unexamined = self.unexamined.iter().map(|(path, why)| json!({ "path": machine_name(path), "why": why }));
        json!({
            "images": self.images,
            "images_with_packages": self.images_with_packages,
            "files": self.files,
            "believed_bytes": self.believed_bytes,
            "compared_bytes": self.compared_bytes,
            "differed_bytes": self.differed_bytes,
            "now_bytes": self.shared_bytes,
            "before_bytes": self.before_bytes,
            "failed": unexamined.collect::<Vec<_>>(),
        })
    }
}

fn files(count: u64) -> String {
    counted(count, "file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_and_what_could_not_be_done_are_told_and_end_the_command_so() {
        let done =
            || DedupResult { files: 2, opted_out: 1, domains: 1, ..DedupResult::new(Path::new("x.pool"), false) };
        assert_eq!(done().exit(), Exit::Done);
        assert!(done().text().contains("1 file left alone: deduplication is switched off"), "{}", done().text());
        let full = DedupResult { is_full: true, ..done() };
        assert_eq!(full.exit(), Exit::Failed);
        assert!(full.text().contains("the pool is full"), "{}", full.text());
        let damaged = DedupResult { differed_bytes: 8192, ..full };
        assert_eq!(damaged.exit(), Exit::Damage);
        assert!(damaged.text().contains("scrub"), "{}", damaged.text());
        assert_eq!(damaged.json()["differed_bytes"], 8192);
    }

    #[test]
    fn the_last_line_is_the_verdict() {
        let last = |found: &DedupResult| found.text().lines().last().unwrap().to_owned();
        let done = |freed_bytes, shared_bytes| DedupResult {
            files: 2,
            freed_bytes,
            shared_bytes,
            ..DedupResult::new(Path::new("x.pool"), false)
        };
        assert_eq!(last(&done(0, 0)), "2 files: no equal blocks that the pool did not share already; no damage");
        assert_eq!(last(&done(3 << 20, 4 << 20)), "3.00 MiB came free; no damage");
        let full = DedupResult { is_full: true, ..done(3 << 20, 4 << 20) };
        assert_eq!(last(&full), "3.00 MiB came free, but not all could be shared");
        let damaged = DedupResult { differed_bytes: 8192, ..done(0, 4096) };
        assert_eq!(
            last(&damaged),
            "4.00 KiB of equal blocks are shared; nothing came free yet, and 8.00 KiB of data are damaged"
        );
    }

    #[test]
    fn a_dry_run_says_what_would_come_free_and_claims_nothing_else() {
        let dry = DryResult { equal_bytes: 8192, to_free_bytes: 4096 };
        let found = DedupResult { files: 2, dry: Some(dry), ..DedupResult::new(Path::new("x.pool"), true) };
        let text = found.text();
        assert!(text.ends_with("\n4.00 KiB would come free; nothing was changed"), "{text}");
        assert!(text.contains("equal to other blocks") && !text.contains("shared now"), "{text}");
        let json = found.json();
        assert_eq!((&json["dry_run"], &json["would_free_bytes"]), (&json!(true), &json!(4096)));
        assert!(DedupResult::new(Path::new("x.pool"), false).json()["would_free_bytes"].is_null());
    }

    /// Guests claim which files are equal. So a difference is no damage, and an unreadable guest is no failure.
    #[test]
    fn what_guests_say_wrongly_is_told_and_no_damage() {
        let unexamined = vec![(PathBuf::from("vm/a\nb"), "no \x1b".to_owned())];
        let by_files =
            FilesResult { files: 3, shared_bytes: 4096, differed_bytes: 8192, unexamined, ..FilesResult::default() };
        let found = DedupResult { by_files: Some(by_files), ..DedupResult::new(Path::new("x.pool"), false) };
        assert_eq!(found.exit(), Exit::Done);
        let text = found.text();
        assert!(text.contains("shared by files of guests") && text.contains("is shared by content only"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        assert_eq!(found.json()["by_files"]["differed_bytes"], 8192);
        assert!(DedupResult::new(Path::new("x.pool"), false).json()["by_files"].is_null());
    }

    #[test]
    fn the_text_names_some_files_and_the_json_all() {
        let left = (0..50).map(|number| (PathBuf::from(format!("file-{number}")), "why".to_owned())).collect();
        let found = DedupResult { left, ..DedupResult::new(Path::new("x.pool"), false) };
        assert!(found.text().contains("`file-19`") && !found.text().contains("`file-20`"), "{}", found.text());
        assert!(found.text().contains("and 30 more"), "{}", found.text());
        assert_eq!(found.json()["left"].as_array().map(Vec::len), Some(50));
    }
}
