//! `onefold share exclude` and `onefold share include`

use std::io;
use std::path::Path;

use onefold_block::Show;
use onefold_linux::LinuxSubstrate;
use onefold_share::opt_out::{exclude, include, is_excluded};
use serde_json::json;

use super::open::OpenFileSystem;
use super::status::noun;
use crate::cli::share::ShareFilesArgs;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, machine_name};

/// The requested change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptOutChange {
    Exclude,
    Include,
}

pub(crate) fn run(arguments: &ShareFilesArgs, choice: OptOutChange) -> Outcome<Report> {
    let (verb, set): (_, fn(&LinuxSubstrate, &Path) -> io::Result<()>) = match choice {
        OptOutChange::Exclude => ("exclude", exclude),
        OptOutChange::Include => ("include", include),
    };
    let file_system = OpenFileSystem::to_look(&format!("cannot {verb} files"), &arguments.files)?;
    let mut unchanged = Vec::new();
    for (named, path) in arguments.files.iter().zip(&file_system.paths) {
        let failure = |error: io::Error| {
            let failure = Failure::of_io(format!("cannot {verb} `{}`", named.shown()), &error);
            match error.kind() {
                io::ErrorKind::StorageFull => {
                    failure.hint("make a little room: `onefold share run` does so where files have equal blocks")
                }
                _ => failure,
            }
        };
        let was_excluded = is_excluded(&file_system.substrate, path).map_err(failure)?;
        if was_excluded == (choice == OptOutChange::Exclude) {
            unchanged.push(format!(
                "`{}` was {} before; nothing was changed",
                named.shown(),
                if was_excluded { "excluded" } else { "not excluded" }
            ));
            continue;
        }
        set(&file_system.substrate, path).map_err(failure)?;
    }
    let count = (file_system.paths.len() - unchanged.len()) as u64;
    let paths: Vec<_> = file_system.paths.iter().map(machine_name).collect();
    let them = if count == 1 { "it" } else { "them" };
    let done = match choice {
        OptOutChange::Exclude => format!("{count} {} excluded; what is shared already stays so", noun(count, "path")),
        OptOutChange::Include => {
            format!("{count} {} included; from now on, runs share {them} again", noun(count, "path"))
        }
    };
    let changed = (count > 0).then_some(done);
    let lines: Vec<String> = changed.into_iter().chain(unchanged).collect();
    Ok(Report::done(lines.join("\n"), json!({ "root": machine_name(&file_system.root), "paths": paths })))
}
