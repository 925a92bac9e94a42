//! Links, streams, names and encoded content, as Windows makes them; and what makes a volume unsure.

use onefold_guest::error::{Encoding, GuestError};
use onefold_guest::filesystem::{Doubt, ExtentKind, FileKind, FileNumber, FileSystem, State};

use super::damage::{change_attribute, write_at};
use super::{MOUNT, content, tools, tree, with_ntfs};
use crate::fixtures::Images;

/// Files that NTFS-3G lets a program make, though it does not read all of them.
const WINDOWS: &str = r#"
python3 - <<'END'
import os, struct
def reparse(name, tag, data):
    os.setxattr(name, "system.ntfs_reparse_data", struct.pack("<IHH", tag, len(data), 0) + data)
def link(name, target, flags):
    if flags is None: os.mkdir(name)
    else: open(name, "w").close()
    target = target.encode("utf-16-le")
    flags_bytes = b"" if flags is None else struct.pack("<I", flags)
    head = struct.pack("<HHHH", 0, len(target), len(target), 0) + flags_bytes
    reparse(name, 0xA0000003 if flags is None else 0xA000000C, head + target)
def file(name, content):
    with open(name, "wb") as file: file.write(content)
os.makedirs("Users/Public")
file("Users/Public/file", b"hello\n")
link("relative", "Users\\Public\\file", 1)
link("absolute", "\\??\\C:\\users\\public\\FILE", 0)
link("other drive", "\\??\\D:\\nothing", 0)
link("junction", "\\??\\C:\\Users", None)
file("linux", b"")
reparse("linux", 0xA000001D, struct.pack("<I", 2) + b"Users/Public")
for name, tag in ("overlay", 0x80000017), ("chunks", 0x80000013), ("cloud", 0x9000001A):
    file(name, b"x" * 100000)
    if name == "overlay": os.setxattr(name, "user.WofCompressedData", b"y" * 20000)
    reparse(name, tag, struct.pack("<IIII", 1, 2, 1, 0))
file("A long name.txt", b"dos\n")
os.setxattr("A long name.txt", "system.ntfs_dos_name", b"ALONGN~1.TXT")
file("encrypted", b"x" * 5000)
file("streams", b"main")
os.setxattr("streams", "user.first", b"one")
os.setxattr("streams", "user.Second", b"2" * 10000)
os.mkdir("compressed")
os.setxattr("compressed", "system.ntfs_attrib", struct.pack("<I", 0x800))
file("compressed/file", b"z" * 300000)
END
sync; umount ../mounted 2>/dev/null || { cd ..; umount mounted; }
"#;

/// Makes the image with the files of Windows.
fn windows() -> Option<Images> {
    if !tools() {
        return None;
    }
    let images = Images::new()?;
    images.script(&format!("{MOUNT}{WINDOWS}"), ["32M"]);
    Some(images)
}

#[test]
fn links_of_windows_lead_where_they_do_there() {
    let Some(images) = windows() else { return };
    with_ntfs(&images.path("image"), |ntfs| {
        let files = tree(ntfs);
        let target = |name: &str| {
            let (file, stat) = &files[name];
            assert_eq!(stat.kind, FileKind::SymbolicLink, "{name}");
            String::from_utf8(ntfs.read_link(*file).unwrap()).unwrap()
        };
        assert_eq!(target("relative"), "Users/Public/file");
        assert_eq!(target("absolute"), "/users/public/FILE");
        assert_eq!(target("other drive"), "D:/nothing");
        assert_eq!(target("junction"), "/Users");
        assert_eq!(target("linux"), "Users/Public");
        assert_eq!(files["relative"].1.size_bytes, 17);
        assert!(ntfs.read_link(files["streams"].0).is_err());
    });
}

/// NTFS-3G makes links, devices and pipes as Interix did: system files with a content of their own.
#[test]
fn every_file_belongs_to_root_and_files_of_interix_are_small_files() {
    if !tools() {
        return;
    }
    let Some(images) = Images::new() else { return };
    let script = "truncate -s 16M image; mkntfs -q -F -Q image >/dev/null 2>&1; mkdir mounted
        ntfs-3g -o permissions image mounted; cd mounted
        echo x >owned; chown 1000:1001 owned; chmod 640 owned; ln -s owned link; mknod device c 1 3; mkfifo pipe
        stat -c '%n %u %g %a %F' *; cd ..; umount mounted";
    let printed = images.script(script, [""; 0]);
    let (device, link) = ("device 0 0 644 character special file", "link 0 0 777 symbolic link");
    let expected = [device, link, "owned 1000 1001 640 regular file", "pipe 0 0 644 fifo"];
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
    with_ntfs(&images.path("image"), |ntfs| {
        let files = tree(ntfs);
        // The magic and the two numbers of a device; the magic and the target in UTF-16.
        for (name, size_bytes) in [("device", 24), ("link", 8 + 2 * 5), ("owned", 2), ("pipe", 0)] {
            let (file, stat) = &files[name];
            assert_eq!((stat.kind, stat.user, stat.group, stat.mode), (FileKind::Regular, 0, 0, 0o777), "{name}");
            assert_eq!(
                (stat.size_bytes, content(ntfs, *file, 0, 100).len() as u64),
                (size_bytes, size_bytes),
                "{name}"
            );
        }
        assert_eq!(content(ntfs, files["link"].0, 0, 100), b"IntxLNK\x01o\0w\0n\0e\0d\0");
    });
}

#[test]
fn encoded_content_is_mapped_and_not_read() {
    let Some(images) = windows() else { return };
    let image = images.path("image");
    let encrypted = with_ntfs(&image, |ntfs| tree(ntfs)["encrypted"].0);
    change_attribute(&image, encrypted.0, 0x80, |attribute| attribute[13] |= 0x40);
    with_ntfs(&image, |ntfs| {
        let files = tree(ntfs);
        for (name, encoding, stored_bytes) in [
            ("encrypted", Encoding::Encrypted, 8192),
            ("overlay", Encoding::Compressed, 20480),
            ("chunks", Encoding::Deduplicated, 102_400),
            ("compressed/file", Encoding::Compressed, 5 * 4096),
        ] {
            let (file, stat) = &files[name];
            assert_eq!((stat.kind, stat.encoding), (FileKind::Regular, Some(encoding)), "{name}");
            let mut found = 0;
            let outcome = ntfs.each_extent(*file, &mut |extent| {
                assert_eq!(extent.kind, ExtentKind::Encoded(encoding), "{name}");
                found += extent.length_bytes;
                std::ops::ControlFlow::Continue(())
            });
            outcome.unwrap();
            assert_eq!((found, stat.allocated_bytes), (stored_bytes, stored_bytes), "{name}");
            let outcome = ntfs.read(*file, 0, &mut [0; 10]);
            assert!(matches!(outcome, Err(GuestError::Encoded(found)) if found == encoding), "{name}: {outcome:?}");
        }
        assert_eq!(files["overlay"].1.size_bytes, 100_000);
        assert_eq!(files["cloud"].1.kind, FileKind::Other);
        assert!(matches!(ntfs.read(files["cloud"].0, 0, &mut [0; 10]), Err(GuestError::Unsupported(_))));
    });
}

#[test]
fn streams_are_files_and_attributes() {
    let Some(images) = windows() else { return };
    with_ntfs(&images.path("image"), |ntfs| {
        let streams = tree(ntfs)["streams"].0;
        let look_up = |name: &str| ntfs.look_up(ntfs.root(), name.as_bytes()).unwrap();
        let first = look_up("streams:first").unwrap();
        let second = look_up("STREAMS:sECOND").unwrap();
        assert_eq!((look_up("streams:third"), look_up("streams:"), look_up("stream:first")), (None, None, None));
        assert_eq!(content(ntfs, streams, 0, 10), b"main");
        assert_eq!(content(ntfs, first, 0, 10), b"one");
        assert_eq!(content(ntfs, second, 9_990, 20), [b'2'; 10]);
        assert_eq!(ntfs.stat(second).unwrap().size_bytes, 10_000);
        let attributes = ntfs.attributes(streams).unwrap();
        let found: Vec<_> = attributes.iter().map(|found| (found.name.as_slice(), found.value.len())).collect();
        assert_eq!(found, [(&b"user.Second"[..], 10_000), (b"user.first", 3)]);
        assert_eq!(ntfs.belongs_to(first).unwrap(), Some((streams, b":first".to_vec())));
        assert_eq!(ntfs.belongs_to(FileNumber(0)).unwrap(), Some((ntfs.root(), b"/$MFT".to_vec())));
        let own = ntfs.look_up(FileNumber(11), b"$ObjId").unwrap().unwrap();
        assert_eq!(ntfs.belongs_to(own).unwrap(), Some((FileNumber(11), b"/$ObjId".to_vec())));
        assert_eq!((ntfs.belongs_to(streams).unwrap(), ntfs.belongs_to(ntfs.root()).unwrap()), (None, None));
        let overlay = tree(ntfs)["overlay"].0;
        assert_eq!(ntfs.attributes(overlay).unwrap(), []);
    });
}

#[test]
fn a_file_with_many_streams_has_them_all_as_files_and_too_many_as_attributes() {
    if !tools() {
        return;
    }
    let Some(images) = Images::new() else { return };
    let fill = r#"python3 - <<'END'
import os
for name, count in ("few", 200), ("many", 300):
    open(name, "w").close()
    for stream in range(count):
        os.setxattr(name, f"user.stream {stream:03}", bytes([stream % 250]) * 60000)
END
ln many again
cd ..; umount mounted"#;
    images.script(&format!("{MOUNT}{fill}"), ["64M"]);
    with_ntfs(&images.path("image"), |ntfs| {
        let files = tree(ntfs);
        let (few, many) = (files["few"].0, files["many"].0);
        assert_eq!(ntfs.attributes(few).unwrap().len(), 200);
        assert!(matches!(ntfs.attributes(many), Err(GuestError::Unsupported(_))));
        assert_eq!(ntfs.stat(many).unwrap(), files["again"].1);
        let mut streams = 0;
        ntfs.each_file(&mut |file, stat| {
            if file.0 & 0xffff_ffff_ffff == many.0 && file != many {
                streams += 1;
                let value = u8::try_from(((file.0 >> 48) - 1) % 250).unwrap();
                assert_eq!(content(ntfs, file, 59_990, 20), [value; 10]);
                assert_eq!(stat.size_bytes, 60_000);
                assert_eq!(&ntfs.stat(file).unwrap(), stat);
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!((streams, ntfs.damage().count()), (300, 0));
    });
}

#[test]
fn devices_of_linux_have_their_numbers_or_are_something_else() {
    if !tools() {
        return;
    }
    let Some(images) = Images::new() else { return };
    let fill = r#"cd ..; umount mounted; ntfs-3g -o special_files=wsl image mounted; cd mounted; umask 022
mknod console c 5 1; mknod disk b 259 65537; mknod 'without number' c 5 2; mkfifo pipe
cd ..; umount mounted"#;
    images.script(&format!("{MOUNT}{fill}"), ["32M"]);
    let without = with_ntfs(&images.path("image"), |ntfs| tree(ntfs)["without number"].0);
    change_attribute(&images.path("image"), without.0, 0xe0, |attribute| {
        let name = attribute.windows(6).position(|found| found == b"$LXDEV").unwrap();
        attribute[name + 5] = b'X';
    });
    with_ntfs(&images.path("image"), |ntfs| {
        let files = tree(ntfs);
        let of = |name: &str| (files[name].1.kind, files[name].1.device);
        assert_eq!(of("console"), (FileKind::CharacterDevice, Some((5, 1))));
        assert_eq!(of("disk"), (FileKind::BlockDevice, Some((259, 65537))));
        assert_eq!(of("pipe"), (FileKind::Fifo, None));
        assert_eq!(of("without number"), (FileKind::Other, None));
    });
}

#[test]
fn names_are_found_without_their_case_and_by_their_dos_form() {
    let Some(images) = windows() else { return };
    with_ntfs(&images.path("image"), |ntfs| {
        let files = tree(ntfs);
        let (file, stat) = &files["A long name.txt"];
        assert_eq!(stat.links, 1);
        for name in ["A long name.txt", "a LONG name.TXT", "ALONGN~1.TXT", "alongn~1.txt"] {
            assert_eq!(ntfs.look_up(ntfs.root(), name.as_bytes()).unwrap(), Some(*file), "{name}");
        }
        assert_eq!(ntfs.look_up(ntfs.root(), b"A long name").unwrap(), None);
        assert_eq!(ntfs.look_up(ntfs.root(), b"\xff").unwrap(), None);
        assert_eq!(ntfs.look_up(ntfs.root(), b"$MFT").unwrap(), Some(FileNumber(0)));
        assert!(matches!(ntfs.look_up(*file, b"x"), Err(GuestError::NotADirectory)));
        assert!(matches!(ntfs.stat(FileNumber(1 << 40)), Err(GuestError::NotFound)));
        let facts = ntfs.facts();
        assert_eq!(
            (facts.label.as_slice(), facts.features.as_slice()),
            ("Größe 1".as_bytes(), &["version 3.1".to_owned()][..])
        );
        let uuid = images.script("blkid -o value -s UUID image", [""; 0]);
        assert_eq!(uuid.trim(), facts.uuid);
    });
}

/// Returns the restart page of a log with this client in use, flags and major version.
fn restart_page(client: u16, flags: u16, major: u8) -> Vec<u8> {
    let mut page = vec![0; 4096];
    page[..8].copy_from_slice(b"RSTR\x1e\0\x09\0");
    (page[17], page[21], page[24], page[28]) = (0x10, 0x10, 48, major);
    page[60..62].copy_from_slice(&client.to_le_bytes());
    page[62..64].copy_from_slice(&flags.to_le_bytes());
    page
}

#[test]
fn a_volume_in_use_dirty_or_hibernated_is_unsure() {
    let Some(images) = windows() else { return };
    let image = images.path("image");
    let state = || with_ntfs(&image, |ntfs| ntfs.state().clone());
    let unsure = |doubt| State::Unsure(vec![doubt]);
    assert_eq!(state(), State::Certain);
    let mut log = 0;
    with_ntfs(&image, |ntfs| {
        ntfs.each_extent(FileNumber(2), &mut |extent| {
            log = extent.place;
            std::ops::ControlFlow::Break(())
        })
        .unwrap();
    });
    for (page, expected) in [
        (restart_page(0, 0, 1), unsure(Doubt::DirtyLog)),
        (restart_page(0xffff, 0, 1), State::Certain),
        (restart_page(0, 2, 1), State::Certain),
        (restart_page(0xffff, 2, 2), unsure(Doubt::Hibernated)),
        (vec![0; 4096], unsure(Doubt::JournalDamaged)),
        (vec![0xff; 4096], State::Certain),
    ] {
        write_at(&image, log, &page.repeat(2));
        assert_eq!(state(), expected);
    }
    change_attribute(&image, 3, 0x70, |attribute| attribute[24 + 10] |= 1);
    assert_eq!(state(), unsure(Doubt::HasErrors));
    change_attribute(&image, 3, 0x70, |attribute| attribute[24 + 10] &= !1);
    for (content, expected) in [
        ("hibr", unsure(Doubt::Hibernated)),
        ("HIBR", unsure(Doubt::Hibernated)),
        ("wake", State::Certain),
        ("\\0\\0\\0\\0", State::Certain),
    ] {
        let script = format!(
            "ntfs-3g image mounted; {{ printf '{content}'; head -c 8000 /dev/zero; }} >mounted/hiberfil.sys
            umount mounted"
        );
        images.script(&script, [""; 0]);
        assert_eq!(state(), expected, "{content}");
        images.script("ntfs-3g -o remove_hiberfile image mounted; rm -f mounted/hiberfil.sys; umount mounted", [""; 0]);
    }
}

/// A directory had no length, so that looking names up in a giant one counted as little as in a small one.
#[test]
fn a_directory_is_as_long_as_the_mount_shows_it() {
    if !tools() {
        return;
    }
    let Some(images) = Images::new() else { return };
    let recipe = "mkdir many; for file in $(seq 300); do echo >many/\"a file with the number $file\"; done
        cd ..; umount mounted; ntfs-3g -o ro image mounted; stat --format %s mounted/many; umount mounted";
    let printed = images.script(&format!("{MOUNT}{recipe}"), ["16M"]);
    with_ntfs(&images.path("image"), |ntfs| {
        let many = ntfs.look_up(ntfs.root(), b"many").unwrap().unwrap();
        assert_eq!(format!("{}\n", ntfs.stat(many).unwrap().size_bytes), printed);
    });
}
