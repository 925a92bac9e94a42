//! Content that no verb reads: variants of file systems that are refused, files that exist only in another form, and
//! places that the disk cannot read.

use crate::*;

/// Makes file systems that are refused. Their names, with the name of what is refused.
const REFUSED: [(&str, &str); 3] = [
    ("log.xfs", "XFS with an external log"),
    ("realtime.xfs", "XFS with a realtime device"),
    ("dirdata.ext4", "ext4 with data in directory entries (dirdata)"),
];

const MAKE_REFUSED: &str = r#"
    set -e; cd "$0"
    truncate -s 320M log.xfs realtime.xfs; truncate -s 64M log realtime; truncate -s 8M dirdata.ext4
    mkfs.xfs -q -l logdev=log,size=64m log.xfs
    mkfs.xfs -q -r rtdev=realtime realtime.xfs
    mke2fs -q -F -t ext4 -O ^metadata_csum dirdata.ext4
    printf '\302\022' | dd of=dirdata.ext4 bs=1 seek=$((1024 + 96)) conv=notrunc status=none"#;

/// Regression: `info` called them failed, and had the name only in the reason.
#[test]
fn a_refused_variant_is_not_read_by_its_name_in_every_verb() {
    if !has("mkfs.xfs", "xfsprogs") || !has("mke2fs", "e2fsprogs") {
        return;
    }
    let folder = Folder::new();
    run("sh", &["-c", MAKE_REFUSED, text(&folder.path(""))]);
    let archive = folder.path("archive");
    onefold("archive create", &[&archive]).done();
    for (image, name) in REFUSED.map(|(image, name)| (folder.path(image), name)) {
        let volume = &onefold("guest info --json", &[&image]).done().json()["images"][0]["volumes"][0];
        assert_eq!((&volume["holds"], &volume["state"]), (&name.into(), &"not read".into()), "{volume}");
        assert_eq!(volume["counts_whole_because"], format!("{name} is not read"));
        assert_eq!((&volume["free_bytes"], &volume["is_encrypted"]), (&0.into(), &false.into()), "{volume}");
        let told = onefold("guest info", &[&image]).done();
        let row = told.out.lines().find(|line| line.starts_with("the whole disk ")).unwrap();
        assert!(row.contains(name) && row.ends_with("not read"), "{told:?}");
        let warning = format!("the whole disk is not read: {name} cannot be read");
        assert!(told.err.contains(&warning), "{told:?}");
        let full = onefold("guest df", &[&image]).done();
        assert!(full.err.contains(&warning) && full.err.contains("has no file system that can be read"), "{full:?}");
        let listed = onefold("guest ls", &[&image]).failed(FAILED, "no file system on this disk can be read");
        assert!(listed.err.contains(&format!("the disk has these volumes: the whole disk ({name})")), "{listed:?}");
        let analysed = onefold("analyze --files", &[&image]).done();
        assert!(analysed.out.contains(&warning), "{analysed:?}");
        assert!(analysed.out.contains(&format!("not read: {name} ")), "{analysed:?}");
        onefold("image capture", &[&archive, &image, Path::new("one")]).done();
        let shown = onefold("image show", &[&archive, Path::new("one")]).done().out;
        let raw = format!("{name} at byte 0 was captured raw, ");
        assert!(shown.lines().any(|line| line.starts_with(&raw) && line.ends_with(&format!(": {name} is not read"))));
    }
}

const PLAIN: &str = "of the plain file\n";
const SECRET: &str = "never to be written\n";

/// Makes an ext4 with an encrypted file: the kernel would store other bytes, but the same inode.
const MAKE_ENCRYPTED: &str = r#"
    set -e; cd "$0"; truncate -s 16M image
    mke2fs -q -F -t ext4 -O encrypt -d tree image
    debugfs -w -R 'sif /folder/secret flags 0x80800' image 2>/dev/null"#;

#[test]
fn cat_and_tar_write_no_byte_of_an_encrypted_file_and_all_others() {
    if !has("mke2fs", "e2fsprogs") || !has("debugfs", "e2fsprogs") || !has("tar", "tar") {
        return;
    }
    let folder = Folder::new();
    let tree = folder.path("tree/folder");
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("plain"), PLAIN).unwrap();
    fs::write(tree.join("secret"), SECRET.repeat(1000)).unwrap();
    run("sh", &["-c", MAKE_ENCRYPTED, text(&folder.path(""))]);
    let image = folder.path("image");
    let guest = |verb: &str, paths: &[&str]| {
        let paths: Vec<&Path> = std::iter::once(image.as_path()).chain(paths.iter().map(Path::new)).collect();
        onefold(&format!("guest {verb}"), &paths)
    };
    assert!(guest("ls -l", &["/folder/secret"]).done().out.ends_with("/folder/secret (encrypted)\n"));
    let why = "the content is encrypted, and is not decoded";
    let written = guest("cat", &["/folder/secret", "/folder/plain"]).failed(FAILED, "cannot read `/folder/secret`");
    assert!(written.out == PLAIN && written.err.contains(why), "{written:?}");
    let archive = guest("tar", &["/folder"]).failed(FAILED, "cannot read `/folder/secret`");
    assert!(archive.err.contains(why) && archive.out.contains(PLAIN), "{archive:?}");
    assert!(!archive.out.contains(SECRET.trim()) && !archive.out.contains("secret\0"), "{archive:?}");
    fs::write(folder.path("saved.tar"), &archive.out).unwrap();
    assert_eq!(run("tar", &["-tf", text(&folder.path("saved.tar"))]), "folder/\nfolder/plain\n");
}

/// A loop device whose image has become shorter: the kernel fails all reads behind the end with EIO.
struct CutDevice(String);

impl CutDevice {
    /// Returns `None`, and says so, where only root could make it.
    fn new(image: &Path, kept_bytes: u64) -> Option<CutDevice> {
        if !rustix::process::geteuid().is_root() || !has("losetup", "mount") {
            eprintln!("SKIPPED: only root can make loop devices");
            return None;
        }
        let device = CutDevice(run("losetup", &["--find", "--show", "--read-only", text(image)]).trim().to_owned());
        OpenOptions::new().write(true).open(image).unwrap().set_len(kept_bytes).unwrap();
        Some(device)
    }
}

impl Drop for CutDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_place_in_a_file_that_the_disk_cannot_read_is_told_and_the_rest_goes_on() {
    let content: Vec<u8> = (0..4_u64 << 20).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    let Some(fixture) = Fixture::with(|tree| fs::write(tree.join("srv/big"), &content).unwrap()) else { return };
    let blocks = fixture.blocks("/srv/big");
    let kept_blocks = blocks[blocks.len() / 2];
    let before = blocks.iter().take_while(|block| **block < kept_blocks).count() as u64 * BLOCK_BYTES;
    let others = ["/etc/hostname", "/srv/sizes/1", "/srv/sizes/4096", "/srv/sizes/4097", "/srv/deep/a/b/c/file"];
    let is_kept = |path: &&str| fixture.blocks(path).iter().all(|block| *block < kept_blocks);
    let rest = others.into_iter().find(is_kept).unwrap();
    let Some(device) = CutDevice::new(&fixture.image, PARTITION_BYTES + kept_blocks * BLOCK_BYTES) else { return };
    for verb in ["cat", "tar"] {
        let ended = Command::new(env!("CARGO_BIN_EXE_onefold"))
            .args(["guest", verb, &device.0, "/srv/big", rest])
            .output()
            .unwrap();
        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(DAMAGE), "{verb}: {told}");
        let place =
            format!("at byte {} of the disk: the disk cannot read it", PARTITION_BYTES + kept_blocks * BLOCK_BYTES);
        assert!(told.contains("cannot read `/srv/big`") && told.contains(&place), "{verb}: {told}");
        let whole = fs::read(fixture.tree.join(&rest[1..])).unwrap();
        if verb == "cat" {
            let big = &ended.stdout[..ended.stdout.len() - whole.len()];
            assert!(content.starts_with(big) && big.len() as u64 <= before && ended.stdout.ends_with(&whole), "{told}");
            continue;
        }
        assert!(told.contains("the end of `/srv/big` is zeros in the archive"), "{told}");
        let archive = fixture.folder.path("saved.tar");
        fs::write(&archive, &ended.stdout).unwrap();
        let unpacked =
            |path: &str| Command::new("tar").args(["-xOf", text(&archive), &path[1..]]).output().unwrap().stdout;
        assert!(unpacked(rest) == whole, "the next member");
        let big = unpacked("/srv/big");
        let differing = big.iter().zip(&content).position(|(one, two)| one != two).unwrap();
        assert!(big.len() == content.len() && differing as u64 <= before, "{differing}");
        assert!(big[differing..].iter().all(|byte| *byte == 0), "nothing else is in the place of what cannot be read");
    }
}
