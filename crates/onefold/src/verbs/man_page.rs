//! Manual pages of the commands: what the definition of the command line says, and the sections that every page has.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;

use crate::cli::examples::examples_of;

/// The heading of the synopsis, and the beginning of any other heading.
const SYNOPSIS: &str = ".SH SYNOPSIS\n";
const HEADING: &str = "\n.SH ";

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
    // The examples and the exit codes get sections of their own.
    let page = Man::new(command.clone().after_help(None::<&str>));
    let mut text = Vec::new();
    page.render(&mut text)?;
    let mut text = with_synopsis(&String::from_utf8_lossy(&text), &synopsis(command));
    text.push_str(&sections(command, parent, &examples));
    fs::write(folder.join(page.get_filename()), text)
}

fn name_of(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Returns a page of clap's with another synopsis: clap's own names no values.
fn with_synopsis(page: &str, synopsis: &str) -> String {
    let Some((before, own)) = page.split_once(SYNOPSIS) else { return page.to_owned() };
    let rest = own.find(HEADING).map_or("\n", |end| &own[end..]);
    format!("{before}{SYNOPSIS}{synopsis}{rest}")
}

/// Returns the call of a command: its options with the names of their values, then its arguments.
fn synopsis(command: &Command) -> String {
    let arguments = || command.get_arguments().filter(|argument| !argument.is_hide_set());
    let options = arguments().filter(|argument| !argument.is_positional());
    let mut words = vec![bold(command.get_bin_name().unwrap_or_else(|| command.get_name()))];
    words.extend(options.chain(arguments().filter(|argument| argument.is_positional())).map(usage_of));
    if command.has_subcommands() {
        words.push(italic("COMMAND"));
    }
    words.join(" ")
}

/// Returns how an argument is written, as `[--rate RATE]` or `[PATH]...`.
fn usage_of(argument: &Arg) -> String {
    let short = argument.get_short().map(|letter| bold(&format!("-{letter}")));
    let long = argument.get_long().map(|name| bold(&format!("--{name}")));
    let mut usage = short.into_iter().chain(long).collect::<Vec<_>>().join("|");
    if argument.get_action().takes_values() {
        let names = argument.get_value_names().unwrap_or_default();
        let value = italic(&names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" "));
        let is_optional = argument.get_num_args().is_some_and(|count| count.min_values() == 0);
        match (argument.is_positional(), is_optional) {
            (true, _) => usage = value,
            (false, true) => usage.push_str(&format!("[={value}]")),
            (false, false) => usage.push_str(&format!(" {value}")),
        }
    }
    if !argument.is_required_set() {
        usage = format!("[{usage}]");
    }
    let is_repeated = matches!(argument.get_action(), ArgAction::Append);
    if is_repeated { format!("{usage}...") } else { usage }
}

fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", escaped(text))
}

fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", escaped(text))
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
    text.push_str(&files(name));
    let mut others: Vec<String> = parent.iter().map(|parent| format!("{}(1)", escaped(parent))).collect();
    let below = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    others.extend(below.map(|subcommand| format!("{}(1)", escaped(name_of(subcommand)))));
    if name == "onefold-pool-mount" {
        others.extend(["mount.fuse.onefold(8)".to_owned(), "fusermount3(1)".to_owned()]);
    }
    text.push_str(&format!(".SH \"SEE ALSO\"\n{}\n", others.join(", ")));
    text
}

/// Returns the section of files of a page: the files that its verbs use beside those that the command line names.
fn files(name: &str) -> String {
    let mut words = name.split('-').skip(1);
    let lists: &[&[(&str, &str)]] = match words.next() {
        Some("pool") => &[POOL_FILES, TEMPORARY_FILES],
        Some("share") => &[SHARE_FILES, TEMPORARY_FILES],
        Some("image" | "archive") => &[ARCHIVE_FILES, KEY_FILES, TEMPORARY_FILES],
        Some("key") => &[KEY_FILES],
        Some("analyze" | "guest") => &[TEMPORARY_FILES],
        _ => &[],
    };
    let lines = lists.iter().copied().flatten();
    let entries: String =
        lines.map(|(path, use_of_it)| format!(".TP\n.I {}\n{}\n", escaped(path), escaped(use_of_it))).collect();
    if entries.is_empty() { entries } else { format!(".SH FILES\n{entries}") }
}

/// Files of pools.
const POOL_FILES: &[(&str, &str)] = &[
    ("/etc/fstab", "pools that are mounted at boot: mount.fuse.onefold(8)"),
    ("/etc/onefold/pools/NAME.conf", "the pool that the unit onefold-pool@NAME mounts"),
    (
        "/run/onefold",
        "control sockets of the daemons of root; those of other users lie in $XDG_RUNTIME_DIR/onefold, \
         /run/user/UID/onefold or /tmp/onefold-UID, or in /tmp/onefold-UID-RANDOM if another user has the last one",
    ),
];

/// Files of sharing.
const SHARE_FILES: &[(&str, &str)] = &[
    (
        ".onefold, .onefold-UID",
        "state folders of root and of other users, in the root of the file system that is shared",
    ),
    ("/etc/onefold/share/NAME.conf", "options of the unit onefold-share@NAME"),
];

/// Files of archives and servers of images.
const ARCHIVE_FILES: &[(&str, &str)] = &[
    (
        "~/.cache/onefold-index",
        "copies of the indexes of archives, which spare reading them again; in $XDG_CACHE_HOME if that is set",
    ),
    ("/etc/onefold/serve/NAME.conf", "options of the unit onefold-serve@NAME"),
];

/// Files of keys.
const KEY_FILES: &[(&str, &str)] = &[
    (
        "/etc/onefold/trusted-keys",
        "keys that are trusted for all users; if ONEFOLD_TRUSTED_KEYS names a file, that counts alone",
    ),
    ("~/.config/onefold/trusted-keys", "keys that one user trusts besides"),
];

/// Files that a verb removes before it ends.
const TEMPORARY_FILES: &[(&str, &str)] =
    &[("/var/tmp", "temporary files, in $TMPDIR if that is set; they disappear when the command ends")];

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

    /// Returns all verbs below a command, which is named `path`, with their names.
    fn verbs<'c>(command: &'c Command, path: &str) -> Vec<(String, &'c Command)> {
        let below: Vec<_> = command.get_subcommands().filter(|below| !below.is_hide_set()).collect();
        if below.is_empty() {
            return vec![(path.to_owned(), command)];
        }
        below.into_iter().flat_map(|below| verbs(below, &format!("{path} {}", below.get_name()))).collect()
    }

    /// Returns the words of an example up to a pipe or a redirection, as a shell passes them on.
    fn words(example: &str) -> impl Iterator<Item = &str> {
        let words = example.split_whitespace().take_while(|word| !matches!(*word, "|" | ">"));
        words.map(|word| word.trim_matches('\''))
    }

    #[test]
    fn every_page_has_its_sections_and_every_verb_two_examples() {
        let command = Cli::command();
        let verbs = verbs(&command, "onefold");
        let pages = pages();
        assert!(verbs.len() > 60 && pages.len() > verbs.len(), "{} verbs, {} pages", verbs.len(), pages.len());
        let named = |verb: &str| format!("{}.1", verb.replace(' ', "-"));
        for (verb, _) in &verbs {
            assert!(pages.iter().any(|(name, _)| *name == named(verb)), "{verb}");
        }
        for (name, page) in &pages {
            assert!(page.contains("EXIT STATUS") && page.contains("SEE ALSO"), "{name}");
            assert!(!page.contains(".SH EXTRA"), "{name}");
            assert_eq!(page.contains(".SH FILES\n.TP\n"), name != "onefold.1", "{name}");
            if verbs.iter().any(|(verb, _)| *name == named(verb)) {
                let examples = page.split(".SH EXAMPLES\n.nf\n").nth(1).unwrap_or_else(|| panic!("{name}"));
                assert_eq!(examples.split(".fi").next().unwrap().lines().count(), 2, "{name}");
                assert!(!page.contains("Examples:"), "{name} shows them twice");
            }
        }
    }

    /// An example that the command line refuses would be worse than none.
    #[test]
    fn examples_are_valid_command_lines_of_their_verb() {
        let command = Cli::command();
        for (verb, definition) in verbs(&command, "onefold") {
            let examples = examples_of(definition);
            assert_ne!(examples[0], examples[1], "{verb}");
            for example in examples {
                assert!(example.starts_with(&format!("{verb} ")) || example == verb, "{verb}: {example}");
                let parsed = Cli::command().try_get_matches_from(words(&example));
                assert!(parsed.is_ok(), "{example}: {parsed:?}");
            }
        }
    }

    /// Returns the synopsis of a page as it is shown, without fonts.
    fn shown_synopsis(page: &str) -> String {
        let (_, synopsis) = page.split_once(SYNOPSIS).unwrap();
        let line = synopsis.lines().next().unwrap();
        ["\\fB", "\\fI", "\\fR", "\\"].iter().fold(line.to_owned(), |line, font| line.replace(font, ""))
    }

    #[test]
    fn the_synopsis_names_the_values_of_options() {
        let pages = pages();
        let synopsis = |name: &str| shown_synopsis(&pages.iter().find(|(page, _)| page == name).unwrap().1);
        let run = synopsis("onefold-share-run.1");
        assert!(run.starts_with("onefold share run [--files] [--dry-run] "), "{run}");
        assert!(run.contains(" [--include PATTERN]... ") && run.contains(" [--rate RATE] "), "{run}");
        assert!(run.ends_with(" PATH..."), "{run}");
        assert!(synopsis("onefold-analyze.1").contains(" [--sample[=SHARE]] "));
        assert!(synopsis("onefold-guest-du.1").contains(" [-d|--depth LEVELS] "));
        assert!(synopsis("onefold-share.1").ends_with(" COMMAND"));
        let (_, rest) = pages[0].1.split_once(SYNOPSIS).unwrap();
        assert!(rest.lines().nth(1).unwrap().starts_with(".SH "), "{rest}");
    }

    /// Every option with a value shows the name of the value, on every page.
    #[test]
    fn no_option_with_a_value_stands_alone() {
        let command = Cli::command();
        let pages = pages();
        let mut count = 0;
        for (verb, definition) in verbs(&command, "onefold") {
            let name = format!("{}.1", verb.replace(' ', "-"));
            let line = shown_synopsis(&pages.iter().find(|(page, _)| *page == name).unwrap().1);
            let has_value = |option: &&Arg| !option.is_hide_set() && option.get_action().takes_values();
            for option in definition.get_opts().filter(has_value) {
                let long = option.get_long().unwrap();
                assert!(!line.contains(&format!("--{long}]")), "{verb}: {line}");
                assert!(
                    line.contains(&format!("--{long} ")) || line.contains(&format!("--{long}[=")),
                    "{verb}: {line}"
                );
                count += 1;
            }
        }
        assert!(count > 100, "{count}");
    }
}
