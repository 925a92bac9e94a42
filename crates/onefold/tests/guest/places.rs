//! Where files lie, and which file owns a place.

use crate::*;

/// A pattern that matches nothing most likely has a spelling error. Other conditions may hold for no file.
#[test]
fn a_pattern_that_matches_nothing_is_an_error() {
    let Some(fixture) = Fixture::new() else { return };
    for verb in ["find", "packages"] {
        let verb = format!("{verb} --name *.nope");
        fixture.guest(&verb, &[]).failed(FAILED, "matches the pattern `*.nope`");
    }
    assert_eq!(fixture.guest("find --larger 1P", &[]).done().out, "");
    assert_eq!(fixture.guest("find --name hostname --larger 1P", &[]).done().out, "");
}

/// Regression: one place past the end of the disk, and no place was answered.
#[test]
fn places_on_the_disk_are_answered_beside_those_that_are_not() {
    let Some(fixture) = Fixture::new() else { return };
    let told = fixture
        .guest("who", &["1", "100M", "2M", "1G"])
        .failed(FAILED, "byte 104,857,600 is behind the end of the disk");
    assert!(
        told.err.contains("byte 1,073,741,824") && told.err.contains("is 32.00 MiB long (33,554,432 bytes)"),
        "{told:?}"
    );
    assert!(told.out.starts_with("1: in no volume\n2097152: partition 1, "), "{told:?}");
    let json = fixture.guest("who --json", &["1", "100M"]).json();
    assert_eq!((json["owners"].as_array().unwrap().len(), json["failures"].as_array().unwrap().len()), (1, 1));
}

#[test]
fn texts_that_are_not_utf8_have_their_bytes_in_a_document() {
    let Some(fixture) = Fixture::with(|tree| {
        fs::write(tree.join("etc/os-release"), "PRETTY_NAME=\"Test OS\"\n").unwrap();
        fs::write(tree.join("etc/hostname"), b"h\xff\n").unwrap();
        fs::write(tree.join("etc/fstab"), b"LABEL=root / ext4\nLABEL=no\xfe /srv/\xfd ext4\n").unwrap();
        fs::create_dir(tree.join("boot")).unwrap();
        fs::write(tree.join("boot").join(OsStr::from_bytes(b"vmlinuz-6\xfc")), "").unwrap();
    }) else {
        return;
    };
    let label = OsStr::from_bytes(b"set_super_value volume_name l\xff");
    let image = format!("{}?offset={PARTITION_BYTES}", text(&fixture.image));
    assert!(Command::new("debugfs").args(["-w", "-R"]).arg(label).arg(image).status().unwrap().success());
    let info = fixture.guest("info --json", &[]).json()["images"][0].clone();
    let (volume, system) = (&info["volumes"][0], &info["systems"][0]);
    assert_eq!((&volume["label"], &volume["label_hex"]), (&"l\u{fffd}".into(), &"6cff".into()), "{info}");
    assert_eq!(
        (&system["host_name_hex"], &system["kernels_hex"]),
        (&"68ff".into(), &serde_json::json!(["36fc"])),
        "{info}"
    );
    let missing = &system["missing"][0];
    assert_eq!((&missing["path_hex"], &missing["source_hex"]), (&"2f7372762ffd".into(), &"4c4142454c3d6e6ffe".into()));
    let plain = Fixture::new().unwrap().guest("info --json", &[]).done().json()["images"][0].clone();
    assert_eq!((&plain["volumes"][0]["label"], plain["volumes"][0].get("label_hex")), (&"system".into(), None));
}

#[test]
fn map_and_who_agree_with_debugfs() {
    let Some(fixture) = Fixture::new() else { return };
    let blocks = fixture.blocks("/srv/sizes/300000");
    let found = fixture.guest("map --json", &["/srv/sizes/300000"]).done().json();
    let mut mapped = Vec::new();
    for extent in found["extents"].as_array().unwrap() {
        assert_eq!(extent["kind"], "written");
        let [place, length] = ["place", "length_bytes"].map(|name| extent[name].as_u64().unwrap());
        assert_eq!(extent["offset"].as_u64().unwrap(), mapped.len() as u64 * BLOCK_BYTES);
        mapped.extend((0..length / BLOCK_BYTES).map(|block| (place - PARTITION_BYTES) / BLOCK_BYTES + block));
    }
    assert_eq!(mapped, blocks);
    let told = fixture.guest("map", &["/srv/sizes/300000"]).done().out;
    let expected = fixture.debugfs("stat /srv/sizes/300000");
    // The line of the tool without its blanks: `(0-73):1234-1307`.
    let line = expected.lines().find(|line| line.starts_with("(0")).unwrap();
    assert!(told.lines().any(|told| told == line), "{line}\n{told}");
    assert!(told.contains("Size: 300000") && told.contains("Mode: 0644"), "{told}");

    let byte = PARTITION_BYTES + blocks[3] * BLOCK_BYTES + 5;
    let owner = &fixture.guest("who --json", &[&byte.to_string()]).done().json()["owners"][0];
    assert_eq!((&owner["class"], &owner["volume"]), (&"file data".into(), &"partition 1".into()));
    assert_eq!(owner["files"][0]["names"][0]["path"], "/srv/sizes/300000");
    assert_eq!(owner["files"][0]["offset"], 3 * BLOCK_BYTES + 5);
    let shared = PARTITION_BYTES + fixture.blocks("/srv/second-name")[0] * BLOCK_BYTES;
    let told = fixture.guest("who", &[&shared.to_string(), "0"]).done().out;
    assert!(
        told.contains("/srv/second-name, /srv/sizes/4097") || told.contains("/srv/sizes/4097, /srv/second-name"),
        "{told}"
    );
    assert!(told.ends_with("\n0: in no volume\n"), "{told}");
    fixture.guest("who", &["64M"]).failed(FAILED, "32.00 MiB long");
}

#[test]
fn a_qcow2_image_is_the_disk_that_it_holds() {
    let Some(fixture) = Fixture::new() else { return };
    if !has("qemu-img", "qemu-utils") {
        return;
    }
    let qcow2 = fixture.folder.path("guest.qcow2");
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", text(&fixture.image), text(&qcow2)]);
    for (verb, path) in [("ls -lR", "/"), ("du", "/srv"), ("cat", "/etc/passwd")] {
        let of = |image: &Path| onefold(&format!("guest {verb}"), &[image, Path::new(path)]).done().out;
        assert_eq!(of(&qcow2), of(&fixture.image), "{verb}");
    }
    // The places in the file are those of the content.
    let map = |image: &Path| onefold("guest map --json", &[image, Path::new("/srv/sizes/300000")]).done().json();
    let content = fs::read(fixture.tree.join("srv/sizes/300000")).unwrap();
    for image in [&qcow2, &fixture.image] {
        let file = fs::File::open(image).unwrap();
        let (map, mut read) = (map(image), 0);
        let (place, in_file) = (&map["extents"][0]["place"], &map["extents"][0]["in_file"]);
        let owner =
            onefold("guest who --json", &[image, Path::new(&place.to_string())]).done().json()["owners"][0].clone();
        assert_eq!((&owner["place"], &owner["in_file"]), (place, in_file));
        assert_eq!(owner["files"][0]["names"][0]["path"], "/srv/sizes/300000");
        let told = onefold("guest who", &[image, Path::new(&place.to_string())]).done().out;
        assert_eq!(told.contains(&format!("\n  byte {in_file} of the image file\n")), place != in_file, "{told}");
        for extent in map["extents"].as_array().unwrap() {
            let [offset, place, length] = ["offset", "in_file", "length_bytes"]
                .map(|name| usize::try_from(extent[name].as_u64().unwrap()).unwrap());
            let mut bytes = vec![0; length.min(content.len() - offset)];
            file.read_exact_at(&mut bytes, place as u64).unwrap();
            assert!(bytes == content[offset..offset + bytes.len()], "{extent}");
            read += bytes.len();
        }
        assert_eq!(read, content.len());
    }
    for format in ["vmdk", "vdi", "vhdx", "vpc"] {
        let converted = fixture.folder.path(&format!("guest.{format}"));
        run("qemu-img", &["convert", "-f", "raw", "-O", format, text(&fixture.image), text(&converted)]);
        let first = &map(&converted)["extents"][0];
        assert_eq!((&first["kind"], &first["in_file"]), (&"written".into(), &Value::Null), "{format}");
        let told = onefold("guest who", &[&converted, Path::new(&first["place"].to_string())]).done().out;
        assert!(
            told.contains("/srv/sizes/300000") && told.contains("\n  nowhere in the image file as it is\n"),
            "{told}"
        );
    }
    let top = fixture.folder.path("top.qcow2");
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "guest.qcow2", text(&top)]);
    let first = &map(&top)["extents"][0];
    assert_eq!(first["in_file"], Value::Null, "in another file of the chain");
    let told = onefold("guest who", &[&top, Path::new(&first["place"].to_string())]).done().out;
    assert!(told.contains("\n  nowhere in the image file as it is\n"), "{told}");
}

/// All owners were thrown away.
#[test]
fn an_owner_is_told_though_the_place_in_the_image_file_cannot_be_read() {
    /// Bytes of the disk that one entry of the first table stands for: 512 clusters of 4 KiB.
    const OF_ENTRY_BYTES: u64 = 2 << 20;
    let Some(fixture) = Fixture::new() else { return };
    if !has("qemu-img", "qemu-utils") {
        return;
    }
    let qcow2 = fixture.folder.path("guest.qcow2");
    let options = ["convert", "-f", "raw", "-O", "qcow2", "-o", "cluster_size=4096"];
    run("qemu-img", &[&options[..], &[text(&fixture.image), text(&qcow2)]].concat());
    let size_bytes = fs::metadata(&fixture.image).unwrap().len();
    let file = OpenOptions::new().read(true).write(true).open(&qcow2).unwrap();
    // The header says where the first table is. An entry near its end gets a new second table, of holes and
    // of one entry that begins inside of a cluster. The end itself is read to see what the partition holds.
    let second = file.metadata().unwrap().len().next_multiple_of(4096);
    file.set_len(second + 4096).unwrap();
    file.write_all_at(&((1_u64 << 63) | 0x1200).to_be_bytes(), second + 100 * 8).unwrap();
    let mut table = [0; 8];
    file.read_exact_at(&mut table, 40).unwrap();
    let entry = u64::from_be_bytes(table) + (size_bytes / OF_ENTRY_BYTES - 3) * 8;
    file.write_all_at(&((1_u64 << 63) | second).to_be_bytes(), entry).unwrap();
    let [known, unknown] =
        [PARTITION_BYTES, size_bytes - 3 * OF_ENTRY_BYTES + 100 * 4096].map(|place| place.to_string());
    let told = onefold("guest who", &[&qcow2, Path::new(&known), Path::new(&unknown)]);
    let why = format!("cannot find byte {unknown} in the file of");
    assert!(told.code != DONE && told.err.contains(&why), "{told:?}");
    assert!(told.out.starts_with(&format!("{known}: partition 1, block 0 of ext4")), "{told:?}");
    let last = told.out.lines().last().unwrap();
    assert!(last.starts_with(&format!("{unknown}: partition 1, block ")), "{told:?}");
}

/// Puts the Merkle tree and the descriptor of a file behind its content, as ext4 does. Prints the digest by `fsverity`.
const MAKE_VERITY: &str = r#"
    set -e; cd "$0"; truncate -s 16M image; mke2fs -q -F -t ext4 -b 4096 -O verity image
    head -c 70000 /dev/zero >content
    fsverity digest --compact --out-merkle-tree=tree --out-descriptor=descriptor content
    cp content whole; truncate -s %65536 whole; cat tree >>whole; truncate -s %4096 whole
    { cat descriptor; head -c 4092 /dev/zero; } | head -c 4092 >>whole; printf '\000\001\000\000' >>whole
    printf 'write whole file\nsif /file flags 0x180000\nsif /file size 70000\nwrite content plain\n' >commands
    debugfs -w -f commands image >/dev/null 2>&1"#;

#[test]
fn the_digest_of_verity_is_that_of_its_tool_in_map_and_ls() {
    if !["fsverity", "mke2fs", "debugfs"].iter().all(|tool| has(tool, "fsverity and e2fsprogs")) {
        return;
    }
    let folder = Folder::new();
    let digest = format!("sha256:{}", run("sh", &["-c", MAKE_VERITY, text(&folder.path(""))]).trim());
    let image = folder.path("image");
    let guest = |verb: &str, path: &str| onefold(&format!("guest {verb}"), &[&image, Path::new(path)]).done();
    let told = guest("map", "/file").out;
    assert!(told.lines().any(|line| line.contains(&digest)), "{digest}: {told}");
    assert_eq!(guest("map --json", "/file").json()["verity"], digest);
    assert_eq!(guest("ls --json", "/file").json()["files"][0]["verity"], digest);
    assert_eq!(guest("map --json", "/plain").json().get("verity"), None);
    assert!(!guest("map", "/plain").out.contains("erity"));
}
