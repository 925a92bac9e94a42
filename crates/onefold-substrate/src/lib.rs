//! The substrate seam: a file system whose files can share blocks, as sharing sees it.
//!
//! Few words, and the kernel's: compare and share a range, clone a range, map of extents, lock, link. A Linux file
//! system with reflinks implements them, and so do a pool and a simulated file system that any number of hosts have
//! mounted.
//!
//! **What may be relied on.** [`Sharing::share`] compares and shares in one step: whatever is written meanwhile, by
//! anybody on any host, and whoever dies at it, no file ever reads other bytes for it. Everything else here only says
//! where it is worth to ask.
//!
//! One that [shares in two steps](Abilities::shares_in_two_steps) promises less ([`SubstrateKind::Ocfs2`]): it
//! compares, makes the range a hole, and refers to the source's blocks after that. Who looks while the host lives sees
//! neither step alone. But where the host dies between the two, or before [`Sharing::sync_shares`], or the call fails,
//! the range may be a hole in the end. So on such a one `share` is only called for a range that a durable note names,
//! by who has [exclusive use](Exclusive::try_exclusive) of the file.
//!
//! Paths are relative to the root that the substrate was opened at, never leave it, and no symbolic link is followed.
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
pub use file::{Access, At, FileHandle, FileStat, HeldLock, Listed, ListedKind, ROOT, is_gone};
pub use files::{Files, Reader};
pub use host::{CpuTime, Machine, MinuteOfDay, OpenImages, Writer};
pub use locks::Locks;
pub use names::Names;
pub use outcome::{Compared, Refusal, ShareError};
pub use protection::{Protection, UserNo};
pub use sharing::Sharing;
pub use substrate::Substrate;
pub use volume_tools::{ArchivePart, PackageTools, Tool, ToolError, VolumeTools};
pub use whole_extents::WholeExtents;
