//! The file allocation table: chains of clusters.
//!
//! An entry has 12, 16 or 32 bits; of the latter, 28 count. 0 is free, 1 is reserved, the number below the highest
//! eight is a bad cluster, and the highest eight end a chain. Entry 1 has a bit that a clean unmount sets, and one that
//! errors clear.

use parking_lot::Mutex;

use super::layout::Layout;
use crate::error::{DamageLog, GuestError};
use crate::filesystem::FileSystemKind;
use crate::volume::VolumeReader;

const STRUCTURE: &str = "file allocation table";
/// Description of a chain without an end.
const CYCLE: &str = "a chain comes back to itself";
/// Number of entries per read when a whole table is read.
const PIECE_ENTRIES: u32 = 16 << 10;
/// Bytes of a table that are cached: a chain usually continues nearby.
const WINDOW_BYTES: u64 = 4 << 10;

/// The tables of a volume.
pub(super) struct Table<'a> {
    reader: VolumeReader<'a>,
    layout: Layout,
    window: Mutex<Window>,
}

/// The most recently read part of the tables.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

/// Meaning of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FatEntry {
    Free,
    Next(u32),
    Last,
    Bad,
    /// An invalid number.
    Invalid,
}

impl<'a> Table<'a> {
    pub(super) fn new(reader: VolumeReader<'a>, layout: Layout) -> Table<'a> {
        Table { reader, layout, window: Mutex::default() }
    }

    /// Returns the numbers of the current tables, the best one first.
    pub(super) fn current(&self) -> impl Iterator<Item = u32> {
        let only = self.layout.only_table;
        (0..self.layout.tables).filter(move |table| only.is_none_or(|only| only == *table))
    }

    /// Returns an entry of a table.
    pub(super) fn entry(&self, table: u32, cluster: u32) -> Result<FatEntry, GuestError> {
        Ok(self.meaning(self.raw(table, cluster)?))
    }

    /// Returns the bits of an entry.
    pub(super) fn raw(&self, table: u32, cluster: u32) -> Result<u32, GuestError> {
        let (offset, length) = self.offset_of(cluster);
        let bits = u32::from_le_bytes(self.four_bytes(self.start_of(table), offset, length)?);
        Ok(self.bits_of(cluster, bits))
    }

    /// Returns the first byte of a table in the volume.
    fn start_of(&self, table: u32) -> u64 {
        self.layout.table_start + u64::from(table) * self.layout.table_bytes
    }

    /// Returns the place and the number of an entry's bytes in its table.
    fn offset_of(&self, cluster: u32) -> (u64, usize) {
        let cluster = u64::from(cluster);
        match self.layout.kind {
            FileSystemKind::Fat12 => (cluster + cluster / 2, 2),
            FileSystemKind::Fat16 => (cluster * 2, 2),
            _ => (cluster * 4, 4),
        }
    }

    /// Returns the bits of an entry from the number that its bytes form.
    fn bits_of(&self, cluster: u32, number: u32) -> u32 {
        match self.layout.kind {
            FileSystemKind::Fat12 if cluster % 2 == 1 => (number >> 4) & 0xfff,
            FileSystemKind::Fat12 => number & 0xfff,
            FileSystemKind::Fat16 => number & 0xffff,
            _ => number & 0x0fff_ffff,
        }
    }

    /// Calls `visit` with each cluster that a table does not mark as free and the bits of its entry, in order. Reads
    /// the table once.
    pub(super) fn each_used(&self, table: u32, visit: &mut dyn FnMut(u32, u32)) -> Result<(), GuestError> {
        let (start, mut first) = (self.start_of(table), 2);
        while first < self.layout.end() {
            let end = self.layout.end().min(first.saturating_add(PIECE_ENTRIES));
            let (from, _) = self.offset_of(first);
            let (last, length) = self.offset_of(end - 1);
            let bytes = usize::try_from(last - from).unwrap_or(0) + length;
            let piece = self.reader.bytes(start + from, bytes, STRUCTURE)?;
            for cluster in first..end {
                let (offset, length) = self.offset_of(cluster);
                let at = usize::try_from(offset - from).unwrap_or(usize::MAX);
                let entry = piece.get(at..).and_then(|rest| rest.get(..length)).unwrap_or_default();
                let number = entry.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
                let bits = self.bits_of(cluster, number);
                if bits != 0 {
                    visit(cluster, bits);
                }
            }
            first = end;
        }
        Ok(())
    }

    /// Returns the meaning of an entry's bits.
    pub(super) fn meaning(&self, bits: u32) -> FatEntry {
        let highest = self.highest();
        match bits {
            0 => FatEntry::Free,
            bits if self.layout.has(bits) => FatEntry::Next(bits),
            bits if bits >= highest - 7 => FatEntry::Last,
            bits if bits == highest - 8 => FatEntry::Bad,
            _ => FatEntry::Invalid,
        }
    }

    /// Returns the entry with all bits set.
    pub(super) fn highest(&self) -> u32 {
        match self.layout.kind {
            FileSystemKind::Fat12 => 0xfff,
            FileSystemKind::Fat16 => 0xffff,
            _ => 0x0fff_ffff,
        }
    }

    /// Returns `length` bytes, at most four, from byte `offset` of the table at byte `start`, and zeros behind them.
    fn four_bytes(&self, start: u64, offset: u64, length: usize) -> Result<[u8; 4], GuestError> {
        let mut window = self.window.lock();
        let at = start + offset;
        let end = at + length as u64;
        if at < window.start || end > window.start + window.bytes.len() as u64 {
            let table_end = start + self.layout.table_bytes;
            let length = WINDOW_BYTES.min(table_end.saturating_sub(at)).max(length as u64);
            window.bytes = self.reader.bytes(at, usize::try_from(length).unwrap_or(0), STRUCTURE)?;
            window.start = at;
        }
        let within = usize::try_from(at - window.start).unwrap_or(usize::MAX);
        let mut four = [0; 4];
        if let Some(bytes) = window.bytes.get(within..).and_then(|rest| rest.get(..length)) {
            four.iter_mut().zip(bytes).for_each(|(into, byte)| *into = *byte);
        }
        Ok(four)
    }

    /// Returns the cluster after another one; `None` after the last. If the first table is invalid there, the second
    /// one replaces it.
    pub(super) fn next(&self, cluster: u32, damage: &DamageLog) -> Result<Option<u32>, GuestError> {
        for table in self.current() {
            match self.entry(table, cluster)? {
                FatEntry::Next(next) => return Ok(Some(next)),
                FatEntry::Last => return Ok(None),
                FatEntry::Free | FatEntry::Bad | FatEntry::Invalid => {
                    damage.note(self.damage(cluster, "a chain leads to an entry that is not in use"));
                }
            }
        }
        Err(self.damage(cluster, "a chain leads to an entry that is not in use").into())
    }

    /// Checks that the first `count` clusters of the chain from `first` on differ from each other, or end with other
    /// damage.
    pub(super) fn check_end(&self, first: u32, count: u32, damage: &DamageLog) -> Result<(), GuestError> {
        // The mark is on a cycle after at most twice the number of steps to the first repetition, which is found one
        // round later.
        let steps = usize::try_from(u64::from(count) * 3 + 3).unwrap_or(usize::MAX);
        for cluster in self.chain(first, damage).take(steps) {
            match cluster {
                Err(GuestError::Damaged(found)) if found.problem != CYCLE => break,
                found => found?,
            };
        }
        Ok(())
    }

    fn damage(&self, cluster: u32, problem: &'static str) -> crate::error::Damage {
        self.reader.damage(self.layout.place(cluster), "cluster chain", problem)
    }

    /// Returns the clusters of a chain from `first` on. It ends with damage if it returns to itself or leads to an
    /// invalid cluster.
    pub(super) fn chain<'t>(&'t self, first: u32, damage: &'t DamageLog) -> Chain<'t, 'a> {
        let is_there = self.layout.has(first);
        let next = if is_there { Ok(first) } else { Err(self.damage(first, "a chain begins at no cluster").into()) };
        Chain { table: self, damage, next: Some(next), mark: first, steps: 0, limit: 1 }
    }
}

/// The clusters of a chain. Brent's algorithm finds a cycle in constant memory: the mark moves to the current cluster
/// after twice as many steps as before, so it is on the cycle at some time.
pub(super) struct Chain<'t, 'a> {
    table: &'t Table<'a>,
    damage: &'t DamageLog,
    next: Option<Result<u32, GuestError>>,
    mark: u32,
    steps: u32,
    limit: u32,
}

impl Chain<'_, '_> {
    /// Returns the cluster after `steps` others; `None` if the chain is shorter.
    pub(super) fn after_steps(&mut self, steps: usize) -> Result<Option<u32>, GuestError> {
        for cluster in self.take(steps) {
            cluster?;
        }
        self.next().transpose()
    }

    /// Returns the successor of a cluster in the chain.
    fn after(&mut self, cluster: u32) -> Option<Result<u32, GuestError>> {
        let next = match self.table.next(cluster, self.damage) {
            Ok(next) => next?,
            Err(error) => return Some(Err(error)),
        };
        if next == self.mark {
            return Some(Err(self.table.damage(cluster, CYCLE).into()));
        }
        self.steps += 1;
        if self.steps == self.limit {
            (self.mark, self.steps, self.limit) = (next, 0, self.limit.saturating_mul(2));
        }
        Some(Ok(next))
    }
}

impl Iterator for Chain<'_, '_> {
    type Item = Result<u32, GuestError>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.next.take()?;
        if let Ok(cluster) = found {
            self.next = self.after(cluster);
        }
        Some(found)
    }
}
