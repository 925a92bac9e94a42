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
    let script = with_words(shell, &String::from_utf8_lossy(&script));
    let json = json!({ "shell": shell.to_string(), "script": script });
    Ok(Report::done(script, json))
}

/// Returns a generated script that also asks `onefold complete-words` for pools and files inside pools.
fn with_words(shell: Shell, generated: &str) -> String {
    let generated = generated.trim_end();
    // In bash and zsh, a function of ours takes the place of the generated one, and calls it.
    let renamed = || generated.replacen("_onefold() {", "_onefold_arguments() {", 1);
    match shell {
        // The generated script ends with the registration of `_onefold`.
        Shell::Bash => format!("{BASH_WORDS}\n{}", renamed()),
        // The first line has to stay the first, and the registration the last.
        Shell::Zsh => renamed().replacen("_onefold_arguments() {", &format!("{ZSH_WORDS}\n_onefold_arguments() {{"), 1),
        Shell::Fish => format!("{generated}\n{FISH_WORDS}"),
        _ => generated.to_owned(),
    }
}

const BASH_WORDS: &str = include_str!("completions/words.bash");
const ZSH_WORDS: &str = include_str!("completions/words.zsh");
const FISH_WORDS: &str = include_str!("completions/words.fish");

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
