//! Limits of `--rate`.

use std::num::NonZeroU64;

use onefold_block::clock::SystemClock;
use onefold_disk::Disk;
use onefold_image::install::Target;
use onefold_image::{Rate, RatedDisk, RatedTarget};

/// Calls `work` with the disk, read at `bytes_per_second` if there is such a limit.
pub(super) fn of_disk<T>(
    disk: &dyn Disk,
    bytes_per_second: Option<NonZeroU64>,
    is_stopped: &(dyn Fn() -> bool + Sync),
    work: impl FnOnce(&dyn Disk) -> T,
) -> T {
    match bytes_per_second {
        None => work(disk),
        Some(limit) => {
            let rate = Rate::new(&SystemClock, limit, is_stopped);
            work(&RatedDisk::new(disk, &rate))
        }
    }
}

/// Calls `work` with the target, written and read at `bytes_per_second` if there is such a limit.
pub(super) fn of_target<T>(
    target: &dyn Target,
    bytes_per_second: Option<NonZeroU64>,
    is_stopped: &(dyn Fn() -> bool + Sync),
    work: impl FnOnce(&dyn Target) -> T,
) -> T {
    match bytes_per_second {
        None => work(target),
        Some(limit) => {
            let rate = Rate::new(&SystemClock, limit, is_stopped);
            work(&RatedTarget::new(target, &rate))
        }
    }
}
