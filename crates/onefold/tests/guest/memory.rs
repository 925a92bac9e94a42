//! What verbs need in memory for very many files: as much as for few, beside the cache.

use crate::*;

/// Makes `image` with 100,000 empty files of long names, 30,000 of which have a second name: 26 MB of names.
const MAKE: &str = r#"set -e
cd "$0"; truncate -s 400M image; mke2fs -q -F -t ext4 -N 150000 image; mkdir mounted; mount -o loop image mounted
python3 -c '
import os
for directory in range(100):
    folder = "mounted/%d" % directory
    os.mkdir(folder)
    for number in range(1000):
        name = folder + "/" + "%04d" % number + "n" * 196
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
        if number < 300:
            os.link(name, folder + "/" + "%04d" % number + "m" * 196)
'
umount mounted"#;

/// The address space of a verb with a cache of 8 MiB, in KiB. The program itself takes up to 40 MB of it, as it is
/// built.
const LIMIT_KIB: &str = "48000";
/// The same for an archive, which notes the first name of each file with several.
const LIMIT_OF_TAR_KIB: &str = "60000";

#[test]
fn verbs_keep_no_names_of_the_files_that_they_go_through() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can mount");
        return;
    }
    if !has("mke2fs", "e2fsprogs") || !has("python3", "python3") {
        return;
    }
    let folder = Folder::new();
    run("unshare", &["--mount", "--propagation", "private", "bash", "-c", MAKE, text(&folder.path(""))]);
    let image = folder.path("image");
    let program = env!("CARGO_BIN_EXE_onefold");
    let limited = r#"ulimit -v "$0"; program=$1; shift; exec "$program" guest "$@" --memory 32M"#;
    for (verb, further) in [
        (&["info"][..], ""),
        (&["ls", "-R"], "/"),
        (&["ls", "-lR"], "/"),
        (&["find"], ""),
        (&["du"], "/"),
        (&["who"], "5M"),
        (&["diff"], text(&image)),
        (&["tar"], "/"),
    ] {
        let limit_kib = if verb == ["tar"] { LIMIT_OF_TAR_KIB } else { LIMIT_KIB };
        let further: &[&str] = if further.is_empty() { &[] } else { &[further] };
        let command = [&["-c", limited, limit_kib, program], verb, &[text(&image)], further].concat();
        let ended = Command::new("bash").args(command).stdout(Stdio::null()).output().unwrap();
        assert!(ended.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&ended.stderr));
    }
}
