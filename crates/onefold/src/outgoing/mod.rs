//! Images that leave a pool or an archive: into a new file, a file of a directory, or standard output.

mod format;
mod new_file;
mod stream;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use onefold_block::Show;
use onefold_disk::{CopyResult, Disk, FileSink, ImageFormat, Qcow2Sink, copy, write_vmdk};

use crate::cli::values::OutputFormat;
use crate::failure::{Failure, Outcome};
use crate::progress::Meter;

pub(crate) use new_file::{UnpublishedFile, is_among_devices, no_device};
pub(crate) use stream::RawStream;

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
            Err(match output.exists() {
                true => failure.because_of("it is no directory").hint("give a directory, or export them one by one"),
                false => failure.because_of("there is no such directory").hint(making(output)),
            })
        }
        false if output.as_os_str().as_bytes().ends_with(b"/") => {
            Err(Failure::new(format!("cannot write into `{}`", output.shown()))
                .because_of("there is no such directory")
                .hint(making(output)))
        }
        false => Ok(output.to_owned()),
    }
}

/// Returns the hint that tells how to make a directory.
fn making(directory: &Path) -> String {
    format!("make it with `mkdir -p {}`", directory.shown())
}

/// Returns the format to write for the content of `disk` into the file `path`: the one `asked` for, or that of its
/// ending.
///
/// # Errors
/// When the ending and the format contradict each other.
pub(crate) fn format_of(path: &Path, disk: &dyn Disk, asked: Option<OutputFormat>) -> Outcome<OutputFormat> {
    let mut head = [0; HEAD_BYTES];
    disk.read(0, &mut head)?;
    format::choose(path, ImageFormat::of_head(&head), asked)
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
            OutputFormat::Vmdk => Ok(write_vmdk(disk, &file, name, &meter.on_progress())?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
