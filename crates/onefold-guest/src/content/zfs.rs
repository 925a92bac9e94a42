//! Members of ZFS pools (ZFS On-Disk Specification, sections 1.2 and 1.3).
//!
//! A member has four labels of 256 KiB, two of them at its beginning. The second half of a label is an array of
//! uberblocks, at every KiB or more. An uberblock begins with its magic, in the byte order of the machine.

use super::NotRead;
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::volume::VolumeReader;

const NAME: &str = "ZFS";
const MAGIC: u64 = 0x00ba_b10c;
const LABEL_BYTES: u64 = 256 << 10;
const UBERBLOCKS_BYTES: u64 = 128 << 10;
const STEP_BYTES: usize = 1 << 10;
/// Bytes of one read. The system gives fresh memory page by page, which takes as long as reading it.
const PIECE_BYTES: usize = 16 << 10;

pub(super) fn recognise(reader: &VolumeReader<'_>) -> Result<Option<NotRead>, GuestError> {
    let mut piece = vec![0; PIECE_BYTES];
    for label in 0..2 {
        let first = label * LABEL_BYTES + UBERBLOCKS_BYTES;
        for at in (first..first + UBERBLOCKS_BYTES).step_by(PIECE_BYTES) {
            let room = usize::try_from(reader.size_bytes().saturating_sub(at)).unwrap_or(usize::MAX);
            piece.truncate(room);
            reader.read_once(at.min(reader.size_bytes()), &mut piece, "header")?;
            let version = piece.chunks(STEP_BYTES).find_map(|block| version(Bytes(block)));
            if let Some(version) = version {
                return Ok(Some(NotRead::new(NAME, format!("version {version}"))));
            }
        }
    }
    Ok(None)
}

/// Returns the version that an uberblock names.
fn version(block: Bytes<'_>) -> Option<u64> {
    if block.le64(0)? == MAGIC {
        return block.le64(8);
    }
    (block.be64(0)? == MAGIC).then_some(block.be64(8)?)
}
