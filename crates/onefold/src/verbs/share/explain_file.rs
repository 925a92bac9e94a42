//! `onefold share explain` of a whole file.

use std::path::Path;

use onefold_block::Show;
use onefold_share::explain::{ExplainedFile, FileOverlap};
use onefold_share::status::FileStanding;
use serde_json::{Value, json};

use super::domain::{found_json, reason};
use super::result::domain_words;
use super::states;
use super::status::noun;
use super::user_paths::UserPaths;
use crate::output::{TextTable, machine_name};
use crate::size::{grouped, human};

/// Maximum number of files named in the text; the JSON has all of them.
const NAMED_MAX: usize = 20;

/// Returns the report for people. `path` is that of the file below the root.
pub(super) fn text(found: &ExplainedFile, path: &Path, paths: &UserPaths, has_state: bool) -> String {
    let bytes = &found.bytes;
    let (data, not_shared) = (bytes.data(), bytes.own);
    let shared = bytes.template.saturating_add(bytes.common).saturating_add(bytes.shared);
    let mut lines = vec![format!(
        "`{}`: {} long, {} of data, {}",
        paths.of(path).shown(),
        human(found.length),
        human(data),
        if shared == 0 { "none of it shared".to_owned() } else { format!("{} of it shared", human(shared)) }
    )];
    if !found.with.is_empty() {
        let mut table = TextTable::new(["shared with", "bytes"]);
        for FileOverlap { path: other, bytes, is_common } in found.with.iter().take(NAMED_MAX) {
            let name = match (other == path, is_common) {
                (true, _) => "itself, at other offsets".to_owned(),
                (_, true) => format!("common volume {}", paths.of(other).shown()),
                _ => paths.of(other).shown().to_string(),
            };
            table.row([name, human(*bytes)]);
        }
        lines.push(table.to_string());
        if let Some(more @ 1..) = found.with.len().checked_sub(NAMED_MAX) {
            lines.push(format!("and {more} more; `--json` has them all"));
        }
    }
    if let Some(domain) = &found.domain {
        lines.push(format!("it is in {}, {}", domain_words(&domain.membership.domain), reason(domain, paths)));
    }
    if not_shared > 0 {
        lines.push(format!("{} are not shared: {}", human(not_shared), why(found, paths, has_state)));
    }
    if bytes.unplaced > 0 {
        lines.push(format!(
            "{} have no place that the file system reports, so it is unknown whether they are shared",
            human(bytes.unplaced)
        ));
    }
    if found.set_aside > 0 {
        lines.push(format!("{} are set aside and were never written", human(found.set_aside)));
    }
    if found.unmapped > 0 {
        let files = noun(found.unmapped, "file");
        lines.push(format!("{} {files} could not be examined", grouped(found.unmapped)));
    }
    if found.absent > 0 {
        lines.push(states::absent_line(found.absent));
    }
    lines.join("\n")
}

/// Returns why the rest of a file is not shared.
fn why(found: &ExplainedFile, paths: &UserPaths, has_state: bool) -> String {
    if let Some(by) = &found.opted_out {
        return format!("the file is opted out by `{}`; `onefold share include` takes that back", paths.of(by).shown());
    }
    if let Some(refusal) = found.refusal {
        return format!("the file system refuses the file, for {refusal}");
    }
    match found.standing {
        None if !has_state => "no `onefold share run` has read anything on this file system".to_owned(),
        None => "no `onefold share run` has come across the file".to_owned(),
        Some(FileStanding::Unread) => {
            "the file was not read to its end, or is to be read again; the next run does that".to_owned()
        }
        Some(FileStanding::Changed) => "the file changed since it was read; the next run reads it".to_owned(),
        Some(FileStanding::Current) if found.waiting > 0 => {
            format!("{} of the file wait for the next run, which looks for equal blocks", human(found.waiting))
        }
        Some(FileStanding::Current) => "no other file is known to hold this content, or the last run left it alone\n  \
            (`onefold share explain FILE OFFSET` says which for one block)"
            .to_owned(),
    }
}

/// Returns the report for machines.
pub(super) fn json(found: &ExplainedFile) -> Value {
    let bytes = &found.bytes;
    let with = found.with.iter();
    json!({
        "length_bytes": found.length,
        "data_bytes": bytes.data(),
        "template_bytes": bytes.template,
        "common_bytes": bytes.common,
        "shared_bytes": bytes.shared,
        "own_bytes": bytes.own,
        "unplaced_bytes": bytes.unplaced,
        "set_aside_bytes": found.set_aside,
        "shared_with": with.map(|other| json!({
            "path": machine_name(&other.path),
            "bytes": other.bytes,
            "common": other.is_common,
        })).collect::<Vec<_>>(),
        "domain": found.domain.as_ref().map(found_json),
        "unmapped_files": found.unmapped,
        "absent_files": found.absent,
        "file": found.standing.map(standing_name),
        "waiting_bytes": found.waiting,
        "opted_out_by": found.opted_out.as_ref().map(machine_name),
        "refusal": found.refusal.map(|refusal| refusal.to_string()),
    })
}

/// Returns the name of a standing, for machines.
pub(super) fn standing_name(standing: FileStanding) -> &'static str {
    match standing {
        FileStanding::Current => "current",
        FileStanding::Changed => "changed",
        FileStanding::Unread => "unread",
    }
}
