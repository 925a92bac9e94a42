//! Pools that nobody has mounted: create, import, stat, clone, export, grow, check, and bad input.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{DAMAGE, FAILED, Folder, USAGE, equal, has, onefold, run, text};
use serde_json::Value;

fn bytes(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or_else(|| panic!("no {name} in {json}"))
}

#[track_caller]
fn stat(pool: &Path) -> Value {
    let json = onefold("pool stat --json", &[pool]).done().json();
    let pool = &json["pool"];
    assert_eq!(
        bytes(pool, "apparent_bytes"),
        bytes(pool, "zero_bytes") + bytes(pool, "distinct_bytes") + bytes(pool, "saved_bytes"),
        "{pool}"
    );
    assert_eq!(
        bytes(pool, "device_bytes"),
        bytes(pool, "metadata_bytes")
            + bytes(pool, "distinct_bytes")
            + bytes(pool, "freeing_bytes")
            + bytes(pool, "free_bytes"),
        "{pool}"
    );
    pool.clone()
}

#[test]
fn what_is_imported_is_stored_once_and_comes_out_equal() {
    let folder = Folder::new();
    let pool = folder.pool();
    let (one, two) = (folder.image("one.raw", 1, 1), folder.image("two.raw", 1, 2));
    let imported = onefold("pool import --json", &[&pool, &one, &two]).done().json();
    let images = imported["images"].as_array().unwrap();
    assert_eq!(images.len(), 2);
    for image in images {
        assert_eq!(
            bytes(image, "apparent_bytes"),
            bytes(image, "zero_bytes") + bytes(image, "stored_bytes") + bytes(image, "saved_bytes"),
            "{image}"
        );
    }
    assert_eq!(bytes(&images[0], "stored_bytes"), 2 << 20, "two MiB of content, there twice");
    assert_eq!(bytes(&images[1], "stored_bytes"), 0, "the second image has nothing new");

    let stat = stat(&pool);
    assert_eq!(bytes(&stat, "distinct_bytes"), 2 << 20);
    assert_eq!(bytes(&stat, "saved_bytes"), 6 << 20);

    for (name, image) in [("one.raw", &one), ("two.raw", &two)] {
        let out = folder.path(&format!("out-{name}"));
        onefold("pool export", &[&pool, Path::new(name), &out]).done();
        assert!(equal(image, &out), "{name}");
    }
    assert!(onefold("pool check --data", &[&pool]).done().out.ends_with("clean\n"));
}

#[test]
fn files_are_shown_one_by_one_and_add_up() {
    let folder = Folder::new();
    let pool = folder.pool();
    onefold("pool import", &[&pool, &folder.image("one.raw", 1, 1)]).done();
    let json = onefold("pool stat --json", &[&pool, Path::new("one.raw")]).done().json();
    let file = &json["files"][0];
    assert_eq!(file["name"], "one.raw");
    assert_eq!(bytes(file, "distinct_bytes"), 2 << 20);
    assert_eq!(
        bytes(file, "apparent_bytes"),
        bytes(file, "zero_bytes") + bytes(file, "distinct_bytes") + bytes(file, "saved_bytes"),
        "{file}"
    );
    let table = onefold("pool stat", &[&pool, Path::new("/one.raw")]).done().out;
    assert!(table.contains("one.raw") && table.contains("the whole pool"), "{table}");
    onefold("pool stat", &[&pool, Path::new("gone.raw")]).failed(FAILED, "gone.raw");
}

/// Names, lengths and what each deletion would free, of a pool that nobody has mounted.
#[test]
fn files_are_listed_with_what_deleting_each_would_free() {
    let folder = Folder::new();
    let pool = folder.pool();
    assert!(onefold("pool ls", &[&pool]).done().out.contains("empty"));
    let (one, two) = (folder.image("one.raw", 1, 1), folder.image("two.raw", 2, 1));
    onefold("pool import", &[&pool, &one, &two]).done();
    onefold("pool clone", &[&pool, Path::new("one.raw"), Path::new("copy.raw")]).done();
    let json = onefold("pool ls --json", &[&pool]).done().json();
    let entries = json["entries"].as_array().unwrap();
    let names: Vec<&str> = entries.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["copy.raw", "one.raw", "two.raw"]);
    assert_eq!(bytes(&entries[1], "size_bytes"), fs::metadata(&one).unwrap().len());
    assert_eq!((bytes(&entries[0], "unique_bytes"), bytes(&entries[1], "unique_bytes")), (0, 0), "a clone has all");
    assert_eq!(bytes(&entries[2], "unique_bytes"), bytes(&entries[2], "distinct_bytes"), "nobody else has any of it");
    let text = onefold("pool ls", &[&pool, Path::new("/")]).done().out;
    assert!(text.lines().next().unwrap().ends_with("only here") && text.lines().count() == 5, "{text}");
    let stat = onefold("pool stat --json", &[&pool]).done().json();
    assert!(bytes(&stat["below"], "taken_bytes") >= 6 << 20, "{stat}");
    assert!(onefold("pool stat", &[&pool]).done().out.contains("\nbelow: "));
    onefold("pool ls", &[&pool, Path::new("two.raw")]).failed(FAILED, "not a directory");
    onefold("pool ls", &[&pool, Path::new("gone")]).failed(FAILED, "no such directory");
}

#[test]
fn clones_are_named_by_number_and_take_no_space() {
    let folder = Folder::new();
    let pool = folder.pool();
    let image = folder.image("base.raw", 3, 1);
    onefold("pool import", &[&pool, &image]).done();
    let before = stat(&pool);
    let made =
        onefold("pool clone --json --count 20", &[&pool, Path::new("base.raw"), Path::new("vm-%02d.raw")]).done();
    assert_eq!(made.json()["clones"].as_array().unwrap().len(), 20);
    let after = stat(&pool);
    assert_eq!(bytes(&after, "distinct_bytes"), bytes(&before, "distinct_bytes"));
    assert_eq!(bytes(&after, "apparent_bytes"), 21 * bytes(&before, "apparent_bytes"));
    let out = folder.path("out.raw");
    onefold("pool export", &[&pool, Path::new("vm-20.raw"), &out]).done();
    assert!(equal(&image, &out));

    // Taken names are seen before the first clone is made.
    let taken = [pool.as_path(), Path::new("base.raw"), Path::new("vm-%d.raw")];
    onefold("pool clone", &[&pool, Path::new("base.raw"), Path::new("vm-3.raw")]).done();
    onefold("pool clone --count 3", &taken).failed(FAILED, "vm-3.raw");
    onefold("pool stat", &[&pool, Path::new("vm-1.raw")]).failed(FAILED, "vm-1.raw");
    onefold("pool clone", &[&pool, Path::new("gone"), Path::new("x")]).failed(FAILED, "no such file");
}

#[test]
fn qcow2_and_vmdk_go_in_and_qcow2_comes_out() {
    if !has("qemu-img", "qemu-utils") {
        return;
    }
    let folder = Folder::new();
    let pool = folder.pool();
    let raw = folder.image("base.raw", 5, 0);
    for format in ["qcow2", "vmdk"] {
        let image = folder.path(&format!("{format}.{format}"));
        run("qemu-img", &["convert", "-f", "raw", "-O", format, text(&raw), text(&image)]);
        let json = onefold("pool import --json", &[&pool, &image]).done().json();
        assert_eq!(json["images"][0]["format"], format);
        let name = format!("{format}.raw");
        assert_eq!(json["images"][0]["name"], name.as_str());
        let out = folder.path("out.qcow2");
        onefold("pool export --format qcow2", &[&pool, Path::new(&name), &out]).done();
        run("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", text(&raw), text(&out)]);
        fs::remove_file(out).unwrap();
    }
    assert_eq!(bytes(&stat(&pool), "distinct_bytes"), 2 << 20, "one disk in two formats is stored once");
}

/// The ending decides the format, a directory takes several images, and `-` is a stream.
#[test]
fn exports_go_into_files_directories_and_pipes() {
    let folder = Folder::new();
    let pool = folder.pool();
    let raw = folder.image("base.raw", 5, 0);
    onefold("pool import", &[&pool, &raw]).done();
    onefold("pool clone", &[&pool, Path::new("base.raw"), Path::new("copy.raw")]).done();
    let (base, copy) = (Path::new("base.raw"), Path::new("copy.raw"));

    let qcow2 = folder.path("by-ending.qcow2");
    let json = onefold("pool export --json", &[&pool, base, &qcow2]).done().json();
    assert_eq!(json["images"][0]["format"], "qcow2");
    assert!(fs::read(&qcow2).unwrap().starts_with(b"QFI\xfb"));
    onefold("pool export", &[&pool, base, &folder.path("a.vdi")]).failed(USAGE, "its ending promises vdi");
    if has("qemu-img", "qemu-utils") {
        let vmdk = folder.path("by-ending.vmdk");
        let json = onefold("pool export --json", &[&pool, base, &vmdk]).done().json();
        assert_eq!(json["images"][0]["format"], "vmdk");
        run("qemu-img", &["compare", "-f", "raw", "-F", "vmdk", text(&raw), text(&vmdk)]);
    }
    onefold("pool export --format raw", &[&pool, base, &folder.path("a.qcow2")]).failed(USAGE, "promises qcow2");

    let directory = folder.path("backup");
    let both: [&Path; 4] = [&pool, base, copy, &directory];
    onefold("pool export", &both).failed(USAGE, "no such directory");
    fs::create_dir(&directory).unwrap();
    onefold("pool export", &both).done();
    for name in ["base.raw", "copy.raw"] {
        assert!(equal(&raw, &directory.join(name)), "{name}");
    }
    let again = onefold("pool export", &both).failed(FAILED, "it exists");
    assert!(!again.err.contains("hint: remove"), "{again:?}");
    onefold("pool export", &[&pool, base, base, &directory]).failed(USAGE, "two images");

    let program = Command::new(env!("CARGO_BIN_EXE_onefold"))
        .args(["pool", "export"])
        .args([&pool, base, Path::new("-")])
        .output()
        .unwrap();
    assert!(program.status.success() && program.stdout == fs::read(&raw).unwrap(), "the stream is the disk");
    onefold("pool export --format qcow2", &[&pool, base, Path::new("-")]).failed(USAGE, "only a raw image");
    onefold("pool export --json", &[&pool, base, Path::new("-")]).failed(USAGE, "JSON");
    assert!(!Path::new("-").exists());
}

#[test]
fn a_qcow2_whose_backing_chain_is_a_loop_leaves_nothing_behind() {
    if !has("qemu-img", "qemu-utils") {
        return;
    }
    let folder = Folder::new();
    let pool = folder.pool();
    let image = folder.path("loop.qcow2");
    run("qemu-img", &["create", "-q", "-f", "qcow2", text(&image), "1M"]);
    run("qemu-img", &["rebase", "-u", "-F", "qcow2", "-b", "loop.qcow2", text(&image)]);
    onefold("pool import", &[&pool, &image]).failed(FAILED, "it is a loop");
    assert_eq!(bytes(&stat(&pool), "apparent_bytes"), 0);
    onefold("pool check", &[&pool]).done();
}

#[test]
fn names_that_can_not_be_are_refused_before_anything_is_copied() {
    let folder = Folder::new();
    let pool = folder.pool();
    let image = folder.image("one.raw", 1, 1);
    let long = "x".repeat(256);
    let named = |name: &str| onefold("pool import", &[&pool, &image, Path::new("--to"), Path::new(name)]);
    named(&long).failed(FAILED, "name too long");
    named("../escape").failed(USAGE, "..");
    named("nowhere/one.raw").failed(FAILED, "no such file");
    onefold("pool import", &[&pool, &image, &image]).failed(USAGE, "another image gets that name");
    let converted = folder.path("converted");
    fs::create_dir(&converted).unwrap();
    for name in ["disk.qcow2", "disk.raw"] {
        fs::copy(&image, converted.join(name)).unwrap();
    }
    let first = format!("another image gets that name too: `{}`", text(&converted.join("disk.qcow2")));
    onefold("pool import", &[&pool, &converted]).failed(USAGE, &first);
    assert_eq!(bytes(&stat(&pool), "apparent_bytes"), 0);
    named("disk").done();
    named("disk").failed(FAILED, "already");
}

#[test]
fn a_full_pool_says_so_and_keeps_what_it_had() {
    let folder = Folder::new();
    let pool = folder.pool();
    let kept = folder.image("kept.raw", 1, 1);
    onefold("pool import", &[&pool, &kept]).done();
    let large = folder.noise("large.raw", 600);
    let failed = onefold("pool import", &[&pool, &large]).failed(FAILED, "no space left");
    assert!(failed.err.contains("hint: "), "{failed:?}");
    onefold("pool stat", &[&pool, Path::new("large.raw")]).failed(FAILED, "no such file");
    let out = folder.path("out.raw");
    onefold("pool export", &[&pool, Path::new("kept.raw"), &out]).done();
    assert!(equal(&kept, &out));
    onefold("pool check", &[&pool]).done();
}

#[test]
fn an_import_that_is_cut_short_leaves_no_half_file() {
    let folder = Folder::new();
    let pool = folder.pool();
    let image = folder.noise("large.raw", 200);
    for signal in ["-INT", "-KILL"] {
        let mut import = Command::new(env!("CARGO_BIN_EXE_onefold"))
            .args(["pool", "import", "--quiet"])
            .args([&pool, &image])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        // It may have come to its end before; then the file is whole.
        let _ = Command::new("kill").args([signal, &import.id().to_string()]).output();
        let is_done = import.wait().unwrap().success();
        onefold("pool check", &[&pool]).done();
        if is_done {
            let out = folder.path("out.raw");
            onefold("pool export", &[&pool, Path::new("large.raw"), &out]).done();
            assert!(equal(&image, &out));
            return;
        }
        onefold("pool stat", &[&pool, Path::new("large.raw")]).failed(FAILED, "no such file");
    }
}

#[test]
fn a_pool_grows_with_its_file() {
    let folder = Folder::new();
    let pool = folder.pool();
    assert_eq!(bytes(&onefold("pool grow --json", &[&pool]).done().json(), "gained_bytes"), 0);
    let grown = onefold("pool grow --json --size 1G", &[&pool]).done().json();
    assert_eq!(bytes(&grown, "gained_bytes"), 512 << 20);
    assert_eq!(bytes(&stat(&pool), "device_bytes"), 1 << 30);
    onefold("pool grow --size 10M", &[&pool]).failed(USAGE, "longer already");
    onefold("pool check", &[&pool]).done();
}

#[test]
fn what_is_there_is_not_overwritten_without_force() {
    let folder = Folder::new();
    let pool = folder.pool();
    onefold("pool import", &[&pool, &folder.image("one.raw", 1, 1)]).done();
    onefold("pool create", &[&pool]).failed(FAILED, "a pool is there already");
    assert!(bytes(&stat(&pool), "apparent_bytes") > 0);
    onefold("pool create --force", &[&pool]).done();
    assert_eq!(bytes(&stat(&pool), "apparent_bytes"), 0);
}

#[test]
fn another_file_system_is_not_overwritten_without_force() {
    if !has("blkid", "util-linux") || !has("mkfs.ext4", "e2fsprogs") {
        return;
    }
    let folder = Folder::new();
    let disk = folder.path("ext4.img");
    File::create(&disk).unwrap().set_len(512 << 20).unwrap();
    run("mkfs.ext4", &["-q", text(&disk)]);
    onefold("pool create", &[&disk]).failed(FAILED, "ext4");
    onefold("pool create --force", &[&disk]).done();
    onefold("pool check", &[&disk]).done();
}

#[test]
fn unknown_data_are_not_overwritten_without_force() {
    let folder = Folder::new();
    let disk = folder.path("disk.img");
    let file = File::create(&disk).unwrap();
    file.set_len(64 << 20).unwrap();
    for (place, byte) in [(5 << 20, "5,242,880"), ((64 << 20) - 3, "67,108,861"), (100, "100")] {
        file.write_all_at(&[7], place).unwrap();
        onefold("pool create", &[&disk]).failed(FAILED, &format!("unknown data already, first seen at byte {byte}"));
        file.write_all_at(&[0], place).unwrap();
    }
    file.write_all_at(&[7], 4096).unwrap();
    onefold("pool create --force", &[&disk]).done();
    onefold("pool check", &[&disk]).done();
}

/// Regression: the file was lengthened before it was looked at.
#[test]
fn a_file_that_does_not_become_a_pool_keeps_its_length() {
    let folder = Folder::new();
    let image = folder.path("machine.raw");
    fs::write(&image, [vec![0; 5 << 20], vec![7; 100]].concat()).unwrap();
    let length = || fs::metadata(&image).unwrap().len();
    onefold("pool create --size 100G", &[&image]).failed(FAILED, "first seen at byte 5,242,880");
    assert_eq!(length(), (5 << 20) + 100);
    onefold("pool grow --size 100G", &[&image]).failed(FAILED, "not a Onefold pool");
    assert_eq!(length(), (5 << 20) + 100);
    fs::write(&image, [vec![0; 100], vec![7]].concat()).unwrap();
    onefold("pool create --size 1G", &[&image]).failed(FAILED, "first seen at byte 100");
    fs::write(&image, "").unwrap();
    onefold("pool create --size 1M", &[&image]).failed(FAILED, "at least");
    assert_eq!(length(), 0);
    onefold("pool create --size 1G", &[&image]).done();
    onefold("pool grow --size 2G", &[&image]).done();
    assert_eq!(length(), 2 << 30);
    onefold("pool check", &[&image]).done();
}

#[test]
fn files_that_are_no_pool_or_too_small_are_refused() {
    let folder = Folder::new();
    let file = folder.path("noise");
    fs::write(&file, vec![0x5a; 8 << 20]).unwrap();
    for verb in ["stat", "check", "scrub", "trim", "grow"] {
        onefold(&format!("pool {verb}"), &[&file]).failed(FAILED, "not a Onefold pool");
    }
    let small = folder.path("small.pool");
    onefold("pool create --size 100K", &[&small]).failed(FAILED, "at least");
    assert!(!small.exists(), "nothing is left of it");
}

/// Regression: a typing error in the name of a device made a file in memory, which took an image or a pool.
#[test]
fn a_name_among_the_devices_makes_no_file() {
    let device = |path: &str| fs::metadata(path).unwrap().dev();
    if device("/dev") == device("/") {
        return;
    }
    let folder = Folder::new();
    let (pool, name) = (folder.path("pool"), Path::new("/dev/onefold-no-such-disk"));
    onefold("pool create --size 64M", &[&pool]).done();
    onefold("pool import", &[&pool, &folder.image("web.raw", 1, 1)]).done();
    onefold("pool create --size 64M", &[name]).failed(FAILED, "there is no such device");
    onefold("pool export", &[&pool, Path::new("web.raw"), name]).failed(FAILED, "there is no such device");
    let archive = folder.path("archive");
    onefold("archive create", &[&archive]).done();
    onefold("image capture", &[&archive, &folder.image("db.raw", 2, 1)]).done();
    onefold("image install", &[&archive, Path::new("db"), name]).failed(FAILED, "there is no such device");
    onefold("image install --dry-run", &[&archive, Path::new("db"), name]).failed(FAILED, "there is no such device");
    assert!(!name.exists());
}

#[test]
fn a_truncated_pool_is_refused_with_what_it_lacks() {
    let folder = Folder::new();
    let pool = folder.pool();
    OpenOptions::new().write(true).open(&pool).unwrap().set_len(300 << 20).unwrap();
    let run = onefold("pool stat", &[&pool]);
    run.failed(FAILED, "are needed");
    onefold("pool create", &[&pool]).failed(FAILED, "a pool is there already");
}

#[test]
fn flipped_bits_are_found_and_end_with_3() {
    let folder = Folder::new();
    let pool = folder.pool();
    onefold("pool import", &[&pool, &folder.image("one.raw", 9, 1)]).done();
    // Somewhere in the data: the image's content is looked for in the pool's file.
    let image = fs::read(folder.path("one.raw")).unwrap();
    let block = &image[1 << 20..(1 << 20) + 4096];
    let stored = fs::read(&pool).unwrap();
    let at = stored.chunks(4096).position(|chunk| chunk == block).expect("data is stored as it is") as u64 * 4096;
    let file = OpenOptions::new().write(true).open(&pool).unwrap();
    file.write_all_at(&[block[17] ^ 0x10], at + 17).unwrap();
    drop(file);

    let before = fs::read(&pool).unwrap();
    let run = onefold("pool check --data --json", &[&pool]);
    assert_eq!(run.code, DAMAGE, "{run:?}");
    let json = run.json();
    assert_eq!(json["clean"], false);
    assert!(json["problems"].to_string().contains("one.raw"), "the file hit is named: {json}");
    assert!(fs::read(&pool).unwrap() == before, "check never writes");
    assert_eq!(onefold("pool scrub", &[&pool]).code, DAMAGE);
}

#[test]
fn a_repair_says_what_was_wrong_and_what_is_left() {
    let folder = Folder::new();
    let pool = folder.pool();
    onefold("pool import", &[&pool, &folder.image("one.raw", 9, 1)]).done();
    let file = OpenOptions::new().write(true).open(&pool).unwrap();
    // Superblock copy and a bitmap block.
    for block in [4095, 2] {
        file.write_all_at(&[0x5a; 4096], block * 4096).unwrap();
    }
    drop(file);
    let before = fs::read(&pool).unwrap();
    let run = onefold("pool check --json", &[&pool]);
    assert_eq!(run.code, DAMAGE, "{run:?}");
    let json = run.json();
    assert!(json["problems_left"] == json["problems_total"] && json["repaired"] == false, "{json}");
    let told: Vec<&str> =
        json["problems"].as_array().unwrap().iter().filter_map(|problem| problem["structure"].as_str()).collect();
    assert!(told.contains(&"superblock") && told.contains(&"bitmap"), "{json}");
    assert!(fs::read(&pool).unwrap() == before, "check never writes");
    let run = onefold("pool check --repair --json", &[&pool]);
    assert_eq!(run.code, DAMAGE, "{run:?}");
    let json = run.json();
    assert!(json["problems_left"] == 0 && json["repaired"] == true, "{json}");
    assert!(onefold("pool check --data", &[&pool]).done().out.ends_with("clean\n"));
    let run = onefold("pool check --repair", &[&pool]);
    assert!(run.code == 0 && run.out.ends_with("clean\n"), "{run:?}");
}

#[test]
fn a_pool_in_use_is_refused_to_a_second_one() {
    let folder = Folder::new();
    let pool = folder.pool();
    let device = onefold_block::device::FileDevice::open(&pool, onefold_block::device::OpenMode::ReadWrite).unwrap();
    onefold("pool stat", &[&pool]).failed(FAILED, "in use");
    onefold("pool check", &[&pool]).failed(FAILED, "in use");
    drop(device);
    onefold("pool check", &[&pool]).done();
}

#[test]
fn too_little_memory_is_wrong_usage() {
    let folder = Folder::new();
    onefold("pool stat --memory 1M", &[&folder.pool()]).failed(USAGE, "memory");
}

#[test]
fn trim_tells_how_much_it_gave_back() {
    let folder = Folder::new();
    let json = onefold("pool trim --json", &[&folder.pool()]).done().json();
    assert!(bytes(&json, "trimmed_bytes") > 0, "{json}");
}
