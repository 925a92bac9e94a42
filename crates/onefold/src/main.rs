//! `onefold`: stores many virtual machine disk images once.
//!
//! This crate is only the command line: arguments, progress, results, exit codes. `onefold-pool` implements pools, and
//! `onefold-export` mounts them.

mod allocator;
mod byte_rate;
mod calendar;
mod cli;
mod daemon;
mod dead_mount;
mod failure;
mod host;
mod interrupt;
mod locate;
mod machine_name;
mod memory;
mod mount_helper;
mod mount_options;
mod mounts;
mod open_files;
mod outgoing;
mod output;
mod progress;
mod side_by_side;
mod size;
mod store;
mod sudden_end;
mod users;
mod verbs;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use onefold_block::shown::{Show, ShownText, is_hidden};

use cli::percent::with_joined_samples;
use cli::{Cli, Command};
use failure::{EXIT_BUG, Exit, Failure};

fn main() -> ExitCode {
    report_panics();
    let arguments: Vec<_> = std::env::args_os().collect();
    let is_helper = mount_helper::is_helper(&arguments);
    match mount_helper::remount(&arguments) {
        Some(Ok(())) => return Exit::Done.into(),
        Some(Err(failure)) => return fail(&failure, false),
        None => {}
    }
    let cli = match mount_helper::translate(arguments) {
        Ok(arguments) => parse(&with_joined_samples(arguments)),
        Err(failure) => return fail(&failure, false),
    };
    let talk = cli.talk;
    sudden_end::prepare(&cli.command, talk.json);
    let outcome = match cli.command {
        Command::Pool(command) => verbs::run(command, talk),
        Command::Analyze(arguments) => verbs::analyze::run(&arguments, talk),
        Command::Guest(command) => verbs::guest::run(command, talk),
        Command::Share(command) => verbs::share::run(command, talk),
        Command::Image(command) => verbs::image::run(command, talk),
        Command::Archive(command) => verbs::archive::run(&command, talk),
        Command::Key(command) => verbs::key::run(&command),
        Command::Completions { shell } => verbs::generate::completions(shell),
        Command::CompleteWords { index, words } => verbs::complete::run(index, &words),
        Command::ManPages { folder } => verbs::generate::man_pages(&folder),
    };
    match outcome {
        Ok(report) => match report.print(talk.json) {
            Ok(()) => report.exit.into(),
            // The reader of the results has stopped reading, as `head` does.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => report.exit.into(),
            Err(error) => fail(&Failure::of_io("cannot print the result", &error), false),
        },
        Err(failure) if is_helper => fail(&mount_options::with_mount_options(failure), talk.json),
        Err(failure) => fail(&failure, talk.json),
    }
}

/// Parses the command line, or ends the process with help or a usage error. Such errors quote arguments unescaped. So
/// if an argument contains characters to escape, the printed error is that of the escaped arguments.
fn parse(arguments: &[OsString]) -> Cli {
    let error = match Cli::try_parse_from(arguments) {
        Ok(cli) => return cli,
        Err(error) => error,
    };
    if error.use_stderr() && asks_for_json(arguments) {
        let failure = Failure::usage(usage_error(&error)).hint("`--help` lists the arguments");
        output::print_failure_document(&failure);
    }
    let is_plain = |argument: &OsString| argument.to_str().is_some_and(|text| !text.chars().any(is_hidden));
    if arguments.iter().all(is_plain) {
        error.exit();
    }
    let shown = |argument: &OsString| match is_plain(argument) {
        true => argument.clone(),
        false => argument.shown().to_string().into(),
    };
    if let Err(error) = Cli::try_parse_from(arguments.iter().map(shown)) {
        error.exit();
    }
    // The escapes themselves made the arguments valid, for example where an argument must be UTF-8.
    eprint!("{}", ShownText::lines(&error.to_string()));
    std::process::exit(error.exit_code());
}

/// Returns what is wrong with a command line, in one line: the first paragraph of the message, which also names missing
/// arguments and possible values.
fn usage_error(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing".to_owned();
    }
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let line = paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    line.trim_start_matches("error: ").to_owned()
}

/// Returns whether a command line that is not valid asks for JSON.
fn asks_for_json(arguments: &[OsString]) -> bool {
    arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

fn fail(failure: &Failure, as_json: bool) -> ExitCode {
    output::print_failure(failure, as_json);
    match failure.exit {
        Exit::Done => Exit::Failed.into(),
        exit => exit.into(),
    }
}

/// Makes a panic in any thread end the process with the exit code for a bug. A daemon that continued without one of its
/// threads would only hang.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("error: a bug in Onefold: {}", ShownText::lines(&panic.to_string()));
        eprintln!("  hint: please report it, with the command and these lines; the pool is as sound as after a crash");
        std::process::exit(EXIT_BUG);
    }));
}
