//! Explains to users why a disk or an image cannot be used. No other module decides this.

use std::io::{self, ErrorKind};

use onefold_disk::{ChainError, DiskError, FileAction, ImageAction, ImageError, ImageFormat, LongWork, RoomError};
use onefold_image::HeaderError;
use onefold_image::archive::ArchiveError;

use super::{Exit, Failure, TOO_LARGE};

const ANOTHER_TMPDIR: &str = "set TMPDIR to a directory with enough room";

impl Failure {
    /// Returns the failure for an error of a disk.
    pub(crate) fn of_disk(error: &DiskError) -> Failure {
        let text = error.to_string();
        match error {
            DiskError::File { action, source, .. } => {
                let failure = Failure::of_io(text, source);
                match (action, source.kind()) {
                    (FileAction::Write, ErrorKind::StorageFull) => {
                        failure.hint("make room there; no file of that name was made")
                    }
                    _ => failure,
                }
            }
            DiskError::Image {
                action: ImageAction::Open,
                format: ImageFormat::Qcow2,
                source: ImageError::Io(io),
                ..
            } => Failure::of_io(text, io).hint("if this is not a qcow2 image but a raw one, give --format raw"),
            DiskError::Image { action: ImageAction::Write, source: source @ ImageError::Complaint(why), .. } => {
                Failure::new(text).because(source).hint(match why.contains("No space left on device") {
                    true => "make room there; no file of that name was made",
                    false => "raw and qcow2 images need no other program: .raw, .qcow2",
                })
            }
            DiskError::Image { source, .. } => of_image(text, source),
            DiskError::TemporaryFile { source, .. } => Failure::new(text).because(source).hint(ANOTHER_TMPDIR),
            DiskError::TemporaryCopy { source, .. } => match source {
                RoomError::Unknown(io) => Failure::of_io(text, io),
                RoomError::TooLittle { .. } => Failure::new(text).because(source).hint(ANOTHER_TMPDIR),
            },
            DiskError::Stopped(work) => Failure { exit: Exit::Interrupted, ..Failure::new(text) }.hint(match work {
                LongWork::Copying => "no file of that name was made",
                LongWork::Converting => "no image was made, and no temporary file is left",
            }),
            // Disks and sinks of this program report failures as their errors.
            DiskError::Other(other) => {
                if let Some(failure) = other.downcast_ref::<Failure>() {
                    return failure.clone();
                }
                if let Some(error) = other.downcast_ref::<ArchiveError>() {
                    return Failure::of_archive("cannot read the archived image", error);
                }
                if let Some(error) = other.downcast_ref::<HeaderError>() {
                    return Failure::of_header("cannot read the archived image", error);
                }
                other.source().map_or(Failure::new(&text), |cause| Failure::new(&text).because(cause))
            }
        }
    }
}

fn of_image(text: String, error: &ImageError) -> Failure {
    let hint = match error {
        ImageError::Io(io) => return Failure::of_io(text, io),
        ImageError::Chain(why) => chain_hint(why),
        ImageError::TooLarge => Some(TOO_LARGE),
        ImageError::BackingFormat { .. } => {
            Some("backing files are read as qcow2 or raw; `qemu-img convert` makes one image of the chain")
        }
        ImageError::OtherFiles => Some("`qemu-img convert` makes one image of the chain"),
        ImageError::Differencing { .. } => Some("merge it with its parent first, with the program that made it"),
        ImageError::Descriptor(_) => Some("`qemu-img convert` makes one file of the disk, which can be imported"),
        ImageError::InnerDescriptor(_) | ImageError::Changed(_) => {
            Some("`qemu-img convert` makes an ordinary image of it")
        }
        ImageError::NotStarted(io) => not_started_hint(io),
        ImageError::Complaint(_) => {
            Some("`qemu-img info --backing-chain` and `qemu-img check` tell more about the image")
        }
        ImageError::Empty | ImageError::DataFileUnnamed | ImageError::Endless | ImageError::Answer(_) => None,
    };
    let failure = Failure::new(text).because(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn not_started_hint(error: &io::Error) -> Option<&'static str> {
    (error.kind() == ErrorKind::NotFound).then_some("install QEMU's tools (Debian: `apt-get install qemu-utils`)")
}

fn chain_hint(error: &ChainError) -> Option<&'static str> {
    match error {
        ChainError::Protocol(_) => Some("bring the file here and name it with `qemu-img rebase -u`"),
        ChainError::Outside(_) => Some(
            "an image may refer to files directly in its own folder; if you trust the image, allow another folder with \
             --backing-from (or give --format raw if it is raw)",
        ),
        ChainError::OtherOwner { .. } | ChainError::Device(_) => {
            Some("if you trust the image, allow the folder of that file with --backing-from")
        }
        ChainError::Link(_) => Some("let the image name the file itself with `qemu-img rebase -u`"),
        ChainError::Loop(_) | ChainError::TooLong { .. } => {
            Some("`qemu-img info --backing-chain` shows the chain; `qemu-img rebase -u` mends it")
        }
        ChainError::Missing { .. } => Some("bring the file back to where the image expects it"),
        ChainError::Unsuitable(_) | ChainError::Unopened { .. } => None,
    }
}

impl From<DiskError> for Failure {
    fn from(error: DiskError) -> Failure {
        Failure::of_disk(&error)
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for DiskError {
    fn from(failure: Failure) -> DiskError {
        DiskError::Other(Box::new(failure))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::failure::Exit;

    #[test]
    fn a_failure_comes_back_from_a_disk_as_it_was() {
        let failure = Failure { exit: Exit::Damage, ..Failure::new("a").because_of("b").hint("c") };
        assert_eq!(Failure::from(DiskError::from(failure.clone())), failure);
        let foreign = Failure::from(DiskError::Other("the disk is gone".into()));
        assert_eq!(foreign, Failure::new("the disk is gone"));
    }

    fn of_image(action: ImageAction, format: ImageFormat, source: ImageError) -> String {
        Failure::of_disk(&DiskError::Image { action, format, path: PathBuf::from("a\n"), source }).to_string()
    }

    #[test]
    fn a_failed_image_is_told_with_its_cause_and_the_next_step() {
        let missing = || io::Error::from(ErrorKind::NotFound);
        let chain = ChainError::Missing { path: PathBuf::from("b"), source: missing() };
        assert_eq!(
            of_image(ImageAction::Open, ImageFormat::Qcow2, chain.into()),
            "error: cannot open the qcow2 image `a\\n`\n  cause: cannot find `b`\n  cause: entity not found\n  \
             hint: bring the file back to where the image expects it"
        );
        assert_eq!(
            of_image(ImageAction::Read, ImageFormat::Vdi, ImageError::NotStarted(missing())),
            "error: cannot read the vdi image `a\\n`\n  cause: cannot start qemu-img: entity not found\n  \
             hint: install QEMU's tools (Debian: `apt-get install qemu-utils`)"
        );
        // A program that fails without a message gives no cause.
        assert_eq!(
            of_image(ImageAction::Read, ImageFormat::Vhdx, ImageError::Complaint(String::new())),
            "error: cannot read the vhdx image `a\\n`\n  \
             hint: `qemu-img info --backing-chain` and `qemu-img check` tell more about the image"
        );
        let broken = || ImageError::Io(io::Error::other("no magic"));
        assert!(of_image(ImageAction::Open, ImageFormat::Qcow2, broken()).contains("--format raw"));
        assert!(!of_image(ImageAction::Read, ImageFormat::Qcow2, broken()).contains("hint"));
        assert!(of_image(ImageAction::Read, ImageFormat::Vmdk, ImageError::TooLarge).ends_with("at most 16 TiB"));
    }

    #[test]
    fn a_folder_for_temporary_files_without_room_is_told_with_its_numbers() {
        let source = RoomError::TooLittle { free_bytes: 1 << 20, kept_bytes: 64 << 20 };
        let failure = Failure::of_disk(&DiskError::TemporaryCopy { folder: PathBuf::from("/tmp"), source });
        assert_eq!(failure.causes, ["1.00 MiB are free there, and 64.00 MiB stay free"]);
        assert_eq!(failure.hint.as_deref(), Some(ANOTHER_TMPDIR));
        let source = io::Error::from(ErrorKind::FileTooLarge);
        let made = DiskError::TemporaryFile { size_bytes: 5 << 30, folder: PathBuf::from("/tmp"), source };
        let failure = Failure::of_disk(&made);
        assert_eq!(failure.error, "cannot make a temporary file of 5.00 GiB in `/tmp`");
        assert_eq!(failure.hint.as_deref(), Some(ANOTHER_TMPDIR));
    }
}
