//! Options that several commands have: the guide lists them with what they mean, and the commands agree with the guide.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, Command, CommandFactory};

use super::Cli;

/// The page that has the table.
const PAGE: &str = include_str!("../../../../docs/guide/commands.md");
/// The line above the table.
const HEADING: &str = "## Options of several commands";

/// An option as a user writes it, such as `--size SIZE`, with the commands that have it.
type OptionUses = BTreeMap<String, BTreeSet<String>>;

/// Returns the options of all commands.
fn options_of(command: &Command, path: &str, uses: &mut OptionUses) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        let name = format!("{path} {}", below.get_name());
        options_of(below, name.trim_start(), uses);
    }
    if command.has_subcommands() {
        return;
    }
    let is_listed = |option: &&Arg| !option.is_hide_set() && !option.is_global_set();
    // Those of object stores are an interface of their own, which the page about archives has.
    let is_general = |option: &&Arg| option.get_help_heading().is_none();
    for option in command.get_opts().chain(command.get_arguments().filter(|option| !takes_value(option))) {
        let Some(long) = option.get_long().filter(|long| !matches!(*long, "help" | "version")) else { continue };
        if Some(option).filter(is_listed).filter(is_general).is_some() {
            uses.entry(written(option, long)).or_default().insert(path.to_owned());
        }
    }
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

fn written(option: &Arg, long: &str) -> String {
    let value = option.get_value_names().and_then(<[_]>::first).filter(|_| takes_value(option));
    value.map_or_else(|| format!("--{long}"), |value| format!("--{long} {value}"))
}

/// Returns the rows of the table: what is in backticks in the first and in the last cell.
fn rows_of_page() -> Vec<(String, BTreeSet<String>)> {
    let (_, section) = PAGE.split_once(HEADING).expect("the page has the section");
    let lines = section.lines().skip(1).take_while(|line| !line.starts_with('#'));
    let quoted =
        |cell: &str| cell.split('`').skip(1).step_by(2).map(|text| text.replace("\\|", "|")).collect::<Vec<_>>();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let option = quoted(cells[0]).pop().expect("a row begins with its option");
        (option, quoted(cells[cells.len() - 1]).into_iter().collect())
    };
    lines.filter(|line| line.starts_with("| `")).map(row).collect()
}

/// Returns the commands that a cell names; `guest *` is all verbs of `guest`.
fn named(command: &str) -> Vec<String> {
    let Some(group) = command.strip_suffix(" *") else { return vec![command.to_owned()] };
    let all = Cli::command();
    let group_command = all.find_subcommand(group).expect("a group of commands");
    group_command.get_subcommands().map(|verb| format!("{group} {}", verb.get_name())).collect()
}

/// Returns the name of an option without its value.
fn name(option: &str) -> &str {
    option.split_once(' ').map_or(option, |(name, _)| name)
}

#[test]
fn options_of_several_commands_are_in_the_table_of_the_guide() {
    let mut uses = OptionUses::new();
    options_of(&Cli::command(), "", &mut uses);
    let mut counts = BTreeMap::<&str, usize>::new();
    for (option, commands) in &uses {
        *counts.entry(name(option)).or_default() += commands.len();
    }
    let is_of_several = |option: &str| counts[name(option)] > 1;
    let several: OptionUses =
        uses.iter().filter(|(option, _)| is_of_several(option)).map(|(o, c)| (o.clone(), c.clone())).collect();
    let mut listed = OptionUses::new();
    for (option, commands) in rows_of_page() {
        for command in commands.iter().flat_map(|command| named(command)) {
            let is_new = listed.entry(option.clone()).or_default().insert(command.clone());
            assert!(is_new, "`{command}` has two rows of `{option}`");
        }
    }
    assert_eq!(listed, several, "the table (left) and the commands (right)");
    assert!(several.len() > 10, "{several:?}");
}
