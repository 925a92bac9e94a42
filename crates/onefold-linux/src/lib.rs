//! A Linux file system with reflinks: XFS, Btrfs or OCFS2.
//!
//! **What holds.** Sharing is `FIDEDUPERANGE`: the kernel locks both files, waits for writes in progress, compares, and
//! changes only which blocks the second file refers to. Times do not change. Readers and writers notice nothing but a
//! wait. The kernel resolves names beneath the root, on one mount, and follows no symbolic links.
//!
//! **What does not.** Maps and free space lag behind. XFS frees removed blocks in the background, so blocks look shared
//! for a moment after their last other reference is gone, and free space grows after the call has returned. On Btrfs
//! free space is an estimate, and an extent with one shared block looks shared as a whole. A completely full Btrfs
//! refuses every share, as it has no room for metadata, although sharing would make room: share before it is full.
//!
//! **OCFS2 is worse** (`ocfs2_reflink_remap_extent`; seen in guests that lost power). Once the ranges are found equal,
//! it first makes the destination a hole, in one journal transaction, and refers to the source's blocks in another. If
//! the host dies between them, or the file system is full or fails by then, zeros replace the bytes, and the call can
//! even report success. OCFS2 also widens both ranges to whole clusters after the comparison, so clusters must be as
//! large as blocks. XFS and Btrfs replace the old reference by the new one in one transaction.

mod attributes;
mod clone;
mod copy_hint;
mod cpu;
mod file;
mod locks;
mod loops;
mod machine;
mod map;
mod mounts;
mod names;
mod network;
mod package_tools;
mod probe;
mod records;
mod share;
mod stat;
mod substrate;
mod sys;
mod users;
mod volume_tools;
mod whole;
mod whole_first;

pub use cpu::ProcessCpu;
pub use file::{LinuxFile, begin_write_back};
pub use locks::{is_byte_locked, lock_whole};
pub use loops::{Backing, LoopDevice, loop_devices};
pub use machine::LinuxMachine;
pub use network::{DATAGRAMS_MAX, DatagramBatch, interface_addresses, segment_datagrams};
pub use package_tools::DpkgDeb;
pub use probe::ProbeError;
pub use substrate::LinuxSubstrate;
