//! The identity of this host, for the heartbeat that keeps other hosts out of an open pool, and its name for people.

use std::fs;
use std::os::unix::ffi::OsStrExt;

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

/// Maximum length of a label of a process in bytes.
const LABEL_BYTES_MAX: usize = 64;

/// Returns a label of this process: `PID.START.SPACE@HOST`, in which the start is that of the process in ticks since
/// the boot, and the space is that of the processes' numbers.
pub(crate) fn process() -> String {
    let id = std::process::id();
    label(&id.to_string(), &start_of(&id.to_string()).unwrap_or_default(), &space(), &name())
}

/// Returns whether a label is that of a process of this host that has ended. In doubt it has not: a process in another
/// container has a number that says nothing here, and after a reboot another process may have its number and its start.
pub(crate) fn has_ended(other: &str) -> bool {
    let Some((process, _)) = other.split_once('@') else { return false };
    let [id, start, its_space] = process.split('.').collect::<Vec<_>>()[..] else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    [id, start, its_space].into_iter().all(is_number)
        && label(id, start, &space(), &name()) == other
        && start_of(id).as_deref() != Some(start)
}

fn label(id: &str, start: &str, space: &str, host: &str) -> String {
    let mut label = format!("{id}.{start}.{space}@{host}");
    label.truncate(label.floor_char_boundary(LABEL_BYTES_MAX));
    label
}

/// Returns the number of the space in which processes have their numbers here: each container has one of its own,
/// perhaps under the name of its host. Empty if it is unknown.
fn space() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.as_os_str().as_bytes().iter().filter(|byte| byte.is_ascii_digit()).map(|&byte| char::from(byte)).collect()
}

/// Returns when a process started, in ticks since the boot: the twentieth number behind its name in parentheses.
fn start_of(id: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_ascii_whitespace().nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_ended_if_none_of_this_host_has_its_number_and_start() {
        let own = process();
        assert!(!has_ended(&own), "{own}");
        let (id, rest) = own.split_once('.').unwrap();
        let (process, host) = rest.split_once('@').unwrap();
        let (start, space) = process.split_once('.').unwrap();
        assert!(has_ended(&format!("{id}.{start}1.{space}@{host}")), "another process has this number now");
        assert!(has_ended(&format!("4194999.{start}.{space}@{host}")), "no process has this number");
        let others = [
            format!("4194999.{start}.{space}@{host}x"),
            format!("4194999..{space}@{host}"),
            // A container may have the name of its host.
            format!("4194999.{start}.{space}1@{host}"),
            format!("4194999.{start}.@{host}"),
            format!("4194999.{start}@{host}"),
            "host".to_owned(),
            String::new(),
        ];
        for other in others {
            assert!(!has_ended(&other), "{other}");
        }
        assert!(label("1", "2", "3", &"ä".repeat(40)).len() <= LABEL_BYTES_MAX);
    }

    #[test]
    fn a_host_stays_who_it_is() {
        assert_eq!(identity(), identity());
    }
}
