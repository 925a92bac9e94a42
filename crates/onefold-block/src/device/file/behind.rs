//! The file behind a loop device.
//!
//! A lock on a loop device does not lock its backing file, nor the other way round: a process that opens one would not
//! notice a process that has the other open. So the backing file is locked as well.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Opens the backing file of the block device with this `metadata`; `None` if it is no loop device, or no name leads to
/// the backing file any more.
pub(super) fn open_behind(metadata: &Metadata) -> Option<File> {
    let number = metadata.rdev();
    let device = format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    // A partition's folder lies in that of its disk.
    let told = fs::read(Path::new(&device).join("loop/backing_file"))
        .or_else(|_| fs::read(Path::new(&device).join("../loop/backing_file")))
        .ok()?;
    let path = path_of(told)?;
    // Checked before opening: by now the name may lead to anything.
    fs::metadata(&path).ok().filter(Metadata::is_file)?;
    File::open(path).ok()
}

/// Returns the path in the kernel's answer, which is one line.
fn path_of(mut told: Vec<u8>) -> Option<PathBuf> {
    (told.pop()? == b'\n').then(|| PathBuf::from(OsString::from_vec(told)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_loop_device_has_no_file_behind_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(open_behind(&file.as_file().metadata().unwrap()).is_none());
        assert!(open_behind(&fs::metadata("/dev/null").unwrap()).is_none());
    }

    #[test]
    fn the_kernels_word_is_a_line() {
        assert_eq!(path_of(b"/data/a b.pool\n".to_vec()), Some("/data/a b.pool".into()));
        assert_eq!(path_of(b"cut off".to_vec()), None);
        assert_eq!(path_of(Vec::new()), None);
    }
}
