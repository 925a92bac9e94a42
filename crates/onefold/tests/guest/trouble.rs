//! What goes wrong, and what others have chosen: damage, hostile names, images in use, wrong usage.

use crate::*;

#[test]
fn what_is_not_there_is_told_with_what_is() {
    let Some(fixture) = Fixture::new() else { return };
    let missing = fixture.guest("cat", &["/etc/paswd"]).failed(FAILED, "/etc/paswd");
    assert!(missing.err.contains("no such file or directory") && missing.err.contains("`/etc/passwd`"), "{missing:?}");
    for verb in ["ls", "ls -R", "du", "tar", "map"] {
        let told = fixture.guest(verb, &["/etc/paswd"]).failed(FAILED, "/etc/paswd");
        assert!(told.err.contains("there is `/etc/passwd`"), "{verb}: {told:?}");
    }
    assert!(fixture.guest("cat", &["/ect/passwd"]).failed(FAILED, "/ect/passwd").err.contains("there is `/etc`"));
    fixture.guest("cat", &["/etc"]).failed(FAILED, "it is a directory");
    fixture.guest("cat", &["/ring-a"]).failed(FAILED, "too many levels of symbolic links");
    fixture.guest("ls", &["/etc/passwd/x"]).failed(FAILED, "not a directory");
    fixture.guest("ls --partition 2", &[]).failed(FAILED, "there is no partition 2");
    fixture.guest("ls --volume vg/root", &[]).failed(FAILED, "there is no volume vg/root");
    fixture.guest("ls --partition 1 --volume vg/root", &[]).failed_usage();
    fixture.guest("ls --memory 1M", &[]).failed_usage();
    for verb in ["ls", "find", "du"] {
        fixture.guest(&format!("{verb} -0 --json"), &[]).failed_usage();
    }
    assert_eq!(lines(&fixture.guest("ls --partition 1", &["/etc"]).done()), ["hostname", "passwd"]);
    let some = fixture.guest("cat", &["/etc/hostname", "/gone", "/srv/deep/a/b/c/file"]);
    assert_eq!((some.code, some.out.as_str()), (FAILED, "test\ndeep"), "the rest goes on");
}

#[test]
fn a_link_that_leads_to_nothing_is_told_with_its_target() {
    let Some(fixture) = Fixture::with(|tree| symlink("/srv/gone\n/file", tree.join("etc/dangling")).unwrap()) else {
        return;
    };
    for path in ["/etc/dangling", "/etc/dangling/below"] {
        let told = fixture.guest("cat", &[path]).failed(FAILED, path);
        let hint = "`/etc/dangling` is a symbolic link to `/srv/gone\\n/file`, which leads to no file";
        assert!(told.err.contains(hint), "{told:?}");
        assert!(!told.err.contains("there is"), "similar names are of no use: {told:?}");
    }
    let listed = fixture.guest("ls -l", &["/etc/dangling"]).done();
    assert!(listed.out.contains("/srv/gone\\n/file"), "the link itself is there: {listed:?}");
}

#[test]
fn an_image_that_a_machine_uses_is_read_and_told() {
    let Some(fixture) = Fixture::new() else { return };
    if !has("python3", "python3") {
        return;
    }
    assert_eq!(fixture.guest("df --json", &[]).done().json()["in_use"], false);
    // The lock of QEMU, held until the program is told to end.
    let program = "import fcntl, sys\nfile = open(sys.argv[1], 'r+b')\nfcntl.lockf(file, fcntl.LOCK_SH, 1, 101)\nprint(flush=True)\nsys.stdin.read()";
    let mut holder = Command::new("python3")
        .args(["-c", program, text(&fixture.image)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Read::read(holder.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let used = fixture.guest("df --json", &[]).done();
    assert_eq!((&used.json()["in_use"], &used.json()["file_systems"][0]["in_use"]), (&true.into(), &true.into()));
    assert!(used.err.contains("is in use"), "{used:?}");
    must_be_marked(&fixture.image);
    // Without a package database there is nothing else to tell.
    let packages = fixture.guest("packages --json", &[]).done();
    assert_eq!(packages.json()["in_use"], true, "{packages:?}");
    assert!(fixture.guest("cat", &["/etc/hostname"]).done().out == "test\n");
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}

/// Asserts that the figures of an image in use are marked, and are not certain.
fn must_be_marked(image: &Path) {
    let row =
        |verb: &str, list: &str| onefold(&format!("guest {verb} --json"), &[image]).done().json()[list][0].clone();
    assert_eq!(row("df", "file_systems")["is_certain"], false);
    let info = row("info", "images");
    let volume = &info["volumes"][0];
    assert_eq!((&volume["state"], &info["in_use"]), (&"unsure".into(), &true.into()), "{info}");
    assert_eq!(volume["doubts"], serde_json::json!(["the image is in use"]));
    // They count by the maps as they are.
    assert!(volume["free_bytes"].as_u64().unwrap() > 0 && volume["counts_whole_because"].is_null(), "{volume}");
    assert_eq!(row("du", "folders")["in_use"], true);
    let text = |verb: &str| onefold(verb, &[image]).done().out;
    let full = text("guest df");
    for marked in ["iB ?  ", " % ?  ", " ?\n"] {
        assert!(full.contains(marked), "{marked:?}: {full}");
    }
    assert_eq!(full.matches(" ?").count(), 4, "used, free, per cent, files used: {full}");
    let folders = text("guest du");
    assert!(folders.lines().all(|line| line.contains("iB ?  /")), "{folders}");
    let told = text("guest info");
    assert!(told.contains("iB ?  ") && told.contains("mix several moments"), "{told}");
}

/// Regression: only virtual machines counted, so that a mounted image was certain.
#[test]
fn an_image_that_this_host_has_mounted_for_writing_is_in_use() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can mount");
        return;
    }
    let Some(fixture) = Fixture::new() else { return };
    let script = r#"set -e; umount --all --lazy --types fuse.onefold; cd "$0"; mkdir at
        info() { "$onefold" guest info --json "$2" >"$1"; }
        device=$(losetup --find --show --offset 1048576 "$image"); trap 'losetup -d "$device"' EXIT
        info attached "$image"
        mount -o ro "$device" at; info read-only "$image"; umount at
        mount "$device" at; info mounted "$image"; info device "$device"
        "$onefold" guest df "$image" >df; umount at; info unmounted "$image""#;
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "bash", "-c", script])
        .arg(fixture.folder.path(""))
        .env("onefold", env!("CARGO_BIN_EXE_onefold"))
        .env("image", &fixture.image)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    for (name, is_used) in
        [("attached", false), ("read-only", false), ("mounted", true), ("device", true), ("unmounted", false)]
    {
        let told: Value = serde_json::from_slice(&fs::read(fixture.folder.path(name)).unwrap()).unwrap();
        assert_eq!(told["in_use"], is_used, "{name}: {told}");
        assert_eq!(told["images"][0]["volumes"][0]["state"] == "certain", !is_used, "{name}: {told}");
    }
    assert!(fs::read_to_string(fixture.folder.path("df")).unwrap().contains("iB ?  "));
}

/// Regression: the labels of arrays lie at the end of a disk. Where that could not be read, no file of it was.
#[test]
fn a_disk_whose_end_cannot_be_read_shows_its_files() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can make a device");
        return;
    }
    let Some(fixture) = Fixture::new() else { return };
    let script = r#"set -e; cd "$0"; mke2fs -q -F -t ext4 -b 4096 -d tree whole 24M
        device=$(losetup --find --show whole); trap 'losetup -d "$device"' EXIT
        truncate -s -32K whole
        "$onefold" guest info --json "$device" >info; "$onefold" guest info "$device" >text 2>warnings
        "$onefold" guest ls -R "$device" >listed; "$onefold" guest cat "$device" /srv/sizes/300000 >content
        "$onefold" guest tar "$device" / | tar -tf - >archived"#;
    let output = Command::new("bash")
        .args(["-c", script])
        .arg(fixture.folder.path(""))
        .env("onefold", env!("CARGO_BIN_EXE_onefold"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| fs::read(fixture.folder.path(name)).unwrap();
    assert_eq!(read("content"), fs::read(fixture.tree.join("srv/sizes/300000")).unwrap());
    for name in ["listed", "archived"] {
        assert!(String::from_utf8_lossy(&read(name)).contains("hostname"), "{name}");
    }
    let info: Value = serde_json::from_slice(&read("info")).unwrap();
    let volume = &info["images"][0]["volumes"][0];
    assert_eq!((&volume["state"], &volume["free_bytes"]), (&"unsure".into(), &0.into()), "{volume}");
    let why = "the disk cannot read the places where another kind of volume has its header";
    let told = [read("text"), read("warnings")].map(|text| String::from_utf8(text).unwrap());
    assert!(told.iter().all(|text| text.contains(why)), "{told:?}");
}

/// Files in a subvolume of Btrfs have another device in `stat` than in the kernel's list of locks.
#[test]
fn an_image_in_a_subvolume_that_a_machine_uses_is_told() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can mount");
        return;
    }
    let tools = [("mkfs.btrfs", "btrfs-progs"), ("btrfs", "btrfs-progs"), ("python3", "python3")];
    if !tools.into_iter().all(|(tool, package)| has(tool, package)) {
        return;
    }
    let script = r#"set -e; umount --all --lazy --types fuse.onefold; cd "$0"
        truncate -s 256M btrfs; mkfs.btrfs -q btrfs; mkdir mounted; mount -o loop btrfs mounted
        btrfs subvolume create mounted/images >/dev/null; truncate -s 2M mounted/images/disk.raw
        "$1" guest info --json mounted/images/disk.raw >before
        python3 -c "$2" mounted/images/disk.raw "$1" guest info --json mounted/images/disk.raw >after
        umount mounted"#;
    let program = "import fcntl, subprocess, sys\nfile = open(sys.argv[1], 'r+b')\nfcntl.lockf(file, fcntl.LOCK_SH, 1, 101)\nsys.exit(subprocess.call(sys.argv[2:]))";
    let folder = Folder::new();
    let mounts = ["--mount", "--propagation", "private", "bash", "-c", script];
    run("unshare", &[&mounts[..], &[text(&folder.path("")), env!("CARGO_BIN_EXE_onefold"), program]].concat());
    for (name, is_used) in [("before", false), ("after", true)] {
        let told: Value = serde_json::from_slice(&fs::read(folder.path(name)).unwrap()).unwrap();
        assert_eq!(told["in_use"], is_used, "{name}: {told}");
    }
}

/// What a guest can do to its own file system, and what breaks on the way.
#[test]
fn a_damaged_guest_is_read_as_far_as_it_goes() {
    let Some(fixture) = Fixture::new() else { return };
    let image = format!("{}?offset={PARTITION_BYTES}", text(&fixture.image));
    let edit = |request: &str| run("debugfs", &["-w", "-R", request, &image]);
    // A folder that contains itself.
    edit("link /srv/deep /srv/deep/a/again");
    let listed = fixture.guest("ls -R", &["/srv/deep"]);
    assert_eq!(listed.code, DAMAGE, "{listed:?}");
    assert!(listed.out.contains("/srv/deep/a/b/c:\nfile") && listed.err.contains("/srv/deep/a/again"), "{listed:?}");
    assert_eq!(fixture.guest("du", &["/srv/deep"]).code, DAMAGE);
    // A file of an absurd length.
    edit("set_inode_field /srv/sizes/1 size 0xfffffffffff");
    let found = fixture.guest("find --larger 1T", &[]);
    assert_eq!(found.out, "/srv/sizes/1\n");
    // An entry that leads nowhere.
    edit("clri /srv/sizes/4095");
    let content = fixture.guest("cat", &["/srv/sizes/4095", "/etc/hostname"]);
    assert!(content.code != DONE && content.out == "test\n" && content.err.contains("/srv/sizes/4095"), "{content:?}");
    // Half an image.
    let file = OpenOptions::new().write(true).open(&fixture.image).unwrap();
    file.set_len(9 << 20).unwrap();
    let info = fixture.guest("info --json", &[]);
    let volume = &info.json()["images"][0]["volumes"][0];
    assert_eq!((&volume["free_bytes"], volume["state"] == "certain"), (&0.into(), false), "{volume}");
    for length in [PARTITION_BYTES + 1500, 513, 512, 100] {
        file.set_len(length).unwrap();
        let info = fixture.guest("info --json", &[]);
        assert_eq!(info.json()["images"][0]["free_bytes"], 0, "{length}");
        fixture.guest("ls", &[]).failed_somehow();
    }
}

/// Blocks that the bitmaps call free, and that a file has.
#[test]
fn differences_between_files_and_bitmaps_are_counted_and_told() {
    let Some(fixture) = Fixture::new() else { return };
    let info = |form: &str| fixture.guest(form, &[]);
    let differences = || info("info --json").json()["images"][0]["volumes"][0]["differences"].clone();
    let none = serde_json::json!({ "before_recovery_bytes": 0, "reached_bytes": 0, "between_copies_bytes": 0 });
    assert_eq!(differences(), none);
    assert!(!info("info").done().out.contains("counted as allocated because"));
    let blocks = fixture.blocks("/srv/sizes/300000");
    let image = format!("{}?offset={PARTITION_BYTES}", text(&fixture.image));
    run("debugfs", &["-w", "-R", &format!("freeb {} 3", blocks[10]), &image]);
    assert_eq!(differences()["reached_bytes"], 3 * BLOCK_BYTES);
    let told = info("info").out;
    let line =
        "partition 1: 12.00 KiB counted as allocated because files reach them, though the bitmaps call them free";
    assert!(told.contains(line), "{told}");
    // None of them is free.
    let who = fixture.guest("who --json", &[&(PARTITION_BYTES + blocks[10] * BLOCK_BYTES).to_string()]).json();
    assert_eq!(who["owners"][0]["is_free"], false, "{who}");
}

/// Names of files, links, packages, labels and images are all somebody else's.
#[test]
fn no_verb_prints_what_controls_a_terminal() {
    let Some(fixture) = Fixture::with(|tree| {
        add_packages(tree, "1.0\u{1b}[2J");
        fs::write(tree.join("etc/hostname"), "host\u{1b}[31m\u{202e}\n").unwrap();
        fs::write(tree.join("etc/os-release"), "PRETTY_NAME=\"\u{1b}]0;title\u{7}\"\n").unwrap();
        symlink(OsStr::from_bytes(HOSTILE), tree.join("srv/to-hostile")).unwrap();
    }) else {
        return;
    };
    let image = fixture.folder.path("image").join(OsStr::from_bytes(HOSTILE));
    fs::create_dir(image.parent().unwrap()).unwrap();
    fs::copy(&fixture.image, &image).unwrap();
    let offset = format!("{}?offset={PARTITION_BYTES}", text(&fixture.image));
    run("debugfs", &["-w", "-R", "set_super_value volume_name \u{1b}[2Jlabel", &offset]);
    let both = [image.as_path(), fixture.image.as_path()];
    let hostile = Path::new(OsStr::from_bytes(b"/srv/evil\n\x1b]0;title\x07\xff"));
    let runs: [(&str, &[&Path]); 16] = [
        ("info --stale", &both),
        ("df", &both),
        ("ls -lR", &both[..1]),
        ("ls", &[&image, hostile]),
        ("ls", &[&image, Path::new("/gone\u{1b}[2J")]),
        ("cat", &[&image, Path::new("/srv/\u{1b}")]),
        ("map", &[&image, hostile]),
        ("who 0", &both[..1]),
        ("du", &both[..1]),
        ("find", &both),
        ("find --unowned --json", &both),
        ("packages --files --history", &both),
        ("packages --verify", &both),
        ("diff", &both),
        ("info --json", &both),
        ("ls --volume \u{1b}[2J/x", &both[..1]),
    ];
    for (verb, paths) in runs {
        let words = verb.split(' ').map(OsStr::new);
        // A place on the disk comes after the image.
        let (before, after): (Vec<_>, Vec<_>) = words.partition(|word| *word != "0");
        let output =
            Command::new(env!("CARGO_BIN_EXE_onefold")).arg("guest").args(before).args(paths).args(after).output();
        let output = output.unwrap();
        for printed in [output.stdout, output.stderr] {
            let printed = String::from_utf8(printed).unwrap_or_else(|error| panic!("{verb}: {error}"));
            let hidden = printed.chars().find(|character| is_hidden(*character) && *character != '\n');
            assert_eq!(hidden, None, "{verb}: {printed:?}");
        }
    }
}

#[test]
fn help_lists_the_verbs() {
    let help = onefold("guest --help", &[]).done().out;
    for verb in ["info", "df", "ls", "cat", "map", "who", "du", "find", "packages", "diff", "tar"] {
        assert!(help.contains(&format!("\n  {verb} ")), "{verb} is not in {help}");
    }
}

/// A reader that has had enough is no failure.
#[test]
fn a_closed_pipe_ends_a_list_quietly() {
    let Some(fixture) = Fixture::new() else { return };
    for verb in [&["ls", "-lR"][..], &["find"], &["cat"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onefold"))
            .arg("guest")
            .args(verb)
            .arg(&fixture.image)
            .args((verb == ["cat"]).then_some("/srv/sparse"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(DONE), &b""[..]), "{verb:?}");
    }
}

/// Nobody has to wait for the end of a file of an absurd length.
#[test]
fn an_interrupt_ends_a_verb_at_once() {
    let Some(fixture) = Fixture::new() else { return };
    let image = format!("{}?offset={PARTITION_BYTES}", text(&fixture.image));
    run("debugfs", &["-w", "-R", "set_inode_field /srv/sizes/1 size 0xfffffffffff", &image]);
    let mut images = vec![fixture.image.clone()];
    if has("qemu-img", "qemu-utils") {
        let converted = fixture.folder.path("guest.vmdk");
        run("qemu-img", &["convert", "-O", "vmdk", text(&fixture.image), text(&converted)]);
        images.push(converted);
    }
    let temporary = fixture.folder.path("temporary");
    fs::create_dir(&temporary).unwrap();
    for image in &images {
        let mut child = interruptible()
            .args(["guest", "cat", text(image), "/srv/sizes/1"])
            .env("TMPDIR", &temporary)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The first byte comes after the conversion.
        let mut content = child.stdout.take().unwrap();
        std::io::Read::read_exact(&mut content, &mut [0]).unwrap();
        let drain = std::thread::spawn(move || std::io::copy(&mut content, &mut std::io::sink()));
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(child.try_wait().unwrap().is_none(), "16 TiB are read in a moment?");
        run("kill", &["-INT", &child.id().to_string()]);
        assert!(!child.wait().unwrap().success());
        drain.join().unwrap().unwrap();
    }
    assert!(fs::read_dir(&temporary).unwrap().next().is_none());
}

/// The program, which Ctrl-C ends. A shell that runs the tests in the background has them ignore it, and children
/// inherit that.
fn interruptible() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_onefold")]);
    command
}

/// The reader of the list takes nothing, so that the search is still under way.
#[test]
fn an_interrupt_ends_a_search_through_many_images_at_once() {
    let Some(fixture) = Fixture::with(|tree| {
        (0..3000).for_each(|number| fs::write(tree.join(format!("srv/{number:0>100}")), "").unwrap());
    }) else {
        return;
    };
    let mut child =
        interruptible().args(["guest", "find", text(&fixture.image)]).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "the list fits into a pipe?");
    run("kill", &["-INT", &child.id().to_string()]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    drop(child.stdout.take());
    assert!(!child.wait().unwrap().success());
}
