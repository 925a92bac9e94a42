//! Tests of the files that an image may refer to, rule by rule.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::again::RepeatedWork;

/// A home folder with an image, and a folder beside it.
struct HomeFolder {
    top: tempfile::TempDir,
}

impl HomeFolder {
    fn new() -> HomeFolder {
        let tree = HomeFolder { top: tempfile::tempdir().unwrap() };
        for folder in ["home/.ssh", "other/deep"] {
            fs::create_dir_all(tree.path(folder)).unwrap();
        }
        for file in ["home/image", "home/base", "home/.ssh/key", "other/secret", "other/deep/base"] {
            fs::write(tree.path(file), file).unwrap();
        }
        tree
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    fn folders(&self, further: &[&str]) -> ImageFolders {
        let image = ImageFile::named(&self.path("home/image")).unwrap();
        let further: Vec<PathBuf> = further.iter().map(|name| self.path(name)).collect();
        ImageFolders::of(&image, &further).unwrap()
    }

    fn open(&self, name: &str, further: &[&str]) -> Result<ImageMember, ChainError> {
        let folders = self.folders(further);
        folders.open(Path::new(name), folders.image_folder())
    }
}

fn content(member: ImageMember) -> String {
    io::read_to_string(member.file.file).unwrap()
}

#[test]
fn files_directly_beside_the_image_are_followed() {
    let tree = HomeFolder::new();
    let absolute = tree.path("home/base");
    for name in ["base", "./base", "../home/base", ".ssh/../base", absolute.to_str().unwrap()] {
        assert_eq!(content(tree.open(name, &[]).unwrap()), "home/base", "{name}");
    }
}

/// Regression: `evil.qcow2` in a home folder named `.ssh/id_ed25519`, and the key ended up in the pool.
#[test]
fn files_below_the_images_folder_are_not() {
    let tree = HomeFolder::new();
    let absolute = tree.path("home/.ssh/key");
    for name in [".ssh/key", "./.ssh/key", "../home/.ssh/key", absolute.to_str().unwrap()] {
        let refused = tree.open(name, &[]);
        assert!(matches!(refused, Err(ChainError::Outside(_))), "{name}: {refused:?}");
    }
    assert_eq!(content(tree.open(".ssh/key", &["home/.ssh"]).unwrap()), "home/.ssh/key");
    assert_eq!(content(tree.open(".ssh/key", &["home"]).unwrap()), "home/.ssh/key");
}

#[test]
fn other_folders_are_followed_only_when_named() {
    let tree = HomeFolder::new();
    let absolute = tree.path("other/secret");
    for name in ["../other/secret", absolute.to_str().unwrap(), "/etc/passwd", "..", ".", "", "/", "../../../../.."] {
        let refused = tree.open(name, &[]);
        assert!(matches!(refused, Err(ChainError::Outside(_))), "{name}: {refused:?}");
    }
    for name in ["../other/secret", absolute.to_str().unwrap()] {
        assert_eq!(content(tree.open(name, &["other"]).unwrap()), "other/secret", "{name}");
        assert!(matches!(tree.open(name, &["other/deep"]), Err(ChainError::Outside(_))));
    }
    assert!(matches!(tree.open("../other", &["other"]), Err(ChainError::Outside(_))));
    assert!(matches!(tree.open("../other/deep", &["other"]), Err(ChainError::Unsuitable(_))));
    assert!(matches!(tree.open("../other/gone", &["other"]), Err(ChainError::Missing { .. })));
}

#[test]
fn names_of_a_further_file_are_relative_to_its_own_folder() {
    let tree = HomeFolder::new();
    let folders = tree.folders(&["other"]);
    let base = folders.open(Path::new("../other/deep/base"), folders.image_folder()).unwrap();
    let next = folders.open(Path::new("../secret"), &base.folder).unwrap();
    assert_eq!(content(next), "other/secret");
}

#[test]
fn links_are_not_followed_wherever_they_lead() {
    let tree = HomeFolder::new();
    symlink("base", tree.path("home/link")).unwrap();
    symlink(tree.path("other/secret"), tree.path("home/out")).unwrap();
    symlink("/etc/passwd", tree.path("other/out")).unwrap();
    symlink("deep", tree.path("other/folder")).unwrap();
    for name in ["link", "out", "../other/out"] {
        let refused = tree.open(name, &["other"]);
        assert!(matches!(refused, Err(ChainError::Link(_))), "{name}: {refused:?}");
    }
    assert!(matches!(tree.open("../other/folder/base", &["other"]), Err(ChainError::Link(_))));
}

#[test]
fn a_link_to_a_folder_only_spells_its_name() {
    let tree = HomeFolder::new();
    symlink("home", tree.path("images")).unwrap();
    symlink("other", tree.path("templates")).unwrap();
    let spelled = tree.path("images/base");
    assert_eq!(content(tree.open(spelled.to_str().unwrap(), &[]).unwrap()), "home/base");
    let spelled = tree.path("templates/secret");
    for named in ["templates", "other"] {
        assert_eq!(content(tree.open(spelled.to_str().unwrap(), &[named]).unwrap()), "other/secret");
    }
}

#[test]
fn pipes_folders_and_missing_files_are_refused() {
    let tree = HomeFolder::new();
    assert!(Command::new("mkfifo").arg(tree.path("home/pipe")).status().unwrap().success());
    assert!(matches!(tree.open("pipe", &[]), Err(ChainError::Unsuitable(_))));
    assert!(matches!(tree.open(".ssh", &[]), Err(ChainError::Unsuitable(_))));
    assert!(matches!(tree.open("gone", &[]), Err(ChainError::Missing { .. })));
    assert!(matches!(tree.open("base/x", &["home"]), Err(ChainError::Missing { .. })));
    assert!(matches!(tree.open("a\0b", &[]), Err(ChainError::Unopened { .. })));
    let image = ImageFile::named(&tree.path("home/pipe"));
    assert_eq!(image.unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_neighbour_of_another_owner_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can give a file away");
        return;
    }
    let tree = HomeFolder::new();
    std::os::unix::fs::chown(tree.path("home/image"), Some(65534), None).unwrap();
    let refused = tree.open("base", &[]);
    assert!(
        matches!(refused, Err(ChainError::OtherOwner { owner: 0, image_owner: 65534, .. })),
        "root's file beside a user's image: {refused:?}"
    );
    assert_eq!(content(tree.open("base", &["home"]).unwrap()), "home/base");
    std::os::unix::fs::chown(tree.path("home/base"), Some(65534), None).unwrap();
    assert_eq!(content(tree.open("base", &[]).unwrap()), "home/base");
}

#[test]
fn the_images_folder_is_the_one_that_has_it() {
    let tree = HomeFolder::new();
    // Through a link, the folder of the linked file counts.
    symlink(tree.path("home/image"), tree.path("other/image")).unwrap();
    let image = ImageFile::named(&tree.path("other/image")).unwrap();
    let folders = ImageFolders::of(&image, &[]).unwrap();
    assert_eq!(content(folders.open(Path::new("base"), folders.image_folder()).unwrap()), "home/base");

    // A removed file has no neighbours, even if another file now has its name.
    fs::rename(tree.path("other/secret"), tree.path("home/image")).unwrap();
    let folders = ImageFolders::of(&image, &[]).unwrap();
    assert!(matches!(folders.open(Path::new("base"), folders.image_folder()), Err(ChainError::Outside(_))));
}

#[test]
fn a_folder_that_is_replaced_during_a_run_stays_the_one_that_was_opened() {
    let tree = HomeFolder::new();
    let folders = tree.folders(&[]);
    let here = folders.image_folder().to_owned();
    fs::rename(tree.path("home"), tree.path("moved")).unwrap();
    symlink(tree.path("other"), tree.path("home")).unwrap();
    fs::write(tree.path("other/base"), "wrong").unwrap();
    assert_eq!(content(folders.open(Path::new("base"), &here).unwrap()), "home/base");
}

/// Regression: the path was checked first and opened afterwards, so a link created in between led anywhere.
#[test]
fn a_link_that_is_swapped_in_meanwhile_leads_nowhere() {
    let tree = HomeFolder::new();
    let (base, kept) = (tree.path("home/base"), tree.path("home/kept"));
    let folders = tree.folders(&[]);
    let again = RepeatedWork::default();
    let opened = thread::scope(|scope| {
        let _stop = again.stop_when_dropped();
        scope.spawn(|| {
            again.run(|| {
                fs::rename(&base, &kept).unwrap();
                symlink("../other/secret", &base).unwrap();
                fs::remove_file(&base).unwrap();
                fs::rename(&kept, &base).unwrap();
            });
        });
        let mut opened = 0;
        let started = Instant::now();
        for attempt in 0.. {
            // The other thread may be suspended for a while, with the file moved away.
            if attempt >= 20_000 && (opened > 0 || started.elapsed() > Duration::from_secs(30)) {
                break;
            }
            match folders.open(Path::new("base"), folders.image_folder()) {
                Ok(member) => {
                    assert_eq!(content(member), "home/base");
                    opened += 1;
                }
                Err(ChainError::Link(_) | ChainError::Missing { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        opened
    });
    assert!(opened > 0, "the file was never there");
}
