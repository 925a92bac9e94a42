//! The completion scripts, asked by the shells themselves: each shell that is installed completes pools and files
//! inside a pool that nobody has mounted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Folder, Run, has, onefold, text};

/// A shell, and how it is asked.
struct Shell {
    name: &'static str,
    /// A program in its language: `$1` is the completion script, the further arguments the words of the command line.
    /// Prints the offered words.
    asking: &'static str,
}

const SHELLS: [Shell; 3] = [
    Shell {
        name: "bash",
        asking: r#"source "$1"; shift
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
            _onefold "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf '%s\n' "${COMPREPLY[@]}""#,
    },
    Shell {
        name: "zsh",
        // Functions of the completion system, which only a terminal has.
        asking: r#"compdef() { }; _files() { }; _arguments() { print -r -- arguments }
            compadd() { shift "$@[(i)--]"; print -rl -- "$@" }
            source "$1"; shift
            words=("$@") CURRENT=$#
            _onefold"#,
    },
    Shell {
        name: "fish",
        asking: r#"source $argv[1]
            set -l line (string escape -- $argv[2..-2]) $argv[-1]
            complete -C "$line" | string replace -r '\t.*' ''"#,
    },
];

/// Returns what a shell offers for the last of the words, in a folder.
fn offered(shell: &Shell, folder: &Folder, words: &[&str]) -> Vec<String> {
    let script = folder.path(&format!("script.{}", shell.name));
    fs::write(&script, onefold(&format!("completions {}", shell.name), &[]).done().out).unwrap();
    let mut command = Command::new(shell.name);
    match shell.name {
        "bash" => command.args(["--norc", "-c", shell.asking, "bash"]),
        "zsh" => command.args(["-f", "-c", shell.asking, "zsh"]),
        _ => command.args(["--no-config", "-c", shell.asking]),
    };
    command.arg(&script).arg(env!("CARGO_BIN_EXE_onefold")).args(words).current_dir(folder.path(""));
    let run = Run::of(command.output().unwrap());
    run.out.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn shells_complete_the_files_inside_a_pool_that_is_not_mounted() {
    let folder = Folder::new();
    let pool = folder.pool();
    let image = folder.image("image.raw", 1, 0);
    for name in ["base.raw", "bare metal.raw", "web.raw"] {
        onefold("pool import --quiet", &[&pool, &image, Path::new("--to"), Path::new(name)]).done();
    }
    for shell in SHELLS.iter().filter(|shell| has(shell.name, shell.name)) {
        let ask = |words: &[&str]| offered(shell, &folder, words);
        let stat = ask(&["pool", "stat", text(&pool), "ba"]);
        assert_eq!(stat, ["bare metal.raw", "base.raw"], "{}", shell.name);
        let all = ask(&["pool", "clone", "--count", "3", text(&pool), ""]);
        for name in ["base.raw", "bare metal.raw", "web.raw"] {
            assert!(all.iter().any(|word| word == name), "{}: {all:?}", shell.name);
        }
        // What is no pool has no files, and is no failure.
        let none = ask(&["pool", "stat", text(&image), "ba"]);
        assert!(!none.iter().any(|word| word.ends_with(".raw")), "{}: {none:?}", shell.name);
        // Other words are completed as before.
        assert!(ask(&["pool", "um"]).iter().any(|word| word == "umount" || word == "arguments"), "{}", shell.name);
    }
}

#[test]
fn words_are_those_that_begin_so() {
    let folder = Folder::new();
    let pool = folder.pool();
    let words = |line: &[&str]| {
        let index = line.len().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_onefold"));
        command.args(["complete-words", &index, "--", "onefold"]).args(line);
        let run = Run::of(command.output().unwrap()).done();
        assert!(run.err.is_empty(), "{run:?}");
        run.out
    };
    let image = folder.image("image.raw", 1, 0);
    onefold("pool import --quiet", &[&pool, &image]).done();
    assert_eq!(words(&["pool", "export", text(&pool), "im"]), "image.raw\n");
    assert_eq!(words(&["pool", "export", text(&pool), "x"]), "");
    assert_eq!(words(&["pool", "ls", text(&pool), ""]), "", "it has no directory");
    assert_eq!(words(&["pool", "stat", "/nonexistent/a.pool", ""]), "");
    assert_eq!(words(&["guest", "ls", text(&image), ""]), "");
}
