//! `onefold archive gc`

use onefold_block::Show;
use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_image::archive::{Amount, COLLECT_BYTES_MIN, CollectOptions, CollectReport};
use onefold_image::format::pack::PACK_BYTES;
use serde_json::{Value, json};

use super::watched::WatchedArchive;
use crate::cli::Talk;
use crate::cli::archive::GcArgs;
use crate::failure::{Failure, Outcome};
use crate::host;
use crate::output::{Report, machine_name};
use crate::progress::Meter;
use crate::size::{counted, grouped, human};

pub(super) fn run(arguments: &GcArgs, talk: Talk) -> Outcome<Report> {
    if arguments.memory.0 < COLLECT_BYTES_MIN as u64 {
        let least = human(COLLECT_BYTES_MIN as u64);
        return Err(Failure::usage("too little memory").because_of(format!("--memory is at least {least}")));
    }
    let path = &arguments.archive;
    let watched = WatchedArchive::open(path, arguments.rate.map(|rate| rate.0))?;
    let temporary = onefold_disk::temporary_folder();
    let host = host::name();
    let options = CollectOptions {
        delay: arguments.delay,
        silence: arguments.silence,
        needed_percent: arguments.needed,
        level: arguments.level,
        memory_bytes: usize::try_from(arguments.memory.0).unwrap_or(usize::MAX),
        folder: &temporary,
        host: &host,
        dry_run: arguments.dry_run,
    };
    let meter = Meter::new(format!("collecting {}", path.shown()), talk.quiet, watched.interrupt.clone());
    let report = watched.archive.collect(&options, &SystemClock, &SystemRandom, &mut |done, total| {
        // Packs are most of the work, and have about this length.
        let _ = meter.show_bytes(done.saturating_mul(PACK_BYTES), total.saturating_mul(PACK_BYTES));
    });
    meter.finish();
    let report = report.map_err(|error| {
        let failure = Failure::of_archive(format!("cannot collect the archive `{}`", path.shown()), &error);
        let next = match arguments.dry_run {
            true => "run the command again",
            false => "run the command again: it frees the rest; no image lost anything",
        };
        watched.failure(failure, &watched.changes(), next)
    })?;
    let text = text(&report, arguments.dry_run);
    let mut json = json_of(&report);
    json["archive"] = json!(machine_name(path));
    json["dry_run"] = json!(arguments.dry_run);
    Ok(Report::done(text, json))
}

fn text(report: &CollectReport, is_dry: bool) -> String {
    let (freed, free) = match is_dry {
        false => ("freed", "will come free after the delay"),
        true => ("would come free now", "would come free after the delay"),
    };
    let mut lines = vec![format!("{freed}: {}", amount(report.deleted))];
    let mut line = |amount_of: Amount, what: &str| {
        if amount_of.objects > 0 {
            lines.push(format!("{what}: {}", amount(amount_of)));
        }
    };
    line(report.waiting, free);
    line(report.running, "of captures that run or were killed");
    line(report.foreign, "of unknown captures, left alone");
    if report.rewritten.objects > 0 {
        let (packs, bytes) = (counted(report.rewritten.objects, "pack"), human(report.written_bytes));
        lines.push(format!("rewritten: {packs} of {} into {bytes}", human(report.rewritten.bytes)));
    }
    lines.push(format!("not needed in packs that stay: {}", human(report.kept_bytes)));
    if report.given_up > 0 {
        lines.push(format!("captures given up: {}", grouped(report.given_up)));
    }
    if report.unread > 0 {
        lines.push(format!("packs that stay because they cannot be read or need a repair: {}", grouped(report.unread)));
    }
    if report.is_partial {
        lines.push("other hosts kept changing the archive; collect again for the rest".to_owned());
    }
    lines.join("\n")
}

fn amount(amount: Amount) -> String {
    format!("{} in {}", human(amount.bytes), counted(amount.objects, "object"))
}

fn json_of(report: &CollectReport) -> Value {
    let amount = |amount: Amount| json!({ "objects": amount.objects, "bytes": amount.bytes });
    json!({
        "freed": amount(report.deleted),
        "waiting": amount(report.waiting),
        "running": amount(report.running),
        "foreign": amount(report.foreign),
        "retired": amount(report.retired),
        "rewritten": amount(report.rewritten),
        "written_bytes": report.written_bytes,
        "merged_segments": report.merged,
        "kept_bytes": report.kept_bytes,
        "captures_given_up": report.given_up,
        "unread_packs": report.unread,
        "is_partial": report.is_partial,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_free_comes_first_and_only_what_is_there_follows() {
        let some = Amount { objects: 2, bytes: 3 << 20 };
        let report = CollectReport { deleted: some, ..CollectReport::default() };
        assert_eq!(text(&report, false), "freed: 3.00 MiB in 2 objects\nnot needed in packs that stay: 0 B");
        let report = CollectReport { deleted: Amount { objects: 1, bytes: 406 }, ..CollectReport::default() };
        assert!(text(&report, false).starts_with("freed: 406 B in 1 object\n"));
        let report = CollectReport { waiting: some, given_up: 1, is_partial: true, ..CollectReport::default() };
        let said = text(&report, true);
        assert!(said.starts_with("would come free now: 0 B in 0 objects\nwould come free after the delay: 3.00 MiB"));
        assert!(said.contains("given up: 1") && said.ends_with("for the rest"), "{said}");
    }
}
