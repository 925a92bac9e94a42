//! The substrate seam: a file system whose files can share blocks, as sharing sees it.
//!
//! Its verbs are few, and the kernel's: compare and share a range, clone a range, read a map of extents, lock, link.
//! Its implementations are a Linux file system with reflinks, a pool, and a simulated file system that any number of
//! hosts mount.
//!
//! **The promise.** [`Sharing::share`] compares and shares in one step. It never changes the bytes that a file reads,
//! whatever any host writes meanwhile, and whichever host dies during it. Everything else here only shows where a call
//! of `share` is worthwhile.
//!
//! A file system that [shares in two steps](Abilities::shares_in_two_steps) promises less ([`SubstrateKind::Ocfs2`]).
//! It compares, makes the range a hole, and then refers to the source's blocks. While the host lives, no reader sees
//! one step alone. But the range may end as a hole if the host dies between the two steps or before
//! [`Sharing::sync_shares`], or if the call fails. So on such a file system a caller of `share` has [exclusive
//! use](Exclusive::try_exclusive) of the file, and has first named the range in a durable note.
//!
//! Paths are relative to the root at which the substrate was opened, and never leave it. No symbolic link is followed.
//! Offsets and lengths are in bytes.

mod abilities;
mod copy_hints;
mod exclusive;
mod extent;
mod file;
mod files;
mod host;
mod locks;
mod names;
mod outcome;
mod protection;
mod sharing;
mod substrate;
mod volume_tools;
mod whole_extents;

pub use abilities::{Abilities, Room, SubstrateKind};
pub use copy_hints::CopyHints;
pub use exclusive::Exclusive;
pub use extent::{AgedExtent, MappedExtent, Reference, Slice, WholeExtent};
pub use file::{Access, At, FileHandle, FileStat, FolderEntry, HeldLock, ListedKind, ROOT, is_gone};
pub use files::{Files, Reader};
pub use host::{CpuTime, Machine, MinuteOfDay, OpenImages, Writer, WrittenBytes};
pub use locks::Locks;
pub use names::Names;
pub use outcome::{ComparisonResult, Refusal, ShareError};
pub use protection::{Protection, UserNo};
pub use sharing::Sharing;
pub use substrate::Substrate;
pub use volume_tools::{ArchivePart, PackageTools, Tool, ToolError, VolumeTools};
pub use whole_extents::WholeExtents;
