//! Manual pages of the commands: what the definition of the command line says, and the sections that every page has.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

/// Title of the examples in the help of a command.
const EXAMPLES: &str = "Examples:";

/// Writes the pages of a command and of all its subcommands into `folder`.
pub(super) fn write_all(mut command: Command, folder: &Path) -> io::Result<()> {
    command.build();
    write_below(&command, None, folder)
}

fn write_below(command: &Command, parent: Option<&str>, folder: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_below(subcommand, Some(name_of(command)), folder)?;
    }
    let examples = examples_of(command);
    // The examples get a section of their own.
    let described = match examples.is_empty() {
        true => command.clone(),
        false => command.clone().after_help(""),
    };
    let page = Man::new(described);
    let mut text = Vec::new();
    page.render(&mut text)?;
    text.extend(sections(command, parent, &examples).into_bytes());
    fs::write(folder.join(page.get_filename()), text)
}

fn name_of(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Returns the example command lines in the help of a command.
fn examples_of(command: &Command) -> Vec<String> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let lines = help.strip_prefix(EXAMPLES).into_iter().flat_map(str::lines);
    lines.map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// Returns the sections that clap does not write.
fn sections(command: &Command, parent: Option<&str>, examples: &[String]) -> String {
    let name = name_of(command);
    let mut text = String::new();
    if !examples.is_empty() {
        text.push_str(".SH EXAMPLES\n.nf\n");
        for example in examples {
            text.push_str(&format!("{}\n", escaped(example)));
        }
        text.push_str(".fi\n");
    }
    text.push_str(
        ".SH \"EXIT STATUS\"\n0 done, 1 failed, 2 wrong usage, 3 damage found, 130 interrupted, 255 a bug in Onefold.\n",
    );
    if name.starts_with("onefold-pool") {
        text.push_str(FILES);
    }
    let mut others: Vec<String> = parent.iter().map(|parent| format!("{}(1)", escaped(parent))).collect();
    let below = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    others.extend(below.map(|subcommand| format!("{}(1)", escaped(name_of(subcommand)))));
    if name == "onefold-pool-mount" {
        others.extend(["mount.fuse.onefold(8)".to_owned(), "fusermount3(1)".to_owned()]);
    }
    text.push_str(&format!(".SH \"SEE ALSO\"\n{}\n", others.join(", ")));
    text
}

/// Files of pools.
const FILES: &str = ".SH FILES
.TP
.I /etc/fstab
pools that are mounted at boot: mount.fuse.onefold(8)
.TP
.I /etc/onefold/pools
pools that the unit onefold\\-pool@ mounts
.TP
.I /run/onefold
control sockets of the daemons of root; those of other users lie in $XDG_RUNTIME_DIR/onefold,
/run/user/UID/onefold or /tmp/onefold\\-UID, or in /tmp/onefold\\-UID\\-RANDOM if another user has the last one
";

/// Returns a text of one line in the language of man(7).
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// Returns all pages, by file name.
    fn pages() -> Vec<(String, String)> {
        let folder = tempfile::tempdir().unwrap();
        write_all(Cli::command().disable_help_subcommand(true), folder.path()).unwrap();
        let entries = fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
        let page =
            |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap());
        entries.map(page).collect()
    }

    #[test]
    fn every_page_has_its_sections_and_every_verb_of_pools_two_examples() {
        let pages = pages();
        assert!(pages.len() > 30, "{}", pages.len());
        for (name, page) in &pages {
            assert!(page.contains("EXIT STATUS") && page.contains("SEE ALSO"), "{name}");
            if name.starts_with("onefold-pool-") {
                let examples = page.split(".SH EXAMPLES\n.nf\n").nth(1).unwrap_or_else(|| panic!("{name}"));
                assert_eq!(examples.split(".fi").next().unwrap().lines().count(), 2, "{name}");
                assert!(!page.contains("Examples:"), "{name} shows them twice");
            }
        }
    }

    /// An example that the command line refuses would be worse than none.
    #[test]
    fn examples_are_valid_command_lines() {
        let command = Cli::command();
        let pool = command.find_subcommand("pool").unwrap();
        for verb in pool.get_subcommands() {
            for example in examples_of(verb) {
                let words = example.split(" | ").next().unwrap().split_whitespace();
                let parsed = Cli::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{example}: {parsed:?}");
            }
        }
    }
}
