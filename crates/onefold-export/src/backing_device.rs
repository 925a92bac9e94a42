//! Limits that the kernel keeps for each mounted file system and that FUSE cannot negotiate.

use std::fs;
use std::path::PathBuf;

use crate::mount_table::DeviceNumber;

/// Readahead: four requests of the largest size. The device then has the next ones while one is answered, and pieces of
/// a fragmented file are read side by side. With a single request, both processors were idle for two thirds of a cold
/// read. Four made it 1.1 times as fast, and 1.4 times after random overwrites. The kernel's default is an eighth of
/// one.
const READAHEAD_KIB: &str = "4096";

/// Share of the machine's dirty memory that the mount may use, in percent. FUSE starts with 1, which makes the
/// writeback cache stall on a machine with some gigabytes of memory.
const DIRTY_SHARE_PERCENT: &str = "40";

/// Raises the limits of the file system on `device`, as far as this process may (root only). Without that everything
/// works, but buffered input and output are slower.
pub(crate) fn raise_limits(device: DeviceNumber, writeback_cache: bool) {
    let directory = PathBuf::from(format!("/sys/class/bdi/{}:{}", device.major, device.minor));
    let _ = fs::write(directory.join("read_ahead_kb"), READAHEAD_KIB);
    if writeback_cache {
        let _ = fs::write(directory.join("max_ratio"), DIRTY_SHARE_PERCENT);
    }
}
