//! Paths that dpkg is configured not to install: `path-exclude` and `path-include` in `/etc/dpkg/dpkg.cfg` and the
//! files of `dpkg.cfg.d` (dpkg(1)). Small images use this to leave out documents and translations. The lists of
//! packages still contain these paths.
//!
//! The last matching pattern decides. `*` and `?` also match a slash.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::tree::{Links, Problem, ProblemLog, Tree};

const FOLDER: &[u8] = b"/etc/dpkg/dpkg.cfg.d";
const FILE: &[u8] = b"/etc/dpkg/dpkg.cfg";
/// Maximum length of a file that is read.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Maximum number of patterns, number of files, and length of a pattern in bytes.
const PATTERNS_MAX: usize = 1000;
const FILES_MAX: usize = 100;
const PATTERN_BYTES_MAX: usize = 1024;
/// Maximum number of steps for the paths of all files together, equal to the limit for one path.
const PATH_STEPS_MAX: u64 = 1 << 22;
/// Maximum total number of steps for comparing patterns with paths. A million paths with twenty usual patterns take a
/// fifth of it.
const STEPS_MAX: u64 = 1 << 28;

/// The paths that are not installed.
#[derive(Debug, Default)]
pub(super) struct Excludes {
    rules: Vec<Rule>,
    steps: AtomicU64,
    /// Whether it was recorded that comparisons exceed the limit. It is one problem, whatever the number of paths.
    is_noted: AtomicBool,
}

#[derive(Debug)]
struct Rule {
    pattern: Vec<u8>,
    /// Number of literal bytes at its beginning.
    literal_bytes: usize,
    excludes: bool,
}

impl Excludes {
    /// Reads the settings of a system.
    pub(super) fn read(tree: &Tree<'_>, problems: &ProblemLog) -> Excludes {
        let mut excludes = Excludes::default();
        let mut paths = Vec::new();
        let mut steps_left = PATH_STEPS_MAX;
        if let Some(folder) = problems.skip(FOLDER, tree.find_within(FOLDER, Links::Follow, &mut steps_left)) {
            let read = tree.each_entry(folder.file, &mut |entry, _| {
                // Other names belong to backups and similar files. dpkg reads none of them.
                if entry.name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte)) {
                    paths.push([FOLDER, b"/", &entry.name].concat());
                }
                if paths.len() <= FILES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            if paths.len() > FILES_MAX {
                paths.truncate(FILES_MAX);
                problems.note(Problem::of_file(FOLDER, "more files than are read"));
            }
            problems.skip(FOLDER, read);
        }
        paths.sort();
        paths.push(FILE.to_vec());
        for path in paths {
            let text = tree.read_path_within(&path, TEXT_BYTES_MAX, &mut steps_left);
            if let Some(text) = problems.skip(&path, text) {
                excludes.add(&text, &path, problems);
            }
        }
        excludes
    }

    /// Adds the patterns of a file.
    fn add(&mut self, text: &[u8], path: &[u8], problems: &ProblemLog) {
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let Some((pattern, excludes)) = rule_of(line.trim_ascii()) else { continue };
            if self.rules.len() >= PATTERNS_MAX || pattern.len() > PATTERN_BYTES_MAX {
                problems.note_line(path, number, "more patterns than are read, or one that is too long");
                return;
            }
            let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
            let literal_bytes = pattern.iter().position(is_special).unwrap_or(pattern.len());
            self.rules.push(Rule { pattern: pattern.to_vec(), literal_bytes, excludes });
        }
    }

    /// Returns whether a path of a package is not installed. After comparisons have exceeded the limit, no path counts
    /// as excluded, including one that was only compared with some of the patterns.
    pub(super) fn has(&self, path: &[u8], problems: &ProblemLog) -> bool {
        let before = self.steps.load(Ordering::Relaxed);
        let mut steps = before;
        let excludes = self.excludes(path, &mut steps);
        self.steps.fetch_add(steps - before, Ordering::Relaxed);
        if excludes.is_none() && !self.is_noted.swap(true, Ordering::Relaxed) {
            problems.note(Problem::of_file(FILE, "comparing paths with its patterns takes too long"));
        }
        excludes.unwrap_or(false)
    }

    /// Returns the decision of the last pattern that matches a path; `None` if no step is left before that.
    fn excludes(&self, path: &[u8], steps: &mut u64) -> Option<bool> {
        for rule in self.rules.iter().rev() {
            if *steps >= STEPS_MAX {
                return None;
            }
            *steps += 1;
            if rule.matches(path, steps) {
                return Some(rule.excludes);
            }
        }
        Some(false)
    }
}

impl Rule {
    /// Returns whether a path matches the pattern. Adds the steps of the comparison to `steps`.
    fn matches(&self, path: &[u8], steps: &mut u64) -> bool {
        let (Some((literal, pattern)), Some((start, rest))) =
            (self.pattern.split_at_checked(self.literal_bytes), path.split_at_checked(self.literal_bytes))
        else {
            return false;
        };
        start == literal && matches(pattern, rest, steps)
    }
}

/// Returns the pattern of a line and whether it excludes.
fn rule_of(line: &[u8]) -> Option<(&[u8], bool)> {
    [(&b"path-exclude"[..], true), (b"path-include", false)].into_iter().find_map(|(option, excludes)| {
        let rest = line.strip_prefix(option)?;
        let value = rest.trim_ascii_start();
        let value = value.strip_prefix(b"=").unwrap_or(value).trim_ascii_start();
        let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        (value.len() < rest.len() && !value.is_empty()).then_some((value, excludes))
    })
}

/// Returns whether a shell pattern matches a whole text, and counts steps. If a star cannot match at its place,
/// matching goes back only to the last star, so the number of compared bytes is bounded by the product of both lengths.
fn matches(pattern: &[u8], text: &[u8], steps: &mut u64) -> bool {
    let (mut at, mut in_text) = (0, 0);
    let mut last_star = None;
    while in_text < text.len() {
        *steps += 1;
        let rest = pattern.get(at..).unwrap_or_default();
        if rest.first() == Some(&b'*') {
            at += 1;
            last_star = Some((at, in_text));
            continue;
        }
        let byte = text.get(in_text).copied().unwrap_or_default();
        match one(rest, byte, steps) {
            Some(length) => {
                at += length;
                in_text += 1;
            }
            None => {
                let Some((after_star, from)) = last_star else { return false };
                (at, in_text) = (after_star, from + 1);
                last_star = Some((after_star, from + 1));
            }
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

/// Returns the length of the pattern's first element if it matches a byte. Adds the length of a set to `steps`.
fn one(pattern: &[u8], byte: u8, steps: &mut u64) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', set @ ..] => match set_matches(set, byte, steps) {
            Some((is_in, length)) => is_in.then_some(length + 1),
            // Without a closing bracket, the opening bracket is literal.
            None => (byte == b'[').then_some(1),
        },
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// Returns whether a set of bytes contains `byte`, and the length of the set with its closing bracket.
fn set_matches(set: &[u8], byte: u8, steps: &mut u64) -> Option<(bool, usize)> {
    let is_negated = matches!(set.first(), Some(b'!' | b'^'));
    let mut at = usize::from(is_negated);
    let first = at;
    let mut is_in = false;
    loop {
        *steps += 1;
        let low = *set.get(at)?;
        if low == b']' && at > first {
            return Some((is_in != is_negated, at + 1));
        }
        match (set.get(at + 1), set.get(at + 2)) {
            (Some(b'-'), Some(high)) if *high != b']' => {
                is_in |= (low..=*high).contains(&byte);
                at += 3;
            }
            _ => {
                is_in |= low == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::FileSystem;
    use crate::memory::MemoryFileSystem;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, text, expected) in [
            ("/usr/share/doc/*", "/usr/share/doc/bash/copyright", true),
            ("/usr/share/doc/*", "/usr/share/doc", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("?b", "ab", true),
            ("?b", "b", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("*.gz", "a.gz.gz", true),
        ] {
            let mut steps = 0;
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), &mut steps), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn the_last_pattern_decides() {
        let mut system = MemoryFileSystem::default();
        system.write(
            "/etc/dpkg/dpkg.cfg.d/docker",
            "# small\npath-exclude=/usr/share/doc/*\npath-include /usr/share/doc/*/copyright\npath-exclude \"/x/*\"\n",
        );
        system.write("/etc/dpkg/dpkg.cfg.d/docker.dpkg-old", "path-exclude=/bin/*\n");
        system.write("/etc/dpkg/dpkg.cfg", "no-debsig\nlog /var/log/dpkg.log\npath-excluded /sbin/*\n");
        let problems = ProblemLog::default();
        let excludes = Excludes::read(&Tree::new(&system), &problems);
        for (path, expected) in [
            ("/usr/share/doc/bash/README", true),
            ("/usr/share/doc/bash/copyright", false),
            ("/x/y", true),
            ("/bin/sh", false),
            ("/sbin/init", false),
        ] {
            assert_eq!(excludes.has(path.as_bytes(), &problems), expected, "{path}");
        }
        assert_eq!(problems.count(), 0);
    }

    #[test]
    fn patterns_that_take_too_long_are_given_up() {
        let mut excludes = Excludes::default();
        let problems = ProblemLog::default();
        let pattern = "*a".repeat(500);
        excludes.add(format!("path-exclude=/{pattern}b").as_bytes(), b"cfg", &problems);
        let path = [b"/".as_slice(), &[b'a'; 4000]].concat();
        excludes.steps.store(STEPS_MAX - 1, Ordering::Relaxed);
        assert!(!excludes.has(&path, &problems));
        let steps = excludes.steps.load(Ordering::Relaxed);
        assert!(steps > STEPS_MAX);
        assert!(!excludes.has(&path, &problems));
        assert_eq!((excludes.steps.load(Ordering::Relaxed), problems.count()), (steps, 1));
    }

    #[test]
    fn no_path_is_excluded_once_comparing_has_taken_too_long() {
        let mut excludes = Excludes::default();
        let problems = ProblemLog::default();
        excludes.add(b"path-exclude=/doc/*\npath-include=/doc/kept*", b"cfg", &problems);
        assert!(excludes.has(b"/doc/a", &problems));
        // The second pattern is compared, and the first one is not.
        excludes.steps.store(STEPS_MAX - 1, Ordering::Relaxed);
        assert!(!excludes.has(b"/doc/a", &problems));
        assert_eq!(problems.count(), 1);
        let steps = excludes.steps.load(Ordering::Relaxed);
        assert!(!excludes.has(b"/doc/b", &problems));
        assert_eq!((excludes.steps.load(Ordering::Relaxed), problems.count()), (steps, 1));
    }

    /// Regression: a set of a thousand bytes counted as one step, so comparisons took minutes.
    #[test]
    fn each_byte_of_a_set_is_a_step() {
        for end in ["]", ""] {
            let pattern = format!("*[{}{end}x", "b".repeat(1000));
            let mut steps = 0;
            assert!(!matches(pattern.as_bytes(), &[b'a'; 1000], &mut steps));
            assert!((1_000_000..1_100_000).contains(&steps), "{steps}");
        }
    }

    /// Regression: each file read the same giant directories again.
    #[test]
    fn all_files_share_the_steps_of_their_paths() {
        let mut system = MemoryFileSystem::default();
        for number in 0..FILES_MAX {
            system.write(&format!("/etc/dpkg/dpkg.cfg.d/{number}"), "path-exclude=/doc/*");
        }
        let problems = ProblemLog::default();
        assert_eq!(Excludes::read(&Tree::new(&system), &problems).rules.len(), FILES_MAX);
        let root = system.root();
        system.stat_mut(root).unwrap().size_bytes = 1 << 40;
        let read = Excludes::read(&Tree::new(&system), &problems).rules.len();
        assert!((50..70).contains(&read), "{read}");
        // Each of the others is a problem, and so is the main file.
        assert_eq!(problems.count(), (FILES_MAX - read + 1) as u64);
    }

    #[test]
    fn that_comparing_takes_too_long_is_one_problem() {
        let mut excludes = Excludes::default();
        let problems = ProblemLog::default();
        excludes.add(b"path-exclude=/doc/*", b"cfg", &problems);
        (1..=100).for_each(|line| problems.note_line(b"/x", line, "it is odd"));
        excludes.steps.store(STEPS_MAX, Ordering::Relaxed);
        (0..1000).for_each(|_| assert!(!excludes.has(b"/doc/a", &problems)));
        assert_eq!(problems.count(), 101);
    }

    #[test]
    fn more_files_than_are_read_are_a_problem() {
        let mut system = MemoryFileSystem::default();
        for number in 0..=FILES_MAX {
            system.write(&format!("/etc/dpkg/dpkg.cfg.d/{number}"), "path-exclude=/doc/*");
        }
        let problems = ProblemLog::default();
        assert_eq!(Excludes::read(&Tree::new(&system), &problems).rules.len(), FILES_MAX);
        assert_eq!(problems.first()[0].to_string(), "/etc/dpkg/dpkg.cfg.d: more files than are read");
    }
}
