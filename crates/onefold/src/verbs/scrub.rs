//! `onefold pool scrub`

use serde_json::json;

use super::check::merge;
use crate::cli::Talk;
use crate::cli::pool::ScrubArgs;
use crate::failure::{Exit, Outcome};
use crate::output::{Report, findings, machine_name, print_failure};
use crate::progress::Meter;
use crate::size::grouped;
use crate::store::{self, Intent, OpenStore};

pub(super) fn run(arguments: &ScrubArgs, talk: Talk) -> Outcome<Report> {
    let rate = arguments.rate.map(|rate| rate.0.get());
    let OpenStore { mut store, interrupt } = store::open(&arguments.target, arguments.open.memory.0, Intent::Change)?;
    let meter = Meter::new("scrubbing", talk.quiet, interrupt);
    let found = store.scrub(rate, &meter);
    meter.finish();
    let found = found?;
    // The findings are printed first, because they matter more than a failure to close.
    let closed = store.close();
    let mut json = json!({ "target": machine_name(&arguments.target) });
    merge(&mut json, findings::json(&found));
    let read = grouped(found.data_blocks_hashed);
    let verdict = match (found.problems_total, found.stopped) {
        (0, false) => format!("{read} blocks of data read: all as they were written"),
        (0, true) => format!("{read} blocks of data read, nothing wrong so far; stopped before the end"),
        (count, _) => format!("{read} blocks of data read: {} problems", grouped(count)),
    };
    let exit = match (found.problems_total, &closed) {
        (0, Err(failure)) => failure.exit,
        (0, Ok(())) if found.stopped => Exit::Interrupted,
        (0, Ok(())) => Exit::Done,
        _ => Exit::Damage,
    };
    if let Err(failure) = closed {
        print_failure(&failure, false);
    }
    Ok(Report { text: format!("{}{verdict}", findings::text(&found)), json, exit })
}
