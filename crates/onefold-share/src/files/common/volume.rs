//! A common volume, opened for reading.

use std::io;
use std::path::{Path, PathBuf};

use onefold_block::BLOCK_BYTES_U64;
use onefold_disk::CachedDisk;
use onefold_guest::error::GuestError;
use onefold_guest::filesystem::{ExtentKind, FileSystem};
use onefold_guest::guest::Guest;
use onefold_guest::tree::{Links, Tree};
use onefold_guest::volume::VolumeReader;
use onefold_substrate::{Access, FileHandle, ListedKind, Substrate, UserNo};

use super::CommonError;
use super::commands::PlacedContent;
use super::contents::{self, Contents};
use crate::files::identify::SubstrateDisk;

/// The attribute that marks a common volume. Only its owner and root can set it.
pub(super) const ATTRIBUTE: &str = "user.onefold.common";
/// The value of the attribute, which is the version of the volume.
pub(super) const ATTRIBUTE_VALUE: &[u8] = b"1";
/// For the cache of the volume's metadata.
const CACHE_BYTES: usize = 32 << 20;

/// A common volume that is open for reading.
#[derive(Debug)]
pub struct Volume<F> {
    pub(super) file: F,
    pub(super) path: PathBuf,
    pub(super) handle: FileHandle,
    pub(super) owner: UserNo,
    pub(super) contents: Contents,
}

impl<F> Volume<F> {
    /// Returns its path, below the root of the file system.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the handle of its file.
    pub fn handle(&self) -> &FileHandle {
        &self.handle
    }

    /// Returns its owner.
    pub fn owner(&self) -> UserNo {
        self.owner
    }

    /// Returns its contents.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }
}

/// Returns the path of the common volume that a path names: the file itself, or the marked file in a folder.
///
/// # Errors
/// `Missing` or `Several` if a folder does not have exactly one, and errors of the file system.
pub fn find<S: Substrate>(substrate: &S, path: &Path) -> Result<PathBuf, CommonError> {
    let listed = match substrate.list(path) {
        Ok(listed) => listed,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(path.to_owned()),
        Err(error) => return Err(CommonError::io(path, error)),
    };
    let mut found = None;
    for entry in listed.iter().filter(|entry| entry.kind == ListedKind::File && !is_draft(&entry.name)) {
        let file = path.join(&entry.name);
        // A file that the user may not read is not the user's volume.
        if matches!(substrate.attribute(&file, ATTRIBUTE), Ok(Some(_)))
            && let Some(first) = found.replace(file)
        {
            return Err(CommonError::Several { folder: path.to_owned(), first });
        }
    }
    found.ok_or_else(|| CommonError::Missing { folder: path.to_owned() })
}

/// Returns whether the file of a name is a common volume, or a draft of one. A file that cannot be examined is neither.
pub(crate) fn is_marked<S: Substrate>(substrate: &S, path: &Path) -> bool {
    path.file_name().is_some_and(|name| is_draft(Path::new(name)))
        || matches!(substrate.attribute(path, ATTRIBUTE), Ok(Some(_)))
}

/// Returns the prefix of the names of drafts of a volume with this name.
pub(super) fn draft_prefix(name: &str) -> String {
    format!(".{name}.onefold-")
}

/// Returns whether a file name is that of a draft.
pub(super) fn is_draft(name: &Path) -> bool {
    name.to_str().is_some_and(|name| name.starts_with('.') && name.contains(".onefold-"))
}

/// Opens a common volume, and reads its record.
///
/// # Errors
/// See [`CommonError`]. Fails if the file is not a common volume, does not belong to the user, can be read by others,
/// or is damaged.
pub fn open<S: Substrate>(substrate: &S, path: &Path) -> Result<Volume<S::File>, CommonError> {
    let failed = |error| CommonError::io(path, error);
    let file = substrate.open(path, Access::Read).map_err(failed)?;
    let stat = substrate.stat(&file).map_err(failed)?;
    let protection = substrate.protection(&file).map_err(failed)?;
    let user = substrate.user();
    let refused = |why: &str| Err(CommonError::Refused { path: path.to_owned(), why: why.to_owned() });
    match substrate.attribute_of(&file, ATTRIBUTE).map_err(failed)? {
        None => return refused("it is no common volume"),
        Some(value) if value != ATTRIBUTE_VALUE => return refused("a newer version made it"),
        Some(_) => {}
    }
    if ![user, UserNo::ROOT].contains(&protection.owner) && user != UserNo::ROOT {
        return refused("it belongs to another user");
    }
    if !protection.is_private() {
        return refused("others than its owner may read or write it");
    }
    // A process that died while it made the volume has left the name of its draft beside it.
    if protection.links > 2 {
        return refused("it has more than one name");
    }
    let contents = record(substrate, &file, path)?;
    let handle = stat.handle;
    Ok(Volume { file, path: path.to_owned(), handle, owner: protection.owner, contents })
}

/// Reads the record of a volume.
///
/// # Errors
/// `Damaged` if there is no readable record.
pub(super) fn record<S: Substrate>(substrate: &S, file: &S::File, path: &Path) -> Result<Contents, CommonError> {
    let read =
        with_volume(substrate, file, path, |tree, _| tree.read_path(contents::PATH.as_bytes(), contents::BYTES_MAX));
    let record = read?.map_err(|error| damaged(path, &error))?;
    Contents::decode(&record).map_err(|error| CommonError::Damaged { path: path.to_owned(), why: error.to_string() })
}

fn damaged(path: &Path, error: &GuestError) -> CommonError {
    CommonError::Damaged { path: path.to_owned(), why: error.to_string() }
}

/// Calls a function with the file system in a volume.
///
/// # Errors
/// If there is no file system.
pub(super) fn with_volume<S: Substrate, T>(
    substrate: &S,
    file: &S::File,
    path: &Path,
    work: impl FnOnce(&Tree<'_>, &VolumeReader<'_>) -> T,
) -> Result<T, CommonError> {
    let length = substrate.stat(file).map_err(|error| CommonError::io(path, error))?.length;
    let unreadable = || CommonError::Damaged { path: path.to_owned(), why: "it has no file system".to_owned() };
    let disk = SubstrateDisk::new(substrate.borrowed_reader(file).ok_or_else(unreadable)?, length);
    let cached = CachedDisk::new(&disk, CACHE_BYTES);
    let guest = Guest::open(&cached).map_err(|error| damaged(path, &error))?;
    let volumes = guest.volumes().iter();
    let found = volumes.filter_map(|volume| Some((volume.file_system()?, &volume.reader))).next();
    let (system, reader): (&dyn FileSystem, _) = found.ok_or_else(unreadable)?;
    Ok(work(&Tree::new(system), reader))
}

/// Returns the place of a file of a volume, if all of it lies in whole blocks of one kind.
pub(super) fn places_of(
    tree: &Tree<'_>,
    reader: &VolumeReader<'_>,
    path: &str,
    blocks: u64,
    kind: ExtentKind,
) -> Option<Vec<PlacedContent>> {
    let file = tree.find(path.as_bytes(), Links::Keep).ok()?.file;
    let (mut places, mut next, mut is_plain) = (Vec::<PlacedContent>::new(), 0_u64, true);
    let system = tree.system(file.system);
    let visited = system.each_extent(file.file, &mut |extent| {
        let mut offset = extent.offset;
        is_plain &= extent.kind == kind && next < blocks;
        reader.each_on_disk(extent.place, extent.length_bytes, &mut |range| {
            let place = PlacedContent {
                content: offset / BLOCK_BYTES_U64,
                block: range.start_bytes / BLOCK_BYTES_U64,
                count: range.length_bytes / BLOCK_BYTES_U64,
            };
            let bytes = [offset, range.start_bytes, range.length_bytes];
            is_plain &= place.content == next && bytes.iter().all(|bytes| bytes.is_multiple_of(BLOCK_BYTES_U64));
            next = next.saturating_add(place.count);
            offset = offset.saturating_add(range.length_bytes);
            places.push(place);
        });
        if is_plain { std::ops::ControlFlow::Continue(()) } else { std::ops::ControlFlow::Break(()) }
    });
    (visited.is_ok() && is_plain && next == blocks).then_some(places)
}
