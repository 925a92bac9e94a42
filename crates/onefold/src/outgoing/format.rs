//! The format of an outgoing image, chosen by the name of its file.

use std::path::Path;

use onefold_block::Show;
use onefold_disk::ImageFormat;

use crate::cli::values::OutputFormat;
use crate::failure::{Failure, Outcome};

/// Endings of image files, with the format that each of them promises.
const ENDINGS: [(&str, ImageFormat); 7] = [
    ("raw", ImageFormat::Raw),
    ("img", ImageFormat::Raw),
    ("qcow2", ImageFormat::Qcow2),
    ("vmdk", ImageFormat::Vmdk),
    ("vdi", ImageFormat::Vdi),
    ("vhdx", ImageFormat::Vhdx),
    ("vhd", ImageFormat::Vpc),
];

/// Returns the format to write into the file `path`: the one `asked` for, otherwise that of the file's ending,
/// otherwise raw. `content` is the format that the bytes of the disk themselves have: a disk may be a copy of an image
/// file, and written one to one it has that format again.
///
/// # Errors
/// When the file would not be what its ending promises.
pub(super) fn choose(path: &Path, content: ImageFormat, asked: Option<OutputFormat>) -> Outcome<OutputFormat> {
    let promised = path.extension().and_then(|ending| {
        let found = ENDINGS.iter().find(|(known, _)| ending.eq_ignore_ascii_case(known));
        found.map(|(_, format)| *format)
    });
    let written = |format| match format {
        OutputFormat::Raw => content,
        OutputFormat::Qcow2 => ImageFormat::Qcow2,
        OutputFormat::Vmdk => ImageFormat::Vmdk,
    };
    let by_ending = match promised {
        Some(ImageFormat::Qcow2) if content == ImageFormat::Raw => OutputFormat::Qcow2,
        Some(ImageFormat::Vmdk) if content == ImageFormat::Raw => OutputFormat::Vmdk,
        _ => OutputFormat::Raw,
    };
    let format = asked.unwrap_or(by_ending);
    match promised {
        // A guest may have written the signature of an image into its disk. The user's word counts.
        Some(ImageFormat::Raw) if asked == Some(OutputFormat::Raw) => Ok(format),
        Some(promised) if promised != written(format) => {
            let failure = Failure::usage(format!("cannot write `{}`", path.shown()));
            let failure = failure.because_of(format!(
                "its ending promises {}, and the file would be {}",
                promised.name(),
                written(format).name()
            ));
            Err(failure.hint(match promised {
                ImageFormat::Raw | ImageFormat::Qcow2 | ImageFormat::Vmdk => {
                    "give a name with another ending, or another --format"
                }
                _ => "export a file that ends in .qcow2, then run `qemu-img convert`",
            }))
        }
        _ => Ok(format),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_decides_unless_a_format_is_given() {
        let raw = |name: &str, asked| choose(Path::new(name), ImageFormat::Raw, asked).ok();
        for (name, asked, format) in [
            ("a.qcow2", None, Some(OutputFormat::Qcow2)),
            ("a.QCOW2", None, Some(OutputFormat::Qcow2)),
            ("a.raw", None, Some(OutputFormat::Raw)),
            ("a.img", None, Some(OutputFormat::Raw)),
            ("debian-12.5", None, Some(OutputFormat::Raw)),
            ("a", Some(OutputFormat::Qcow2), Some(OutputFormat::Qcow2)),
            ("a.qcow2", Some(OutputFormat::Qcow2), Some(OutputFormat::Qcow2)),
            ("a.qcow2", Some(OutputFormat::Raw), None),
            ("a.raw", Some(OutputFormat::Qcow2), None),
            ("a.vmdk", None, Some(OutputFormat::Vmdk)),
            ("a.vmdk", Some(OutputFormat::Qcow2), None),
            ("a.vdi", None, None),
            ("a.vhd", Some(OutputFormat::Raw), None),
        ] {
            assert_eq!(raw(name, asked), format, "{name} {asked:?}");
        }
    }

    /// Regression: a pool may hold image files as they are. An image within an image boots nowhere.
    #[test]
    fn an_image_file_is_not_wrapped_into_a_second_image() {
        let qcow2 = |name: &str, asked| choose(Path::new(name), ImageFormat::Qcow2, asked).ok();
        assert_eq!(qcow2("a.qcow2", None), Some(OutputFormat::Raw));
        assert_eq!(qcow2("a.raw", None), None);
        assert_eq!(qcow2("a.raw", Some(OutputFormat::Raw)), Some(OutputFormat::Raw));
        let vmdk = choose(Path::new("a.vmdk"), ImageFormat::Vmdk, None);
        assert_eq!(vmdk.ok(), Some(OutputFormat::Raw));
    }
}
