//! What the documents say of the tests: every test that a page names exists, and every promise names one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use onefold_block::Show;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files with one of these extensions below a directory.
fn files_below(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found
}

/// Every `file::test` of the integration tests of all crates. A test in a directory has the directory's name.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for crate_directory in fs::read_dir(root().join("crates")).unwrap() {
        let directory = crate_directory.unwrap().path().join("tests");
        if !directory.is_dir() {
            continue;
        }
        for path in files_below(&directory, "rs") {
            let within = path.strip_prefix(&directory).unwrap();
            let file = Path::new(within.components().next().unwrap().as_os_str()).file_stem().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            for (at, _) in text.match_indices("#[test]") {
                let name = text[at..].split_once("fn ").and_then(|(_, rest)| rest.split_once('(')).unwrap().0;
                names.insert(format!("{}::{name}", file.to_str().unwrap()));
            }
        }
    }
    names
}

/// The words in backticks that look like the name of a test.
fn named(text: &str) -> Vec<&str> {
    let is_word =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || "_0123456789".contains(c));
    // Inside backticks is every second piece.
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter(|word| {
            word.split_once("::").is_some_and(|(file, test)| is_word(file) && is_word(test) && test.contains('_'))
        })
        .collect()
}

#[test]
fn every_test_that_a_page_names_exists() {
    let tests = tests();
    let mut count = 0;
    for page in files_below(&root().join("docs"), "md") {
        for name in named(&fs::read_to_string(&page).unwrap()) {
            assert!(tests.contains(name), "{}: there is no test `{name}`", page.shown());
            count += 1;
        }
    }
    assert!(count > 20, "{count} names");
}

#[test]
fn every_promise_names_the_test_that_shows_it() {
    let page = fs::read_to_string(root().join("docs/guide/promises.md")).unwrap();
    let (_, promises) = page.split_once("\n## Calls").unwrap();
    let rows = promises.lines().filter(|line| line.starts_with('|')).skip(2);
    let paragraphs = promises.split("\n\n").filter(|paragraph| paragraph.starts_with("**"));
    let mut count = 0;
    for promise in rows.chain(paragraphs) {
        assert!(!named(promise).is_empty(), "nothing shows this: {promise}");
        count += 1;
    }
    assert!(count > 20, "{count} promises");
}
