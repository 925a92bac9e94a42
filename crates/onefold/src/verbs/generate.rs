//! Completions and man pages, from the single definition of the command line.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use onefold_block::Show;
use serde_json::json;

use super::{man_page, mount_page};
use crate::cli::Cli;
use crate::failure::{Failure, Outcome};
use crate::output::{Report, machine_name};

/// Returns the completion script of a shell.
pub(crate) fn completions(shell: Shell) -> Outcome<Report> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "onefold", &mut script);
    let script = String::from_utf8_lossy(&script).trim_end().to_owned();
    let json = json!({ "shell": shell.to_string(), "script": script });
    Ok(Report::done(script, json))
}

/// Writes one man page for each command into `folder`, and that of the mount helper.
pub(crate) fn man_pages(folder: &Path) -> Outcome<Report> {
    let cannot = || format!("cannot write man pages into `{}`", folder.shown());
    fs::create_dir_all(folder).map_err(|error| Failure::of_io(cannot(), &error))?;
    // The built-in `help` commands would only repeat the other pages.
    let command = Cli::command().disable_help_subcommand(true);
    man_page::write_all(command, folder)
        .and_then(|()| fs::write(folder.join(mount_page::FILE), mount_page::page()))
        .map_err(|error| Failure::of_io(cannot(), &error))?;
    Ok(Report::done("", json!({ "folder": machine_name(folder) })))
}
