//! The words that a shell offers where a command line takes a pool, or a file inside a pool.
//!
//! The completion scripts ask for them with the hidden command `onefold complete-words`, which prints one word a line.
//! It never fails and never waits for long: without an answer, a shell completes names of files.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, Command, CommandFactory};
use onefold_block::shown::is_hidden;
use serde_json::Value;

use super::list;
use crate::cli::Cli;
use crate::failure::Outcome;
use crate::output::Report;
use crate::side_by_side::{AskPolicy, ask_all};
use crate::store::{self, Intent, OpenStore, PoolFileKind};

/// Maximum time that a user waits for the words.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Memory for a pool that is opened to list a directory.
const MEMORY_BYTES: u64 = 64 << 20;
/// Maximum number of words: nobody reads more.
const WORDS_MAX: usize = 10_000;

/// The kind of a word of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WordKind {
    /// A pool, by its file, partition or mount point.
    Pool,
    /// A file or directory inside the pool.
    Inside { pool: PathBuf, only_directories: bool },
}

/// A question for words.
#[derive(Debug)]
struct WordQuestion {
    kind: WordKind,
    /// The beginning of the word.
    begun: OsString,
}

/// Prints the words that may stand at `index` in a command line.
pub(crate) fn run(index: usize, line: &[OsString]) -> Outcome<Report> {
    if let Some(kind) = kind_of(&Cli::command(), index, line) {
        let begun = line.get(index).cloned().unwrap_or_default();
        // The thread is left behind if a pool does not answer, and ends with the process.
        let asking = AskPolicy { threads: NonZeroUsize::MIN, wait_max: WAIT_MAX, go_on: &|| ControlFlow::Continue(()) };
        let answers = ask_all(vec![WordQuestion { kind, begun }], &asking, words);
        let lines: Vec<u8> =
            answers.into_iter().flatten().flatten().flat_map(|word| [word.as_bytes(), b"\n"].concat()).collect();
        // A shell that has gone needs no words.
        let _ = io::stdout().lock().write_all(&lines);
    }
    Ok(Report::done("", Value::Null))
}

/// Returns what the word at `index` is, if it is a pool or lies in one.
fn kind_of(onefold: &Command, index: usize, line: &[OsString]) -> Option<WordKind> {
    if line.get(1)? != "pool" || index < 3 {
        return None;
    }
    let verb = onefold.find_subcommand("pool")?.find_subcommand(line.get(2)?)?;
    let mut positionals: Vec<&OsStr> = Vec::new();
    let mut words = line[..index.min(line.len())].iter().skip(3);
    let mut are_options_over = false;
    while let Some(word) = words.next() {
        if are_options_over || !word.as_bytes().starts_with(b"-") || word == "-" {
            positionals.push(word);
        } else if word == "--" {
            are_options_over = true;
        } else if let Some(option) = option_of(verb, word).filter(|option| option.get_action().takes_values())
            && words.next().is_none()
        {
            // The word is the value of an option.
            let pool = PathBuf::from(positionals.first()?);
            return is_inside_option(verb, option).then_some(WordKind::Inside { pool, only_directories: true });
        }
    }
    let is_option = line.get(index).is_some_and(|word| word.as_bytes().starts_with(b"-"));
    if is_option && !are_options_over {
        return None;
    }
    // An argument that takes many words takes all that follow, as far as anybody knows before the line has ended.
    let (at, all) = (positionals.len(), verb.get_positionals().collect::<Vec<&Arg>>());
    let many = all.iter().take(at + 1).find(|argument| takes_many(argument));
    let argument = many.or_else(|| all.get(at))?;
    kind_of_argument(verb, argument, positionals.first().copied())
}

fn takes_many(argument: &Arg) -> bool {
    argument.get_num_args().is_some_and(|range| range.max_values() > 1)
        || matches!(argument.get_action(), clap::ArgAction::Append)
}

/// Returns the option that a word is, if the next word is its value.
fn option_of<'c>(verb: &'c Command, word: &OsStr) -> Option<&'c Arg> {
    let text = word.to_str()?;
    let named = |option: &&Arg| match text.strip_prefix("--") {
        Some(long) => option.get_long() == Some(long),
        None => option.get_short().is_some_and(|short| text == format!("-{short}")),
    };
    verb.get_arguments().find(named)
}

/// Returns whether an option takes a name inside the pool.
fn is_inside_option(verb: &Command, option: &Arg) -> bool {
    verb.get_name() == "import" && option.get_id() == "to"
}

/// Returns what an argument is, by the verb and its name there.
fn kind_of_argument(verb: &Command, argument: &Arg, first: Option<&OsStr>) -> Option<WordKind> {
    match (verb.get_name(), argument.get_id().as_str()) {
        (_, "target" | "pool") => Some(WordKind::Pool),
        ("list", "paths") => Some(WordKind::Pool),
        ("stat" | "export", "names") | ("clone", "source") => {
            Some(WordKind::Inside { pool: first?.into(), only_directories: false })
        }
        ("ls", "directory") | ("clone", "destination") => {
            Some(WordKind::Inside { pool: first?.into(), only_directories: true })
        }
        _ => None,
    }
}

/// Returns the words, in order, each of which begins as the user has begun it.
fn words(question: &WordQuestion) -> Vec<OsString> {
    let WordQuestion { kind, begun } = question;
    let found: BTreeSet<OsString> = match kind {
        WordKind::Pool => list::known_places().into_iter().map(PathBuf::into_os_string).collect(),
        WordKind::Inside { pool, only_directories } => {
            let listed = inside(pool, begun, *only_directories);
            listed.unwrap_or_default().into_iter().collect()
        }
    };
    let is_offered = |word: &OsString| word.as_bytes().starts_with(begun.as_bytes()) && is_plain(word);
    found.into_iter().filter(is_offered).take(WORDS_MAX).collect()
}

/// Returns whether a terminal shows a word as it is.
fn is_plain(word: &OsStr) -> bool {
    word.to_str().is_some_and(|text| !text.is_empty() && !text.chars().any(is_hidden))
}

/// Returns the entries of the directory of a pool in which a name has begun. Directories end with a slash.
fn inside(pool: &Path, begun: &OsStr, only_directories: bool) -> Outcome<Vec<OsString>> {
    let OpenStore { store, interrupt } = store::open(pool, MEMORY_BYTES, Intent::Read)?;
    interrupt.release();
    let length = begun.as_bytes().iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let directory = &begun.as_bytes()[..length];
    let named = if directory.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(directory)) };
    let entries = store.list(&store.path(named)?)?;
    let wanted = entries.into_iter().filter(|entry| !only_directories || entry.kind == PoolFileKind::Directory);
    let word = |name: &OsStr, kind: PoolFileKind| {
        let slash: &[u8] = if kind == PoolFileKind::Directory { b"/" } else { b"" };
        OsString::from_vec([directory, name.as_bytes(), slash].concat())
    };
    Ok(wanted.map(|entry| word(&entry.name, entry.kind)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what the last word of a line is.
    fn kind(line: &str) -> Option<WordKind> {
        let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        kind_of(&Cli::command(), line.len() - 1, &line)
    }

    fn inside(only_directories: bool) -> Option<WordKind> {
        Some(WordKind::Inside { pool: "a.pool".into(), only_directories })
    }

    #[test]
    fn pools_and_files_inside_them_are_told_from_other_words() {
        for line in [
            "onefold pool stat ",
            "onefold pool umount im",
            "onefold pool mount ",
            "onefold pool dedup --memory 4G ",
            "onefold pool check --data ",
            "onefold pool check --memory=4G a",
            "onefold pool scrub -- -a",
        ] {
            assert_eq!(kind(line), Some(WordKind::Pool), "{line}");
        }
        for line in [
            "onefold pool stat a.pool x",
            "onefold pool stat a.pool x.raw y",
            "onefold pool export a.pool ",
            "onefold pool export --format raw a.pool x.raw y",
            "onefold pool clone --count 3 a.pool ",
        ] {
            assert_eq!(kind(line), inside(false), "{line}");
        }
        for line in ["onefold pool ls a.pool ", "onefold pool import a.pool --to t", "onefold pool clone a.pool x y"] {
            assert_eq!(kind(line), inside(true), "{line}");
        }
    }

    #[test]
    fn other_words_are_left_to_the_shell() {
        for line in [
            "onefold po",
            "onefold pool st",
            "onefold pool frobnicate a.pool ",
            "onefold guest ls a",
            "onefold pool create ",
            "onefold pool mount a.pool ",
            "onefold pool import a.pool x",
            "onefold pool stat --mem",
            "onefold pool stat --memory ",
            "onefold pool import --to t",
        ] {
            assert_eq!(kind(line), None, "{line}");
        }
        assert_eq!(kind_of(&Cli::command(), 9, &["onefold".into(), "pool".into()]), None);
    }

    #[test]
    fn words_with_hidden_characters_are_not_offered() {
        assert!(is_plain("a b.raw".as_ref()));
        for word in ["", "a\nb", "a\u{1b}[2J", "a\u{202e}b"] {
            assert!(!is_plain(word.as_ref()), "{word:?}");
        }
        assert!(!is_plain(OsStr::from_bytes(b"\xff")));
    }
}
