//! The history: `/var/log/dpkg.log` and its older parts, which logrotate(8) names and compresses.
//!
//! | name | is |
//! |---|---|
//! | `dpkg.log` | the newest part |
//! | `dpkg.log.1`, `dpkg.log.2.gz`, ... | older with a higher number |
//! | `dpkg.log-20261101.gz`, ... | as the date says; a system has one form or the other |
//!
//! A line has date, time, an action and its arguments. For a package they are `install NAME:ARCHITECTURE BEFORE AFTER`,
//! with `<none>` for no version.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;

use flate2::read::MultiGzDecoder;

use super::super::{InstallationTime, LocalTime, Package, PackageAction, PackageEvent};
use crate::tree::{GuestFile, Links, Problem, ProblemLog, Tree};

const FOLDER: &[u8] = b"/var/log";
const NAME: &[u8] = b"dpkg.log";
/// Maximum number of parts that are read. A system keeps twelve by default.
const PARTS_MAX: usize = 1000;
/// Maximum number of decompressed bytes that are read from all parts. Years of daily upgrades of a large system take a
/// tenth. The same limit holds for bytes of compressed parts, which may decompress to nothing.
const BYTES_MAX: u64 = 128 << 20;
/// Maximum length of a line that is parsed.
const LINE_BYTES_MAX: usize = 4096;
const READ_BYTES: usize = 64 << 10;

/// A part of the log.
struct Part {
    /// Sort key of the parts, oldest first.
    age: Age,
    name: Vec<u8>,
    file: GuestFile,
    is_compressed: bool,
}

/// Age of a part according to its name. An older one is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Age {
    /// By the date in its name.
    Dated(u64),
    /// By its number, in descending order.
    Numbered(std::cmp::Reverse<u64>),
    /// The part that is currently written.
    Newest,
}

/// Calls `visit` with each event of the log, the oldest first, until it breaks.
pub(super) fn each_event(
    tree: &Tree<'_>,
    problems: &ProblemLog,
    visit: &mut dyn FnMut(&PackageEvent) -> ControlFlow<()>,
) {
    each_event_within(BYTES_MAX, tree, problems, visit);
}

/// As [`each_event`], with a limit in bytes.
fn each_event_within(
    bytes_max: u64,
    tree: &Tree<'_>,
    problems: &ProblemLog,
    visit: &mut dyn FnMut(&PackageEvent) -> ControlFlow<()>,
) {
    let (mut bytes_left, mut compressed_left) = (bytes_max, bytes_max);
    for part in parts(tree, problems) {
        let path = [FOLDER, b"/", &part.name].concat();
        let content = BufReader::with_capacity(READ_BYTES, tree.content(part.file));
        let outcome = if part.is_compressed {
            let mut content = content.take(compressed_left);
            let mut lines = BufReader::with_capacity(READ_BYTES, MultiGzDecoder::new(&mut content));
            let outcome = each_line(&mut lines, &mut bytes_left, &path, problems, visit);
            compressed_left = content.limit();
            outcome
        } else {
            let mut content = content;
            each_line(&mut content, &mut bytes_left, &path, problems, visit)
        };
        match outcome {
            Ok(ControlFlow::Break(())) => return,
            Ok(ControlFlow::Continue(())) => {}
            Err(error) => problems.note(Problem::of_file(&path, error.to_string())),
        }
        if bytes_left == 0 || compressed_left == 0 {
            problems.note(Problem::of_file(&path, "more history than is read"));
            return;
        }
    }
}

/// Returns the installation times of the packages' present versions, as far as the log contains them.
pub(super) fn installation_times(
    tree: &Tree<'_>,
    packages: &[Package],
    problems: &ProblemLog,
) -> Vec<Option<InstallationTime>> {
    let mut times = vec![None; packages.len()];
    let by_name: HashMap<(&str, &str), usize> = packages
        .iter()
        .enumerate()
        .map(|(index, package)| ((package.name.as_str(), package.architecture.as_str()), index))
        .collect();
    each_event(tree, problems, &mut |event| {
        let architecture = event.architecture.as_deref().unwrap_or_default();
        if let Some(index) = by_name.get(&(event.package.as_str(), architecture)).copied()
            && let (Some(package), Some(time)) = (packages.get(index), times.get_mut(index))
            && event.version_after.as_deref() == Some(&package.version)
        {
            *time = Some(InstallationTime::Logged(event.time));
        }
        ControlFlow::Continue(())
    });
    times
}

/// Returns the readable parts of the log, oldest first.
fn parts(tree: &Tree<'_>, problems: &ProblemLog) -> Vec<Part> {
    let mut parts = Vec::new();
    let Some(folder) = problems.skip(FOLDER, tree.find(FOLDER, Links::Follow)) else { return parts };
    let read = tree.each_entry(folder.file, &mut |entry, file| {
        match entry.name.strip_prefix(NAME).map(age_of) {
            Some(Some((age, is_compressed))) => parts.push(Part { age, name: entry.name, file, is_compressed }),
            Some(None) => {
                let path = [FOLDER, b"/", &entry.name].concat();
                problems.note(Problem::of_file(&path, "this part of the history is not read: its form is not known"));
            }
            None => {}
        }
        if parts.len() <= PARTS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    problems.skip(FOLDER, read);
    if parts.len() > PARTS_MAX {
        parts.truncate(PARTS_MAX);
        problems.note(Problem::of_file(FOLDER, "more parts of the history than are read"));
    }
    parts.sort_by(|one, two| (one.age, &one.name).cmp(&(two.age, &two.name)));
    parts
}

/// Returns the age of a part, from the suffix after `dpkg.log` in its name, and whether it is compressed.
fn age_of(suffix: &[u8]) -> Option<(Age, bool)> {
    let plain = suffix.strip_suffix(b".gz");
    let (suffix, is_compressed) = (plain.unwrap_or(suffix), plain.is_some());
    let number = |digits: &[u8]| {
        let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|digit| digit.is_ascii_digit()))?;
        text.parse::<u64>().ok()
    };
    let age = match suffix {
        [] => Age::Newest,
        [b'.', digits @ ..] => Age::Numbered(std::cmp::Reverse(number(digits)?)),
        [b'-', digits @ ..] => Age::Dated(number(digits)?),
        _ => return None,
    };
    Some((age, is_compressed))
}

/// Calls `visit` with the event of each line that has one. Subtracts the bytes that it reads from `bytes_left`.
fn each_line(
    lines: &mut dyn BufRead,
    bytes_left: &mut u64,
    path: &[u8],
    problems: &ProblemLog,
    visit: &mut dyn FnMut(&PackageEvent) -> ControlFlow<()>,
) -> std::io::Result<ControlFlow<()>> {
    let mut line = Vec::with_capacity(LINE_BYTES_MAX);
    for number in 1.. {
        line.clear();
        let mut limited = Read::take(&mut *lines, (LINE_BYTES_MAX as u64).min(*bytes_left));
        let count = limited.read_until(b'\n', &mut line)?;
        *bytes_left = bytes_left.saturating_sub(count as u64);
        if count == 0 {
            break;
        }
        if line.pop_if(|byte| *byte == b'\n').is_none() && count == LINE_BYTES_MAX {
            skip_line(lines, bytes_left)?;
            problems.note_line(path, number, "this line is too long");
            continue;
        }
        match event_of(&line) {
            Some(Some(event)) => {
                if visit(&event).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Some(None) => {}
            None => problems.note_line(path, number, "this is no line of a log of dpkg"),
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Reads to the end of a line.
fn skip_line(lines: &mut dyn BufRead, bytes_left: &mut u64) -> std::io::Result<()> {
    while *bytes_left > 0 {
        let read = lines.fill_buf()?;
        let end = read.iter().position(|byte| *byte == b'\n');
        let (count, is_over) = (end.map_or(read.len(), |end| end + 1), end.is_some() || read.is_empty());
        lines.consume(count);
        *bytes_left = bytes_left.saturating_sub(count as u64);
        if is_over {
            break;
        }
    }
    Ok(())
}

/// Returns the event of a line, `Some(None)` if it has an event of another kind, and `None` if it is not a line of a
/// log.
fn event_of(line: &[u8]) -> Option<Option<PackageEvent>> {
    if line.trim_ascii().is_empty() {
        return Some(None);
    }
    let (time, rest) = line.split_at_checked(19)?;
    let time = LocalTime::parse(time)?;
    let mut words = rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let action = match words.next()? {
        b"install" => PackageAction::Install,
        b"upgrade" => PackageAction::Upgrade,
        b"remove" => PackageAction::Remove,
        b"purge" => PackageAction::Purge,
        _ => return Some(None),
    };
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let version = |word: Option<&[u8]>| word.filter(|word| *word != b"<none>").map(text);
    let package = text(words.next()?);
    let (package, architecture) = match package.split_once(':') {
        Some((package, architecture)) => (package.to_owned(), Some(architecture.to_owned())),
        None => (package, None),
    };
    let (version_before, version_after) = (version(words.next()), version(words.next()));
    Some(Some(PackageEvent { time, action, package, architecture, version_before, version_after }))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::memory::MemoryFileSystem;

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn events(system: &MemoryFileSystem) -> (Vec<String>, Vec<String>) {
        let (mut events, problems) = (Vec::new(), ProblemLog::default());
        each_event(&Tree::new(system), &problems, &mut |event| {
            let PackageEvent { time, action, package, architecture, version_before, version_after } = event;
            let [before, after] = [version_before, version_after].map(|version| version.as_deref().unwrap_or("-"));
            events
                .push(format!("{time} {action} {package}/{} {before} {after}", architecture.as_deref().unwrap_or("-")));
            ControlFlow::Continue(())
        });
        (events, problems.first().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn parts_are_read_from_the_oldest_to_the_newest() {
        let mut system = MemoryFileSystem::default();
        let at = |minute: u32, rest: &str| format!("2026-01-01 00:{minute:02}:00 {rest}\n");
        system.write("/var/log/dpkg.log", at(50, "upgrade b:amd64 1 2") + &at(51, "status installed b:amd64 2"));
        system.write("/var/log/dpkg.log.1", at(40, "startup archives unpack") + &at(41, "remove a:amd64 1 <none>"));
        let mut two = gzip(&at(30, "install b:amd64 <none> 1"));
        two.extend(gzip(&at(31, "install c <none> 1")));
        system.write("/var/log/dpkg.log.2.gz", two);
        system.write("/var/log/dpkg.log.10.gz", gzip(&at(10, "install a:amd64 <none> 1")));
        system.write("/var/log/dpkg.log.3.xz", "");
        system.write("/var/log/other.log", "x");
        let (events, problems) = events(&system);
        let expected = [
            "2026-01-01 00:10:00 install a/amd64 - 1",
            "2026-01-01 00:30:00 install b/amd64 - 1",
            "2026-01-01 00:31:00 install c/- - 1",
            "2026-01-01 00:41:00 remove a/amd64 1 -",
            "2026-01-01 00:50:00 upgrade b/amd64 1 2",
        ];
        assert_eq!(events, expected);
        let expected = ["/var/log/dpkg.log.3.xz: this part of the history is not read: its form is not known"];
        assert_eq!(problems, expected);
    }

    #[test]
    fn damaged_parts_are_noted_and_the_others_read() {
        let mut system = MemoryFileSystem::default();
        let line = "2026-01-01 00:00:00 purge x:all 1 <none>\n";
        let mut cut = gzip(&line.repeat(100));
        cut.truncate(cut.len() - 9);
        system.write("/var/log/dpkg.log-20260101.gz", cut);
        system.write("/var/log/dpkg.log-20260102.gz", "no gzip at all");
        system.write("/var/log/dpkg.log", format!("nonsense\n{}\n{line}\n{}", "y".repeat(10_000), &line[..30]));
        let (events, problems) = events(&system);
        assert!(events.len() >= 2, "{events:?}");
        assert_eq!(events.last().unwrap(), "2026-01-01 00:00:00 purge x/al - -");
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(
            problems[2..]
                == [
                    "/var/log/dpkg.log, line 1: this is no line of a log of dpkg",
                    "/var/log/dpkg.log, line 2: this line is too long",
                ]
        );
    }

    #[test]
    fn the_time_is_that_of_the_version_that_is_there() {
        let mut system = MemoryFileSystem::default();
        system.write(
            "/var/log/dpkg.log",
            "2026-01-01 00:00:01 install a:amd64 <none> 1\n2026-01-01 00:00:02 upgrade a:amd64 1 2\n\
            2026-01-01 00:00:03 remove a:amd64 2 <none>\n2026-01-01 00:00:04 install b:amd64 <none> 1\n",
        );
        let package = |name: &str, version: &str| Package {
            name: name.to_owned(),
            version: version.to_owned(),
            architecture: "amd64".to_owned(),
            state: super::super::super::PackageState::Installed,
            installed_bytes: None,
        };
        let packages = [package("a", "2"), package("b", "9"), package("c", "1")];
        let times = installation_times(&Tree::new(&system), &packages, &ProblemLog::default());
        let logged = LocalTime::parse(b"2026-01-01 00:00:02").map(InstallationTime::Logged);
        assert_eq!(times, [logged, None, None]);
    }

    /// Equal bytes compress to a thousandth, so reading a file of some MiB could take minutes.
    #[test]
    fn a_log_that_expands_without_end_is_cut() {
        let mut system = MemoryFileSystem::default();
        system.write("/var/log/dpkg.log.1.gz", gzip(&"y".repeat(1 << 20)));
        system.write("/var/log/dpkg.log", "2026-01-01 00:00:01 install a:amd64 <none> 1\n");
        let problems = ProblemLog::default();
        let mut count = 0;
        each_event_within(100_000, &Tree::new(&system), &problems, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(count, 0);
        let problems: Vec<String> = problems.first().iter().map(ToString::to_string).collect();
        let expected = [
            "/var/log/dpkg.log.1.gz, line 1: this line is too long",
            "/var/log/dpkg.log.1.gz: more history than is read",
        ];
        assert_eq!(problems, expected);
    }

    /// An empty member takes 20 bytes, and decompresses to none.
    #[test]
    fn a_log_that_decompresses_to_nothing_is_cut() {
        let mut system = MemoryFileSystem::default();
        let line = "2026-01-01 00:00:01 install a:amd64 <none> 1\n";
        let empty = gzip("");
        let members = 10_000 / empty.len();
        system.write("/var/log/dpkg.log.3.gz", gzip(line));
        system.write("/var/log/dpkg.log.2.gz", empty.repeat(members - 100));
        system.write("/var/log/dpkg.log.1.gz", [empty.repeat(200), gzip(line)].concat());
        system.write("/var/log/dpkg.log", line);
        let problems = ProblemLog::default();
        let mut count = 0;
        each_event_within(10_000, &Tree::new(&system), &problems, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(count, 1);
        let problems: Vec<String> = problems.first().iter().map(ToString::to_string).collect();
        assert_eq!(problems.last().unwrap(), "/var/log/dpkg.log.1.gz: more history than is read");
    }

    #[test]
    fn more_parts_than_are_read_are_a_problem() {
        let mut system = MemoryFileSystem::default();
        for number in 0..=PARTS_MAX {
            system.write(&format!("/var/log/dpkg.log.{number}"), "");
        }
        let (_, problems) = events(&system);
        assert_eq!(problems, ["/var/log: more parts of the history than are read"]);
    }
}
