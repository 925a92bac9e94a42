//! The room that Btrfs has for its own records (metadata). It is separate from the room for data, and can run out long
//! before that.

use crate::sys::btrfs::SpaceInfo;

const DATA: u64 = 1;
const METADATA: u64 = 1 << 2;
/// Kinds of copies: two (DUP on one device; RAID1, RAID10 on two), three, four.
const TWICE: u64 = 1 << 4 | 1 << 5 | 1 << 6;
const THREE_TIMES: u64 = 1 << 9;
const FOUR_TIMES: u64 = 1 << 10;
/// A reserve that Btrfs keeps so that files can always be removed.
const RESERVE: u64 = 1 << 49;
/// Unusable beside the reserve, as each transaction first reserves the maximum that it may need: a Btrfs of 320 MiB
/// refused to rename a file with 13.6 MiB unused and a reserve of 5.6 MiB.
const OUT_OF_REACH: u64 = 12 << 20;
/// Unallocated space is handed out in pieces: less than a piece may not become room for records.
const PIECE_BYTES: u64 = 32 << 20;

/// Returns the room left for records, from the allocated space of each kind and the bytes free for data.
pub(super) fn left(infos: &[SpaceInfo], free: u64) -> u64 {
    let of = |flag: u64| infos.iter().filter(move |info| info.flags & flag != 0 && info.flags & RESERVE == 0);
    let unused = |info: &SpaceInfo| info.total.saturating_sub(info.used);
    if infos.iter().any(|info| info.flags & (DATA | METADATA) == DATA | METADATA && info.flags & RESERVE == 0) {
        // Data and metadata share one room.
        return free;
    }
    let reserved: u64 = infos.iter().filter(|info| info.flags & RESERVE != 0).map(|info| info.total).sum();
    let reserved = reserved + OUT_OF_REACH;
    let in_data: u64 = of(DATA).map(unused).sum();
    let data_copies = of(DATA).map(copies).max().unwrap_or(1);
    let copies = of(METADATA).map(copies).max().unwrap_or(1);
    let unallocated = free.saturating_sub(in_data).saturating_mul(data_copies) / copies;
    let unallocated = if unallocated < PIECE_BYTES { 0 } else { unallocated };
    of(METADATA).map(unused).sum::<u64>().saturating_sub(reserved).saturating_add(unallocated)
}

fn copies(info: &SpaceInfo) -> u64 {
    [(FOUR_TIMES, 4), (THREE_TIMES, 3), (TWICE, 2)]
        .iter()
        .find(|(flag, _)| info.flags & flag != 0)
        .map_or(1, |(_, copies)| *copies)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn info(flags: u64, total: u64, used: u64) -> SpaceInfo {
        SpaceInfo { flags, total: total * MIB, used: used * MIB }
    }

    #[test]
    fn what_is_left_for_records_is_what_is_set_aside_and_what_may_be() {
        let [data, system, reserve] = [info(DATA, 100, 60), info(2, 8, 1), info(METADATA | RESERVE, 6, 0)];
        let metadata = |used| info(METADATA | 1 << 5, 32, used);
        // 40 MiB are free in data. The rest is unallocated, and each MiB of records takes two of it.
        assert_eq!(left(&[data, system, metadata(20), reserve], 140 * MIB), 50 * MIB);
        assert_eq!(left(&[data, system, metadata(4), reserve], 40 * MIB), 10 * MIB);
        // Too little to become room for records.
        assert_eq!(left(&[data, system, metadata(4), reserve], 60 * MIB), 10 * MIB);
        assert_eq!(left(&[data, system, metadata(30), reserve], 0), 0);
        assert_eq!(left(&[info(DATA | METADATA, 100, 60), reserve], 33 * MIB), 33 * MIB);
        assert_eq!(left(&[], 0), 0);
    }
}
