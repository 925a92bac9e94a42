//! `onefold pool stat`

use serde_json::{Value, json};

use crate::cli::Talk;
use crate::cli::pool::StatArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, space};
use crate::progress::Meter;
use crate::store::{self, HostRoom, Intent, OpenStore};

pub(super) fn run(arguments: &StatArgs, talk: Talk) -> Outcome<Report> {
    let OpenStore { mut store, interrupt } = store::open(&arguments.target, arguments.open.memory.0, Intent::Read)?;
    let mut files = Vec::new();
    for file in &arguments.files {
        let path = store.path(file)?;
        let meter = Meter::new(format!("reading {path}"), talk.quiet, interrupt.clone());
        let stat = store.file_stat(&path, &meter);
        meter.finish();
        if interrupt.is_asked() {
            return Err(Failure::interrupted("reading the numbers of files"));
        }
        files.push((path.machine_name(), stat?));
    }
    // From here on, nothing asks whether the user wants the command to stop, and a daemon may be slow to answer.
    interrupt.release();
    let pool = store.stat()?;
    let text = match (files.is_empty(), store.is_served()) {
        (false, _) => space::files_text(&files, &pool),
        (true, true) => format!("{}\n{}", space::pool_text(&pool), space::filter_text(&pool)),
        // A pool that was opened only for this command has hardly begun to read its filter.
        (true, false) => space::pool_text(&pool),
    };
    let below = HostRoom::of(store.pool());
    let text = match below.as_ref().filter(|_| files.is_empty()) {
        Some(below) => format!("{text}\n{}", below.text(pool.free_bytes)),
        None => text,
    };
    let files: Vec<Value> = files.iter().map(|(name, stat)| space::file_json(name, stat)).collect();
    let below = below.as_ref().map(HostRoom::json);
    Ok(Report::done(text, json!({ "pool": space::pool_json(&pool), "files": files, "below": below })))
}
