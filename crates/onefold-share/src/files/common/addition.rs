//! Files that are to be added to a common volume: how many there may be, and what they are.

use onefold_guest::packages::Package;

use super::names::{file_path, package_folder};
use super::plan::{Addition, Origin};
use crate::files::identify::PackageFile;
use crate::format::guest::Piece;

/// Maximum number of files that are added at once.
pub(super) const ADDITIONS_MAX: usize = 1 << 20;

/// Approximate number of pieces that take as much memory as the other parts of an addition.
pub(super) const ADDITION_PIECES: usize = 16;

/// Returns how many pieces additions may have in a quarter of the memory. A hostile guest has files in millions of
/// pieces.
pub(super) fn pieces_max(memory_bytes: usize) -> usize {
    memory_bytes / 4 / size_of::<Piece>()
}

/// Returns the addition that a packaged file makes.
pub(super) fn addition_of(packaged: &PackageFile<'_>, image: usize, is_added: bool) -> Addition {
    let Package { name, version, architecture, .. } = packaged.package;
    Addition {
        path: file_path(&package_folder(name, version, architecture), packaged.path),
        id: (packaged.digest, packaged.length),
        is_added,
        origin: Origin { image, pieces: packaged.pieces.to_vec() },
    }
}
