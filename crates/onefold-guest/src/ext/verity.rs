//! Digests of files with fs-verity.
//!
//! Kernel documentation, "fs-verity: read-only file-based authenticity protection", sections "fs-verity descriptor" and
//! "ext4". The Merkle tree follows the end of the file, from the next multiple of 64 KiB on. The descriptor follows the
//! tree, from the next block on. The last four bytes of the last block of the file are the length of the descriptor.
//!
//! | byte | descriptor |
//! |------|------------|
//! | 0    | version, 1 |
//! | 1    | algorithm of the digests: 1 is SHA-256, 2 is SHA-512 |
//! | 2, 3 | size of the blocks of the tree, as a power of two; bytes of the salt |
//! | 4    | bytes of the signature, which follows the descriptor |
//! | 8    | bytes of the file |
//! | 16   | digest of the root of the tree, 64 bytes |
//! | 80   | salt, 32 bytes |
//! | 112  | zeros, 144 bytes |
//!
//! The digest of the file is the digest of the descriptor without its signature. The tree is not read.

use std::ops::ControlFlow;

use sha2::{Digest, Sha256, Sha512};

use super::inode::{Inode, flags};
use super::map::MapRun;
use super::tables::Tables;
use crate::bytes::Bytes;
use crate::error::GuestError;
use crate::filesystem::VerityDigest;

const STRUCTURE: &str = "fs-verity descriptor";
const DESCRIPTOR_BYTES: usize = 256;
/// Maximum length of a descriptor with its signature (`FS_VERITY_MAX_DESCRIPTOR_SIZE`).
const DESCRIPTOR_BYTES_MAX: u64 = 16 << 10;
/// The tree begins at a multiple of this.
const TREE_ALIGNMENT: u64 = 64 << 10;
const LENGTH_BYTES: usize = 4;
const SHA256: u8 = 1;
const SHA512: u8 = 2;

impl Tables<'_> {
    /// Returns the fs-verity digest of a file; `None` if it has none, or if it is encrypted with the content.
    ///
    /// # Errors
    /// When the descriptor is damaged.
    pub(super) fn verity_digest(&self, inode: &Inode) -> Result<Option<VerityDigest>, GuestError> {
        if !inode.has(flags::VERITY) || inode.encoding().is_some() {
            return Ok(None);
        }
        let damage = |problem| GuestError::from(self.source.damage(inode.offset, STRUCTURE, problem));
        let block_bytes = self.superblock.block_bytes;
        let behind =
            inode.size_bytes.checked_next_multiple_of(TREE_ALIGNMENT).ok_or_else(|| damage("it lies too far"))?;
        let mut last: Option<MapRun> = None;
        self.each_run(inode, behind / block_bytes, &mut |run| {
            last = Some(run);
            ControlFlow::Continue(())
        })?;
        let end = last.filter(|run| run.is_written).map(|run| run.end().saturating_mul(block_bytes));
        let length_at =
            end.and_then(|end| end.checked_sub(LENGTH_BYTES as u64)).ok_or_else(|| damage("it is missing"))?;
        let mut length = [0; LENGTH_BYTES];
        self.read_behind(inode, length_at, &mut length)?;
        let length = u64::from(u32::from_le_bytes(length));
        let at = length_at.checked_sub(length).map(|at| at - at % block_bytes).filter(|at| *at >= behind);
        let at = at.filter(|_| (DESCRIPTOR_BYTES as u64..=DESCRIPTOR_BYTES_MAX).contains(&length));
        let at = at.ok_or_else(|| damage("its length is impossible"))?;
        let mut descriptor = [0; DESCRIPTOR_BYTES];
        self.read_behind(inode, at, &mut descriptor)?;
        digest(&descriptor, inode.size_bytes).map(Some).map_err(damage)
    }

    /// Reads bytes of a file behind its end.
    fn read_behind(&self, inode: &Inode, offset: u64, into: &mut [u8]) -> Result<(), GuestError> {
        let mut endless = inode.clone();
        endless.size_bytes = u64::MAX;
        self.read_content(&endless, offset, into).map(|_| ())
    }
}

/// Returns the digest for a descriptor, in a file of `size_bytes`.
fn digest(descriptor: &[u8; DESCRIPTOR_BYTES], size_bytes: u64) -> Result<VerityDigest, &'static str> {
    if descriptor[0] != 1 {
        return Err("its version is unknown");
    }
    if Bytes(descriptor).le64(8) != Some(size_bytes) {
        return Err("it is that of a file of another length");
    }
    let mut unsigned = *descriptor;
    unsigned[4..8].fill(0);
    match descriptor[1] {
        SHA256 => Ok(VerityDigest { algorithm: "sha256", bytes: Sha256::digest(unsigned).to_vec() }),
        SHA512 => Ok(VerityDigest { algorithm: "sha512", bytes: Sha512::digest(unsigned).to_vec() }),
        _ => Err("its algorithm is unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_of_another_file_or_kind_is_refused() {
        let mut descriptor = [0; DESCRIPTOR_BYTES];
        descriptor[..3].copy_from_slice(&[1, SHA512, 12]);
        descriptor[8..16].copy_from_slice(&5000_u64.to_le_bytes());
        assert_eq!(digest(&descriptor, 5000).map(|digest| digest.bytes.len()), Ok(64));
        let signed = |bytes: u8| {
            let mut signed = descriptor;
            signed[4] = bytes;
            digest(&signed, 5000)
        };
        assert_eq!(signed(7), signed(0));
        assert_eq!(digest(&descriptor, 5001), Err("it is that of a file of another length"));
        descriptor[1] = 3;
        assert_eq!(digest(&descriptor, 5000), Err("its algorithm is unknown"));
        descriptor[0] = 2;
        assert_eq!(digest(&descriptor, 5000), Err("its version is unknown"));
    }
}
