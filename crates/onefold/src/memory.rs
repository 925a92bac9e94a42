//! The memory that this process has used.

use std::fs;

/// Returns the peak memory of this process, as counted by the kernel; `None` if the kernel does not report it.
pub(crate) fn peak_bytes() -> Option<u64> {
    parse(&fs::read_to_string("/proc/self/status").ok()?)
}

fn parse(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_from_what_the_kernel_prints() {
        assert_eq!(parse("Name:\tx\nVmHWM:\t    5 kB\nVmRSS:\t 4 kB\n"), Some(5120));
        assert_eq!(parse("VmHWM:\tmuch\n"), None);
        assert!(peak_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
