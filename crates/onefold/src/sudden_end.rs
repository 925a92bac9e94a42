//! Ctrl-C during work that may end at any moment: the command ends at once, with the exit code for interrupts and a
//! line that says what was kept.
//!
//! Work that must stop at a sound point watches for signals itself, with [`Interrupt`]. While it does, a signal is left
//! to it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::cli::Command;
use crate::cli::guest::GuestCommand;
use crate::cli::pool::PoolCommand;
use crate::cli::share::{ShareCommand, ShareDomainCommand};
use crate::cli::share_common::ShareCommonCommand;
use crate::failure::{EXIT_INTERRUPTED, Failure};
use crate::interrupt::Interrupt;
use crate::output::print_failure;

/// The thread only prints a line. The usual stack would count against a user's limit of address space.
const STACK_BYTES: usize = 128 << 10;
const NOTHING_CHANGED: &str = "nothing was changed";

/// How a command says that it was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EndWords {
    /// The work that was interrupted.
    doing: &'static str,
    /// The state that is left.
    kept: &'static str,
    /// Whether it prints its result while it works. Then no further document belongs on standard output.
    is_streaming: bool,
}

impl EndWords {
    const fn new(doing: &'static str, kept: &'static str) -> EndWords {
        EndWords { doing, kept, is_streaming: false }
    }

    /// Returns the words of a command; `None` for a command whose end is not decided here.
    fn of(command: &Command) -> Option<EndWords> {
        match command {
            Command::Pool(command) => EndWords::of_pool(command),
            Command::Analyze(_) => Some(EndWords::new("analysing", NOTHING_CHANGED)),
            Command::Guest(command) => Some(EndWords::of_guest(command)),
            Command::Share(command) => Some(EndWords::of_share(command)),
            Command::Image(_)
            | Command::Archive(_)
            | Command::Key(_)
            | Command::Completions { .. }
            | Command::CompleteWords { .. }
            | Command::ManPages { .. } => None,
        }
    }

    fn of_pool(command: &PoolCommand) -> Option<EndWords> {
        Some(match command {
            // A daemon ends in its own way.
            PoolCommand::Mount(_) => return None,
            PoolCommand::Create(_) => EndWords::new(
                "making a pool",
                "the file or partition may hold a part of a pool; make it anew with --force",
            ),
            PoolCommand::Umount(_) => {
                EndWords::new("waiting for the unmount", "the daemon goes on, and writes everything to disk")
            }
            PoolCommand::Grow(_) => EndWords::new("growing the pool", "the pool has its old size or its new one"),
            PoolCommand::Check(_) => EndWords::new("checking the pool", NOTHING_CHANGED),
            PoolCommand::Stat(_) => EndWords::new("reading the numbers of the pool", NOTHING_CHANGED),
            PoolCommand::List(_) => EndWords::new("asking the pools", NOTHING_CHANGED),
            PoolCommand::Ls(_) => EndWords::new("listing files", NOTHING_CHANGED),
            PoolCommand::Scrub(_) => EndWords::new("scrubbing", NOTHING_CHANGED),
            PoolCommand::Trim(_) => EndWords::new("trimming", NOTHING_CHANGED),
            PoolCommand::Dedup(_) => EndWords::new("sharing blocks", NOTHING_CHANGED),
            PoolCommand::Import(_) => EndWords::new("importing", NOTHING_CHANGED),
            PoolCommand::Export(_) => EndWords::new("exporting", NOTHING_CHANGED),
            PoolCommand::Clone(_) => EndWords::new("cloning", NOTHING_CHANGED),
        })
    }

    fn of_guest(command: &GuestCommand) -> EndWords {
        let words = match command {
            GuestCommand::Cat(_) | GuestCommand::Tar(_) => {
                EndWords::new("writing files of the guest", "what was written to standard output is incomplete")
            }
            GuestCommand::Info(_)
            | GuestCommand::Df(_)
            | GuestCommand::Ls(_)
            | GuestCommand::Map(_)
            | GuestCommand::Who(_)
            | GuestCommand::Du(_)
            | GuestCommand::Find(_)
            | GuestCommand::Packages(_)
            | GuestCommand::Diff(_) => EndWords::new("looking into images", NOTHING_CHANGED),
        };
        EndWords { is_streaming: true, ..words }
    }

    fn of_share(command: &ShareCommand) -> EndWords {
        const VOLUME: &str = "the common volume is as it was, or as it was to become";
        match command {
            ShareCommand::Run(_) | ShareCommand::Files(_) | ShareCommand::Watch(_) => {
                EndWords::new("sharing", NOTHING_CHANGED)
            }
            ShareCommand::Mend(_) => {
                EndWords::new("mending images", "images that were mended stay so, and the next run mends the others")
            }
            ShareCommand::Status(_) => EndWords::new("counting what is shared", NOTHING_CHANGED),
            ShareCommand::Index(_) => {
                EndWords { is_streaming: true, ..EndWords::new("reading the index", NOTHING_CHANGED) }
            }
            ShareCommand::Explain(_) => EndWords::new("explaining the file", NOTHING_CHANGED),
            ShareCommand::Exclude(_) | ShareCommand::Include(_) => {
                EndWords::new("setting attributes", "attributes that were set stay so")
            }
            ShareCommand::Domain(ShareDomainCommand::Show(_)) => EndWords::new("reading domains", NOTHING_CHANGED),
            ShareCommand::Domain(ShareDomainCommand::Set(_) | ShareDomainCommand::Clear(_)) => {
                EndWords::new("setting domains", "domains that were set stay so")
            }
            ShareCommand::Clone(_) => EndWords::new("cloning", "the clone is there as a whole, or not at all"),
            ShareCommand::Common(ShareCommonCommand::Ls(_) | ShareCommonCommand::Check(_)) => {
                EndWords::new("reading the common volume", NOTHING_CHANGED)
            }
            ShareCommand::Common(
                ShareCommonCommand::Create(_) | ShareCommonCommand::Add(_) | ShareCommonCommand::Rm(_),
            ) => EndWords::new("changing the common volume", VOLUME),
        }
    }
}

/// From now on, the first SIGINT or SIGTERM ends a command whose work does not watch for signals, and the second one
/// any.
pub(crate) fn prepare(command: &Command, as_json: bool) {
    let Some(words) = EndWords::of(command) else { return };
    // Without these handlers, signals keep their default, which ends the process without a line.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
    let has_come = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Order matters: at the first signal, the shutdown handler still finds the flag unset.
        let _ = flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED.into(), Arc::clone(&has_come));
        let _ = flag::register(signal, Arc::clone(&has_come));
    }
    // Without a thread, the second signal ends the command.
    let _ = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        for _ in signals.forever() {
            if !Interrupt::is_watched() {
                let failure = Failure::interrupted(words.doing).hint(words.kept);
                print_failure(&failure, as_json && !words.is_streaming);
                std::process::exit(EXIT_INTERRUPTED.into());
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    fn words(line: &str) -> Option<EndWords> {
        EndWords::of(&Cli::try_parse_from(line.split(' ')).unwrap().command)
    }

    #[test]
    fn commands_that_change_something_say_what_becomes_of_it() {
        for (line, kept) in [
            ("onefold share mend", "stay so"),
            ("onefold share clone a b", "as a whole, or not at all"),
            ("onefold pool umount a", "the daemon goes on"),
            ("onefold pool create a", "--force"),
            ("onefold guest tar a /", "incomplete"),
            ("onefold share common rm a b", "as it was"),
        ] {
            assert!(words(line).unwrap().kept.contains(kept), "{line}");
        }
        for line in ["onefold share status", "onefold guest ls a", "onefold analyze a", "onefold pool stat a"] {
            assert_eq!(words(line).unwrap().kept, NOTHING_CHANGED, "{line}");
        }
        for line in ["onefold pool mount a b", "onefold key list", "onefold archive stat a"] {
            assert_eq!(words(line), None, "{line}");
        }
    }
}
