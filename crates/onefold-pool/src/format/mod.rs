//! The on-disk format of a pool. Each group of structures has one module here, which holds its layout table, its
//! constants, and its `encode` and `decode`. All integers are little-endian unless a table says otherwise.

pub mod geometry;
pub mod group_summaries;
pub mod header;
pub mod heartbeat;
pub mod inode;
pub mod items;
pub mod journal;
pub mod map_node;
pub mod state;
pub mod store_page;
pub mod superblock;

/// The bytes of one block.
pub type BlockBytes = [u8; onefold_block::BLOCK_BYTES];

/// Maximum generation: each rewrite adds one, so a generation must never reach a value that cannot be incremented.
pub(crate) const GENERATION_MAX: u64 = u64::MAX / 2;

/// Returns the `u16` at `offset`, which the caller has bounded.
pub(crate) fn get_u16(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(bytes[offset..offset + 2].try_into().expect("two bytes"))
}

/// Returns the `u32` at `offset`, which the caller has bounded.
pub(crate) fn get_u32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

/// Returns the `u64` at `offset`, which the caller has bounded.
pub(crate) fn get_u64(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

/// Stores `value` at `offset`.
pub(crate) fn put_u16(bytes: &mut [u8], offset: usize, value: u16) {
    bytes[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
}

/// Stores `value` at `offset`.
pub(crate) fn put_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

/// Stores `value` at `offset`.
pub(crate) fn put_u64(bytes: &mut [u8], offset: usize, value: u64) {
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}
