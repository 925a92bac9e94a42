//! The numbers of a pool and of files, in a form that visibly adds up.

use std::fmt::Write;

use onefold_block::Show;
use onefold_pool::{FileStat, PoolStat};
use serde_json::{Value, json};

use super::TextTable;
use crate::calendar;
use crate::size::{grouped, human};

/// Returns the stored bytes without repetitions: `apparent = zero + distinct + saved`.
fn distinct_bytes(stat: &PoolStat) -> u64 {
    stat.unique_bytes.saturating_add(stat.shared_bytes)
}

fn saved_bytes(stat: &PoolStat) -> u64 {
    stat.saved_by_blocks_bytes.saturating_add(stat.saved_by_clones_bytes)
}

/// Returns the bytes that repeat within the file itself: `apparent = zero + distinct + saved`.
fn saved_in_file_bytes(stat: &FileStat) -> u64 {
    stat.apparent_bytes.saturating_sub(stat.zero_bytes).saturating_sub(stat.distinct_bytes)
}

/// Returns `part` of `whole` as a percentage with one decimal.
fn percent(part: u64, whole: u64) -> String {
    let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Returns how many times as long the data is as the space that it takes, as in `2.3x`.
fn ratio(stored: u64, distinct: u64) -> String {
    let tenths = match distinct {
        0 => 10,
        distinct => (u128::from(stored) * 10 + u128::from(distinct) / 2) / u128::from(distinct),
    };
    format!("{}.{}x", tenths / 10, tenths % 10)
}

/// Returns a pool's numbers for people.
pub(crate) fn pool_text(stat: &PoolStat) -> String {
    let mut text = format!("pool {}", stat.uuid);
    if !stat.label.is_empty() {
        text.push_str(&format!(" \"{}\"", stat.label.escape_debug()));
    }
    if let Some(cause) = &stat.stopped {
        let _ = write!(text, "\nSTOPPED: {cause}; nothing is accepted until the pool is mounted again");
    }
    let mut table = TextTable::new(["", "bytes", ""]);
    let mut row = |name: &str, bytes: u64| table.row([name.to_owned(), grouped(bytes), human(bytes)]);
    row("apparent: what the files seem to hold", stat.apparent_bytes);
    row("  zero: holes and zero blocks", stat.zero_bytes);
    row("  distinct: stored once", distinct_bytes(stat));
    row("    unique: in one place", stat.unique_bytes);
    row("    shared: in several places", stat.shared_bytes);
    row("  saved", saved_bytes(stat));
    row("    by equal blocks", stat.saved_by_blocks_bytes);
    row("    by clones", stat.saved_by_clones_bytes);
    row("device: what the pool manages", stat.device_bytes);
    row("  metadata", stat.metadata_fixed_bytes.saturating_add(stat.metadata_dynamic_bytes));
    row("    fixed at creation", stat.metadata_fixed_bytes);
    row("    file maps and names", stat.metadata_dynamic_bytes);
    row("  distinct", distinct_bytes(stat));
    row("  being freed", stat.freeing_bytes);
    row("  free", stat.free_bytes);
    row("    of these reserved", stat.reserved_bytes);
    // Writing into a string does not fail.
    let _ = write!(text, "\n{table}");
    if stat.reclaim_pending > 0 {
        let files = if stat.reclaim_pending == 1 { "deleted file is" } else { "deleted files are" };
        let _ = write!(text, "\n{} {files} still being reclaimed", grouped(stat.reclaim_pending));
    }
    let stored = stat.apparent_bytes.saturating_sub(stat.zero_bytes);
    let _ = write!(
        text,
        "\nsaved {} of {} that are not zero ({}, {})",
        human(saved_bytes(stat)),
        human(stored),
        percent(saved_bytes(stat), stored),
        ratio(stored, distinct_bytes(stat))
    );
    if let Some(seconds) = stat.scrubbed_seconds {
        let _ = write!(text, "\nlast scrub: {} UTC", calendar::minute(seconds));
    }
    text
}

/// Returns the state of a daemon's filter, and its limit if there is one.
pub(crate) fn filter_text(stat: &PoolStat) -> String {
    let filter = &stat.filter;
    let mut text = format!(
        "filter: {} of memory, {} blocks can be found (n = {}, k = {})",
        human(filter.memory_bytes),
        grouped(filter.entry_count),
        filter.index_bits,
        filter.tag_bits
    );
    if filter.refused_count > 0 {
        let _ = write!(
            text,
            "\nwarning: {} stored blocks do not fit the filter, equal ones are stored again: give more --memory, or run \
             `onefold pool dedup` when the pool is not mounted",
            grouped(filter.refused_count)
        );
    }
    if filter.groups_pending > 0 {
        let _ = write!(text, "\nthe filter is still being read: {} block groups to go", grouped(filter.groups_pending));
    }
    text
}

/// Returns a pool's numbers for machines.
pub(crate) fn pool_json(stat: &PoolStat) -> Value {
    json!({
        "label": stat.label,
        "uuid": stat.uuid,
        "stopped": stat.stopped,
        "inode_count": stat.inode_count,
        "apparent_bytes": stat.apparent_bytes,
        "zero_bytes": stat.zero_bytes,
        "distinct_bytes": distinct_bytes(stat),
        "unique_bytes": stat.unique_bytes,
        "shared_bytes": stat.shared_bytes,
        "saved_bytes": saved_bytes(stat),
        "saved_by_blocks_bytes": stat.saved_by_blocks_bytes,
        "saved_by_clones_bytes": stat.saved_by_clones_bytes,
        "device_bytes": stat.device_bytes,
        "metadata_bytes": stat.metadata_fixed_bytes.saturating_add(stat.metadata_dynamic_bytes),
        "metadata_fixed_bytes": stat.metadata_fixed_bytes,
        "metadata_dynamic_bytes": stat.metadata_dynamic_bytes,
        "freeing_bytes": stat.freeing_bytes,
        "free_bytes": stat.free_bytes,
        "reserved_bytes": stat.reserved_bytes,
        "reclaim_pending": stat.reclaim_pending,
        "scrubbed_seconds": stat.scrubbed_seconds,
        "filter": {
            "memory_bytes": stat.filter.memory_bytes,
            "entry_count": stat.filter.entry_count,
            "refused_count": stat.filter.refused_count,
            "groups_pending": stat.filter.groups_pending,
            "index_bits": stat.filter.index_bits,
            "tag_bits": stat.filter.tag_bits,
        },
        "activity": {
            "blocks_accepted": stat.activity.blocks_accepted,
            "blocks_zero": stat.activity.blocks_zero,
            "blocks_shared": stat.activity.blocks_shared,
            "blocks_written": stat.activity.blocks_written,
            "lookups_for_nothing": stat.activity.lookups_for_nothing,
            "metadata_blocks_read": stat.activity.metadata_blocks_read,
            "commits": stat.activity.commits,
            "checkpoints": stat.activity.checkpoints,
            "replayed": stat.activity.replayed,
            "replayed_bytes": stat.activity.replayed_bytes,
        },
    })
}

/// Returns the numbers of files, followed by those of the whole pool, for people.
pub(crate) fn files_text(files: &[(String, FileStat)], pool: &PoolStat) -> String {
    let mut table = TextTable::new(["file", "apparent", "zero", "distinct", "of it shared", "only here", "saved"]);
    for (name, stat) in files {
        let found = |bytes| if stat.is_estimated { format!("about {}", human(bytes)) } else { human(bytes) };
        table.row([
            name.shown().to_string(),
            human(stat.apparent_bytes),
            human(stat.zero_bytes),
            found(stat.distinct_bytes),
            found(stat.distinct_bytes.saturating_sub(stat.unique_bytes)),
            found(stat.unique_bytes),
            found(saved_in_file_bytes(stat)),
        ]);
    }
    table.row([
        "the whole pool".to_owned(),
        human(pool.apparent_bytes),
        human(pool.zero_bytes),
        human(distinct_bytes(pool)),
        human(pool.shared_bytes),
        human(distinct_bytes(pool)),
        human(saved_bytes(pool)),
    ]);
    let estimated = match files.iter().any(|(_, stat)| stat.is_estimated) {
        true => "\nabout: estimated from a sample of the shared blocks, of which there are very many",
        false => "",
    };
    let only_here = "only here: the space that deleting this file alone would free";
    format!(
        "{table}
{only_here}
the whole pool counts shared content once{estimated}"
    )
}

/// Returns one file's numbers for machines.
pub(crate) fn file_json(name: &str, stat: &FileStat) -> Value {
    json!({
        "name": name,
        "apparent_bytes": stat.apparent_bytes,
        "zero_bytes": stat.zero_bytes,
        "distinct_bytes": stat.distinct_bytes,
        "unique_bytes": stat.unique_bytes,
        "shared_bytes": stat.shared_bytes,
        "saved_bytes": saved_in_file_bytes(stat),
        "is_estimated": stat.is_estimated,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat() -> PoolStat {
        PoolStat {
            label: "images".into(),
            apparent_bytes: 100 << 20,
            zero_bytes: 40 << 20,
            unique_bytes: 20 << 20,
            shared_bytes: 10 << 20,
            saved_by_blocks_bytes: 25 << 20,
            saved_by_clones_bytes: 5 << 20,
            device_bytes: 64 << 20,
            metadata_fixed_bytes: 4 << 20,
            metadata_dynamic_bytes: 1 << 20,
            free_bytes: 29 << 20,
            ..PoolStat::default()
        }
    }

    #[test]
    fn a_pool_that_has_stopped_says_why() {
        assert!(!pool_text(&stat()).contains("STOPPED"));
        let stopped = PoolStat { stopped: Some("cannot flush block 7".into()), ..stat() };
        assert!(pool_text(&stopped).contains("STOPPED: cannot flush block 7"));
        assert_eq!(pool_json(&stopped)["stopped"], "cannot flush block 7");
    }

    #[test]
    fn the_numbers_for_machines_add_up() {
        let json = pool_json(&stat());
        let bytes = |name: &str| json[name].as_u64().unwrap();
        assert_eq!(bytes("apparent_bytes"), bytes("zero_bytes") + bytes("distinct_bytes") + bytes("saved_bytes"));
        assert_eq!(
            bytes("device_bytes"),
            bytes("metadata_bytes") + bytes("distinct_bytes") + bytes("freeing_bytes") + bytes("free_bytes")
        );
    }

    #[test]
    fn the_text_shows_exact_bytes_and_what_was_saved() {
        let text = pool_text(&stat());
        assert!(text.contains("104,857,600"), "{text}");
        assert!(text.contains("saved 30.00 MiB of 60.00 MiB that are not zero (50.0 %, 2.0x)"), "{text}");
        assert!(!filter_text(&stat()).contains("warning"));
    }

    #[test]
    fn a_filter_that_is_too_small_is_told() {
        let mut stat = stat();
        stat.filter.refused_count = 7;
        assert!(filter_text(&stat).contains("warning: 7 stored blocks"));
    }

    #[test]
    fn a_file_adds_up_by_itself() {
        let file = FileStat {
            apparent_bytes: 100,
            zero_bytes: 40,
            unique_bytes: 20,
            shared_bytes: 40,
            distinct_bytes: 50,
            ..FileStat::default()
        };
        let json = file_json("a", &file);
        assert_eq!((&json["saved_bytes"], &json["is_estimated"]), (&json!(10), &json!(false)));
        let text = files_text(&[("a".into(), file.clone())], &stat());
        assert!(text.lines().nth(1).unwrap().ends_with("10 B") && !text.contains("about"), "{text}");
        let estimated = FileStat { is_estimated: true, ..file };
        assert_eq!(file_json("a", &estimated)["is_estimated"], true);
        let text = files_text(&[("a".into(), estimated)], &stat());
        assert!(text.contains("about 50 B") && text.contains("estimated from a sample"), "{text}");
    }
}
