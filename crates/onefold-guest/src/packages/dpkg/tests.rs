//! Databases that are larger than usual, or mix two forms.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::*;
use crate::memory::MemoryFileSystem;
use crate::packages::Digest;

const STATUS: &str = "Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n";

/// Returns the paths of all packages with their digests, and the problems.
fn paths(system: &MemoryFileSystem) -> (Vec<(String, Option<Digest>)>, Vec<String>) {
    let tree = Tree::new(system);
    let database = Dpkg::open(&tree).unwrap().unwrap();
    let mut paths = Vec::new();
    for package in 0..database.packages().len() {
        database.each_path(package, &mut |owned| {
            paths.push((String::from_utf8_lossy(owned.path).into_owned(), owned.digest));
            ControlFlow::Continue(())
        });
    }
    (paths, database.problems().first().iter().map(ToString::to_string).collect())
}

fn system(list: &[u8]) -> MemoryFileSystem {
    let mut system = MemoryFileSystem::default();
    system.write("/var/lib/dpkg/status", STATUS);
    system.write("/var/lib/dpkg/info/a.list", list);
    system
}

/// Regression: digests in `status.d` replaced those of a package with a list.
#[test]
fn files_of_both_folders_may_have_one_name() {
    let mut system = system(b"/file\n");
    let digest = |digit: &str| digit.repeat(32);
    system.write("/var/lib/dpkg/info/a.md5sums", digest("1") + "  file\n");
    system.write("/var/lib/dpkg/status.d/a.md5sums", digest("2") + "  file\n");
    system.write("/var/lib/dpkg/status.d/b", "Package: b\nArchitecture: all\nVersion: 1\n");
    let (paths, problems) = paths(&system);
    assert_eq!(paths, [("/file".to_owned(), Digest::parse_md5(digest("1").as_bytes()))]);
    assert!(problems.is_empty(), "{problems:?}");
}

/// Regression: a path of 64 MiB was compared with patterns for minutes.
#[test]
fn a_path_that_no_program_can_name_is_no_path() {
    let long = [b"/".as_slice(), &[b'a'; 5000], b"\n/file\n"].concat();
    let (paths, problems) = paths(&system(&long));
    assert_eq!(paths, [("/file".to_owned(), None)]);
    assert_eq!(problems, ["/var/lib/dpkg/info/a.list, line 1: this path has more than 4096 bytes"]);
}

/// Regression: each was a separate problem, which was compared with a hundred others, so a list of 64 MiB took a
/// minute. Now a list of 4 MiB takes a small part of a second; the rest of the limit is for a busy machine.
#[test]
fn a_list_without_a_path_takes_a_moment() {
    let system = system(&b"x\n".repeat(2 << 20));
    let began = Instant::now();
    let (paths, problems) = paths(&system);
    assert!(paths.is_empty() && problems.len() == 100, "{}", problems.len());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// Regression: texts of 64 MiB with millions of short lines took more than a gigabyte.
#[test]
fn diversions_and_permissions_without_end_are_not_read() {
    let mut system = system(b"/file\n");
    system.write("/var/lib/dpkg/diversions", "/file\n/file.distrib\n:\n".repeat(100_000));
    system.write("/var/lib/dpkg/statoverride", "root root 4755 /file\n".repeat(100_000));
    let (paths, problems) = paths(&system);
    assert_eq!(paths, [("/file".to_owned(), None)]);
    let cannot = "a text of this length cannot be read";
    let expected = ["diversions", "statoverride"].map(|name| format!("/var/lib/dpkg/{name}: {cannot}"));
    assert_eq!(problems, expected);
}
