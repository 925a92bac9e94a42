//! `onefold archive probe`

use std::time::Duration;

use onefold_block::Show;
use onefold_block::clock::SystemClock;
use onefold_block::random::SystemRandom;
use onefold_image::archive::probe::{LARGE_BYTES_MAX, ProbeReport, probe};
use serde_json::{Value, json};

use super::place::ArchivePlace;
use crate::cli::archive::ProbeArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Report, machine_name};
use crate::size::human;

pub(super) fn run(arguments: &ProbeArgs) -> Outcome<Report> {
    let path = &arguments.archive;
    let cannot = || format!("cannot probe the store of `{}`", path.shown());
    let size_bytes = arguments.size.0;
    if size_bytes == 0 || size_bytes > LARGE_BYTES_MAX {
        return Err(Failure::usage(cannot()).because_of(format!("--size is at most {}", human(LARGE_BYTES_MAX))));
    }
    let store = ArchivePlace::from(path).open()?;
    let report = probe(&*store, &SystemClock, &SystemRandom, size_bytes);
    let report = report.map_err(|error| Failure::of_archive(cannot(), &error))?;
    let exit = if report.is_fit() { Exit::Done } else { Exit::Failed };
    Ok(Report { text: text(&report), json: document(&machine_name(path), &report), exit })
}

fn text(report: &ProbeReport) -> String {
    let mut lines = Vec::new();
    for (what, result) in &report.findings {
        lines.push(match result {
            Ok(()) => format!("{what}: yes"),
            Err(why) => format!("{what}: no, {why}"),
        });
    }
    if let Some(small) = report.small {
        let (put, get, list) = (milliseconds(small.put), milliseconds(small.get), milliseconds(small.list));
        lines.push(format!("a small object: write {put} ms, read {get} ms, list {list} ms"));
    }
    if let Some(large) = report.large {
        let (put, get) = (human(large.put_bytes_per_second), human(large.get_bytes_per_second));
        lines.push(format!("objects of {}, one at a time: write {put}/s, read {get}/s", human(large.object_bytes)));
    }
    lines.push(match report.is_fit() {
        true => "the store can hold an archive".to_owned(),
        false => "the store cannot hold an archive that is used in full".to_owned(),
    });
    lines.join("\n")
}

fn document(archive: &str, report: &ProbeReport) -> Value {
    let findings: Vec<Value> = report
        .findings
        .iter()
        .map(|(what, result)| json!({ "what": what, "works": result.is_ok(), "why": result.as_ref().err() }))
        .collect();
    json!({
        "archive": archive,
        "fit": report.is_fit(),
        "findings": findings,
        "put_seconds": report.small.map(|small| small.put.as_secs_f64()),
        "get_seconds": report.small.map(|small| small.get.as_secs_f64()),
        "list_seconds": report.small.map(|small| small.list.as_secs_f64()),
        "object_bytes": report.large.map(|large| large.object_bytes),
        "put_bytes_per_second": report.large.map(|large| large.put_bytes_per_second),
        "get_bytes_per_second": report.large.map(|large| large.get_bytes_per_second),
    })
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_promise_is_named_and_makes_a_store_unfit() {
        let findings = vec![("ranges", Ok(())), ("removal", Err("no right".to_owned()))];
        let report = ProbeReport { findings, ..ProbeReport::default() };
        let said = text(&report);
        assert!(said.starts_with("ranges: yes\nremoval: no, no right\n"), "{said}");
        assert!(said.contains("cannot hold"), "{said}");
        let document = document("a", &report);
        assert_eq!((&document["fit"], &document["findings"][1]["why"]), (&json!(false), &json!("no right")));
    }
}
