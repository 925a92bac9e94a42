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
    }
}
