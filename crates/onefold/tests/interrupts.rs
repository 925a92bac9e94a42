//! Ctrl-C during commands that do not stop at a point of their own: they end with 130 and say what was kept.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs::{self, File};
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{Folder, INTERRUPTED, Run, has, run, text};
use onefold_block::Show;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};

/// A full pipe, so that a command waits when it prints its result.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(&[0; 4096]).is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

/// Runs a command with a standard output that takes nothing, and sends it a signal once it waits for that.
fn interrupted(arguments: &[&str], signal: Signal) -> Run {
    let (reader, writer) = full_pipe();
    let mut command = Command::new(env!("CARGO_BIN_EXE_onefold"));
    let mut child = command.args(arguments).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    while !writes_to_stdout(pid) {
        assert!(child.try_wait().unwrap().is_none(), "{arguments:?} ended before its result");
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(pid, signal).unwrap();
    let ended = Run::of(child.wait_with_output().unwrap());
    drop(reader);
    ended
}

/// Returns whether the first thread of a process waits in a system call whose first argument is standard output: see
/// proc_pid_syscall(5).
fn writes_to_stdout(process: Pid) -> bool {
    let call = fs::read_to_string(format!("/proc/{}/syscall", process.as_raw_nonzero())).unwrap();
    call.split(' ').nth(1) == Some("0x1")
}

#[track_caller]
fn assert_ends(run: &Run, doing: &str, kept: &str) {
    assert_eq!(run.code, INTERRUPTED, "{run:?}");
    assert_eq!(run.err, format!("error: interrupted while {doing}\n  hint: {kept}\n"));
}

#[test]
fn a_command_that_only_looks_ends_at_once() {
    let folder = Folder::new();
    let pool = folder.pool();
    for signal in [Signal::INT, Signal::TERM] {
        let ended = interrupted(&["pool", "stat", text(&pool)], signal);
        assert_ends(&ended, "reading the numbers of the pool", "nothing was changed");
    }
    let ended = interrupted(&["pool", "list", text(&pool)], Signal::INT);
    assert_ends(&ended, "asking the pools", "nothing was changed");
}

#[test]
fn files_of_a_guest_that_were_written_in_part_are_called_incomplete() {
    if !has("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = Folder::new();
    let tree = folder.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("large"), vec![7; 4 << 20]).unwrap();
    let image = folder.path("disk.raw");
    File::create(&image).unwrap().set_len(32 << 20).unwrap();
    run("mke2fs", &["-q", "-t", "ext4", "-d", text(&tree), text(&image)]);
    let kept = "what was written to standard output is incomplete";
    for verb in ["cat", "tar"] {
        let ended = interrupted(&["guest", verb, text(&image), "/large"], Signal::INT);
        assert_ends(&ended, "writing files of the guest", kept);
    }
    let ended = interrupted(&["guest", "ls", text(&image)], Signal::INT);
    assert_ends(&ended, "looking into images", "nothing was changed");
}

/// The process of a failed command must not outlive the reader of its result.
#[test]
fn a_second_signal_ends_a_command_whose_document_nobody_reads() {
    let folder = Folder::new();
    let (_reader, writer) = full_pipe();
    let pool = folder.pool();
    let mut command = Command::new(env!("CARGO_BIN_EXE_onefold"));
    command.args(["pool", "stat", "--json"]).arg::<&Path>(&pool).stdout(writer).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let pid = Pid::from_child(&child);
    while !writes_to_stdout(pid) {
        thread::sleep(Duration::from_millis(10));
    }
    while child.try_wait().unwrap().is_none() {
        let _ = kill_process(pid, Signal::INT);
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(child.wait().unwrap().code(), Some(INTERRUPTED));
}

/// Regression: `qemu-img` is in a process group of its own, and went on when Onefold was killed, or ended by a second
/// Ctrl-C.
#[test]
fn a_program_that_reads_an_image_ends_with_the_command() {
    let folder = Folder::new();
    let (pool, image, programs) = (folder.pool(), folder.image("a.vdi", 1, 0), folder.path("programs"));
    fs::create_dir(&programs).unwrap();
    let (program, noted) = (programs.join("qemu-img"), folder.path("process"));
    // The name appears with its content.
    let script = format!("echo $$ > '{0}.new'; mv '{0}.new' '{0}'; exec sleep 60", noted.shown());
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for signals in [&[Signal::KILL][..], &[Signal::INT, Signal::INT]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onefold"));
        command.env("PATH", format!("{}:/usr/bin:/bin", programs.shown()));
        command.args(["pool", "import", "--format", "vdi"]).args([&pool, &image]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let reader = loop {
            match fs::read_to_string(&noted) {
                Ok(text) => break text.trim().to_owned(),
                Err(_) => assert!(child.try_wait().unwrap().is_none(), "it ended without a reader"),
            }
            thread::sleep(Duration::from_millis(10));
        };
        fs::remove_file(&noted).unwrap();
        assert!(is_running(&reader));
        for signal in signals {
            kill_process(Pid::from_child(&child), *signal).unwrap();
            thread::sleep(Duration::from_millis(100));
        }
        child.wait().unwrap();
        let is_gone = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(10));
            !is_running(&reader)
        });
        assert!(is_gone, "process {reader} is left after {signals:?}");
    }
}

/// Returns whether a process runs. One that has ended and waits for its parent does not: see proc_pid_stat(5).
fn is_running(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
