//! Archived images as disks to read: `ARCHIVE#IMAGE`, or all images of a named archive.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onefold_block::Show;
use onefold_image::archive::{Archive, ImageRecord};
use onefold_image::format::manifest::Manifest;
use onefold_image::{ArchiveId, ArchivedDisk, ImageVersion};

use crate::cli::image::ImageRef;
use crate::cli::key::Acceptance;
use crate::failure::{Failure, Outcome};
use crate::verbs::{archive, image};

/// Separates an archive from the name of an image. No such name contains it.
const SEPARATOR: u8 = b'#';
/// Divisor of the memory of a disk: this share is for tables of packs.
const TABLES_SHARE: usize = 4;
/// Memory for a disk that is read from its start to its end.
pub(in crate::verbs) const STREAM_BYTES: u64 = 16 << 20;
/// The format of archived images, in results.
pub(in crate::verbs) const FORMAT: &str = "archive";

/// An image of an open archive.
#[derive(Clone, Debug)]
pub(in crate::verbs) struct ArchivedImage {
    /// `ARCHIVE#IMAGE`, as the user gave it.
    path: PathBuf,
    /// The archive, as the user gave it.
    folder: PathBuf,
    archive: Arc<Archive>,
    record: ImageRecord,
    manifest: Arc<Manifest>,
}

impl ArchivedImage {
    fn new(
        folder: &Path,
        path: PathBuf,
        archive: &Arc<Archive>,
        record: ImageRecord,
        manifest: Manifest,
    ) -> ArchivedImage {
        let (folder, archive, manifest) = (folder.to_owned(), Arc::clone(archive), Arc::new(manifest));
        ArchivedImage { path, folder, archive, record, manifest }
    }

    /// Returns `ARCHIVE#IMAGE`, as the user gave it.
    pub(in crate::verbs) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the archive, as the user gave it.
    pub(in crate::verbs) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the identity of the archive.
    pub(super) fn archive_id(&self) -> ArchiveId {
        self.archive.descriptor().archive
    }

    /// Returns name and version.
    pub(in crate::verbs) fn version(&self) -> &ImageVersion {
        &self.manifest.image
    }

    /// Returns the length of the disk.
    pub(in crate::verbs) fn size_bytes(&self) -> u64 {
        self.manifest.size_bytes
    }

    /// Returns the bytes that the capture of this image added to the archive.
    pub(in crate::verbs) fn stored_bytes(&self) -> u64 {
        self.manifest.totals.stored_bytes
    }

    /// Fails unless the user accepts the image, as an installation does: a key that is trusted for its name has signed
    /// it, and its version is high enough. While no key is trusted, all signers are accepted.
    pub(in crate::verbs) fn require(&self, acceptance: Acceptance) -> Outcome<()> {
        image::signed::require(&self.archive, &self.record, acceptance)
    }

    /// Returns the disk. It keeps about `memory_bytes` of what it has read.
    pub(in crate::verbs) fn disk(&self, memory_bytes: u64) -> ArchivedDisk {
        let memory_bytes = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
        let tables_bytes = memory_bytes / TABLES_SHARE;
        self.archive.limit_tables(tables_bytes);
        ArchivedDisk::new(self.archive.clone(), Manifest::clone(&self.manifest), memory_bytes - tables_bytes)
    }
}

/// Returns the image that `path` names as `ARCHIVE#IMAGE`; `None` if it cannot be such a name. `missing` says why no
/// file is there.
///
/// # Errors
/// When there is no such archive or image, or the archive is damaged. The failure names both readings of `path`.
pub(super) fn named(path: &Path, missing: &io::Error) -> Option<Outcome<ArchivedImage>> {
    if !matches!(missing.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename) {
        return None;
    }
    let (folder, text) = split(path)?;
    let opened = parse(text).and_then(|image| open(folder, path, &image));
    Some(opened.map_err(|failure| {
        let image = format!("it is no image of the archive `{}`: {}", folder.shown(), failure.error);
        let causes = std::iter::once(image).chain(failure.causes).collect();
        Failure { error: format!("there is no file of this name ({missing})"), causes, ..failure }
    }))
}

/// Returns the name of the image if `path` has the form `ARCHIVE#IMAGE`.
pub(in crate::verbs) fn image_name(path: &Path) -> Option<ImageRef> {
    split(path).and_then(|(_, text)| parse(text).ok())
}

fn open(folder: &Path, path: &Path, image: &ImageRef) -> Outcome<ArchivedImage> {
    let archive = archive::open(folder).map_err(|failure| match fs::metadata(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => failure.hint("check the path of the file or the archive"),
        _ => failure,
    })?;
    let (record, manifest) = image::find_manifest(&archive, folder, image)?;
    Ok(ArchivedImage::new(folder, path.to_owned(), &archive, record, manifest))
}

/// Splits a path at its last separator into archive and image.
fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    let bytes = path.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == SEPARATOR)?;
    let (folder, image) = (bytes.get(..at)?, bytes.get(at + 1..)?);
    (!folder.is_empty() && !image.is_empty()).then(|| (Path::new(OsStr::from_bytes(folder)), OsStr::from_bytes(image)))
}

fn parse(text: &OsStr) -> Outcome<ImageRef> {
    let parsed = text.to_str().ok_or_else(|| "it is not UTF-8".to_owned()).and_then(str::parse);
    parsed.map_err(|why| Failure::new(format!("`{}` is no image's name", Path::new(text).shown())).because_of(why))
}

/// An image of a named archive, or its path and why it cannot be read.
pub(super) type ListedArchive = Result<ArchivedImage, (PathBuf, Failure)>;

/// Returns the newest version of each image of the archive in a folder; `None` if the folder is none.
///
/// # Errors
/// When the archive cannot be opened.
pub(super) fn newest(folder: &Path) -> Option<Outcome<Vec<ListedArchive>>> {
    if !is_archive(folder) {
        return None;
    }
    let listed = archive::open(folder).map(|archive| {
        let newest = newest_of(archive.images());
        newest.into_iter().map(|record| listed(folder, &archive, &record)).collect()
    });
    Some(listed)
}

/// Returns whether a folder has the parts of an archive, whole or damaged.
pub(super) fn is_archive(folder: &Path) -> bool {
    let has_descriptor = ["descriptor", "descriptor.copy"].iter().any(|name| folder.join(name).is_file());
    has_descriptor && ["ledger", "packs"].iter().any(|name| folder.join(name).is_dir())
}

/// Returns the last version of each name. `records` are in the order of names and versions.
fn newest_of(records: Vec<ImageRecord>) -> Vec<ImageRecord> {
    let mut newest: Vec<ImageRecord> = Vec::new();
    for record in records {
        match newest.last_mut() {
            Some(last) if last.image.name == record.image.name => *last = record,
            _ => newest.push(record),
        }
    }
    newest
}

fn listed(folder: &Path, archive: &Arc<Archive>, record: &ImageRecord) -> ListedArchive {
    let mut path = folder.as_os_str().to_owned();
    path.push(OsStr::from_bytes(&[SEPARATOR]));
    path.push(record.image.name.as_str());
    let path = PathBuf::from(path);
    match archive.manifest(record) {
        Ok(manifest) => Ok(ArchivedImage::new(folder, path, archive, record.clone(), manifest)),
        Err(error) => {
            let failure = Failure::of_archive(format!("cannot read the image `{}`", record.image), &error);
            Err((path, failure))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_separator_ends_the_archive() {
        for (path, archive, image) in
            [("/srv/a#web@1", "/srv/a", "web@1"), ("a#b#web", "a#b", "web"), ("a#debian/12", "a", "debian/12")]
        {
            assert_eq!(split(Path::new(path)), Some((Path::new(archive), OsStr::new(image))), "{path}");
        }
        for path in ["/srv/a", "#web", "a#", "", "#"] {
            assert_eq!(split(Path::new(path)), None, "{path}");
        }
        assert_eq!(image_name(Path::new("a#debian/12@3")).unwrap().to_string(), "debian/12@3");
        assert!(image_name(Path::new("a#-x")).is_none());
    }

    #[test]
    fn a_failure_names_both_readings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none#web");
        let missing = || io::Error::from(ErrorKind::NotFound);
        let failure = named(&path, &missing()).unwrap().unwrap_err();
        assert!(failure.error.contains("no file"), "{failure}");
        assert!(failure.causes[0].contains("none`: cannot open the archive"), "{failure}");
        assert!(failure.hint.as_ref().is_some_and(|hint| hint.contains("check the path")), "{failure}");
        let failure = named(&folder.path().join("none#a b"), &missing()).unwrap().unwrap_err();
        assert!(failure.causes[0].contains("`a b` is no image's name"), "{failure}");
        assert!(named(&path, &io::Error::from(ErrorKind::PermissionDenied)).is_none());
        assert!(named(&folder.path().join("none"), &missing()).is_none());
    }
}
