//! The command line itself: wrong usage, missing things, help, generated pages. No pool is needed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{FAILED, Folder, USAGE, onefold};

#[test]
fn wrong_usage_ends_with_2() {
    for arguments in [
        "",
        "pool",
        "pool frobnicate",
        "pool create",
        "pool mount x",
        "pool create --size 10X x",
        "pool create --stores nowhere x",
        "pool mount --commit-interval soon a b",
        "pool mount --threads 0 a b",
        "pool mount --filter-tag-bits 99 a b",
        "pool import x",
        "pool clone x a b --count 0",
        "pool clone x a b --count 3",
        "pool stat --no-such-flag x",
        "archive create",
        "archive create --unit blocks x",
        "image capture x",
        "image capture x y ../z",
        "image capture x y z --each w",
        "image capture --level 99 x y",
        "image show x web@0",
        "image install x web",
        "image install --free maybe x web y",
        "image install --overwrite x web y",
        "share mend --force x",
        "image rm x",
        "share watch",
        "share watch --window 22-6 x",
        "share watch --window 06:00-06:00 x",
        "share watch --interval 1ms x",
        "share watch --max-load -1 x",
        "share watch --memory 1M x",
        "share run --max-stall 101ms x",
        "share run --max-stall 0ms x",
        "share run --max-stall 20 x",
        "share run --cpu-limit 0 x",
        "share run --io-limit 1K x",
        "share run --rate 50M/min x",
        "pool scrub --rate 0 x",
    ] {
        assert_eq!(onefold(arguments, &[]).code, USAGE, "{arguments}");
    }
}

#[test]
fn version_and_help_are_results() {
    assert!(onefold("--version", &[]).done().out.starts_with("onefold 0."));
    let help = onefold("pool --help", &[]).done().out;
    for verb in ["create", "mount", "umount", "check", "stat", "grow", "scrub", "trim", "import", "export", "clone"] {
        assert!(help.contains(&format!("\n  {verb} ")), "{verb} is not in {help}");
    }
}

#[test]
fn a_path_that_is_not_there_is_named_with_its_cause() {
    let folder = Folder::new();
    let gone = folder.path("gone.pool");
    for verb in ["stat", "check", "scrub", "trim", "grow", "umount", "create"] {
        let run = onefold(&format!("pool {verb}"), &[&gone]).failed(FAILED, "gone.pool");
        assert!(run.err.contains("cause: No such file or directory"), "{verb}: {run:?}");
        assert!(run.out.is_empty(), "{verb}: {run:?}");
    }
    assert!(!gone.exists());
}

#[test]
fn failures_are_json_too() {
    let folder = Folder::new();
    let run = onefold("pool stat --json", &[&folder.path("gone.pool")]).failed(FAILED, "gone.pool");
    let json = run.json();
    assert!(json["error"].as_str().unwrap().contains("gone.pool"), "{json}");
    assert_eq!(json["causes"].as_array().unwrap().len(), 1, "{json}");
}

#[test]
fn wrong_usage_is_json_too() {
    for arguments in
        ["pool stat --json --no-such-flag x", "pool clone x a b --count 0 --json", "--json pool frobnicate"]
    {
        let run = onefold(arguments, &[]);
        assert_eq!(run.code, USAGE, "{run:?}");
        let json = run.json();
        assert!(!json["error"].as_str().unwrap().starts_with("error"), "{json}");
        assert!(json["hint"].as_str().unwrap().contains("--help"), "{json}");
    }
    let error = |arguments: &str| onefold(arguments, &[]).json()["error"].as_str().unwrap().to_owned();
    let missing = error("--json image install arc web");
    assert!(missing.contains("not provided: <DISK>"), "{missing}");
    let wrong = error("--json archive create --unit blocks x");
    assert!(wrong.contains("possible values: files, fixed"), "{wrong}");
    assert_eq!(error("--json pool"), "a command is missing");
    let help = onefold("pool --help --json", &[]).done().out;
    assert!(help.contains("Usage: "), "{help}");
    let plain = onefold("pool create -- --json more", &[]);
    assert!(plain.code == USAGE && plain.out.is_empty(), "{plain:?}");
}

/// Options of one meaning take the same values everywhere, and say which.
#[test]
fn times_and_percentages_are_the_same_everywhere() {
    let gone = [Path::new("/gone")];
    for arguments in
        ["analyze --sample 5%", "analyze --sample=5%", "archive check --sample 5%", "archive check --sample=5"]
    {
        onefold(arguments, &gone).failed(FAILED, "/gone");
    }
    for arguments in ["analyze --sample=x", "archive check --sample x"] {
        onefold(arguments, &gone).failed(USAGE, "such as 5%");
    }
    onefold("archive check --patience 1min s3://BUCKET/", &[]).failed(FAILED, "BUCKET");
    for arguments in ["archive check --patience soon", "archive gc --delay soon", "share watch --interval soon"] {
        onefold(arguments, &gone).failed(USAGE, "(ms, s, min, h), such as 5s");
    }
    onefold("share run --max-stall 20", &gone).failed(USAGE, "from 1ms to 100ms");
}

#[test]
fn an_archive_that_is_not_there_is_a_wrong_path_and_no_broken_disk() {
    let run = onefold("archive stat /gone", &[]).failed(FAILED, "cannot open the archive `/gone`");
    assert!(run.err.contains("archive create") && !run.err.contains("dmesg"), "{run:?}");
    onefold("image list http://127.0.0.1:1", &[]).failed(USAGE, "image install");
}

/// Nothing listens there, and nobody would want to wait for a quarter of an hour.
#[test]
fn a_server_that_refuses_connections_is_waited_for_as_long_as_the_message_says() {
    let run = onefold("image install --patience 5s http://127.0.0.1:1 web /dev/null", &[]);
    let run = run.failed(FAILED, "gives up after 5 s (--patience)");
    assert!(run.err.contains("gave up waiting"), "{run:?}");
}

#[test]
fn directories_and_devices_of_characters_are_no_pools() {
    onefold("pool stat", &[Path::new("/dev/null")]).failed(FAILED, "neither a file");
    let folder = Folder::new();
    let run = onefold("pool stat", &[&folder.path("")]).failed(FAILED, "no pool is mounted");
    assert!(run.err.contains("hint: "), "{run:?}");
}

#[test]
fn what_is_not_mounted_can_not_be_unmounted() {
    let folder = Folder::new();
    let file = folder.path("file");
    fs::write(&file, "x").unwrap();
    onefold("pool umount", &[&file]).failed(FAILED, "it is not mounted");
}

#[test]
fn a_label_that_does_not_fit_is_refused_before_anything_is_made() {
    let folder = Folder::new();
    let pool = folder.path("x.pool");
    let label = "x".repeat(65);
    onefold(&format!("pool create --size 1G --label {label}"), &[&pool]).failed(USAGE, "64 bytes");
    assert!(!pool.exists());
}

#[test]
fn completions_know_the_verbs() {
    for shell in ["bash", "zsh", "fish"] {
        let script = onefold(&format!("completions {shell}"), &[]).done().out;
        assert!(script.contains("umount") && script.contains("journal-size"), "{shell}");
    }
}

/// Returns the commands that `--help` lists below `command`, all levels down, as `pool create` of `pool`.
fn commands_below(command: &str) -> Vec<String> {
    let help = onefold(&format!("{command} --help"), &[]).done().out;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // A long description goes on in a line that is indented further.
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()));
    let names = names.filter(|&name| name != "help").map(|name| format!("{command} {name}").trim().to_owned());
    names.flat_map(|name| [vec![name.clone()], commands_below(&name)].concat()).collect()
}

/// What a package is made of has a page for each command, and a script for each shell.
#[test]
fn the_package_gets_a_page_for_each_command_and_a_script_for_each_shell() {
    let folder = Folder::new();
    let packaging = folder.path("packaging");
    let generate = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/generate.sh");
    fs::create_dir_all(packaging.join("man")).unwrap();
    fs::write(packaging.join("man/onefold-gone.1"), "a page of an older version").unwrap();
    let made = Command::new(&generate).args([packaging.as_path(), Path::new(env!("CARGO_BIN_EXE_onefold"))]).status();
    assert!(made.unwrap().success());
    let commands = commands_below("");
    assert!(commands.len() > 20 && commands.contains(&"share domain set".to_owned()), "{commands:?}");
    let mut expected: Vec<String> =
        commands.iter().map(|command| format!("onefold-{}.1", command.replace(' ', "-"))).collect();
    expected.extend(["onefold.1".to_owned(), "mount.fuse.onefold.8".to_owned()]);
    let pages = fs::read_dir(packaging.join("man")).unwrap().map(|page| page.unwrap().path());
    let pages: BTreeMap<String, String> = pages
        .map(|page| (page.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&page).unwrap()))
        .collect();
    assert_eq!(pages.keys().cloned().collect::<BTreeSet<_>>(), expected.into_iter().collect());
    for (name, page) in &pages {
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
    assert!(pages["onefold-pool-create.1"].contains("journal\\-size"));
    for (shell, name) in [("bash", "onefold"), ("zsh", "_onefold"), ("fish", "onefold.fish")] {
        let kept = fs::read_to_string(packaging.join("completions").join(name)).unwrap();
        let made = onefold(&format!("completions {shell}"), &[]).done().out;
        assert!(kept == made && made.contains("umount"), "{name}");
    }
}

#[test]
fn the_helper_of_mount_takes_its_arguments_in_mounts_way() {
    let folder = Folder::new();
    let helper = folder.path("mount.fuse.onefold");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_onefold"), &helper).unwrap();
    let call = |options: &str| {
        let arguments = ["/gone.pool", "/mnt", "-n", "-o", options];
        let output = Command::new(&helper).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, err) = call("rw,nofail,memory=1G");
    assert_eq!(code, Some(FAILED), "{err}");
    assert!(err.contains("/gone.pool"), "{err}");
    assert_eq!(call("frobnicate").0, Some(USAGE));
}
