//! Images that leave a pool or an archive: into a new file, a file of a directory, or standard output.

mod format;
mod new_file;
mod stream;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_disk::{CopyResult, Disk, FileSink, ImageFormat, Qcow2Sink, copy};

use crate::cli::values::OutputFormat;
use crate::failure::{Failure, Outcome};
use crate::progress::Meter;

use new_file::UnpublishedFile;
pub(crate) use stream::Stream;

/// Bytes by which the format of an image is recognised.
const HEAD_BYTES: usize = 512;

/// Returns whether `output` means standard output.
pub(crate) fn is_stream(output: &Path) -> bool {
    output.as_os_str() == "-"
}

/// Returns the file that an image with the name `own` gets: `output` itself, or a file of that name in it, if it is a
/// directory. Several images need a directory.
pub(crate) fn path_of(output: &Path, own: &OsStr, is_one_of_several: bool) -> Outcome<PathBuf> {
    match output.is_dir() {
        true => Ok(output.join(own)),
        false if is_one_of_several => {
            let failure = Failure::usage(format!("cannot write several images as `{}`", output.shown()));
            Err(failure.because_of("it is no directory").hint("give an existing directory, or export them one by one"))
        }
        false if output.as_os_str().as_bytes().ends_with(b"/") => {
            Err(Failure::new(format!("cannot write into `{}`", output.shown()))
                .because_of("there is no such directory"))
        }
        false => Ok(output.to_owned()),
    }
}

/// A new image file that is being filled.
pub(crate) struct OutgoingImage {
    file: UnpublishedFile,
    format: OutputFormat,
}

impl OutgoingImage {
    /// Makes the file `path` for the content of `disk`, which lets others do no more than `mode`. The format is the one
    /// `asked` for, or that of the file's ending.
    ///
    /// # Errors
    /// When the ending and the format contradict each other, or there is something of that name.
    pub(crate) fn create(
        path: &Path,
        disk: &dyn Disk,
        asked: Option<OutputFormat>,
        mode: u16,
    ) -> Outcome<OutgoingImage> {
        let mut head = [0; HEAD_BYTES];
        disk.read(0, &mut head)?;
        let format = format::choose(path, ImageFormat::of_head(&head), asked)?;
        Ok(OutgoingImage { file: UnpublishedFile::create(path, mode)?, format })
    }

    /// Returns the format that is written.
    pub(crate) fn format(&self) -> OutputFormat {
        self.format
    }

    /// Writes all of `disk`, makes it durable, and gives the file its name.
    pub(crate) fn write(self, disk: &dyn Disk, meter: &Meter) -> Outcome<CopyResult> {
        let copied = self.fill(disk, meter);
        meter.finish();
        let copied = copied?;
        self.file.publish()?;
        Ok(copied)
    }

    fn fill(&self, disk: &dyn Disk, meter: &Meter) -> Outcome<CopyResult> {
        let (file, name) = (self.file.descriptor()?, self.file.name());
        match self.format {
            OutputFormat::Raw => {
                let sink = FileSink::new(file, name, disk.size_bytes())?;
                let copied = copy(disk, &sink, &meter.on_progress())?;
                sink.sync()?;
                Ok(copied)
            }
            OutputFormat::Qcow2 => {
                let sink = Qcow2Sink::create(file, name, disk.size_bytes())?;
                let copied = copy(disk, &sink, &meter.on_progress())?;
                sink.sync()?;
                Ok(copied)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::interrupt::Interrupt;

    /// A disk of two blocks of ones.
    struct Ones;

    impl Disk for Ones {
        fn size_bytes(&self) -> u64 {
            8192
        }

        fn next_data(&self, offset: u64) -> Result<Option<std::ops::Range<u64>>, onefold_disk::DiskError> {
            Ok((offset < 8192).then_some(offset..8192))
        }

        fn read(&self, _: u64, into: &mut [u8]) -> Result<(), onefold_disk::DiskError> {
            into.fill(1);
            Ok(())
        }
    }

    /// Regression: a user of the directory replaced the new file by a link to another file; the export then wrote
    /// through the link, because it opened the file by its name again.
    #[test]
    fn a_link_in_place_of_the_new_file_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        for format in [OutputFormat::Raw, OutputFormat::Qcow2] {
            fs::write(&victim, "secret").unwrap();
            let image = OutgoingImage::create(&folder.path().join("out"), &Ones, Some(format), 0o644).unwrap();
            fs::remove_file(image.file.temporary()).unwrap();
            std::os::unix::fs::symlink(&victim, image.file.temporary()).unwrap();
            let meter = Meter::new("exporting", true, Interrupt::default());
            image.fill(&Ones, &meter).unwrap();
            assert_eq!(fs::read(&victim).unwrap(), b"secret");
        }
    }

    #[test]
    fn a_directory_takes_files_under_their_own_names() {
        let folder = tempfile::tempdir().unwrap();
        let own = OsStr::new("vm.raw");
        assert_eq!(path_of(folder.path(), own, true).unwrap(), folder.path().join("vm.raw"));
        let new = folder.path().join("new");
        assert_eq!(path_of(&new, own, false).unwrap(), new);
        assert!(path_of(&new, own, true).is_err());
        assert!(path_of(&new.join(""), own, false).is_err(), "a directory that does not exist");
    }
}
