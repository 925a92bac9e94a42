//! Packages, and the comparison of two systems.

use crate::*;

#[test]
fn packages_their_files_and_their_history_are_those_of_dpkg() {
    let Some(fixture) = Fixture::with(|tree| add_packages(tree, "1.0")) else { return };
    let listed = fixture.guest("packages", &[]).done();
    if has("dpkg-query", "dpkg") {
        let admin = format!("--admindir={}", text(&fixture.tree.join("var/lib/dpkg")));
        let oracle = run("dpkg-query", &[&admin, "-W", "-f", "${Package} ${Version} ${Architecture}\n"]);
        assert_eq!(listed.out, oracle);
    }
    assert_eq!(lines(&listed), ["other 7 amd64", "tool 1.0 amd64"]);
    let one = fixture.guest("packages --name to* --files --history", &[]).done().out;
    assert!(one.starts_with("tool 1.0 amd64, since 2026-11-01 12:34:5"), "{one}");
    assert!(one.contains("\n  2026-11-01 12:34:56 install 1.0\n"), "{one}");
    assert!(one.contains("\n  /bin/tool\n") && one.contains("\n  /etc/tool.conf (configuration)\n"), "{one}");
    // Only the time of its list of files tells since when this one is there.
    let other = fixture.guest("packages --name other --history", &[]).done().out;
    assert!(other.starts_with("other 7 amd64, since 20") && other.contains("Z (by its list of files)\n"), "{other}");
    let history = fixture.guest("packages --json --history", &[]).done().json();
    assert_eq!([&history["packages"][0]["since_from"], &history["packages"][1]["since_from"]], ["list", "log"]);
    let json = fixture.guest("packages --json --files --name tool", &[]).done().json();
    let files = json["packages"][0]["files"].as_array().unwrap();
    assert!(files.iter().any(|file| file["path"] == "/bin/tool" && file["digest_algorithm"] == "md5"), "{files:?}");
    let verified = fixture.guest("packages --verify", &[]).done();
    let expected = [
        "missing: /usr/share/gone (tool)",
        "changed: /etc/tool.conf (tool, configuration)",
        "1 files are as packaged, 0 are left out of this system",
    ];
    assert_eq!(lines(&verified), expected);
    let unowned = fixture.guest("find --unowned --below /usr/bin", &[]).done().out;
    assert_eq!(unowned, "/usr/bin/own\n", "/bin/tool is /usr/bin/tool");
    let info = fixture.guest("info", &[]).done().out;
    assert!(info.contains("system: Test OS") && info.contains("host name `test`"), "{info}");
    let plain = Fixture::new().unwrap();
    assert!(plain.guest("packages", &[]).done().err.contains("has no package database"));
    plain.guest("find --unowned", &[]).failed(FAILED, "no package database");
}

#[test]
fn diff_tells_packages_first_and_then_files() {
    let Some(one) = Fixture::with(|tree| add_packages(tree, "1.0")) else { return };
    let two = Fixture::with(|tree| {
        add_packages(tree, "1.1");
        fs::remove_dir_all(tree.join("srv/deep")).unwrap();
        fs::write(tree.join("srv/sizes/4096"), [1; 4096]).unwrap();
        fs::write(tree.join("etc/new"), "").unwrap();
        fs::set_permissions(tree.join("etc/hostname"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(tree.join("link")).unwrap();
        symlink("etc/passwd", tree.join("link")).unwrap();
    })
    .unwrap();
    let told = onefold("guest diff", &[&one.image, &two.image]).done().out;
    let expected = "package tool amd64: 1.0 -> 1.1\n\
        changed: /link (target etc/hostname -> etc/passwd)\n\
        changed: /etc/hostname (mode 0644 -> 0600)\n\
        only in the second: /etc/new\n\
        only in the first: /srv/deep/\n\
        changed: /srv/sizes/4096 (content)\n\
        changed: /var/lib/dpkg/status (content)\n";
    assert_eq!(told, expected);
    let json = onefold("guest diff --json --content", &[&one.image, &two.image]).done().json();
    assert_eq!(json["differences"].as_array().unwrap().len(), 7);
    assert_eq!(json["differences"][4]["only_in"], "one");
    let below = onefold("guest diff --below /etc", &[&one.image, &two.image]).done().out;
    assert_eq!(below.lines().count(), 3);
    assert_eq!(onefold("guest diff", &[&one.image, &one.image]).done().out, "");
}

#[test]
fn a_damaged_package_database_is_told_by_all_that_read_it() {
    let Some(fixture) = Fixture::with(|tree| {
        add_packages(tree, "1.0");
        fs::write(tree.join("var/lib/dpkg/info/tool.md5sums"), "no digest\n").unwrap();
    }) else {
        return;
    };
    let why = "/var/lib/dpkg/info/tool.md5sums, line 1: ";
    for run in [fixture.guest("packages --files", &[]), onefold("guest diff", &[&fixture.image, &fixture.image])] {
        assert!(run.code == DAMAGE && run.err.contains(why), "{run:?}");
    }
    // Whom a file belongs to is told by lists, not by digests.
    let unowned = fixture.guest("find --unowned", &[]);
    assert!(unowned.code == 0 && unowned.err.is_empty(), "{unowned:?}");
}

/// Zeros without an end are not read.
#[test]
fn diff_skips_what_is_a_hole_on_both_sides() {
    let Some(fixture) = Fixture::new() else { return };
    let image = format!("{}?offset={PARTITION_BYTES}", text(&fixture.image));
    let block = fixture.blocks("/srv/sizes/4096")[0];
    run("debugfs", &["-w", "-R", "set_inode_field /srv/sizes/4096 size 0xfffffffffff", &image]);
    let second = fixture.folder.path("second.raw");
    fs::copy(&fixture.image, &second).unwrap();
    let diff = || onefold("guest diff --content --below /srv/sizes", &[&fixture.image, &second]).done().out;
    assert_eq!(diff(), "");
    let file = OpenOptions::new().write(true).open(&second).unwrap();
    file.write_all_at(b"?", PARTITION_BYTES + block * BLOCK_BYTES + 4095).unwrap();
    assert_eq!(diff(), "changed: /srv/sizes/4096 (content)\n");
}

/// Regression: `mke2fs -d` writes whole seconds, so a file that changed within one has the same place and times in
/// both.
#[test]
fn diff_reads_files_whose_times_are_whole_seconds() {
    let Some(fixture) = Fixture::new() else { return };
    let second = fixture.folder.path("second.raw");
    fs::copy(&fixture.image, &second).unwrap();
    let at = PARTITION_BYTES + fixture.blocks("/srv/sizes/4096")[0] * BLOCK_BYTES;
    OpenOptions::new().write(true).open(&second).unwrap().write_all_at(b"?", at).unwrap();
    let differing = onefold("guest diff", &[&fixture.image, &second]).done().out;
    assert_eq!(differing, "changed: /srv/sizes/4096 (content)\n");
}

/// Returns a copy of an image in which the first byte of each of these files is another one.
fn copy_with_changed_bytes(fixture: &Fixture, paths: &[&str]) -> PathBuf {
    let copy = fixture.folder.path("changed.raw");
    fs::copy(&fixture.image, &copy).unwrap();
    let file = OpenOptions::new().write(true).open(&copy).unwrap();
    for path in paths {
        file.write_all_at(b"?", PARTITION_BYTES + fixture.blocks(path)[0] * BLOCK_BYTES).unwrap();
    }
    copy
}

/// A kernel sets fractions of a second, so a file at its old place with its old times is not read.
#[test]
fn diff_skips_content_at_the_same_place_with_the_times_of_a_kernel() {
    let Some(fixture) = Fixture::new() else { return };
    let image = format!("{}?offset={PARTITION_BYTES}", text(&fixture.image));
    for field in ["mtime_extra", "ctime_extra"] {
        run("debugfs", &["-w", "-R", &format!("set_inode_field /srv/sizes/4096 {field} 0x1000"), &image]);
    }
    let second = copy_with_changed_bytes(&fixture, &["/srv/sizes/4096", "/srv/sizes/4095"]);
    let diff = |options: &str| onefold(&format!("guest diff {options}"), &[&fixture.image, &second]).done().out;
    assert_eq!(diff(""), "changed: /srv/sizes/4095 (content)\n");
    assert_eq!(diff("--content"), "changed: /srv/sizes/4095 (content)\nchanged: /srv/sizes/4096 (content)\n");
    // Another time of the change alone: the file is read.
    let copy = format!("{}?offset={PARTITION_BYTES}", text(&second));
    run("debugfs", &["-w", "-R", "set_inode_field /srv/sizes/4096 ctime_extra 0x2000", &copy]);
    assert_eq!(diff(""), diff("--content"));
}

#[test]
fn diff_skips_content_of_which_both_packages_record_the_same_digest() {
    let Some(fixture) = Fixture::with(|tree| add_packages(tree, "1.0")) else { return };
    let second = copy_with_changed_bytes(&fixture, &["/usr/bin/tool", "/usr/bin/own"]);
    let diff = |options: &str| onefold(&format!("guest diff {options}"), &[&fixture.image, &second]).done().out;
    assert_eq!(diff(""), "changed: /usr/bin/own (content)\n");
    assert_eq!(diff("--content"), "changed: /usr/bin/own (content)\nchanged: /usr/bin/tool (content)\n");
    // Of another time it is read, whatever the digests say.
    let copy = format!("{}?offset={PARTITION_BYTES}", text(&second));
    run("debugfs", &["-w", "-R", "set_inode_field /usr/bin/tool mtime 1000000000", &copy]);
    assert_eq!(diff(""), diff("--content"));
}
