//! Verbs on archives that the user interrupts: they end soon, say what was and was not done, and leave the archive
//! sound.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{DAMAGE, Folder, INTERRUPTED, Run, equal, onefold, run, text};

/// Time that a command may take from the signal to its end. Uninterrupted it would take longer, by its `--rate`.
const SOON: Duration = Duration::from_secs(10);
/// Time that a command is given to begin its work.
const BEGINS: Duration = Duration::from_millis(500);
/// Bit of SIGINT in the masks of `/proc/PID/status`.
const SIGINT_BIT: u64 = 1 << 1;

fn start(arguments: &str, paths: &[&Path]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_onefold"))
        .args(arguments.split_whitespace())
        .args(paths)
        .env("AWS_ACCESS_KEY_ID", "user")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns whether a process catches SIGINT.
fn is_watching(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & SIGINT_BIT != 0
}

/// Sends a signal to a command in the middle of its work, and returns how it ends.
#[track_caller]
fn interrupted(signal: &str, mut child: Child) -> Run {
    while !is_watching(&child) {
        assert!(child.try_wait().unwrap().is_none(), "{:?}", Run::of(child.wait_with_output().unwrap()));
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(BEGINS);
    assert!(child.try_wait().unwrap().is_none(), "it was too fast: {:?}", Run::of(child.wait_with_output().unwrap()));
    run("kill", &[signal, &child.id().to_string()]);
    let sent = Instant::now();
    let run = Run::of(child.wait_with_output().unwrap());
    assert!(sent.elapsed() < SOON, "{:?}: {run:?}", sent.elapsed());
    run.failed(INTERRUPTED, "interrupted; ")
}

/// Makes an archive with an image of noise and one of its first half, of 24 MiB and 12 MiB.
fn archive(folder: &Folder) -> (PathBuf, PathBuf) {
    let (archive, whole) = (folder.path("archive"), folder.noise("whole.raw", 24));
    let half = folder.path("half.raw");
    fs::write(&half, &fs::read(&whole).unwrap()[..12 << 20]).unwrap();
    onefold("archive create", &[&archive]).done();
    for (source, name) in [(&whole, "whole"), (&half, "half")] {
        onefold("image capture --quiet", &[&archive, source, Path::new(name)]).done();
    }
    (archive, half)
}

/// Checks all data of the archive, and that the image of the half reads exactly.
#[track_caller]
fn assert_sound(folder: &Folder, archive: &Path, half: &Path) {
    onefold("archive check --data", &[archive]).done();
    let out = folder.path("out.raw");
    onefold("image export --quiet", &[archive, Path::new("half"), &out]).done();
    assert!(equal(half, &out));
    fs::remove_file(out).unwrap();
}

#[test]
fn a_check_ends_soon_and_says_how_far_it_came() {
    let folder = Folder::new();
    let (archive, half) = archive(&folder);
    for signal in ["-INT", "-TERM"] {
        let run = interrupted(signal, start("archive check --data --rate 400K", &[&archive]));
        assert!(run.err.contains(" of 4 packs and images") && !run.err.contains("checked 4"), "{run:?}");
        assert!(run.out.is_empty(), "{run:?}");
    }
    assert_sound(&folder, &archive, &half);
}

#[test]
fn a_collection_ends_soon_and_the_next_one_frees_the_rest() {
    let folder = Folder::new();
    let (archive, half) = archive(&folder);
    onefold("image rm", &[&archive, Path::new("whole@1")]).done();
    for signal in ["-INT", "-TERM"] {
        let run = interrupted(signal, start("archive gc --delay 0 --rate 100K", &[&archive]));
        assert!(run.err.contains("no image lost anything"), "{run:?}");
        assert_sound(&folder, &archive, &half);
    }
    let freed = onefold("archive gc --delay 0 --silence 0 --json", &[&archive]).done().json();
    assert!(freed["freed"]["bytes"].as_u64().unwrap() > 20 << 20, "{freed}");
    assert_sound(&folder, &archive, &half);
}

#[test]
fn a_repair_ends_soon_and_the_next_one_mends_the_rest() {
    let folder = Folder::new();
    let (archive, half) = archive(&folder);
    let pack = largest(&archive.join("packs"));
    let file = OpenOptions::new().write(true).open(&pack).unwrap();
    file.write_all_at(&[7; 64], 5 << 20).unwrap();
    for signal in ["-INT", "-TERM"] {
        let run = interrupted(signal, start("archive repair --rate 400K", &[&archive]));
        assert!(run.err.contains("interrupted; nothing was changed"), "{run:?}");
        assert_eq!(onefold("archive check", &[&archive]).done().code, 0, "tables and ledger are whole");
    }
    assert_eq!(onefold("archive check --data", &[&archive]).code, DAMAGE);
    onefold(&format!("archive repair --quiet --from {}", text(&half)), &[&archive]).done();
    assert_sound(&folder, &archive, &half);
}

/// Returns the longest file below a folder.
fn largest(folder: &Path) -> PathBuf {
    let found = run("find", &[text(folder), "-type", "f"]);
    found.lines().map(PathBuf::from).max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

/// A store that cannot be reached is waited for a quarter of an hour.
#[test]
fn a_verb_that_waits_for_its_store_ends_soon() {
    // A port that nobody listens on.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for verb in ["archive check", "archive gc", "archive repair", "image rm"] {
        let options = format!("{verb} --region here --endpoint http://127.0.0.1:{port} s3://bucket/archive");
        let images: &[&Path] = if verb == "image rm" { &[Path::new("web@1")] } else { &[] };
        let run = interrupted("-INT", start(&options, images));
        assert!(run.err.contains("interrupted; nothing was done"), "{run:?}");
    }
}
