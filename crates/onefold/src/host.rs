//! The identity of this host, for the heartbeat that keeps other hosts out of an open pool, and its name for people.

use std::fs;

use onefold_pool::HostId;

/// Files that together tell hosts apart. A cloned machine keeps its machine-id, but hardly its board's UUID and its
/// name.
const SOURCES: [&str; 3] = ["/etc/machine-id", "/sys/class/dmi/id/product_uuid", "/proc/sys/kernel/hostname"];

/// Returns an identity that survives reboots and differs between hosts. `None` if no source is readable.
pub(crate) fn identity() -> Option<HostId> {
    let known: Vec<Vec<u8>> = SOURCES.iter().filter_map(|path| fs::read(path).ok()).collect();
    if known.is_empty() {
        return None;
    }
    let mut hasher = blake3::Hasher::new_derive_key("onefold 2026 host identity");
    for part in known {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(&part);
    }
    hasher.finalize().as_bytes()[..16].try_into().ok()
}

/// Returns the name of this host, which only people read.
pub(crate) fn name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_stays_who_it_is() {
        assert_eq!(identity(), identity());
    }
}
