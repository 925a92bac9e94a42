//! The pool: a complete POSIX file system for disk images, with inline deduplication and crash safety, and without
//! doors.

mod activity;
pub mod attr;
pub mod check;
mod data;
mod engine;
pub mod error;
pub mod filter;
pub mod format;
mod host;
mod journal;
mod map;
mod meta;
mod names;
pub mod options;
pub mod pool;
pub mod progress;
mod readers;
pub mod stat;
mod substrate;
mod sync;
pub mod tree;
mod waits;

pub use attr::{
    AllocateMode, Attr, Dedup, DirEntry, Durability, FileKind, Ino, NewFile, RangePair, RenameMode, SeekTarget,
    SetAttr, SpaceShown, TimeChange, XattrMode,
};
pub use data::behind::{OwnedWrite, SeenLosses, WriteStart};
pub use data::read::ReadRequest;
pub use data::share::{SHARE_BYTES_MAX, ShareOutcome};
pub use error::{PoolError, Result};
pub use format::superblock::begins_pool;
pub use host::HostId;
pub use options::{
    Allocation, AllocationSeam, CreateOptions, Environment, Journaling, OpenOptions, Prefetch, Provisioning,
    StorePlacement, Verification,
};
#[doc(hidden)]
pub use options::{TestLimits, Workers};
pub use pool::{ACL_XATTRS, DOMAIN_XATTR, Pool};
pub use progress::{NoProgress, Progress};
pub use stat::{ActivityStat, FileStat, FilterStat, FsStat, PoolStat};
pub use substrate::{PoolFile, PoolSubstrate};
#[cfg(all(feature = "lock-times", not(feature = "explore")))]
pub use sync::{LockTimes, take_lock_times};
pub use waits::{WaitNotice, about_to_wait, notice_waits};

/// Maximum length of a name in a directory, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum length of a symbolic link's target, in bytes.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Maximum length of an extended attribute's value, in bytes.
pub const XATTR_BYTES_MAX: usize = 65536;
/// Maximum length of the list of a file's extended attributes, in bytes, with a zero byte after each name: the maximum
/// that Linux shows.
pub const XATTR_LIST_BYTES_MAX: usize = 65536;
/// Maximum length of a file, in bytes: 16 TiB.
pub const FILE_BYTES_MAX: u64 = 1 << 44;
/// Minimum of the `memory` setting, in bytes.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;
