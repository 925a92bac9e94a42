//! What real tools make and no reader here reads: it is named as `blkid` names it, and counted whole.

use onefold_guest::content::{self, VolumeContent};
use onefold_guest::filesystem::AllocationClass;

use super::{disk, whole};
use crate::fixtures::{Images, has};

/// Recognises the image that a tool made, and returns its name and details. The UUID that `blkid` prints is in the
/// details where `shows_uuid`.
fn named(images: &Images, tool: &str, script: &str, shows_uuid: bool) -> Option<(String, String)> {
    if !has(tool) {
        return None;
    }
    let setup = "rm -f image; truncate -s 300M image; mkdir -p folder; echo hello >folder/file\n";
    let uuid = images.script(&format!("{setup}{script}\nblkid -p -o value -s UUID image"), [""; 0]);
    let disk = disk(&images.path("image"));
    let reader = whole(&disk);
    let content = content::open(&reader, None);
    let runs = content.allocation(reader.size_bytes()).unwrap();
    assert_eq!(runs.iter().map(|run| run.class).collect::<Vec<_>>(), [AllocationClass::Doubtful], "{tool}");
    let VolumeContent::NotRead(found) = content else { panic!("{tool}: {content:?}") };
    assert_eq!(shows_uuid, found.detail.contains(uuid.trim()), "{tool}: {} {uuid}", found.detail);
    Some((found.name.to_owned(), found.detail))
}

#[test]
fn file_systems_without_a_reader_are_named() {
    let Some(images) = Images::new() else { return };
    for (tool, script, name, detail) in [
        ("mkfs.btrfs", "mkfs.btrfs -q -L 'the label' image", "Btrfs", "label the label, UUID"),
        ("mkfs.f2fs", "mkfs.f2fs -q -l 'the label' image", "F2FS", "label the label, UUID"),
        ("mkfs.ocfs2", "mkfs.ocfs2 -q -M local image", "OCFS2", ""),
        ("mkfs.erofs", "rm image; mkfs.erofs -U 12345678-1234-1234-1234-123456789abc image folder", "EROFS", "UUID"),
        ("mkfs.exfat", "mkfs.exfat image", "exFAT", "serial number "),
        ("mksquashfs", "rm image; mksquashfs folder image -comp xz -quiet", "squashfs", "version 4.0, xz compression"),
        ("xorriso", "rm image; xorriso -as mkisofs -quiet -V LABEL -o image folder", "ISO 9660", "label LABEL"),
    ] {
        let script = format!("{{ {script}; }} >/dev/null 2>&1");
        let shows_uuid = !matches!(tool, "mkfs.ocfs2" | "xorriso");
        if let Some((found, details)) = named(&images, tool, &script, shows_uuid) {
            assert_eq!(found, name);
            assert!(details.starts_with(detail), "{tool}: {details}");
        }
    }
}

#[test]
fn encryption_is_named_with_its_cipher() {
    let Some(images) = Images::new() else { return };
    let make = "echo secret | cryptsetup luksFormat -q --pbkdf-force-iterations 1000 --pbkdf pbkdf2";
    let one = format!("{make} --type luks1 -c aes-cbc-essiv:sha256 -s 128 image");
    let two = format!("{make} --type luks2 -c aes-xts-plain64 --label safe image");
    for (script, detail) in [
        (one, "version 1, cipher aes-cbc-essiv:sha256, key of 128 bits"),
        (two, "version 2, cipher aes-xts-plain64, label safe"),
    ] {
        if let Some((name, details)) = named(&images, "cryptsetup", &script, false) {
            assert_eq!((name.as_str(), details.as_str()), ("LUKS", detail));
        }
    }
}
