//! The lines that a watch prints, one for each event.

use std::path::Path;
use std::time::Duration;

use onefold_block::Show;
use onefold_share::files::FilesReport;
use onefold_share::pass::{PassReport, Trouble};
use onefold_share::scan::ScanReport;
use onefold_share::state::Notice;
use onefold_share::watch::WatchEvent;
use onefold_substrate::SubstrateKind;
use serde_json::{Value, json};

use super::super::mend;
use super::super::result::files;
use super::super::user_paths::UserPaths;
use crate::output::machine_name;
use crate::progress::duration;
use crate::size::human;

/// Where a watch works.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchedPlace<'a> {
    pub(super) root: &'a Path,
    pub(super) kind: SubstrateKind,
    /// The form in which the user gave paths.
    pub(super) user_paths: &'a UserPaths,
}

/// A line, for people and for machines.
#[derive(Debug)]
pub(super) struct WatchLine {
    pub(super) text: String,
    pub(super) json: Value,
    pub(super) is_trouble: bool,
}

impl WatchLine {
    pub(super) fn notice(notice: Notice, user_paths: &UserPaths) -> WatchLine {
        WatchLine::trouble("notice", notice.with_path(|path| user_paths.of(path)).to_string())
    }

    /// Returns the line for a hanging call, which ends the watch.
    pub(super) fn hung(limit: Duration, keeps_locks: bool) -> WatchLine {
        let locks = if keeps_locks {
            "its locks stay until the call returns or the host is fenced, since the call may leave a hole"
        } else {
            "its locks are given up"
        };
        let limit = duration(limit.as_secs());
        WatchLine::trouble(
            "hung",
            format!("no call of the file system came to its end for {limit}: the watch ends, and {locks}"),
        )
    }

    pub(super) fn event(event: &WatchEvent<'_>, place: &WatchedPlace<'_>) -> WatchLine {
        let WatchedPlace { root, kind, user_paths } = *place;
        match event {
            WatchEvent::Began => WatchLine {
                text: format!("watching images on {kind} at {}", root.shown()),
                json: json!({ "event": "began", "root": machine_name(root), "file_system": kind.to_string() }),
                is_trouble: false,
            },
            WatchEvent::Passed { scanned, passed, elapsed } => passed_line(scanned, passed, *elapsed, user_paths),
            WatchEvent::FilesShared { changed, report, elapsed } => files_line(*changed, report, *elapsed, user_paths),
            WatchEvent::Mended(mended) => WatchLine {
                text: mend::lines(mended, user_paths).join("; "),
                json: json!({ "event": "mended", "images": mend::json(mended) }),
                is_trouble: mended.left().next().is_some(),
            },
            WatchEvent::LeftOff => WatchLine {
                text: "the window has ended: the rest is left for the next one".to_owned(),
                json: json!({ "event": "left_off" }),
                is_trouble: false,
            },
            WatchEvent::Unseen(count) => WatchLine::trouble(
                "unseen",
                format!("processes whose open files are not visible: {count}; any host may share in their images"),
            ),
            WatchEvent::Failed(error) => {
                WatchLine::trouble("failed", format!("cannot share blocks: {error}; trying again"))
            }
        }
    }

    fn trouble(event: &str, text: String) -> WatchLine {
        WatchLine { json: json!({ "event": event, "why": text }), text, is_trouble: true }
    }
}

fn files_line(changed: u64, report: &FilesReport, elapsed: Duration, user_paths: &UserPaths) -> WatchLine {
    let shared = &report.passed.shared;
    let freed = (shared.untold == 0).then_some(shared.freed);
    let mut text = format!("shared {} by files of guests", human(shared.now));
    if let Some(freed) = freed {
        text.push_str(&format!(", freed {}", human(freed)));
    }
    let examined = report.examined.images.saturating_sub(report.examined.unchanged_images);
    text.push_str(&format!("; package databases changed or new in {}; examined {}", images(changed), images(examined)));
    if !report.failed.is_empty() {
        text.push_str(&format!("; {} left to sharing by content", images(report.failed.len() as u64)));
    }
    if let Some(trouble) = trouble_text(&report.passed.trouble, user_paths) {
        text.push_str(&format!("; {trouble}"));
    }
    text.push_str(&format!("; {}", duration(elapsed.as_secs())));
    let json = json!({
        "event": "files_shared",
        "changed_images": changed,
        "images": report.examined.images,
        "unchanged_images": report.examined.unchanged_images,
        "failed_images": report.failed.len(),
        "shared_bytes": shared.now,
        "shared_before_bytes": shared.before,
        "freed_bytes": freed,
        "refused_bytes": shared.refused,
        "trouble": trouble_text(&report.passed.trouble, user_paths),
        "seconds": elapsed.as_secs_f64(),
    });
    WatchLine { text, json, is_trouble: false }
}

fn images(count: u64) -> String {
    if count == 1 { "1 image".to_owned() } else { format!("{count} images") }
}

fn passed_line(scanned: &ScanReport, passed: &PassReport, elapsed: Duration, user_paths: &UserPaths) -> WatchLine {
    let shared = &passed.shared;
    // Btrfs shows maps to root only.
    let freed = (shared.untold == 0).then_some(shared.freed);
    let mut text = format!("shared {}", human(shared.now));
    if let Some(freed) = freed {
        text.push_str(&format!(", freed {}", human(freed)));
    }
    text.push_str(&format!("; read {} in {}", human(scanned.read_bytes), files(scanned.files)));
    for (count, what) in [
        (scanned.unsettled, "changed too short a time ago"),
        (scanned.passed_over + passed.logs_elsewhere, "left to others that have them"),
        (scanned.failing, "with ranges that could not be read"),
    ] {
        if count > 0 {
            text.push_str(&format!("; {} {what}", files(count)));
        }
    }
    if let Some(trouble) = trouble_text(&passed.trouble, user_paths) {
        text.push_str(&format!("; {trouble}"));
    }
    text.push_str(&format!("; {}", duration(elapsed.as_secs())));
    let json = json!({
        "event": "passed",
        "files": scanned.files,
        "unsettled_files": scanned.unsettled,
        "passed_over_files": scanned.passed_over,
        "failing_files": scanned.failing,
        "logs_elsewhere": passed.logs_elsewhere,
        "read_bytes": scanned.read_bytes,
        "shared_bytes": shared.now,
        "shared_before_bytes": shared.before,
        "freed_bytes": freed,
        "refused_bytes": shared.refused,
        "differed_bytes": shared.differed,
        "trouble": trouble_text(&passed.trouble, user_paths),
        "seconds": elapsed.as_secs_f64(),
    });
    WatchLine { text, json, is_trouble: false }
}

/// Returns the first failure with a file, and the number of further ones.
fn trouble_text(trouble: &Trouble, user_paths: &UserPaths) -> Option<String> {
    if let Some(left) = trouble.records_left {
        return Some(format!("sharing was stopped: the file system has {} left for its own records", human(left)));
    }
    if trouble.is_full {
        return Some("the file system is full: sharing needs a little room for its own records".to_owned());
    }
    let refused = trouble.refused.iter().map(|(path, why)| (path, why.to_string()));
    let failed = trouble.failed.iter().map(|(path, why)| (path, why.to_string()));
    let mut not_shared = refused.chain(failed);
    let (path, why) = not_shared.next()?;
    let more = match not_shared.count() {
        0 => String::new(),
        more => format!(", and {more} more are not"),
    };
    Some(format!("`{}` is not shared: {why}{more}", user_paths.of(path).shown()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_share::files::ExaminationReport;
    use onefold_share::mend::{MendOutcome, MendReport, MendedImage};
    use onefold_substrate::Refusal;

    fn line(passed: &PassReport) -> WatchLine {
        let scanned =
            ScanReport { files: 12, unsettled: 1, passed_over: 2, read_bytes: 3 << 20, ..ScanReport::default() };
        passed_line(&scanned, passed, Duration::from_secs(61), &user_paths())
    }

    /// The form of a user in the folder of the images.
    fn user_paths() -> UserPaths {
        UserPaths::new(Path::new("/nowhere"), &[".".into()], &["vm".into()])
    }

    #[test]
    fn a_pass_is_one_line() {
        let mut passed = PassReport::default();
        (passed.shared.now, passed.shared.freed) = (2 << 20, 1 << 20);
        let told = line(&passed);
        assert_eq!(
            told.text,
            "shared 2.00 MiB, freed 1.00 MiB; read 3.00 MiB in 12 files; 1 file changed too short a time ago; 2 files left \
             to others that have them; 1 min 1 s"
        );
        assert_eq!(told.json["freed_bytes"], 1 << 20);
        passed.shared.untold = 4096;
        let told = line(&passed);
        assert!(!told.text.contains("freed") && told.json["freed_bytes"].is_null(), "{told:?}");
    }

    #[test]
    fn a_share_of_files_counts_images_that_are_new() {
        let examined = ExaminationReport { images: 12, unchanged_images: 9, ..ExaminationReport::default() };
        let report = FilesReport {
            is_unchanged: false,
            examined,
            tiers: Vec::new(),
            packages: Vec::new(),
            given_up: Vec::new(),
            failed: vec![("a.raw".into(), "it is no disk".to_owned())],
            strangers: Vec::new(),
            unstable: Vec::new(),
            passed: PassReport::default(),
            find_time: Duration::ZERO,
            share_time: Duration::ZERO,
        };
        let told = files_line(2, &report, Duration::from_secs(3), &user_paths());
        assert_eq!(
            told.text,
            "shared 0 B by files of guests, freed 0 B; package databases changed or new in 2 images; examined 3 images; \
             1 image left to sharing by content; 3 s"
        );
        assert_eq!((&told.json["changed_images"], &told.json["failed_images"]), (&json!(2), &json!(1)));
    }

    #[test]
    fn a_call_that_hangs_is_reported_with_what_becomes_of_the_locks() {
        let [usual, in_two_steps] =
            [false, true].map(|keeps_locks| WatchLine::hung(Duration::from_secs(900), keeps_locks));
        assert!(usual.is_trouble && usual.json["event"] == "hung");
        assert!(usual.text.contains("for 15 min") && usual.text.ends_with("its locks are given up"), "{}", usual.text);
        assert!(in_two_steps.text.contains("its locks stay"), "{}", in_two_steps.text);
    }

    #[test]
    fn notices_and_mended_images_have_the_form_of_the_user() {
        let why = std::io::Error::other("the disk is gone");
        let line = WatchLine::notice(Notice::Unreadable { path: "vm/a.raw".into(), why }, &user_paths());
        assert_eq!(line.text, "`a.raw` cannot be read: the disk is gone");
        let image = MendedImage { path: "vm/b.raw".into(), ranges: Vec::new(), filled: 0, became: MendOutcome::Gone };
        let user_paths = user_paths();
        let place = WatchedPlace { root: Path::new("/nowhere"), kind: SubstrateKind::Ocfs2, user_paths: &user_paths };
        let line = WatchLine::event(&WatchEvent::Mended(&MendReport { images: vec![image] }), &place);
        assert!(line.text.starts_with("`b.raw` was about to be shared"), "{}", line.text);
    }

    #[test]
    fn trouble_names_one_file_and_counts_the_others() {
        let mut passed = PassReport::default();
        passed.trouble.refused.insert("vm/a.raw".into(), Refusal::Immutable);
        passed.trouble.refused.insert("vm/b.raw".into(), Refusal::Swap);
        passed.trouble.failed.insert("vm/c.raw".into(), std::io::Error::other("the disk is gone"));
        let told = line(&passed);
        assert!(told.text.contains("`a.raw` is not shared: it is immutable, and 2 more are not; 1 min"), "{told:?}");
        assert!(!told.text.contains('\n'));
    }
}
