//! Two systems on one disk, with partitions, file systems and identifiers that their own tools made.

use std::fs::File;
use std::path::Path;

use onefold_disk::{CachedDisk, FileDisk};
use onefold_guest::guest::Guest;
use onefold_guest::machine::{MachineKind, MachineVolume, machines};
use onefold_guest::tree::{Links, Tree};

use crate::fixtures::{Images, has};

/// A GPT with `/boot`, the root of a Linux, and a Windows that the Linux mounts. The Windows has names in another case.
const DISK: &str = r#"
truncate -s 96M image
sfdisk -q image <<<$'label: gpt\nstart=1M, size=16M\nsize=40M, name=linux\nsize=24M'
uuid=$(partx --raw --noheadings -o UUID --nr 1 image)

truncate -s 24M windows; mkntfs -q -Q -F -L data windows >/dev/null
mkdir mounted; ntfs-3g windows mounted
mkdir -p mounted/WINDOWS/System32 mounted/Users
{ printf 'MZ'; head -c 58 /dev/zero; printf '\x40\0\0\0PE\0\0\x64\xaa'; } >mounted/WINDOWS/System32/NTOSKRNL.EXE
echo hello >mounted/Users/note.txt
umount mounted

mkdir -p boot root/{boot,etc,windows,data} root/usr/{bin,lib/modules/6.1.0-9-test,lib/modules/6.1.0-10-test}
touch boot/vmlinuz-6.1.0-10-test
ln -s usr/bin root/bin; ln -s usr/lib root/lib
cp -L /bin/sh root/usr/bin/dash; ln -s dash root/usr/bin/sh
printf 'ID=test\nVERSION_ID=7\nPRETTY_NAME="A test"\n' >root/usr/lib/os-release
ln -s ../usr/lib/os-release root/etc/os-release
echo two-systems >root/etc/hostname
printf '%s\n' "PARTLABEL=linux / ext4 defaults 0 1" "PARTUUID=$uuid /boot ext4 defaults 0 2" \
    "UUID=$(blkid -p -o value -s UUID windows) /windows ntfs-3g ro" "LABEL=elsewhere /data xfs defaults" >root/etc/fstab
mke2fs -q -F -t ext2 -E offset=$((1 << 20)) -d boot image 16M
mke2fs -q -F -t ext4 -E offset=$((17 << 20)) -d root image 40M
dd if=windows of=image bs=1M seek=57 conv=notrunc status=none
"#;

#[test]
fn two_systems_on_a_disk_are_seen_with_what_each_mounts() {
    let Some(images) = Images::new() else { return };
    if !["sfdisk", "partx", "blkid", "mke2fs", "mkntfs", "ntfs-3g"].into_iter().all(has)
        || !Path::new("/dev/fuse").exists()
    {
        return;
    }
    images.script(DISK, [""; 0]);
    let path = images.path("image");
    let disk = FileDisk::new(File::open(&path).unwrap(), &path).unwrap();
    let disk = CachedDisk::new(&disk, 16 << 20);
    let guest = Guest::open(&disk).unwrap();
    let readable = guest.volumes().iter().filter_map(|volume| {
        let partition = volume.partition.as_ref()?;
        Some(MachineVolume {
            origin: volume.volume.origin.clone(),
            system: volume.file_system()?,
            partition_uuid: partition.uuid.clone(),
            partition_label: Some(partition.name.clone().into_bytes()),
        })
    });
    let found = machines(&readable.collect::<Vec<_>>());
    let [linux, windows] = &found[..] else { panic!("{found:?}") };

    let mounts: Vec<(&[u8], usize)> = linux.mounts.iter().map(|at| (at.path.as_slice(), at.volume)).collect();
    assert_eq!(mounts, [(&b"/"[..], 1), (b"/boot", 0), (b"/windows", 2)]);
    let missing: Vec<&[u8]> = linux.missing.iter().map(|at| at.entry.source_text.as_slice()).collect();
    assert_eq!(missing, [b"LABEL=elsewhere"]);
    assert_eq!(linux.release.as_ref().unwrap().pretty_name, "A test");
    assert_eq!(linux.host_name.as_deref(), Some(&b"two-systems"[..]));
    assert_eq!(linux.architecture.unwrap().name(), std::env::consts::ARCH);
    let kernels: Vec<_> =
        linux.kernels.iter().map(|kernel| (kernel.version.as_slice(), kernel.image.is_some())).collect();
    assert_eq!(kernels, [(&b"6.1.0-9-test"[..], false), (b"6.1.0-10-test", true)]);
    assert_eq!(text(&linux.tree, "/windows/users/NOTE.TXT"), "hello\n");
    assert_eq!(linux.problems.first(), []);

    assert_eq!((windows.kind, windows.mounts[0].volume), (MachineKind::Windows, 2));
    assert_eq!(windows.architecture.unwrap().name(), "aarch64");
    assert_eq!(text(&windows.tree, "/Users/note.txt"), "hello\n");
}

fn text(tree: &Tree<'_>, path: &str) -> String {
    let found = tree.find(path.as_bytes(), Links::Follow).unwrap();
    String::from_utf8(tree.read_whole(found.file, 1000).unwrap()).unwrap()
}
