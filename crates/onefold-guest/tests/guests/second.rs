//! Second opinions: readers of others, in Rust as well, on the same images. `ext4-view` applies journals, too.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ext4_view::{Ext4, Ext4Error};
use lamxfs::{BlockRead, EntryKind, Inode};
use onefold_guest::filesystem::{ExtentKind, FileKind, FileNumber, FileStat, FileSystem};

/// The longest file whose content is compared.
const COMPARED_BYTES_MAX: u64 = 32 << 20;

/// Returns the names of a directory with their files, in order; without those of the directory itself and of its
/// parent.
fn names(fs: &dyn FileSystem, directory: FileNumber) -> Vec<(Vec<u8>, FileNumber)> {
    let mut names = Vec::new();
    fs.each_entry(directory, &mut |entry| {
        names.push((entry.name, entry.file));
        ControlFlow::Continue(())
    })
    .unwrap();
    names.sort();
    names
}

fn content(fs: &dyn FileSystem, file: FileNumber, stat: &FileStat) -> Vec<u8> {
    let mut content = vec![0xaa; usize::try_from(stat.size_bytes).unwrap()];
    assert_eq!(fs.read(file, 0, &mut content).unwrap(), content.len());
    content
}

fn has_unwritten(fs: &dyn FileSystem, file: FileNumber) -> bool {
    let mut found = false;
    fs.each_extent(file, &mut |extent| {
        found |= extent.kind == ExtentKind::Unwritten;
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

/// Compares all that `ext4-view` tells of an image with what a reader of ours tells. Returns how many files were
/// compared; `None` where it refuses the file system's features.
pub(crate) fn compare_ext(image: &Path, ours: &dyn FileSystem) -> Option<usize> {
    let theirs = match Ext4::load_from_path(image) {
        Ok(theirs) => theirs,
        Err(Ext4Error::Incompatible(_)) => return None,
        Err(error) => panic!("{error}"),
    };
    match theirs.metadata("/") {
        // Inodes of 128 bytes have one half of a checksum, and the other one is missed there.
        Err(Ext4Error::Corrupt(error)) if error.to_string() == "inode 2 is truncated: size=128" => return None,
        root => assert!(root.unwrap().is_dir()),
    }
    let mut compared = 0;
    let mut directories = vec![(b"/".to_vec(), ours.root())];
    while let Some((path, directory)) = directories.pop() {
        let listed =
            theirs.read_dir(path.as_slice()).unwrap().map(|entry| entry.unwrap().file_name().as_ref().to_vec());
        let mut listed: Vec<Vec<u8>> = listed.filter(|name| name != b"." && name != b"..").collect();
        listed.sort();
        let names = names(ours, directory);
        assert!(names.iter().map(|(name, _)| name).eq(&listed), "names of {}", path.escape_ascii());
        for (name, file) in names {
            let path = [path.as_slice(), b"/", &name].concat();
            let shown = path.escape_ascii();
            let stat = ours.stat(file).unwrap();
            if i32::try_from(stat.modified.seconds).map_or(true, |seconds| seconds < 0) {
                // They take times before 1970 and after 2038 for damage.
                continue;
            }
            let other = theirs.symlink_metadata(path.as_slice()).unwrap();
            let kind = other.file_type();
            let is_same_kind = match stat.kind {
                FileKind::Regular => kind.is_regular_file(),
                FileKind::Directory => kind.is_dir(),
                FileKind::SymbolicLink => kind.is_symlink(),
                FileKind::CharacterDevice => kind.is_char_dev(),
                FileKind::BlockDevice => kind.is_block_dev(),
                FileKind::Fifo => kind.is_fifo(),
                FileKind::Socket => kind.is_socket(),
                FileKind::Other => false,
            };
            assert!(is_same_kind, "{shown}: {:?}", stat.kind);
            let (mode, their_mode) = (stat.mode & 0o7777, other.mode() & 0o7777);
            assert_eq!((mode, stat.user, stat.group), (their_mode, other.uid(), other.gid()), "{shown}");
            assert_eq!(stat.size_bytes, other.len(), "{shown}");
            let modified = (other.modified().seconds(), other.modified().nanoseconds());
            assert_eq!((stat.modified.seconds, stat.modified.nanoseconds), modified, "{shown}");
            match stat.kind {
                FileKind::Directory => directories.push((path, file)),
                FileKind::SymbolicLink => {
                    // They refuse links with blocks of their own that the kernel reads, on ext2 and ext3.
                    let target = theirs.read_link(path.as_slice());
                    match target {
                        Ok(target) => assert_eq!(ours.read_link(file).unwrap(), target.as_ref(), "{shown}"),
                        Err(error) => assert!(stat.size_bytes >= 60, "{shown}: {error}"),
                    }
                }
                // They read what the blocks of unwritten extents hold.
                FileKind::Regular if stat.size_bytes <= COMPARED_BYTES_MAX && !has_unwritten(ours, file) => {
                    assert!(theirs.read(path.as_slice()).unwrap() == content(ours, file, &stat), "content of {shown}");
                }
                _ => {}
            }
            compared += 1;
        }
    }
    Some(compared)
}

/// An image as `lamxfs` reads it.
struct Image(File);

impl BlockRead for Image {
    type Error = std::io::Error;

    fn read_at(&mut self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), Self::Error> {
        self.0.read_exact_at(buf, offset_bytes)
    }
}

/// As [`compare_ext`], for XFS and `lamxfs`, which tells no owners and times.
pub(crate) fn compare_xfs(image: &Path, ours: &dyn FileSystem) -> Option<usize> {
    let file = File::open(image).unwrap();
    let size_bytes = file.metadata().unwrap().len();
    let mut theirs = match lamxfs::Xfs::open(Image(file), size_bytes) {
        Ok(theirs) => theirs,
        Err(error) if error.token().starts_with("feat_") => return None,
        Err(error) => panic!("{error}"),
    };
    let mut compared = 0;
    let mut directories = vec![(Vec::new(), ours.root())];
    while let Some((path, directory)) = directories.pop() {
        let mut listed = theirs.read_dir(lamxfs::Path::new(&[b"/", path.as_slice()].concat())).unwrap();
        listed.retain(|entry| entry.name != b"." && entry.name != b"..");
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        let names = names(ours, directory);
        assert_eq!(names.len(), listed.len(), "{}", path.escape_ascii());
        for ((name, file), other) in names.into_iter().zip(listed) {
            let path = [path.as_slice(), b"/", &name].concat();
            let shown = path.escape_ascii();
            assert_eq!((&name, file.0), (&other.name, other.inode_number), "{shown}");
            let stat = ours.stat(file).unwrap();
            let inode = Inode { ino: other.inode_number };
            let metadata = theirs.metadata(&inode).unwrap();
            assert_eq!(
                (stat.size_bytes, u32::from(stat.mode & 0o7777)),
                (metadata.size(), metadata.mode() & 0o7777),
                "{shown}"
            );
            let kind = match stat.kind {
                FileKind::Regular => EntryKind::Regular,
                FileKind::Directory => EntryKind::Directory,
                FileKind::SymbolicLink => EntryKind::Symlink,
                _ => EntryKind::Other,
            };
            assert!(kind == other.kind, "{shown}: {kind:?}");
            match stat.kind {
                FileKind::Directory => directories.push((path, file)),
                FileKind::SymbolicLink => {
                    let target = theirs.read_link(lamxfs::Path::new(&path)).unwrap();
                    assert_eq!(ours.read_link(file).unwrap(), target, "{shown}");
                }
                FileKind::Regular if stat.size_bytes <= COMPARED_BYTES_MAX => {
                    let content = content(ours, file, &stat);
                    let mut read = vec![0x55; content.len()];
                    assert_eq!(theirs.read_file_at(&inode, 0, &mut read).unwrap(), content.len(), "{shown}");
                    assert!(read == content, "content of {shown}");
                }
                _ => {}
            }
            compared += 1;
        }
    }
    Some(compared)
}
