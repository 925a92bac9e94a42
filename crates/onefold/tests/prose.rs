//! How the project writes: sentences of its pages are short, and actors have nouns.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

use onefold_block::Show;

/// Number of words above which a sentence is long.
const WORDS_MAX: usize = 30;
/// Pages of which more than a tenth of the sentences are long, with the number of these. It may only fall.
const LONG_PAGES: [(&str, usize); 5] = [
    ("docs/decisions/0004-fingerprint-filter.md", 14),
    ("docs/decisions/0006-fuse-door.md", 17),
    ("docs/decisions/0008-write-behind.md", 26),
    ("docs/decisions/0010-analyze.md", 14),
    ("docs/reliability.md", 79),
];
/// Number of comments in the sources of the product that begin with "What". It may only fall.
const WHAT_MAX: usize = 35;

/// Number of characters of the longest line of a comment.
const COMMENT_WIDTH_MAX: usize = 120;

/// Words before `who` that show that no noun stands there: "for who reads it".
const NO_NOUNS: [&str; 18] = [
    "for", "of", "so", "and", "than", "that", "but", "because", "by", "from", "with", "to", "as", "if", "or", "then",
    "while", "until",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Adds all files below a directory that have one of these extensions, but for what builds leave there.
fn add_files(directory: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is = |name: &str| path.file_name().is_some_and(|found| found == name);
        if path.is_dir() && !path.is_symlink() {
            if !(is("target") || is("cache") || is(".git")) {
                add_files(&path, extensions, found);
            }
        } else if path.extension().is_some_and(|found| extensions.iter().any(|extension| found == *extension)) {
            found.push(path);
        }
    }
}

fn files(directory: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    add_files(&root().join(directory), extensions, &mut found);
    found.sort();
    assert!(!found.is_empty(), "nothing is in {directory}");
    found
}

/// Returns the paragraphs, list items and table cells of a page, each on one line. Blocks of commands and comments are
/// no prose.
fn texts(page: &str) -> Vec<String> {
    let mut texts = vec![String::new()];
    let mut is_prose = true;
    for line in page.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            is_prose = !is_prose;
        } else if is_prose && !line.starts_with("<!--") {
            let is_item = line.starts_with("- ")
                || line.split_once(". ").is_some_and(|(number, _)| number.parse::<u8>().is_ok())
                || line.starts_with('#');
            if line.is_empty() || is_item {
                texts.push(String::new());
            }
            if line.starts_with('|') {
                texts.extend(line.split('|').map(str::to_owned));
                texts.push(String::new());
            } else {
                let text = texts.last_mut().unwrap();
                text.push(' ');
                text.push_str(line);
            }
        }
    }
    texts
}

/// Returns the numbers of words of all sentences of a text. A sentence ends with a mark before a space; a dot inside
/// brackets or quotes does not end one, nor do colons.
fn sentence_lengths(text: &str) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut words = 0;
    for word in text.split_whitespace() {
        words += 1;
        if word.trim_end_matches(['*', '"', ')', '`']).ends_with(['.', '!', '?']) {
            lengths.push(words);
            words = 0;
        }
    }
    lengths.push(words);
    // Headings and cells of a word or two are no sentences.
    lengths.retain(|words| *words > 2);
    lengths
}

/// Returns the pages in the root folder.
fn root_pages() -> impl Iterator<Item = PathBuf> {
    ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"].into_iter().map(|name| root().join(name))
}

#[test]
fn nine_of_ten_sentences_of_each_page_are_short() {
    let folders = ["docs", "bench", "fuzz", "packaging", "tests"];
    let pages: Vec<PathBuf> =
        folders.into_iter().flat_map(|folder| files(folder, &["md"])).chain(root_pages()).collect();
    assert!(LONG_PAGES.iter().all(|(page, _)| pages.contains(&root().join(page))), "a page has moved");
    for path in pages {
        let page = fs::read_to_string(&path).unwrap();
        let lengths: Vec<usize> = texts(&page).iter().flat_map(|text| sentence_lengths(text)).collect();
        let long = lengths.iter().filter(|words| **words > WORDS_MAX).count();
        eprintln!("{}: {long} of {} sentences are long", path.shown(), lengths.len());
        assert!(lengths.len() > 10, "{}: hardly any sentence was found", path.shown());
        let known = LONG_PAGES.iter().find(|(page, _)| root().join(page) == path).map_or(0, |(_, long)| *long);
        let most = known.max(lengths.len() / 10);
        assert!(long <= most, "{}: {long} of {} sentences are long", path.shown(), lengths.len());
    }
}

/// Tells whether a line speaks of an actor without a noun: "who reads it waits", "for who reads it".
fn lacks_noun(line: &str) -> bool {
    let line = line.trim_start_matches([' ', '/', '!', '#', '*', '"']).to_lowercase();
    let words: Vec<&str> = line.split_whitespace().collect();
    let has_none =
        |pair: &[&str]| pair[1] == "who" && (NO_NOUNS.contains(&pair[0]) || pair[0].ends_with(['.', ':', ';']));
    words.iter().any(|word| word.starts_with("whoever") || word.starts_with("whomever"))
        || words.windows(2).any(has_none)
}

#[test]
fn every_actor_has_a_noun() {
    for (line, expected) in [
        ("/// More threads are of no use: who reads that fast wants the disk.", true),
        ("//! A hint for who reads it.", true),
        ("Whoever opens it waits.", true),
        ("/// The user who mounted it, and the one that listens.", false),
        ("# Who may do what", false),
    ] {
        assert_eq!(lacks_noun(line), expected, "{line}");
    }
    let own = Path::new(file!()).file_name().unwrap();
    let mut count = 0;
    for directory in ["crates", "docs", "bench", "tests", "scripts", "fuzz", "packaging", ""] {
        let paths = match directory {
            "" => root_pages().collect(),
            directory => files(directory, &["rs", "md", "py", "sh"]),
        };
        for path in paths {
            let text = fs::read_to_string(&path).unwrap();
            // Headings and the first cells of tables may ask "who".
            let has_headings = path.extension().is_some_and(|found| found == "md");
            let is_prose = |line: &str| !(line.starts_with('|') || (has_headings && line.starts_with('#')));
            let lines = text.lines().enumerate().filter(|(_, line)| is_prose(line));
            for (at, line) in lines.filter(|_| path.file_name() != Some(own)) {
                assert!(!lacks_noun(line), "{}:{}: who is this? {line}", path.shown(), at + 1);
                count += 1;
            }
        }
    }
    assert!(count > 100_000, "{count} lines were read");
}

#[test]
fn few_comments_begin_with_what() {
    let begins = |line: &&str| {
        let comment = line.trim_start();
        comment.starts_with("//") && comment.trim_start_matches(['/', '!']).starts_with(" What ")
    };
    let sources = files("crates", &["rs"]).into_iter().filter(|path| path.iter().any(|part| part == "src"));
    let found: usize = sources.map(|path| fs::read_to_string(path).unwrap().lines().filter(begins).count()).sum();
    eprintln!("{found} comments begin with \"What\"");
    assert!(found <= WHAT_MAX, "{found} comments begin with \"What\": say what the item is or returns");
}

#[test]
fn lines_of_comments_are_no_wider_than_those_of_code() {
    let mut count = 0;
    for path in files("crates", &["rs"]) {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"));
        // A row of a table cannot be broken.
        for (at, line) in lines.filter(|(_, line)| !line.trim_start_matches([' ', '/', '!']).starts_with('|')) {
            let width = line.chars().count();
            assert!(width <= COMMENT_WIDTH_MAX, "{}:{}: {width} characters: {line}", path.shown(), at + 1);
            count += 1;
        }
    }
    assert!(count > 10_000, "{count} lines of comments were read");
}

/// Words that end like a participle and are nouns of the field.
const NOUNS: [&str; 4] = ["Feed", "Need", "Seed", "Speed"];

/// Returns the name of the type that a line defines, if it defines one.
fn defined_type(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub") || word.ends_with(')'));
    let is_type = ["struct", "enum", "union", "type"].contains(&words.next()?);
    let name = words.next().filter(|_| is_type)?;
    name.split(|letter: char| !letter.is_alphanumeric()).next()
}

/// Returns whether a name is a participle alone, such as `Told` or `Listed`: it says when a value came about, not what
/// it is. Irregular participles are those that have been used as names.
fn is_participle(name: &str) -> bool {
    const IRREGULAR: [&str; 15] = [
        "Cut", "Found", "Heard", "Held", "Kept", "Known", "Left", "Lost", "Made", "Said", "Seen", "Shown", "Taken",
        "Told", "Written",
    ];
    let is_one_word = name.chars().skip(1).all(char::is_lowercase);
    is_one_word && ((name.ends_with("ed") && !NOUNS.contains(&name)) || IRREGULAR.contains(&name))
}

#[test]
fn types_are_named_by_nouns() {
    for (line, expected) in [
        ("pub(crate) struct Listed {", true),
        ("enum Found<'a> {", true),
        ("type Told = u64;", true),
        ("pub(in crate::files) struct Packaged<'p> {", true),
        ("struct ListedObject {", false),
        ("pub struct Seed(u64);", false),
        ("    Found,", false),
    ] {
        assert_eq!(defined_type(line).is_some_and(is_participle), expected, "{line}");
    }
    let own = Path::new(file!()).file_name();
    let mut count = 0;
    for path in files("crates", &["rs"]).into_iter().filter(|path| path.file_name() != own) {
        for (at, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let Some(name) = defined_type(line) else { continue };
            assert!(!is_participle(name), "{}:{}: `{name}` is no noun", path.shown(), at + 1);
            count += 1;
        }
    }
    assert!(count > 2_000, "{count} types were read");
}
