//! `onefold share exclude` and `onefold share include`

use std::io;
use std::path::Path;

use onefold_block::Show;
use onefold_linux::LinuxSubstrate;
use onefold_share::opt_out::{exclude, include};
use serde_json::json;

use super::open::Ground;
use super::status::noun;
use crate::cli::share::ShareFilesArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, machine_name};

/// The requested change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Exclude,
    Include,
}

pub(crate) fn run(arguments: &ShareFilesArgs, choice: Choice) -> Outcome<Report> {
    let (verb, set): (_, fn(&LinuxSubstrate, &Path) -> io::Result<()>) = match choice {
        Choice::Exclude => ("exclude", exclude),
        Choice::Include => ("include", include),
    };
    let ground = Ground::open(&format!("cannot {verb} files"), &arguments.files)?;
    for (named, path) in arguments.files.iter().zip(&ground.paths) {
        set(&ground.substrate, path)
            .map_err(|error| Failure::of_io(format!("cannot {verb} `{}`", named.shown()), &error))?;
    }
    let count = ground.paths.len() as u64;
    let paths: Vec<_> = ground.paths.iter().map(machine_name).collect();
    let text = match choice {
        Choice::Exclude => format!("{count} {} excluded; what is shared already stays so", noun(count, "path")),
        Choice::Include => format!("{count} {} included; the next run reads what it finds there", noun(count, "path")),
    };
    Ok(Report::done(text, json!({ "root": machine_name(&ground.root), "paths": paths })))
}
