//! `onefold share`: the verbs for plain image files.

mod limits;
mod result;
mod root;
mod run;
mod watch;

use crate::cli::Talk;
use crate::cli::share::ShareCommand;
use crate::failure::Outcome;
use crate::output::Report;

/// Does what a `onefold share` command asks.
pub(crate) fn run(command: ShareCommand, talk: Talk) -> Outcome<Report> {
    match command {
        ShareCommand::Run(arguments) => run::run(&arguments, talk),
        ShareCommand::Watch(arguments) => watch::run(&arguments, talk),
    }
}
