//! The verbs of `onefold key`, and the files of keys.

mod create;
mod list;
pub(crate) mod secret;
pub(crate) mod trust;
pub(crate) mod trusted;

use crate::cli::key::KeyCommand;
use crate::failure::Outcome;
use crate::output::Report;

/// Does what a `onefold key` command asks.
pub(crate) fn run(command: &KeyCommand) -> Outcome<Report> {
    match command {
        KeyCommand::Create(arguments) => create::run(arguments),
        KeyCommand::Trust(arguments) => trust::run(arguments),
        KeyCommand::List => list::run(),
    }
}
