//! `onefold share status`

use std::path::PathBuf;

use onefold_block::BLOCK_BYTES_U64;
use onefold_block::Show;
use onefold_block::shown::ShownText;
use onefold_share::format::watch::{WatchPhase, WatchStatus};
use onefold_share::mend::DeclaredShares;
use onefold_share::state::watches::SeenWatch;
use onefold_share::status::{LockHeld, LockSubject, Status, status};
use serde_json::{Value, json};

use super::open::{OpenFileSystem, append};
use super::result::{domain_words, domains_json};
use super::saving;
use super::states;
use super::user_paths::UserPaths;
use crate::cli::share::ShareStatusArgs;
use crate::failure::Outcome;
use crate::output::{Report, TextTable, machine_name};
use crate::size::{grouped, human};

/// Maximum number of locks named in the text; the JSON has all of them.
const NAMED_MAX: usize = 20;

pub(crate) fn run(arguments: &ShareStatusArgs) -> Outcome<Report> {
    const CANNOT: &str = "cannot show the status";
    let given: Vec<PathBuf> =
        [Some(&arguments.path), arguments.template.since.as_ref()].into_iter().flatten().cloned().collect();
    let file_system = OpenFileSystem::to_look(&format!("{CANNOT} of `{}`", arguments.path.shown()), &given)?;
    let paths = &file_system.user_paths;
    let since = file_system.paths.get(1).map(PathBuf::as_path);
    let (found, notices) = file_system.look(CANNOT, |state| {
        let Some(state) = state else { return Ok(None) };
        let found = status(state).map_err(|error| file_system.state_failure(CANNOT, error))?;
        Ok(Some((found, states::count(CANNOT, state, since, paths)?)))
    })?;
    let root = file_system.root.shown().to_string();
    let mut text = match &found {
        Some((found, states)) => {
            let details = arguments.details.then(|| details(found));
            let parts = [Some(saving::line(states)), Some(files_text(found)), details];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            format!("{}{}{}", parts.join("\n\n"), states::text(states, paths), work_text(found, paths))
        }
        None => nothing_known(&root),
    };
    append(&mut text, &notices);
    let state = found.as_ref().map(|(found, states)| {
        let mut document = json(found);
        document["savings"] = saving::json(states);
        document["images"] = states::images_json(states);
        document["common_volumes"] = states::volumes_json(states);
        document["unmapped_files"] = states.unmapped.into();
        document["absent_files"] = states.absent.into();
        document["unknown_template_images"] = states.unknown_templates.into();
        document
    });
    let json = json!({ "root": machine_name(&file_system.root), "state": state, "notices": notices });
    Ok(Report::done(text, json))
}

/// Returns the message for a missing state folder.
pub(super) fn nothing_known(root: &str) -> String {
    format!("nothing is known of the file system at `{root}`: no `onefold share run` has read anything on it yet")
}

/// Returns the table of image files.
fn files_text(found: &Status) -> String {
    let Status { files, waiting, entries, index, domains, .. } = found;
    let mut table = TextTable::new(["", "number", "bytes"]);
    let mut row = |name: &str, count: u64, bytes: Option<u64>| {
        table.row([name.to_owned(), grouped(count), bytes.map(human).unwrap_or_default()]);
    };
    row("image files known", files.known, Some(files.bytes));
    row("  unchanged since they were read", files.current, None);
    row("  to be read by the next run", files.changed, None);
    for (name, count) in [
        ("  opted out", files.opted_out),
        ("  gone, or renamed since", files.gone),
        ("  that cannot be opened", files.unreadable),
    ] {
        if count > 0 {
            row(name, count, None);
        }
    }
    for (domain, counts) in domains.iter().take(NAMED_MAX) {
        row(&format!("  in {}", domain_words(domain)), counts.files, Some(counts.bytes));
    }
    if files.failing > 0 {
        row("  with ranges that fail, and are tried again", files.failing, Some(files.failing_bytes));
    }
    row("blocks in logs that wait for a run", waiting.blocks, Some(waiting.bytes));
    if entries.is_none() {
        row("files of the index, damaged", index.files, Some(index.bytes));
    }
    table.to_string()
}

/// Returns the table of Onefold's own notes, for those who want details.
fn details(found: &Status) -> String {
    let Status { waiting, entries, index, arena, .. } = found;
    let mut table = TextTable::new(["", "number", "bytes"]);
    let mut row = |name: &str, count: u64, bytes: Option<u64>| {
        table.row([name.to_owned(), grouped(count), bytes.map(human).unwrap_or_default()]);
    };
    if let Some(entries) = entries {
        row("entries of the index", entries.unique + entries.shared, Some(index.bytes));
        row("  blocks at one place", entries.unique, Some(entries.unique * BLOCK_BYTES_U64));
        row("  shared blocks", entries.shared, Some(entries.shared * BLOCK_BYTES_U64));
    }
    row("slots of the arena", arena.slots, Some(arena.slots * BLOCK_BYTES_U64));
    if let Some(unneeded) = arena.unneeded {
        row("  without other references", unneeded, Some(unneeded * BLOCK_BYTES_U64));
    }
    format!(
        "{table}\n{} {} of {} {} wait; the index is in {} {}, the last of generation {}\n\
         the index knows contents by their fingerprints; the arena refers to each shared block, so that the index can \
         name it",
        grouped(waiting.logs),
        noun(waiting.logs, "log"),
        grouped(waiting.files),
        noun(waiting.files, "file"),
        grouped(index.files),
        noun(index.files, "file"),
        index.generation
    )
}

/// Returns lines about present work and what it left, to follow other text.
fn work_text(found: &Status, paths: &UserPaths) -> String {
    let Status { locks, watches, left_over, declared, .. } = found;
    let mut lines = Vec::new();
    match locks {
        None => lines.push("it is unknown here which processes work on it".to_owned()),
        Some(locks) if locks.is_empty() => lines.push("no process on this host works on it now".to_owned()),
        Some(locks) => lines.extend(lock_lines(locks, paths)),
    }
    lines.extend(watches.iter().map(watch_line));
    lines.extend(declared.iter().map(|declared| declared_line(declared, paths)));
    if let Some(left_over @ 1..) = left_over {
        let files = noun(*left_over, "file");
        lines.push(format!("{left_over} {files} of runs that were cut off; the next one removes them"));
    }
    format!("\n\n{}", lines.join("\n"))
}

fn lock_lines(locks: &[LockHeld], paths: &UserPaths) -> Vec<String> {
    let mut lines: Vec<String> = locks.iter().take(NAMED_MAX).map(|lock| lock_line(lock, paths)).collect();
    if locks.len() > NAMED_MAX {
        lines.push(format!("and {} more; `--json` has them all", locks.len() - NAMED_MAX));
    }
    lines
}

fn lock_line(lock: &LockHeld, paths: &UserPaths) -> String {
    let who = lock.process.map_or_else(|| "an unknown process".to_owned(), |process| format!("process {process}"));
    match &lock.subject {
        LockSubject::Image(path) => format!("{who} has `{}`", paths.of(path).shown()),
        LockSubject::Other(name) => format!("{who} has the lock `{}`", name.shown()),
    }
}

/// Returns the line about declared shares. From outside, a host that shares looks like one that died while sharing.
fn declared_line(declared: &DeclaredShares, paths: &UserPaths) -> String {
    format!(
        "{} of `{}` are just being shared, or wait for `onefold share mend`",
        human(declared.bytes),
        paths.of(&declared.path).shown()
    )
}

fn watch_line(watch: &SeenWatch) -> String {
    let WatchStatus { process, host, passes, shared_bytes, owned, trouble, .. } = &watch.status;
    let does = if watch.is_running { phase(watch.status.phase) } else { "has ended without a message" };
    let mut line = format!(
        "`share watch` on {} (process {process}) {does}; {} in {} {} so far, {} {} kept for its host",
        host.shown(),
        human(*shared_bytes),
        grouped(*passes),
        if *passes == 1 { "pass" } else { "passes" },
        grouped(*owned),
        noun(*owned, "image"),
    );
    if let Some(trouble) = trouble {
        line.push_str(&format!("; last went wrong: {}", ShownText::line(trouble)));
    }
    line
}

/// Returns the present activity of a watch.
fn phase(phase: WatchPhase) -> &'static str {
    match phase {
        WatchPhase::Waiting => "waits for files to change",
        WatchPhase::OutsideWindows => "waits for its window",
        WatchPhase::LoadTooHigh => "waits for the load to fall",
        WatchPhase::Scanning => "reads changed files",
        WatchPhase::Sharing => "shares",
    }
}

fn watch_json(watch: &SeenWatch) -> Value {
    let WatchStatus { process, host, phase, interval_seconds, updated, owned, waiting_blocks, .. } = &watch.status;
    let WatchStatus { passes, last_pass, shared_bytes, freed_bytes, trouble, .. } = &watch.status;
    let phase = match phase {
        WatchPhase::Waiting => "waiting",
        WatchPhase::OutsideWindows => "outside-windows",
        WatchPhase::LoadTooHigh => "load-too-high",
        WatchPhase::Scanning => "scanning",
        WatchPhase::Sharing => "sharing",
    };
    json!({
        "host": host,
        "process": process,
        "running": watch.is_running,
        "phase": phase,
        "interval_seconds": interval_seconds,
        "updated": updated,
        "images_kept": owned,
        "waiting_blocks": waiting_blocks,
        "passes": passes,
        "last_pass": (*last_pass != 0).then_some(last_pass),
        "shared_bytes": shared_bytes,
        "freed_bytes": freed_bytes,
        "trouble": trouble,
    })
}

/// Returns a noun in the form for `count`.
pub(super) fn noun(count: u64, one: &str) -> String {
    if count == 1 { one.to_owned() } else { format!("{one}s") }
}

fn json(found: &Status) -> Value {
    let Status { files, waiting, entries, index, arena, locks, watches, left_over, declared, domains } = found;
    let declared_json = |one: &DeclaredShares| json!({ "image": machine_name(&one.path), "bytes": one.bytes });
    let all = entries.map(|entries| entries.unique + entries.shared);
    json!({
        "files": {
            "known": files.known,
            "current": files.current,
            "changed": files.changed,
            "opted_out": files.opted_out,
            "gone": files.gone,
            "unreadable": files.unreadable,
            "failing": files.failing,
            "failing_bytes": files.failing_bytes,
            "bytes": files.bytes,
        },
        "domains": domains_json(domains),
        "waiting": {
            "logs": waiting.logs,
            "files": waiting.files,
            "blocks": waiting.blocks,
            "log_bytes": waiting.bytes,
        },
        "index": {
            "unique_entries": entries.map(|entries| entries.unique),
            "shared_entries": entries.map(|entries| entries.shared),
            "bytes": index.bytes,
            "bytes_per_entry": all.filter(|all| *all > 0).map(|all| ratio(index.bytes, all)),
            "files": index.files,
            "generation": index.generation,
        },
        "arena": { "files": arena.files, "slots": arena.slots, "unneeded_slots": arena.unneeded },
        "locks": locks.as_ref().map(|locks| locks.iter().map(lock_json).collect::<Vec<_>>()),
        "watches": watches.iter().map(watch_json).collect::<Vec<_>>(),
        "left_over_files": left_over,
        "declared": declared.iter().map(declared_json).collect::<Vec<_>>(),
    })
}

fn lock_json(lock: &LockHeld) -> Value {
    match &lock.subject {
        LockSubject::Image(path) => json!({ "image": machine_name(path), "process": lock.process }),
        LockSubject::Other(name) => json!({ "lock": name, "process": lock.process }),
    }
}

/// Returns a ratio with two decimals.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    let hundredths = u128::from(part) * 100 / u128::from(whole.max(1));
    f64::from(u32::try_from(hundredths).unwrap_or(u32::MAX)) / 100.0
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use onefold_share::domain::Domain;
    use onefold_share::scan::DomainCounts;
    use onefold_share::state::ask::{StoredFiles, WaitingLogs};
    use onefold_share::status::{ArenaCounts, FileCounts};

    use super::*;

    fn found() -> Status {
        let held = |subject, process| LockHeld { subject, process };
        Status {
            files: FileCounts { known: 3, current: 1, changed: 1, gone: 1, bytes: 5 << 20, ..FileCounts::default() },
            waiting: WaitingLogs { logs: 2, files: 1, blocks: 1234, bytes: 9000 },
            entries: Some(onefold_share::format::shard::EntryCounts { unique: 10, shared: 30 }),
            index: StoredFiles { files: 1, bytes: 800, generation: 7 },
            arena: ArenaCounts { files: 1, slots: 31, unneeded: Some(1) },
            locks: Some(vec![
                held(LockSubject::Image(PathBuf::from("vm/a.raw")), Some(42)),
                held(LockSubject::Other("index".to_owned()), None),
            ]),
            watches: vec![SeenWatch {
                status: WatchStatus {
                    process: 7,
                    host: "alpha".to_owned(),
                    phase: WatchPhase::OutsideWindows,
                    passes: 2,
                    shared_bytes: 3 << 30,
                    owned: 1,
                    trouble: Some("no space".to_owned()),
                    ..WatchStatus::default()
                },
                is_running: true,
            }],
            left_over: Some(1),
            domains: [
                (Domain::Owner(1000), DomainCounts { files: 2, bytes: 3 << 20 }),
                ("staff".parse().unwrap(), DomainCounts { files: 1, bytes: 2 << 20 }),
            ]
            .into(),
            declared: vec![DeclaredShares { path: PathBuf::from("vm/b.raw"), bytes: 8192 }],
        }
    }

    #[test]
    fn the_text_tells_what_is_pending_and_who_is_at_work() {
        let given = [PathBuf::from("vm")];
        let paths = UserPaths::new(std::path::Path::new("/"), &given, &given);
        let found = found();
        let text = [files_text(&found), details(&found), work_text(&found, &paths)].concat();
        for part in [
            "blocks in logs that wait for a run",
            "  gone, or renamed since",
            "  in the domain of user 1000",
            "  in the domain `staff`",
            "2 logs of 1 file wait; the index is in 1 file, the last of generation 7",
            "process 42 has `vm/a.raw`",
            "an unknown process has the lock `index`",
            "1 file of runs that were cut off",
            "8.00 KiB of `vm/b.raw` are just being shared, or wait for `onefold share mend`",
            "`share watch` on alpha (process 7) waits for its window; 3.00 GiB in 2 passes so far, 1 image kept for its host; \
             last went wrong: no space",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("opted out"), "{text}");
    }

    #[test]
    fn the_document_has_all_numbers() {
        let json = json(&found());
        assert_eq!(json["index"]["bytes_per_entry"], 20.0);
        assert_eq!(json["waiting"]["blocks"], 1234);
        assert_eq!(json["domains"][1], serde_json::json!({ "domain": "staff", "files": 1, "bytes": 2 << 20 }));
        assert_eq!(json["locks"][0]["image"], "vm/a.raw");
        assert_eq!(json["watches"][0]["phase"], "outside-windows");
        assert_eq!(json["watches"][0]["last_pass"], Value::Null);
        assert_eq!(super::json(&Status { entries: None, ..found() })["index"]["unique_entries"], Value::Null);
    }
}
