//! Whole disks: what is on them, how full it is, and paths across volumes.

use crate::*;

#[test]
fn info_and_df_tell_what_is_on_the_disk() {
    let Some(fixture) = Fixture::new() else { return };
    let found = fixture.guest("info --json --stale", &[]).done().json();
    let image = &found["images"][0];
    assert_eq!((&image["partition_table"], &image["format"]), (&"MBR".into(), &"raw".into()));
    let volume = &image["volumes"][0];
    assert_eq!((&volume["volume"], &volume["holds"]), (&"partition 1".into(), &"ext4".into()));
    assert_eq!((&volume["state"], &volume["label"]), (&"certain".into(), &"system".into()));
    let number = |value: &Value, name: &str| value[name].as_u64().unwrap();
    let (allocated, free) = (number(volume, "allocated_bytes"), number(volume, "free_bytes"));
    assert_eq!(allocated + free, 31 << 20);
    assert_eq!(number(image, "gaps_bytes"), PARTITION_BYTES);
    let stats = fixture.debugfs("stats -h");
    let of_tool = |name: &str| -> u64 {
        let line = stats.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(free, of_tool("Free blocks:") * BLOCK_BYTES);
    assert_eq!(number(volume, "stale_bytes"), 0);
    let told = fixture.guest("info", &[]).done().out;
    assert!(told.contains("partition 1") && told.contains("ext4") && told.contains("certain"), "{told}");

    let found = fixture.guest("df --json", &[]).done().json();
    let row = &found["file_systems"][0];
    assert_eq!(number(row, "free_bytes"), of_tool("Free blocks:") * BLOCK_BYTES);
    assert_eq!(number(row, "files_max"), of_tool("Inode count:"));
    assert_eq!(number(row, "files_used"), of_tool("Inode count:") - of_tool("Free inodes:"));
    assert!(fixture.guest("df", &[]).done().out.contains("partition 1"));
}

#[test]
fn free_blocks_that_are_not_zero_are_stale() {
    let Some(fixture) = Fixture::new() else { return };
    let free: u64 =
        fixture.debugfs("ffb 3").split(':').nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    let file = OpenOptions::new().write(true).open(&fixture.image).unwrap();
    file.write_all_at(&[1], PARTITION_BYTES + free * BLOCK_BYTES + 77).unwrap();
    let found = fixture.guest("info --json --stale", &[]).done().json();
    assert_eq!(found["images"][0]["stale_bytes"], BLOCK_BYTES);
    assert_eq!(fixture.guest("info --json", &[]).done().json()["images"][0]["stale_bytes"], Value::Null);
}

/// Each kind of file system that is read, from its own tools to a file's owner.
#[test]
fn every_file_system_that_is_read_is_opened_by_what_it_is() {
    let Some(fixture) = Fixture::new() else { return };
    let shell = r#"
        set -e; cd "$0"; image=$1; kind=$2; tree=$3; truncate -s 320M "$image"
        case $kind in
        ext2) mke2fs -q -F -t ext2 -d "$tree" "$image" ;;
        xfs) printf '/\n0 0\nd--755 0 0\nfile ---644 0 0 %s\n$\n' "$tree/file" >proto; mkfs.xfs -q -p proto "$image" ;;
        ntfs) mkntfs -q -F "$image" >/dev/null 2>&1; ntfscp -q "$image" "$tree/file" file ;;
        fat32) mkfs.fat -F 32 "$image" >/dev/null; mcopy -i "$image" "$tree/file" ::/file ;;
        esac"#;
    let tree = fixture.folder.path("one-file");
    fs::create_dir(&tree).unwrap();
    fs::copy(fixture.tree.join("srv/sizes/300000"), tree.join("file")).unwrap();
    let content = fs::read(tree.join("file")).unwrap();
    let tools = [
        ("ext2", ["mke2fs", "debugfs"]),
        ("xfs", ["mkfs.xfs"; 2]),
        ("ntfs", ["mkntfs", "ntfscp"]),
        ("fat32", ["mkfs.fat", "mcopy"]),
    ];
    let are_there = |(_, tools): &(&str, [&str; 2])| tools.iter().all(|tool| has(tool, "and its package"));
    for (kind, _) in tools.into_iter().filter(are_there) {
        let image = fixture.folder.path(kind);
        run("sh", &["-c", shell, text(&fixture.folder.path("")), kind, kind, text(&tree)]);
        let found = onefold("guest df --json", &[&image]).done().json();
        assert_eq!(found["file_systems"][0]["type"], kind);
        let written =
            Command::new(env!("CARGO_BIN_EXE_onefold")).args(["guest", "cat", text(&image), "/file"]).output();
        assert!(written.unwrap().stdout == content, "{kind}");
        let map = onefold("guest map --json", &[&image, Path::new("/file")]).done().json();
        let place = map["extents"][0]["place"].as_u64().unwrap();
        let owner = &onefold("guest who --json", &[&image, Path::new(&place.to_string())]).done().json()["owners"][0];
        assert_eq!(owner["files"][0]["names"][0]["path"], "/file", "{kind}: {owner}");
        let info = onefold("guest info --json", &[&image]).done().json();
        assert!(info["images"][0]["free_bytes"].as_u64().unwrap() > 200 << 20, "{kind}: {info}");
    }
}

#[test]
fn what_holds_no_guest_is_never_called_empty() {
    let folder = Folder::new();
    let (empty, words, zeros) = (folder.path("empty.raw"), folder.path("words.raw"), folder.path("zeros.raw"));
    fs::write(&empty, "").unwrap();
    fs::write(&words, "just a text\n".repeat(1000)).unwrap();
    fs::write(&zeros, vec![0; 2 << 20]).unwrap();
    for image in [&words, &zeros] {
        let volume = &onefold("guest info --json", &[image]).done().json()["images"][0]["volumes"][0];
        assert_eq!((&volume["state"], &volume["free_bytes"]), (&"unknown".into(), &0.into()), "{volume}");
        onefold("guest ls", &[image]).failed(FAILED, "no file system on this disk can be read");
    }
    let image = &onefold("guest info --json", &[&empty]).done().json()["images"][0];
    assert_eq!(image["volumes"].as_array().map(Vec::len), Some(0));
    onefold("guest ls", &[&empty]).failed(FAILED, "the disk is empty");
    onefold("guest info", &[&folder.path("gone")]).failed(FAILED, "gone");
    onefold("guest ls", &[&folder.path("")]).failed(FAILED, "it is a folder");
}

/// A disk with a system on its first partition, and something else on its second.
fn two_partitions(folder: &Folder, name: &str, first: &Path, second: &Path) -> PathBuf {
    let image = folder.path(name);
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let mut table = [0; 512];
    for (slot, (start_mib, tree, label)) in [(1, first, "root"), (33, second, "home")].into_iter().enumerate() {
        let offset = format!("offset={}", start_mib << 20);
        run("mke2fs", &["-q", "-F", "-t", "ext4", "-L", label, "-E", &offset, "-d", text(tree), text(&image), "31M"]);
        let at = 446 + slot * 16;
        table[at + 4] = 0x83;
        table[at + 8..at + 12].copy_from_slice(&(start_mib * 2048_u32).to_le_bytes());
        table[at + 12..at + 16].copy_from_slice(&(31 * 2048_u32).to_le_bytes());
    }
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    OpenOptions::new().write(true).open(&image).unwrap().write_all_at(&table, 0).unwrap();
    image
}

#[test]
fn paths_are_those_of_the_guest_across_its_volumes() {
    if !has("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = Folder::new();
    let (root, home) = (folder.path("root"), folder.path("home"));
    for (tree, file, content) in [
        (&root, "etc/os-release", "ID=test\n"),
        (&root, "etc/fstab", "LABEL=root / ext4 defaults 0 1\nLABEL=home /home ext4 defaults 0 2\n"),
        (&root, "home/hidden", "below the mount"),
        (&home, "user/letter", "dear reader\n"),
    ] {
        let path = tree.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    symlink("/etc/fstab", home.join("user/link")).unwrap();
    let image = two_partitions(&folder, "two.raw", &root, &home);
    let guest = |verb: &str, paths: &[&str]| {
        let paths: Vec<&Path> = std::iter::once(image.as_path()).chain(paths.iter().map(Path::new)).collect();
        onefold(&format!("guest {verb}"), &paths)
    };
    assert_eq!(lines(&guest("ls", &["/home"]).done()), ["lost+found", "user"]);
    assert_eq!(guest("cat", &["/home/user/letter", "/home/user/link"]).done().out.lines().count(), 3);
    let map = guest("map --json", &["/home/user/letter"]).done().json();
    assert_eq!(map["volume"], "partition 2");
    let place = map["extents"][0]["place"].as_u64().unwrap();
    let mut there = [0; 12];
    fs::File::open(&image).unwrap().read_exact_at(&mut there, place).unwrap();
    assert_eq!(&there, b"dear reader\n");
    let owner = guest("who", &[&place.to_string()]).done().out;
    assert!(owner.contains("partition 2, ") && owner.contains("/user/letter (number"), "{owner}");
    assert_eq!(guest("find --name letter", &[]).done().out, "/home/user/letter\n");
    assert_eq!(guest("cat --partition 2", &["/user/letter"]).done().out, "dear reader\n");
    assert_eq!(guest("ls --partition 1", &["/home"]).done().out, "hidden\n");
    let info = guest("info", &[]).done().out;
    assert!(info.contains("  / is partition 1\n") && info.contains("  /home is partition 2\n"), "{info}");
    assert_eq!(guest("df --json --partition 2", &[]).done().json()["file_systems"].as_array().unwrap().len(), 1);

    let twice = two_partitions(&folder, "twice.raw", &root, &root);
    must_name_both_causes(&twice);
    let told = onefold("guest ls", &[&twice]).failed(FAILED, "there are systems on partition 1 and on partition 2");
    assert!(told.err.contains("--partition"), "{told:?}");
    assert_eq!(onefold("guest ls --partition 2", &[&twice, Path::new("/home")]).done().out, "hidden\n");
    let none = two_partitions(&folder, "none.raw", &home, &home);
    let told = onefold("guest ls", &[&none]).failed(FAILED, "several file systems, and no system");
    assert!(told.err.contains("partition 1 (ext4), partition 2 (ext4)"), "{told:?}");
}

/// What the guest would see is on another disk; what lies in the folder of the mount is something else.
#[test]
fn the_folder_of_a_missing_mount_is_not_taken_for_what_the_guest_has_there() {
    let Some(fixture) = Fixture::with(|tree| {
        fs::write(tree.join("etc/os-release"), "ID=test\n").unwrap();
        fs::write(tree.join("etc/fstab"), "LABEL=system / ext4\nUUID=gone /data ext4 defaults 0 2\n").unwrap();
        fs::create_dir(tree.join("data")).unwrap();
        fs::write(tree.join("data/hidden"), "hidden\n").unwrap();
        symlink("/data", tree.join("srv/data")).unwrap();
    }) else {
        return;
    };
    let why = "the guest mounts `UUID=gone` on `/data`";
    for (verb, path) in [
        ("ls", "/data"),
        ("ls", "/srv/data/"),
        ("cat", "/data/hidden"),
        ("cat", "/srv/data/hidden"),
        ("cat", "/data/gone"),
        ("du", "/data"),
        ("map", "/data/hidden"),
        ("tar", "/data"),
    ] {
        fixture.guest(verb, &[path]).failed(FAILED, why);
    }
    fixture.guest("find --below /data", &[]).failed(FAILED, why);
    let told = fixture.guest("ls", &["/srv/deep"]).done();
    assert!(told.out == "a\n" && told.err.contains(why), "{told:?}");
    assert_eq!(fixture.guest("cat --partition 1", &["/data/hidden"]).done().err, "");
    let info = fixture.guest("info", &[]).done().out;
    assert!(info.contains("/data is not on this disk: UUID=gone"), "{info}");
}

#[test]
fn damage_of_the_table_and_of_the_texts_of_the_system_is_told_with_its_code() {
    let Some(fixture) = Fixture::with(|tree| {
        fs::write(tree.join("etc/os-release"), "ID=test\n").unwrap();
        fs::write(tree.join("etc/fstab"), "LABEL=system /\n").unwrap();
    }) else {
        return;
    };
    for verb in ["ls", "info", "find"] {
        let told = fixture.guest(verb, &[]);
        assert!(told.code == DAMAGE && told.err.contains("/etc/fstab, line 1: it has fewer than three"), "{told:?}");
    }
    assert_eq!(fixture.guest("ls --partition 1", &["/etc"]).done().err, "");
    // A second partition past the end of the disk.
    let mut entry = [0; 16];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&(1_u32 << 24).to_le_bytes());
    entry[12..16].copy_from_slice(&2048_u32.to_le_bytes());
    let file = OpenOptions::new().write(true).open(&fixture.image).unwrap();
    file.write_all_at(&entry, 446 + 16).unwrap();
    for verb in ["ls --partition 1", "df", "info --partition 1"] {
        let told = fixture.guest(verb, &[]);
        assert!(told.code == DAMAGE && told.err.contains("partition 2"), "{told:?}");
    }
    // A superblock that makes no sense.
    file.write_all_at(&[0; 16], 446 + 16).unwrap();
    file.write_all_at(&[0xff; 4], PARTITION_BYTES + 1024 + 24).unwrap();
    for verb in ["df", "info"] {
        let told = fixture.guest(verb, &[]);
        assert!(told.err.contains("partition 1"), "{told:?}");
    }
}

#[test]
fn swap_is_certain_until_a_system_is_hibernated_in_it() {
    let folder = Folder::new();
    let image = folder.path("swap.raw");
    for (signature, state) in [(b"SWAPSPACE2", "certain"), (b"S1SUSPEND\0", "unsure")] {
        let mut swap = vec![0; 2 << 20];
        swap[1024..1032].copy_from_slice(&[1, 0, 0, 0, 255, 1, 0, 0]);
        swap[4086..4096].copy_from_slice(signature);
        fs::write(&image, swap).unwrap();
        let volume = &onefold("guest info --json", &[&image]).done().json()["images"][0]["volumes"][0];
        assert_eq!(volume["state"], state, "{volume}");
        assert_eq!(volume["free_bytes"] == 0, state == "unsure", "{volume}");
    }
}

/// Asserts that each volume whose blocks are not aligned is named with the cause: the first partition is moved by a
/// sector, and is not a file system there.
fn must_name_both_causes(image: &Path) {
    let moved = image.with_extension("moved");
    fs::copy(image, &moved).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&moved).unwrap();
    for entry in [446, 446 + 16] {
        let mut first = [0; 4];
        file.read_exact_at(&mut first, entry + 8).unwrap();
        file.write_all_at(&(u32::from_le_bytes(first) + 1).to_le_bytes(), entry + 8).unwrap();
    }
    let told = onefold("guest info", &[&moved]).out;
    for name in ["partition 1", "partition 2"] {
        let line = format!("  {name}: misaligned, because the volume begins within a block of 4 KiB\n");
        assert!(told.contains(&line), "{told}");
    }
}
