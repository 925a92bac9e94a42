//! The workloads on a pool while its device is recorded.

mod anything;
mod content;
mod names;
mod space;
mod threads;

use crate::common::bench::WorkloadRecord;

/// A workload.
pub(crate) struct Workload {
    /// Its name in messages and in `ONEFOLD_CRASH_WORKLOAD`.
    pub(crate) name: &'static str,
    /// Its share of the images, relative to the others: images of a larger pool take longer.
    pub(crate) part: u64,
    /// Runs it; reproducible from the seed, except for `threads`, whose schedule is not controlled.
    pub(crate) run: fn(u64) -> WorkloadRecord,
}

/// All workloads.
pub(crate) const WORKLOADS: &[Workload] = &[
    Workload { name: "import", part: 5, run: content::import },
    Workload { name: "overwrite", part: 5, run: content::overwrite },
    Workload { name: "overwrite-fsync", part: 7, run: content::overwrite_with_fsync },
    Workload { name: "clones", part: 5, run: content::clones },
    Workload { name: "delete", part: 5, run: space::delete },
    Workload { name: "truncate", part: 5, run: space::truncate },
    Workload { name: "punch", part: 5, run: space::punch },
    Workload { name: "share", part: 5, run: space::share },
    Workload { name: "grow", part: 5, run: space::grow },
    Workload { name: "full", part: 5, run: space::full },
    Workload { name: "second-group", part: 1, run: space::second_group },
    Workload { name: "rename", part: 5, run: names::renames },
    Workload { name: "xattr", part: 5, run: names::xattrs },
    Workload { name: "acl", part: 5, run: names::acls },
    Workload { name: "threads", part: 7, run: threads::threads },
    Workload { name: "close", part: 5, run: anything::close_and_reopen },
    Workload { name: "anything", part: 7, run: anything::anything },
    Workload { name: "collisions", part: 5, run: anything::collisions },
];

/// Blocks of a small pool: 16 MiB.
const SMALL: u64 = 4096;
const BLOCK: u64 = 4096;
/// Number of places in a leaf of a file map.
const LEAF: u64 = 508;
