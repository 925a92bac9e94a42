//! Bad input from outside: images, tables, file systems and databases that are wrong, missing, or change while a verb
//! reads them. Each gives a clear message, everything that can be read, and the fitting exit code.

use std::io::Read;

use crate::*;

/// Overwrites bytes of an image.
fn patch(image: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(image).unwrap().write_all_at(bytes, offset).unwrap();
}

/// Has `debugfs` change the file system of a fixture.
fn edit(fixture: &Fixture, requests: &[&str]) {
    let image = format!("{}?offset={PARTITION_BYTES}", text(&fixture.image));
    requests.iter().for_each(|request| drop(run("debugfs", &["-w", "-R", request, &image])));
}

/// Returns the first volume of the image, as `info` tells it.
fn first_volume(fixture: &Fixture) -> Value {
    fixture.guest("info --json", &[]).json()["images"][0]["volumes"][0].clone()
}

fn noise(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

#[test]
fn a_file_system_that_is_longer_than_its_partition_has_no_free_byte() {
    let Some(fixture) = Fixture::new() else { return };
    patch(&fixture.image, 446 + 12, &(20 * 2048_u32).to_le_bytes());
    let why = "its file system is longer than the volume; the image may be cut off";
    let volume = first_volume(&fixture);
    assert_eq!((&volume["state"], &volume["free_bytes"]), (&"unsure".into(), &0.into()), "{volume}");
    assert_eq!(volume["counts_whole_because"], why);
    let listed = fixture.guest("ls", &["/etc"]).done();
    assert!(listed.out == "hostname\npasswd\n" && listed.err.contains(why), "{listed:?}");
    assert!(fixture.guest("df", &[]).done().out.contains(" ? "), "the figure is marked");
}

/// `info` told of a table of volumes, without a volume in it.
#[test]
fn an_empty_image_is_called_empty() {
    let folder = Folder::new();
    let image = folder.path("empty.raw");
    fs::write(&image, "").unwrap();
    let told = onefold("guest info", &[&image]).done();
    assert_eq!(told.out, format!("{}: raw, 0 B, no partition table\n  the disk is empty\n", text(&image)));
    assert_eq!(onefold("guest info --json", &[&image]).done().json()["images"][0]["volumes"], serde_json::json!([]));
    let listed = onefold("guest ls", &[&image]).failed(FAILED, "no file system on this disk");
    assert!(listed.err.contains("the disk is empty"), "{listed:?}");
}

#[test]
fn volumes_that_overlap_are_told_and_have_no_free_byte() {
    let Some(fixture) = Fixture::new() else { return };
    let mut entry = [0; 16];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&(8 * 2048_u32).to_le_bytes());
    entry[12..16].copy_from_slice(&(10 * 2048_u32).to_le_bytes());
    patch(&fixture.image, 446 + 16, &entry);
    let volume = first_volume(&fixture);
    assert_eq!((&volume["state"], &volume["free_bytes"]), (&"unsure".into(), &0.into()), "{volume}");
    assert_eq!(volume["counts_whole_because"], "it overlaps another volume");
    let rows = fixture.guest("df --json", &[]).json();
    assert_eq!(rows["file_systems"][0]["is_certain"], false, "{rows}");
    for (verb, paths, expected) in [
        ("ls --partition 1", &["/etc"][..], "hostname\npasswd\n"),
        ("cat --partition 1", &["/etc/hostname"], "test\n"),
        ("who", &["9M"], "9437184: partition 1, block 2048 of ext4: in doubt\n"),
    ] {
        let told = fixture.guest(verb, paths);
        assert_eq!((told.code, told.out.as_str()), (DAMAGE, expected), "{told:?}");
        assert!(told.err.contains("partitions 1 and 2 overlap"), "{told:?}");
    }
}

/// One block of content, and 2^60 bytes that nobody has to read.
#[test]
fn a_file_of_an_exbibyte_with_one_extent_costs_no_more_than_the_extent() {
    let Some(fixture) = Fixture::new() else { return };
    let before = fixture.folder.path("before.raw");
    fs::copy(&fixture.image, &before).unwrap();
    let file = "/srv/sizes/4096";
    edit(&fixture, &[&format!("set_inode_field {file} size 0x1000000000000000")]);
    let size = (1_u64 << 60).to_string();
    assert!(fixture.guest("ls -l", &[file]).done().out.contains(&format!(" {size} ")));
    assert_eq!(fixture.guest("find --larger 1024T", &[]).done().out, format!("{file}\n"));
    let map = fixture.guest("map --json", &[file]).done().json();
    assert_eq!(map["extents"].as_array().map(Vec::len), Some(1), "{map}");
    assert_eq!(fixture.guest("du", &[file]).done().out, format!("   4.00 KiB  {file}\n"));
    let differing = onefold("guest diff", &[&before, &fixture.image]).done().out;
    assert_eq!(differing, format!("changed: {file} (size_bytes 4096 -> {size})\n"));
    if has("tar", "tar") {
        let script = "\"$0\" guest tar \"$1\" /srv/sizes | tee \"$2\" | tar -tvf -";
        let archive = fixture.folder.path("saved.tar");
        let told = run("bash", &["-c", script, env!("CARGO_BIN_EXE_onefold"), text(&fixture.image), text(&archive)]);
        assert!(told.contains(&format!(" {size} ")), "{told}");
        assert!(fs::metadata(archive).unwrap().len() < 1 << 20, "the hole is kept as one");
    }
}

/// A guest that writes such a name wants `tar` to write outside of its folder.
#[test]
fn a_name_with_a_slash_or_of_the_parent_is_damage_and_reaches_nobody() {
    if !has("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = Folder::new();
    let (tree, image) = (folder.path("tree"), folder.path("odd.raw"));
    fs::create_dir_all(tree.join("srv/deep")).unwrap();
    for name in ["srv/aXb", "srv/QQ", "srv/deep/file"] {
        fs::write(tree.join(name), "content").unwrap();
    }
    let options = ["-q", "-F", "-t", "ext4", "-O", "^metadata_csum", "-b", "4096", "-d"];
    run("mke2fs", &[&options[..], &[text(&tree), text(&image), "8M"]].concat());
    let mut bytes = fs::read(&image).unwrap();
    for (old, new) in [(b"\x03\x01aXb", b"\x03\x01a/b".as_slice()), (b"\x02\x01QQ\0", b"\x02\x01..\0")] {
        let at = bytes.windows(old.len()).position(|window| window == old).unwrap();
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    fs::write(&image, bytes).unwrap();
    let why = "a name has bytes that no name can have";
    for (verb, expected) in [("ls", "deep\n"), ("ls -R", "/srv:\ndeep\n\n/srv/deep:\nfile\n")] {
        let told = onefold(&format!("guest {verb}"), &[&image, Path::new("/srv")]);
        assert_eq!((told.code, told.out.as_str()), (DAMAGE, expected), "{told:?}");
        assert!(told.err.contains(why), "{told:?}");
    }
    let found = onefold("guest find --below /srv", &[&image]);
    assert!(found.code == DAMAGE && !found.out.contains("..") && !found.out.contains("a/b"), "{found:?}");
    let archive = onefold("guest tar", &[&image, Path::new("/srv")]);
    assert!(archive.code == DAMAGE && archive.out.contains("srv/deep/file"), "{archive:?}");
    assert!(!archive.out.contains("..") && !archive.out.contains("a/b"), "{archive:?}");
    onefold("guest cat", &[&image, Path::new("/srv/a/b")]).failed(FAILED, "no such file or directory");
    onefold("guest cat", &[&image, Path::new("/srv/..")]).failed(FAILED, "it is a directory");
}

#[test]
fn an_encrypted_disk_is_named_in_place_of_its_files() {
    if !has("cryptsetup", "cryptsetup-bin") {
        return;
    }
    let folder = Folder::new();
    let image = folder.path("luks.raw");
    fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let script = "printf secret | cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 \"$0\" -";
    run("sh", &["-c", script, text(&image)]);
    let volume = &onefold("guest info --json", &[&image]).done().json()["images"][0]["volumes"][0];
    assert_eq!((&volume["state"], &volume["free_bytes"]), (&"not read".into(), &0.into()), "{volume}");
    assert_eq!(volume["is_encrypted"], true, "{volume}");
    let told = onefold("guest info", &[&image]).done().out;
    assert!(told.contains("encrypted: its blocks equal those of no other disk, so it shares nothing"), "{told}");
    for verb in ["ls", "find", "packages"] {
        let told = onefold(&format!("guest {verb}"), &[&image]).failed(FAILED, "no file system on this disk");
        assert!(told.err.contains("the disk has these volumes: the whole disk (LUKS, version 2"), "{told:?}");
    }
    assert!(onefold("guest df", &[&image]).done().err.contains("has no file system that can be read"));
}

#[test]
fn a_package_database_of_an_unknown_format_is_an_error_and_files_are_read() {
    let Some(fixture) = Fixture::with(|tree| {
        add_packages(tree, "1.0");
        fs::write(tree.join("var/lib/dpkg/info/format"), "7\n").unwrap();
    }) else {
        return;
    };
    for verb in ["packages", "packages --verify", "find --unowned"] {
        fixture.guest(verb, &[]).failed(FAILED, "a dpkg database of an unknown format cannot be read");
    }
    assert_eq!(fixture.guest("cat", &["/etc/hostname"]).done().out, "test\n");
    let differing = onefold("guest diff", &[&fixture.image, &fixture.image]).done();
    assert!(differing.out.is_empty() && differing.err.contains("of an unknown format"), "{differing:?}");
}

#[test]
fn a_package_that_lists_one_path_a_million_times_has_it_once() {
    let Some(fixture) = Fixture::with(|tree| {
        add_packages(tree, "1.0");
        fs::write(tree.join("var/lib/dpkg/info/other.list"), "/usr/bin/own\n".repeat(1_000_000)).unwrap();
    }) else {
        return;
    };
    let told = fixture.guest("packages --files --name other", &[]).done().out;
    assert_eq!(told, "other 7 amd64\n  /usr/bin/own\n");
    assert_eq!(fixture.guest("find --unowned --below /usr/bin", &[]).done().out, "");
}

/// Starts a verb that writes the content of `/srv/big`, changes the image after its first byte, and returns what the
/// verb wrote with its exit code and its messages.
fn changed_meanwhile(fixture: &Fixture, verb: &str, change: impl FnOnce(&fs::File)) -> (Vec<u8>, i32, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_onefold"))
        .args(["guest", verb, text(&fixture.image), "/srv/big"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut written = vec![0];
    child.stdout.as_mut().unwrap().read_exact(&mut written).unwrap();
    change(&OpenOptions::new().write(true).open(&fixture.image).unwrap());
    child.stdout.as_mut().unwrap().read_to_end(&mut written).unwrap();
    let ended = child.wait_with_output().unwrap();
    (written, ended.status.code().unwrap(), String::from_utf8(ended.stderr).unwrap())
}

/// Zeros stood for what was gone, and the code was 0.
#[test]
fn an_image_that_shrinks_or_is_written_while_it_is_read_is_told_and_gives_no_wrong_byte() {
    let content = noise(12 << 20);
    let Some(fixture) = Fixture::with(|tree| fs::write(tree.join("srv/big"), &content).unwrap()) else { return };
    let whole = fs::read(&fixture.image).unwrap();
    let in_use = "is in use: the result mixes several moments";
    let (written, code, told) = changed_meanwhile(&fixture, "cat", |image| {
        image.write_all_at(b"renamed", PARTITION_BYTES + 1024 + 120).unwrap();
    });
    assert!(code == DONE && written == content && told.contains(in_use), "{code}, {}: {told}", written.len());
    for (verb, further) in [("cat", in_use), ("tar", "the end of `/srv/big` is zeros in the archive")] {
        fs::write(&fixture.image, &whole).unwrap();
        let (written, code, told) = changed_meanwhile(&fixture, verb, |image| image.set_len(2 << 20).unwrap());
        assert!(code == FAILED && told.contains("cannot read `/srv/big`"), "{verb}: {code}, {told}");
        assert!(told.contains("it has become shorter since it was opened"), "{verb}: {told}");
        assert!(told.contains(further), "{verb}: {told}");
        if verb == "cat" {
            assert!(written.len() < content.len() && content.starts_with(&written), "{} bytes", written.len());
        }
    }
}

#[test]
fn content_that_the_end_of_an_image_cuts_off_is_an_error_and_no_zeros() {
    let content = noise(12 << 20);
    let Some(fixture) = Fixture::with(|tree| fs::write(tree.join("srv/big"), &content).unwrap()) else { return };
    let first = fixture.blocks("/srv/big")[0];
    let kept = PARTITION_BYTES + first * BLOCK_BYTES + (1 << 20);
    OpenOptions::new().write(true).open(&fixture.image).unwrap().set_len(kept).unwrap();
    let ended = Command::new(env!("CARGO_BIN_EXE_onefold"))
        .args(["guest", "cat", text(&fixture.image), "/srv/big", "/etc/hostname"])
        .output()
        .unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(DAMAGE), "{told}");
    assert!(told.contains("cannot read `/srv/big`") && told.contains("it lies outside of"), "{told}");
    let (big, rest) = ended.stdout.split_at(ended.stdout.len() - 5);
    assert!(content.starts_with(big) && big.len() < content.len() && rest == b"test\n", "the rest goes on");
}

/// What could not be done weighs more than damage that was skipped.
#[test]
fn of_many_images_the_worst_end_is_the_code_and_the_rest_goes_on() {
    let Some(fixture) = Fixture::with(|tree| add_packages(tree, "1.0")) else { return };
    let folder = fixture.folder.path("images");
    fs::create_dir(&folder).unwrap();
    let [sound, damaged] = ["a.raw", "b.raw"].map(|name| folder.join(name));
    fs::copy(&fixture.image, &sound).unwrap();
    fs::copy(&fixture.image, &damaged).unwrap();
    // A second partition past the end of the disk.
    patch(&damaged, 446 + 16, &[0, 0, 0, 0, 0x83, 0, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0]);
    let gone = fixture.folder.path("gone.raw");
    for (verb, expected) in
        [("info", "ext4"), ("df", "ext4"), ("find --name hostname", "/etc/hostname"), ("packages", "tool")]
    {
        let verb = format!("guest {verb}");
        let lines_of = |run: &Run| run.out.lines().filter(|line| line.contains(expected)).count();
        let one = lines_of(&onefold(&verb, &[&sound, &sound]).done());
        assert_ne!(one, 0, "{verb}");
        let both = onefold(&verb, &[&folder]);
        assert_eq!(both.code, DAMAGE, "{verb}: {both:?}");
        assert!(both.err.contains("b.raw") && both.err.contains("partition 2"), "{verb}: {both:?}");
        let all = onefold(&verb, &[&gone, &folder]).failed(FAILED, "gone.raw");
        assert_eq!(lines_of(&all), lines_of(&both), "{verb}: {all:?}");
        assert!(lines_of(&all) > 1, "{verb}: {all:?}");
    }
}

/// Makes four images: a sound one, one with a damaged directory and an entry `/srv/deep` that leads nowhere, half of
/// one, and one with a damaged superblock.
fn sound_and_damaged(fixture: &Fixture, folder: &Path) -> [PathBuf; 4] {
    fs::create_dir(folder).unwrap();
    let images = ["a.raw", "directory.raw", "half.raw", "super.raw"].map(|name| folder.join(name));
    for image in &images {
        fs::copy(&fixture.image, image).unwrap();
    }
    let [_, directory, half, superblock] = &images;
    patch(directory, PARTITION_BYTES + fixture.blocks("/etc")[0] * BLOCK_BYTES + 24, &noise(512));
    run("debugfs", &["-w", "-R", "clri /srv/deep", &format!("{}?offset={PARTITION_BYTES}", text(directory))]);
    OpenOptions::new().write(true).open(half).unwrap().set_len(9 << 20).unwrap();
    patch(superblock, PARTITION_BYTES + 1024 + 32, &[0x77]);
    images
}

/// Asserts that each message of a run names one of the images, and each of its document has one.
#[track_caller]
fn must_name_images(verb: &str, paths: &[&Path]) -> (Run, Value) {
    let told = onefold(&format!("guest {verb}"), paths);
    for line in told.err.lines().filter(|line| !line.starts_with("  ")) {
        assert!(line.contains(".raw`"), "{verb}: {line}");
    }
    let document = onefold(&format!("guest {verb} --json"), paths).json();
    for list in ["failures", "warnings"] {
        for message in document[list].as_array().unwrap() {
            assert!(message["image"].as_str().is_some_and(|image| image.ends_with(".raw")), "{verb}: {message}");
        }
    }
    (told, document)
}

/// Regression: only damage of a partition table named its image.
#[test]
fn of_several_images_each_message_names_its_image() {
    let Some(fixture) = Fixture::new() else { return };
    let folder = fixture.folder.path("images");
    let [sound, directory, ..] = sound_and_damaged(&fixture, &folder);
    for verb in ["info", "df", "find", "packages"] {
        let (told, document) = must_name_images(verb, &[&folder]);
        let has = |line: &str| told.err.lines().any(|told| told.contains(line));
        assert!(told.code != DONE && has("half.raw`: partition 1 is unsure: "), "{verb}: {told:?}");
        assert!(has("super.raw`: cannot read partition 1") || has("cannot find the files of `"), "{verb}: {told:?}");
        assert_eq!(has("directory.raw`: cannot read `/srv/deep`"), verb == "find", "{verb}: {told:?}");
        let is_met = has("directory.raw`: partition 1: damaged directory");
        assert!(is_met || ["df", "packages"].contains(&verb), "{verb}: {told:?}");
        let of = |image: &str| {
            let lists = ["failures", "warnings"].map(|list| document[list].as_array().unwrap());
            let is_of = |message: &&Value| message["image"].as_str().is_some_and(|of| of.ends_with(image));
            lists.into_iter().flatten().filter(is_of).count()
        };
        assert!(of("half.raw") > 0 && of("super.raw") > 0, "{verb}: {document}");
    }
    for pair in [[&sound, &directory], [&directory, &sound]] {
        let (told, document) = must_name_images("diff", &[pair[0], pair[1]]);
        assert!(told.err.contains("directory.raw`: cannot read `/srv/deep`"), "{told:?}");
        assert_eq!(document["failures"][0]["image"], text(&directory), "{document}");
    }
    for verb in ["diff --below /gone", "find --below /gone", "df --partition 7"] {
        let told = onefold(&format!("guest {verb}"), &[&sound, &directory]);
        assert!(told.code == FAILED && told.err.contains("a.raw`"), "{verb}: {told:?}");
    }
    let alone = onefold("guest find", &[&directory]);
    assert!(alone.err.contains("error: cannot read `/srv/deep`"), "one image has short messages: {alone:?}");
}

#[test]
fn devices_and_pipes_are_listed_archived_and_never_read() {
    let Some(fixture) = Fixture::new() else { return };
    edit(&fixture, &["mknod pipe p", "mknod disk b 8 17", "mknod terminal c 5 300"]);
    for name in ["/pipe", "/disk", "/terminal"] {
        fixture.guest("cat", &[name]).failed(FAILED, "it is not a file with content");
    }
    let listed = fixture.guest("ls -l", &["/"]).done().out;
    for (kind, numbers) in [("p", " pipe"), ("b", "  8, 17 "), ("c", " 5, 300 ")] {
        assert!(listed.lines().any(|line| line.starts_with(kind) && line.contains(numbers)), "{listed}");
    }
    if !has("tar", "tar") {
        return;
    }
    let script = "set -o pipefail; \"$0\" guest tar \"$1\" /pipe /disk /terminal | tar -tvf -";
    let told = run("bash", &["-c", script, env!("CARGO_BIN_EXE_onefold"), text(&fixture.image)]);
    let found: Vec<(char, bool)> = told
        .lines()
        .map(|line| (line.chars().next().unwrap(), line.contains(" 8,17 ") || line.contains(" 5,300 ")))
        .collect();
    assert_eq!(found, [('p', false), ('b', true), ('c', true)], "{told}");
}

/// Makes an image whose root has a symbolic link `twice` to a folder, and then a directory `twice` with a file. The
/// link's entry notes `noted` as the kind of its file.
fn image_of_two_entries(fixture: &Fixture, target: &Path, noted: u8) -> PathBuf {
    let image = fixture.folder.path("twice.raw");
    fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
    run("mke2fs", &["-q", "-t", "ext4", "-O", "^metadata_csum,^dir_index", text(&image)]);
    let link = format!("symlink twice {}", text(target));
    let write = format!("write {} other/inner", text(&fixture.tree.join("etc/hostname")));
    for request in [&link, "mkdir other", &write] {
        run("debugfs", &["-w", "-R", request, text(&image)]);
    }
    // Length and kind of the name, and the name.
    for (entry, kind, name) in [(b"\x05\x02other", 2, b"twice"), (b"\x05\x07twice", noted, b"twice")] {
        let bytes = fs::read(&image).unwrap();
        let at = bytes.windows(entry.len()).position(|found| found == entry).unwrap() as u64;
        patch(&image, at + 1, &[kind]);
        patch(&image, at + 2, name);
    }
    image
}

/// The directory was kept beside the link, and programs that unpacked both wrote its files to where the link leads.
/// They did so again where the directory noted another kind for the link.
#[test]
fn an_archive_leads_through_no_link_of_the_same_folder() {
    const SYMBOLIC_LINK: u8 = 7;
    const REGULAR: u8 = 1;
    const DIRECTORY: u8 = 2;
    const UNKNOWN: u8 = 0;
    let Some(fixture) = Fixture::new() else { return };
    let [outside, unpacked] = ["outside", "unpacked"].map(|name| fixture.folder.path(name));
    fs::create_dir(&outside).unwrap();
    // As Python's `tarfile` did it before it had filters, and without looking at what is there.
    let unpack = "import sys, tarfile
with tarfile.open(sys.argv[1]) as archive:
    for member in archive:
        try:
            archive.extract(member, sys.argv[2], filter='fully_trusted')
        except OSError:
            pass";
    for noted in [SYMBOLIC_LINK, REGULAR, DIRECTORY, UNKNOWN] {
        let image = image_of_two_entries(&fixture, &outside, noted);
        for paths in [&["/"][..], &["/twice", "/"], &["/", "/twice"], &["/", "/twice/inner", "/"]] {
            let archive = fixture.folder.path("twice.tar");
            let script = "out=$1; image=$2; shift 2; \"$0\" guest tar \"$image\" \"$@\" >\"$out\"";
            let mut command = Command::new("bash");
            command.args(["-c", script, env!("CARGO_BIN_EXE_onefold")]).arg(&archive).arg(&image).args(paths);
            let told = command.output().unwrap();
            let errors = String::from_utf8_lossy(&told.stderr);
            assert!(!told.status.success(), "{noted} {paths:?}: {errors}");
            assert!(
                errors.contains("cannot keep `/twice`") && errors.contains("another file of this name"),
                "{noted} {paths:?}: {errors}"
            );
            let written = fs::read(&archive).unwrap();
            let has = |name: &[u8]| written.windows(name.len()).any(|bytes| bytes == name);
            assert!(has(b"twice") && !has(b"twice/inner"), "{noted} {paths:?}");
            if has_python_with_filters() {
                fs::create_dir(&unpacked).unwrap();
                run("python3", &["-c", unpack, text(&archive), text(&unpacked)]);
                assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{noted} {paths:?}");
                assert!(unpacked.join("twice").is_symlink(), "{noted} {paths:?}");
                fs::remove_dir_all(&unpacked).unwrap();
            }
        }
    }
}

/// Returns whether there is a Python whose `tarfile` unpacks what it is told to unpack.
fn has_python_with_filters() -> bool {
    let asks = "import tarfile; tarfile.fully_trusted_filter";
    Command::new("python3").args(["-c", asks]).output().is_ok_and(|told| told.status.success())
}

/// Regression: verbs that did not find a path said nothing of the damage that had hidden it.
#[test]
fn damage_that_hides_a_path_is_reported_with_the_missing_path() {
    let Some(fixture) = Fixture::new() else { return };
    let whole = fixture.folder.path("whole.raw");
    fs::copy(&fixture.image, &whole).unwrap();
    let at = PARTITION_BYTES + fixture.blocks("/srv")[0] * BLOCK_BYTES + 24;
    OpenOptions::new().write(true).open(&fixture.image).unwrap().write_all_at(&noise(512), at).unwrap();
    let found = fixture.guest("find --below /srv/sizes", &[]);
    let mapped = fixture.guest("map", &["/srv/sizes/4096"]);
    let compared = onefold("guest diff --below /srv/sizes", &[&fixture.image, &whole]);
    for (run, warning) in [
        (found, "warning: partition 1: damaged"),
        (mapped, "warning: partition 1: damaged"),
        (compared, "guest.raw`: partition 1: damaged"),
    ] {
        assert!(run.code == FAILED && run.err.contains("directory"), "{run:?}");
        assert!(run.err.contains("cannot find `/srv/sizes"), "{run:?}");
        assert!(run.err.contains(warning), "{run:?}");
    }
}
