//! `onefold pool trim`

use serde_json::json;

use crate::cli::Talk;
use crate::cli::pool::TrimArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Report;
use crate::progress::Meter;
use crate::size::human;
use crate::store::{self, Intent, OpenStore};

pub(super) fn run(arguments: &TrimArgs, talk: Talk) -> Outcome<Report> {
    let OpenStore { mut store, interrupt } = store::open(&arguments.target, arguments.open.memory.0, Intent::Change)?;
    let meter = Meter::new("trimming", talk.quiet, interrupt);
    let trimmed = store.trim(&meter);
    meter.finish();
    let trimmed_bytes = trimmed?;
    store.close()?;
    if meter.is_interrupted() {
        return Err(Failure::interrupted("trimming").hint("what was trimmed so far stays trimmed"));
    }
    let text = format!("{} are returned to the disk below", human(trimmed_bytes));
    Ok(Report::done(text, json!({ "trimmed_bytes": trimmed_bytes })))
}
