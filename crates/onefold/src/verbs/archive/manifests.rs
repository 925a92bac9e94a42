//! The manifests of all images of an archive, some of which may be damaged.

use onefold_image::archive::{Archive, ArchiveError, ImageRecord};
use onefold_image::format::manifest::Manifest;
use serde_json::{Value, json};

use crate::calendar;
use crate::failure::{Exit, Failure};

/// The images of an archive: those whose manifests can be read, and the others.
#[derive(Default)]
pub(crate) struct Manifests {
    pub(crate) images: Vec<(ImageRecord, Manifest)>,
    pub(crate) unread: Vec<UnreadManifest>,
}

/// An image whose manifest cannot be read. The ledger has its name and its time.
pub(crate) struct UnreadManifest {
    record: ImageRecord,
    failure: Failure,
}

impl Manifests {
    /// Reads the manifests of all images. One that is damaged costs no other image.
    pub(crate) fn of(archive: &Archive) -> Manifests {
        let mut manifests = Manifests::default();
        for record in archive.images() {
            match archive.manifest(&record) {
                Ok(manifest) => manifests.images.push((record, manifest)),
                // It was removed since the archive was opened.
                Err(ArchiveError::Removed { .. }) => {}
                Err(error) => {
                    let failure = Failure::of_archive(format!("cannot read the image `{}`", record.image), &error);
                    manifests.unread.push(UnreadManifest { record, failure });
                }
            }
        }
        manifests
    }
}

impl UnreadManifest {
    /// Returns the worst exit code of some images, and a line for each of them.
    pub(crate) fn lines(unread: &[UnreadManifest]) -> (Exit, String) {
        let exit = unread.iter().fold(Exit::Done, |exit, unread| exit.worse(unread.failure.exit));
        let lines: Vec<String> = unread.iter().map(|unread| unread.failure.line()).collect();
        (exit, lines.join("\n"))
    }

    /// Returns the image for programs.
    pub(crate) fn json(&self) -> Value {
        let (image, Failure { error, causes, hint, .. }) = (&self.record.image, &self.failure);
        json!({
            "image": image.to_string(),
            "name": image.name.as_str(),
            "version": image.version,
            "added": calendar::iso(self.record.added.seconds),
            "error": error,
            "causes": causes,
            "hint": hint,
        })
    }
}
