//! `onefold`: stores many virtual machine disk images once.
//!
//! This crate is the command line and nothing else: arguments, progress, results, exit codes. What a pool is lies in
//! `onefold-pool`, how it is mounted in `onefold-export`.

mod allocator;
mod cli;
mod copy;
mod daemon;
mod dead_mount;
mod disk;
mod failure;
mod host;
mod image;
mod interrupt;
mod locate;
mod memory;
mod mount_helper;
mod mounts;
mod output;
mod progress;
mod size;
mod store;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use failure::{EXIT_BUG, Exit, Failure};

fn main() -> ExitCode {
    report_panics();
    let cli = match mount_helper::translate(std::env::args_os().collect()) {
        Ok(arguments) => Cli::parse_from(arguments),
        Err(failure) => return fail(&failure, false),
    };
    let talk = cli.talk;
    let outcome = match cli.command {
        Command::Pool(command) => verbs::run(command, talk),
        Command::Analyze(arguments) => verbs::analyze::run(&arguments, talk),
        Command::Share(command) => verbs::share::run(command, talk),
        Command::Completions { shell } => verbs::generate::completions(shell),
        Command::ManPages { folder } => verbs::generate::man_pages(&folder),
    };
    match outcome {
        Ok(report) => match report.print(talk.json) {
            Ok(()) => report.exit.into(),
            // Whoever reads the results has had enough of them, as `head` has.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => report.exit.into(),
            Err(error) => fail(&Failure::of_io("cannot print the result", &error), false),
        },
        Err(failure) => fail(&failure, talk.json),
    }
}

fn fail(failure: &Failure, as_json: bool) -> ExitCode {
    output::print_failure(failure, as_json);
    match failure.exit {
        Exit::Done => Exit::Failed.into(),
        exit => exit.into(),
    }
}

/// Makes a panic, in whichever thread, end the process with the code that means a bug in us: a daemon that went on
/// without one of its threads would only hang.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("error: a bug in Onefold: {panic}");
        eprintln!("  hint: please report it, with the command and these lines; the pool is as sound as after a crash");
        std::process::exit(EXIT_BUG);
    }));
}
