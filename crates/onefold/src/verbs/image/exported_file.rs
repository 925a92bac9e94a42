//! Name and permissions of the file of an exported image.

use crate::cli::values::OutputFormat;

/// Permissions of the exported file: its owner's only, because a reader of a disk can read all files on it.
pub(super) const FILE_MODE: u16 = 0o600;

/// Returns the name of an image's file in a directory.
pub(super) fn own_name(image: &str, format: Option<OutputFormat>) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    format!("{last}.{}", format.unwrap_or(OutputFormat::Raw).name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_in_a_directory_has_its_last_name_and_an_ending() {
        assert_eq!(own_name("web", None), "web.raw");
        assert_eq!(own_name("debian/12.5", Some(OutputFormat::Qcow2)), "12.5.qcow2");
    }
}
