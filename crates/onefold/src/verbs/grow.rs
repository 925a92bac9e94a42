//! `onefold pool grow`

use std::fs;

use onefold_block::Show;
use serde_json::json;

use super::create::Extension;
use crate::cli::pool::GrowArgs;
use crate::failure::{Failure, Outcome};
use crate::output::Report;
use crate::size::human;
use crate::store::{self, Intent, OpenStore};

pub(super) fn run(arguments: &GrowArgs) -> Outcome<Report> {
    let OpenStore { mut store, interrupt } = store::open(&arguments.target, arguments.open.memory.0, Intent::Change)?;
    // Growing is one step, which a crash survives.
    interrupt.release();
    if let Some(size) = arguments.size {
        let path = store.pool();
        let metadata =
            fs::metadata(path).map_err(|error| Failure::of_io(format!("cannot look at `{}`", path.shown()), &error))?;
        Extension::new(path, metadata.len(), size)?.apply(path)?;
    }
    let before_bytes = store.stat()?.device_bytes;
    let device_bytes = store.grow()?;
    store.close()?;
    let gained_bytes = device_bytes.saturating_sub(before_bytes);
    let text = match gained_bytes {
        0 => format!("the pool has {} already: there is nothing to add", human(device_bytes)),
        _ => format!("the pool has {} now, {} more", human(device_bytes), human(gained_bytes)),
    };
    Ok(Report::done(text, json!({ "device_bytes": device_bytes, "gained_bytes": gained_bytes })))
}
