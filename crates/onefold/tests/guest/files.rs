//! Names, content and sizes of files, and archives of them.

use crate::*;

#[test]
fn ls_shows_names_as_the_guest_has_them() {
    let Some(fixture) = Fixture::new() else { return };
    let root = fixture.guest("ls", &[]).done();
    assert_eq!(lines(&root), ["empty", "etc", "link", "lost+found", "ring-a", "ring-b", "sizes", "srv"]);
    assert_eq!(lines(&fixture.guest("ls", &["/sizes"]).done()), ["1", "300000", "4095", "4096", "4097"]);
    assert_eq!(lines(&fixture.guest("ls", &["/etc/passwd"]).done()), ["/etc/passwd"]);
    let long = fixture.guest("ls -l", &["/etc"]).done().out;
    assert!(long.contains("-rwSr-----   1 ") && long.contains(" passwd"), "{long}");
    assert!(fixture.guest("ls -l", &["/link"]).done().out.ends_with("/link -> etc/hostname\n"));
    let below = fixture.guest("ls -R", &["/srv/deep"]).done().out;
    assert_eq!(below, "/srv/deep:\na\n\n/srv/deep/a:\nb\n\n/srv/deep/a/b:\nc\n\n/srv/deep/a/b/c:\nfile\n");
    let empty = fixture.guest("ls -R", &["/lost+found"]).done().out;
    assert_eq!(empty, "/lost+found:\n");
}

#[test]
fn a_name_that_would_harm_a_terminal_is_escaped_and_programs_get_it_whole() {
    let Some(fixture) = Fixture::new() else { return };
    let told = fixture.guest("ls", &["/srv"]).done().out;
    assert!(told.contains("evil\\n\\x1b]0;title\\x07\\xff\n"), "{told}");
    let raw = Command::new(env!("CARGO_BIN_EXE_onefold"))
        .args(["guest", "ls", "-0", text(&fixture.image), "/srv"])
        .output()
        .unwrap();
    let expected = [b"/srv/", HOSTILE].concat();
    assert!(raw.stdout.split(|byte| *byte == 0).any(|name| name == expected));
    let raw = Command::new(env!("CARGO_BIN_EXE_onefold"))
        .args([OsStr::new("guest"), OsStr::new("du"), OsStr::new("-0"), fixture.image.as_os_str()])
        .args([OsStr::from_bytes(&expected), OsStr::new("/srv/deep/a/b/c")])
        .output()
        .unwrap();
    let rows = [b"4096\t", &expected[..], b"\x008192\t/srv/deep/a/b/c\x00"].concat();
    assert_eq!(raw.stdout, rows);
    let found = fixture.guest("ls --json", &["/srv"]).done().json();
    let files = found["files"].as_array().unwrap();
    let file = files.iter().find(|file| file.get("path_hex").is_some()).unwrap();
    let hex: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((&file["path_hex"], &file["size_bytes"]), (&hex.into(), &7.into()));
}

#[test]
fn cat_writes_every_file_as_it_was() {
    let Some(fixture) = Fixture::new() else { return };
    for path in
        ["etc/hostname", "empty", "srv/sizes/1", "srv/sizes/4095", "srv/sizes/4097", "srv/sizes/300000", "srv/sparse"]
    {
        let written = Command::new(env!("CARGO_BIN_EXE_onefold"))
            .args(["guest", "cat", text(&fixture.image), path])
            .output()
            .unwrap();
        assert_eq!(written.status.code(), Some(DONE));
        assert!(written.stdout == fs::read(fixture.tree.join(path)).unwrap(), "{path}");
    }
    let both = fixture.guest("cat", &["/link", "/srv/out"]).done().out;
    assert_eq!(both, "test\nroot:x:0:0::/root:/bin/sh\n", "a link out of the root ends at the root");
}

#[test]
fn du_adds_up_and_counts_a_file_with_two_names_once() {
    let Some(fixture) = Fixture::new() else { return };
    let found = fixture.guest("du --json -d 1", &["/"]).done().json();
    let folders = found["folders"].as_array().unwrap();
    let sum = |path: &str| folders.iter().find(|row| row["path"] == path).unwrap()["allocated_bytes"].as_u64().unwrap();
    let own = 4 * BLOCK_BYTES;
    // Five files, their folder, and one block of the file that is sparse; directories; the first block that debugfs
    // tells.
    assert_eq!(sum("/etc"), own - BLOCK_BYTES, "two files and the folder");
    assert!(folders.iter().all(|row| row["path"].as_str().unwrap().matches('/').count() < 2), "{folders:?}");
    assert!(sum("/") >= sum("/srv") + sum("/etc") + sum("/lost+found"));
    let twice = fixture.guest("du --json", &["/srv/sizes", "/srv/second-name"]).done().json();
    let sizes = fixture.guest("du --json", &["/srv/sizes"]).done().json();
    assert_eq!(twice["folders"][0], sizes["folders"][0]);
    let whole = fixture.guest("du", &["/srv"]).done().out;
    assert!(whole.ends_with("/srv\n"), "{whole}");
}

#[test]
fn find_takes_names_times_and_sizes_of_many_images() {
    let Some(fixture) = Fixture::new() else { return };
    let found = fixture.guest("find --larger 100K --name *0000", &[]).done().out;
    assert_eq!(found, "/srv/sizes/300000\n");
    assert_eq!(fixture.guest("find --name /etc/*", &[]).done().out, "/etc/hostname\n/etc/passwd\n");
    assert_eq!(fixture.guest("find --newer 2999-01-01", &[]).done().out, "");
    assert!(fixture.guest("find --newer 2020-01-01T10:00 --below /etc", &[]).done().out.contains("/etc/passwd\n"));
    fixture.guest("find --newer yesterday", &[]).failed_usage();
    let second = fixture.folder.path("second.raw");
    fs::copy(&fixture.image, &second).unwrap();
    let broken = fixture.folder.path("broken.raw");
    fs::write(&broken, vec![7; 2 << 20]).unwrap();
    let all = onefold("guest find --name passwd", &[&fixture.image, &broken, &second]);
    assert_eq!(all.code, FAILED);
    let expected = [&fixture.image, &second].map(|image| format!("{}:/etc/passwd", text(image)));
    assert_eq!(lines(&all), expected);
    assert!(all.err.contains("broken.raw"), "{all:?}");
}

#[test]
fn tar_keeps_all_that_tar_can() {
    let Some(fixture) = Fixture::new() else { return };
    if !has("tar", "tar") || !has("getfattr", "attr") || !rustix::process::geteuid().is_root() {
        return;
    }
    let archive = fixture.folder.path("saved.tar");
    let unpacked = fixture.folder.path("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let script =
        "\"$0\" guest tar \"$1\" / /etc/passwd >\"$2\" && tar -C \"$3\" -xpf \"$2\" --xattrs --xattrs-include='*'";
    run("sh", &["-c", script, env!("CARGO_BIN_EXE_onefold"), text(&fixture.image), text(&archive), text(&unpacked)]);
    fs::remove_dir(unpacked.join("lost+found")).unwrap();
    let list = "cd \"$0\" && find . ! -type d -printf '%P %y %m %U %G %s %n %T@ %l\\n' | sed 's/\\.[0-9]\\{10\\}//' | sort && find . -type d -printf '%P %m %U\\n' | sort";
    let of = |folder: &Path| run("sh", &["-c", list, text(folder)]);
    assert_eq!(of(&unpacked), of(&fixture.tree));
    run("diff", &["-r", "--no-dereference", text(&fixture.tree), text(&unpacked)]);
    let blocks = |path: PathBuf| fs::metadata(path).unwrap().blocks();
    assert!(blocks(unpacked.join("srv/sparse")) < 1000, "the holes are kept");
    let attributes = run(
        "getfattr",
        &["--absolute-names", "--only-values", "-n", "user.note", text(&unpacked.join("etc/hostname"))],
    );
    assert_eq!(attributes, "kept");
    fixture.guest("tar --json", &["/etc"]).failed_usage();
    fixture.guest("tar", &["/gone"]).failed(FAILED, "/gone");
}
