//! The targets of hostile bytes: functions that return, whatever the bytes are.

mod archive;
mod command_line;
mod control;
mod ext;
mod filter;
mod fixed;
mod geometry;
mod items;
mod journal;
mod multicast;
mod ntfs;
mod packages;
mod partitions;
mod pool;
mod share_records;
mod share_state;
mod tree;
mod verbs;
mod volumes;
mod xfs;

/// A decoder, or a whole pool, with its way of using an input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also that of its fuzzer and its corpus.
    pub name: &'static str,
    /// Takes any bytes and returns.
    ///
    /// # Panics
    /// When an invariant is violated.
    pub run: fn(&[u8]),
    /// Number of inputs in a seeded run.
    pub seeded_count: u64,
}

/// All targets.
pub const TARGETS: [Target; 25] = [
    Target { name: "fixed", run: fixed::run, seeded_count: 30_000 },
    Target { name: "geometry", run: geometry::run, seeded_count: 60_000 },
    Target { name: "items", run: items::run, seeded_count: 60_000 },
    Target { name: "journal", run: journal::run, seeded_count: 60_000 },
    Target { name: "tree", run: tree::run, seeded_count: 5_000 },
    Target { name: "filter", run: filter::run, seeded_count: 3_000 },
    Target { name: "control", run: control::run, seeded_count: 60_000 },
    Target { name: "command_line", run: command_line::run, seeded_count: 60_000 },
    Target { name: "partitions", run: partitions::run, seeded_count: 60_000 },
    Target { name: "packages", run: packages::run, seeded_count: 20_000 },
    Target { name: "ext", run: ext::run, seeded_count: 100_000 },
    Target { name: "ext_journal", run: ext::run_journal, seeded_count: 70_000 },
    Target { name: "fat", run: volumes::run_fat, seeded_count: 8_000 },
    Target { name: "volumes", run: volumes::run_volumes, seeded_count: 20_000 },
    Target { name: "ntfs", run: ntfs::run, seeded_count: 30_000 },
    Target { name: "verbs", run: verbs::run, seeded_count: 400 },
    Target { name: "pool", run: pool::run_blocks, seeded_count: 700 },
    Target { name: "replay", run: pool::run_journal, seeded_count: 400 },
    Target { name: "share_records", run: share_records::run, seeded_count: 20_000 },
    Target { name: "share_state", run: share_state::run, seeded_count: 300 },
    Target { name: "archive_records", run: archive::run_records, seeded_count: 60_000 },
    Target { name: "archive", run: archive::run_whole, seeded_count: 2_000 },
    Target { name: "multicast", run: multicast::run, seeded_count: 5_000 },
    Target { name: "xfs", run: xfs::run, seeded_count: 3_000 },
    Target { name: "xfs_log", run: xfs::run_log, seeded_count: 2_000 },
];
