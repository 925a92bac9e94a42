//! `onefold pool scrub`

use onefold_block::BLOCK_BYTES_U64;
use serde_json::json;

use super::check::{merge, problems};
use crate::cli::Talk;
use crate::cli::pool::ScrubArgs;
use crate::failure::{Exit, Outcome};
use crate::output::{Report, findings, machine_name, print_failure};
use crate::progress::Meter;
use crate::size::human;
use crate::store::{self, Intent, OpenStore, PoolProblems};

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
    let verdict = verdict(&found);
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

/// Returns the last line.
fn verdict(found: &PoolProblems) -> String {
    let read = human(found.data_blocks_hashed.saturating_mul(BLOCK_BYTES_U64));
    match (found.problems_total, found.stopped) {
        (0, false) => format!("{read} of data read, no damage"),
        (0, true) => format!("{read} of data read, no damage so far; stopped before the end"),
        (count, false) => format!("{read} of data read: {}", problems(count)),
        (count, true) => format!("{read} of data read: {} so far; stopped before the end", problems(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_how_much_was_read_and_whether_it_is_damaged() {
        let found = PoolProblems { data_blocks_hashed: 247_808, ..PoolProblems::default() };
        assert_eq!(verdict(&found), "968.00 MiB of data read, no damage");
        assert!(verdict(&PoolProblems { stopped: true, ..found.clone() }).ends_with("stopped before the end"));
        assert!(verdict(&PoolProblems { problems_total: 1, ..found }).ends_with(": 1 problem"));
    }
}
