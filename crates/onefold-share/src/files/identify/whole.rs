//! Files that are read as a whole before they are compared, as the paper's Storage Agent did. For experiments only.

use md5::{Digest, Md5};
use onefold_guest::filesystem::FileSystem;
use onefold_guest::tree::GuestFile;

use crate::state::StateError;

/// Size of one read, in bytes.
const READ_BYTES: usize = 1 << 20;

/// Returns the MD5 of the content of a file of `size_bytes`; `None` if it cannot be read. `go_on` is asked before each
/// read.
///
/// # Errors
/// Errors of `go_on`.
pub(super) fn digest_of(
    system: &dyn FileSystem,
    file: GuestFile,
    size_bytes: u64,
    go_on: &dyn Fn() -> Result<(), StateError>,
) -> Result<Option<[u8; 16]>, StateError> {
    let (mut md5, mut buffer, mut at) = (Md5::new(), vec![0; READ_BYTES], 0);
    while at < size_bytes {
        go_on()?;
        let count = match system.read(file.file, at, &mut buffer) {
            Ok(count) if count > 0 => count,
            _ => return Ok(None),
        };
        md5.update(buffer.get(..count).unwrap_or_default());
        at = at.saturating_add(count as u64);
    }
    Ok(Some(md5.finalize().into()))
}

#[cfg(test)]
mod tests {
    use onefold_guest::memory::MemoryFileSystem;
    use onefold_guest::tree::{Links, Tree};

    use super::*;

    #[test]
    fn a_file_has_the_digest_that_other_programs_find() {
        let mut system = MemoryFileSystem::default();
        system.write("/file", "abc");
        let tree = Tree::new(&system);
        let file = tree.find(b"/file", Links::Keep).unwrap().file;
        let digest = digest_of(&system, file, 3, &|| Ok(())).unwrap().unwrap();
        let expected = 0x9001_5098_3cd2_4fb0_d696_3f7d_28e1_7f72_u128;
        assert_eq!(digest, expected.to_be_bytes());
        assert_eq!(digest_of(&system, file, 4, &|| Ok(())).unwrap(), None, "it is shorter than it should be");
        assert!(digest_of(&system, file, 3, &|| Err(StateError::Interrupted)).is_err());
    }
}
