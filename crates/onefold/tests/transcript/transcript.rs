//! The record of a session, and its comparison with a kept text.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use onefold_block::Show;

use crate::common::Run;
use crate::namespace::{HOME, Namespace};

/// Name of the variable that has the kept texts written anew.
const KEEP: &str = "ONEFOLD_KEEP_TRANSCRIPTS";

/// Units of time, before which numbers vary from run to run.
const TIME_UNITS: [&str; 4] = [" ms", " s", " min", " h"];

/// A session with the program: its commands, and what they printed.
pub(crate) struct Transcript<'n> {
    folder: PathBuf,
    /// Where the lines of the shell run, if not in `folder`.
    namespace: Option<&'n Namespace>,
    masking: Vec<String>,
    text: String,
}

impl Transcript<'_> {
    /// Begins a session whose commands run in `folder`.
    pub(crate) fn in_folder(folder: &Path) -> Transcript<'static> {
        let folder = folder.canonicalize().unwrap();
        Transcript { folder, namespace: None, masking: Vec::new(), text: String::new() }
    }

    /// Begins a session of lines of the shell in `namespace`.
    pub(crate) fn in_namespace(namespace: &Namespace) -> Transcript<'_> {
        Transcript { folder: HOME.into(), namespace: Some(namespace), masking: Vec::new(), text: String::new() }
    }

    /// Masks all numbers of lines that contain one of `words`.
    pub(crate) fn masking(mut self, words: &[&str]) -> Self {
        self.masking.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Runs `onefold` with the words of `arguments`, and records both. Lines of standard error have a `!` before them.
    pub(crate) fn run(&mut self, arguments: &str) -> Run {
        self.run_as("onefold", arguments)
    }

    /// As [`Transcript::run`], with another name of the program: that of a helper.
    pub(crate) fn run_as(&mut self, program: &str, arguments: &str) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onefold"));
        command.arg0(program).args(arguments.split_whitespace()).current_dir(&self.folder);
        let run = Run::of(command.output().unwrap());
        self.record(&format!("$ {program} {arguments}"), &run);
        run
    }

    /// Runs a line of the shell, in which `onefold` is the program, and records it.
    pub(crate) fn shell(&mut self, line: &str) -> Run {
        let mut command = match self.namespace {
            Some(namespace) => namespace.shell(line, true),
            None => {
                let programs = Path::new(env!("CARGO_BIN_EXE_onefold")).parent().unwrap().to_str().unwrap();
                let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
                let mut command = Command::new("sh");
                command.args(["-c", line]).env("PATH", path).env("LC_ALL", "C").current_dir(&self.folder);
                command
            }
        };
        let run = Run::of(command.output().unwrap());
        self.record(&format!("$ {line}"), &run);
        run
    }

    /// As [`Transcript::shell`], as a user without rights of a session in a namespace.
    pub(crate) fn shell_as_nobody(&mut self, line: &str) -> Run {
        let run = Run::of(self.namespace.unwrap().shell(line, false).output().unwrap());
        self.record(&format!("nobody $ {line}"), &run);
        run
    }

    fn record(&mut self, line: &str, run: &Run) {
        self.text.push_str(&format!("{line}\n"));
        for (mark, printed) in [("", &run.out), ("! ", &run.err)] {
            for line in printed.lines() {
                self.text.push_str(&format!("{mark}{}\n", self.masked(line)));
            }
        }
        if run.code != 0 {
            self.text.push_str(&format!("(exit {})\n", run.code));
        }
        self.text.push('\n');
    }

    fn masked(&self, line: &str) -> String {
        let line = line.replace(self.folder.to_str().unwrap(), "FOLDER");
        let line = masked_dates(&line);
        // Rates differ so much between machines that their units do, too.
        let line = ["KiB/s", "GiB/s"].iter().fold(line, |line, unit| line.replace(unit, "MiB/s"));
        let is_masked = self.masking.iter().any(|word| line.contains(word.as_str()));
        let masked = mask(&line, |rest| is_masked || TIME_UNITS.iter().any(|unit| begins_with_word(rest, unit)));
        // Masked numbers have lost their width, so the columns of such a line mean nothing.
        if is_masked { masked.split_whitespace().collect::<Vec<_>>().join(" ") } else { masked }
    }

    /// Asserts that the record is the text that is kept under `name`.
    #[track_caller]
    pub(crate) fn assert_kept(self, name: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/transcript/kept/{name}.txt"));
        if std::env::var_os(KEEP).is_some() {
            fs::write(&path, &self.text).unwrap();
            return;
        }
        let kept = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.shown()));
        let differs = kept.lines().zip(self.text.lines()).find(|(kept, found)| kept != found);
        assert!(kept == self.text, "{name} differs, first in (kept, printed) {differs:?}. Printed:\n{}", self.text);
    }
}

/// Replaces the figures of each date and time, such as `2026-11-27 16:03`, with letters.
fn masked_dates(line: &str) -> String {
    const DATE: &str = "YYYY-MM-DD hh:mm";
    let is_date = |text: &str| {
        text.bytes().zip(DATE.bytes()).all(|(found, form)| match form {
            b'-' | b' ' | b':' => found == form,
            _ => found.is_ascii_digit(),
        })
    };
    let mut masked = line.to_owned();
    for at in 0..line.len().saturating_sub(DATE.len() - 1) {
        if masked.get(at..at + DATE.len()).is_some_and(is_date) {
            masked.replace_range(at..at + DATE.len(), DATE);
        }
    }
    masked
}

/// Replaces each number with `N` if `is_masked` says so of the text behind it.
fn mask(line: &str, is_masked: impl Fn(&str) -> bool) -> String {
    let (mut masked, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        masked.push_str(before);
        let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
        let end = from.find(|c| !is_number(c)).unwrap_or(from.len());
        let number = from[..end].trim_end_matches(['.', ',']);
        let behind = &from[number.len()..];
        masked.push_str(if is_masked(behind) { "N" } else { number });
        rest = behind;
    }
    masked.push_str(rest);
    masked
}

/// Returns whether `text` begins with `word`, which does not go on in a longer one.
fn begins_with_word(text: &str, word: &str) -> bool {
    text.strip_prefix(word).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
}

#[test]
fn numbers_are_masked_where_they_vary() {
    let session = Transcript::in_folder(Path::new("/")).masking(&["free"]);
    assert_eq!(session.masked("XFS, 12 s, 1.5 MiB in 3 sets"), "XFS, N s, 1.5 MiB in 3 sets");
    assert_eq!(session.masked("1,204.5 MiB   more free, 7."), "N MiB more free, N.");
    assert_eq!(session.masked("a  2026-11-27 16:03  4 ü"), "a  YYYY-MM-DD hh:mm  4 ü");
}
