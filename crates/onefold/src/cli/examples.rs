//! Examples in the help of a verb, which its manual page repeats.

use clap::Command;

/// Title of the examples in the help of a verb.
const TITLE: &str = "Examples:";

/// Returns what the help of a verb has below its options.
pub(super) fn examples(lines: [&str; 2]) -> String {
    let [first, second] = lines;
    format!("{TITLE}\n  {first}\n  {second}")
}

/// Returns the examples in the help of a command; only verbs have some.
pub(crate) fn examples_of(command: &Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let lines = help.strip_prefix(TITLE).into_iter().flat_map(str::lines);
    lines.map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}
