//! The room that the records of a usual run need, beside what the file system has.

use std::io;

use onefold_substrate::Substrate;

use crate::room::left_for_others;

/// Room that a run needs for its records: a log, an index and its next generation for each block, with a margin.
const RECORD_BYTES: u64 = 64;
/// Room that a run needs however few blocks there are.
const RECORDS_LEAST: u64 = 4 << 20;
/// Bounds of the bytes that are shared between two looks at the room.
const LOOK_LEAST: u64 = 1 << 20;
const LOOK_MOST: u64 = 64 << 20;

/// The room that there is, and the room that there has to be, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoomState {
    pub(super) free: u64,
    pub(super) needed: u64,
}

impl RoomState {
    pub(super) fn is_enough(self) -> bool {
        self.free >= self.needed
    }

    /// Returns how many bytes are shared before the next look. Fewer can hardly have made the room.
    pub(super) fn until_look(self) -> u64 {
        self.needed.saturating_sub(self.free).clamp(LOOK_LEAST, LOOK_MOST)
    }
}

/// What a usual run needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    blocks: u64,
}

impl Need {
    pub(super) fn of_blocks(blocks: u64) -> Need {
        Need { blocks }
    }

    /// Compares the room that a run asks for with what it needs: room for its files, and room for the file system's own
    /// records, which Btrfs has apart.
    pub(super) fn look<S: Substrate>(self, substrate: &S) -> io::Result<RoomState> {
        let (room, records) = (substrate.room()?, substrate.room_for_records()?);
        Ok(self.state(room.total, room.free, records))
    }

    fn state(self, total: u64, free: u64, records: u64) -> RoomState {
        let needed_for_records = RECORDS_LEAST + left_for_others(total);
        let files =
            RoomState { free, needed: self.blocks.saturating_mul(RECORD_BYTES).saturating_add(needed_for_records) };
        let records = RoomState { free: records, needed: needed_for_records };
        // The one that is lacking.
        if files.is_enough() { if records.is_enough() { files } else { records } } else { files }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn room_for_files_and_room_for_records_both_count() {
        let (need, total) = (Need::of_blocks(1 << 20), 1 << 40);
        let of = |free: u64, records: u64| need.state(total, free * MIB, records * MIB);
        assert_eq!(of(131, 131), RoomState { free: 131 * MIB, needed: 132 * MIB });
        assert!(!of(131, 131).is_enough() && of(132, 132).is_enough());
        // Much room for data, and hardly any for records.
        assert_eq!(of(1000, 67), RoomState { free: 67 * MIB, needed: 68 * MIB });
        assert!(of(1000, 68).is_enough());
    }

    #[test]
    fn a_look_comes_once_the_lack_may_be_made_up() {
        let lacking = |bytes: u64| RoomState { free: 0, needed: bytes }.until_look();
        assert_eq!([lacking(4096), lacking(5 * MIB), lacking(1 << 40)], [MIB, 5 * MIB, 64 * MIB]);
    }
}
