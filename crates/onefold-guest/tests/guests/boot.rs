//! The boot of an image whose free bytes were all overwritten.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use onefold_disk::{CachedDisk, FileDisk};
use onefold_guest::guest::Guest;

use crate::fixtures::{Images, has, skip, tell};
use crate::noise;

/// Returns the image that is to boot: the one that `ONEFOLD_GUEST_IMAGE` names, or the demo's.
fn image() -> PathBuf {
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/corpus/cache/debian-12-base.raw");
    std::env::var_os("ONEFOLD_GUEST_IMAGE").map_or_else(|| demo.into(), PathBuf::from)
}

/// Overwrites all free bytes of an image; returns how many.
fn poison(image: &Path) -> u64 {
    let disk = FileDisk::new(File::open(image).unwrap(), image).unwrap();
    let disk = CachedDisk::new(&disk, 64 << 20);
    let map = Guest::open(&disk).unwrap().disk_map().unwrap();
    let file = OpenOptions::new().write(true).open(image).unwrap();
    let free = map.iter().filter(|run| run.use_.is_free()).map(|run| (run.range.start_bytes, run.range.end_bytes()));
    noise::overwrite(&file, free)
}

#[test]
#[ignore = "it takes minutes, for make test-guest"]
fn a_debian_whose_free_bytes_are_noise_boots() {
    let original = image();
    if !original.exists() {
        return skip::<()>("there is no image to boot: `make demo` makes one").unwrap_or_default();
    }
    let Some(images) = Images::new() else { return };
    if !has("qemu-system-x86_64") || !has("e2fsck") {
        return;
    }
    let copy = images.path("image");
    images.script("cp --sparse=always --reflink=auto \"$1\" image", [&original]);
    let overwritten = poison(&copy);
    assert!(overwritten > 100 << 20, "{overwritten} bytes are free");
    let check = "device=$(losetup --find --show --partscan image); trap 'losetup -d $device' EXIT
        sfdisk -J image | python3 -c 'import json, sys
for part in json.load(sys.stdin)[\"partitiontable\"][\"partitions\"]: print(part[\"start\"] * 512, part[\"size\"] * 512)' >parts
        while read -r start length; do
            part=$(losetup --read-only --find --show --offset $start --sizelimit $length image)
            if [[ $(blkid -p -o value -s TYPE $part) == ext4 ]]; then e2fsck -fn $part >&2 || bad=yes; echo checked; fi
            losetup -d $part
        done <parts; [[ -z ${bad-} ]]";
    assert!(images.script(check, [""; 0]).contains("checked"), "no ext4 was checked");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/boot-image.sh");
    let booted =
        Command::new(script).args(["--timeout", "560", "--log"]).arg(images.path("console")).arg(&copy).output();
    let booted = booted.unwrap();
    let console = std::fs::read_to_string(images.path("console")).unwrap_or_default();
    assert!(booted.status.success(), "{}\n{console}", String::from_utf8_lossy(&booted.stderr));
    tell(1, "boots of an image whose free bytes are noise");
}
