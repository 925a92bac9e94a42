//! The verbs, one file each: they check the arguments, work through the pool or its daemon, and report the result.

pub(crate) mod analyze;
pub(crate) mod archive;
mod check;
mod clone;
pub(crate) mod complete;
mod create;
mod dedup;
mod export;
pub(crate) mod generate;
mod grow;
pub(crate) mod guest;
pub(crate) mod image;
mod images;
mod import;
mod in_use;
pub(crate) mod key;
mod list;
mod ls;
mod man_page;
mod mount;
mod mount_page;
mod no_image;
mod run_meter;
mod scrub;
pub(crate) mod share;
mod stat;
mod trim;
mod umount;

use crate::cli::Talk;
use crate::cli::pool::PoolCommand;
use crate::failure::Outcome;
use crate::output::Report;

/// Runs an `onefold pool` command.
pub(crate) fn run(command: PoolCommand, talk: Talk) -> Outcome<Report> {
    match command {
        PoolCommand::Create(arguments) => create::run(&arguments),
        PoolCommand::Mount(arguments) => mount::run(&arguments),
        PoolCommand::Umount(arguments) => umount::run(&arguments),
        PoolCommand::Check(arguments) => check::run(&arguments, talk),
        PoolCommand::Stat(arguments) => stat::run(&arguments, talk),
        PoolCommand::List(arguments) => list::run(&arguments),
        PoolCommand::Ls(arguments) => ls::run(&arguments, talk),
        PoolCommand::Grow(arguments) => grow::run(&arguments),
        PoolCommand::Scrub(arguments) => scrub::run(&arguments, talk),
        PoolCommand::Trim(arguments) => trim::run(&arguments, talk),
        PoolCommand::Dedup(arguments) => dedup::run(&arguments, talk),
        PoolCommand::Import(arguments) => import::run(&arguments, talk),
        PoolCommand::Export(arguments) => export::run(&arguments, talk),
        PoolCommand::Clone(arguments) => clone::run(&arguments),
    }
}
