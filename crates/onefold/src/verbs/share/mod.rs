//! `onefold share`: the verbs for plain image files.

pub(in crate::verbs) mod by_files;
mod clone;
mod common;
mod domain;
mod explain;
mod explain_file;
mod files;
mod given_up;
mod guest_stretches;
mod index;
mod limits;
mod mend;
mod open;
mod opt_out;
mod patterns;
mod relief;
mod result;
mod root;
mod run;
mod saving;
mod states;
mod status;
mod user_paths;
mod watch;

use crate::cli::Talk;
use crate::cli::share::ShareCommand;
use crate::failure::Outcome;
use crate::output::Report;

/// Runs an `onefold share` command.
pub(crate) fn run(command: ShareCommand, talk: Talk) -> Outcome<Report> {
    match command {
        ShareCommand::Run(arguments) => run::run(&arguments, talk),
        ShareCommand::Files(arguments) => files::run(&arguments, talk),
        ShareCommand::Mend(arguments) => mend::run(&arguments),
        ShareCommand::Status(arguments) => status::run(&arguments),
        ShareCommand::Index(arguments) => index::run(&arguments, talk),
        ShareCommand::Explain(arguments) => explain::run(&arguments),
        ShareCommand::Exclude(arguments) => opt_out::run(&arguments, opt_out::OptOutChange::Exclude),
        ShareCommand::Include(arguments) => opt_out::run(&arguments, opt_out::OptOutChange::Include),
        ShareCommand::Domain(command) => domain::run(&command),
        ShareCommand::Clone(arguments) => clone::run(&arguments),
        ShareCommand::Common(command) => common::run(&command, talk),
        ShareCommand::Watch(arguments) => watch::run(&arguments, talk),
    }
}
