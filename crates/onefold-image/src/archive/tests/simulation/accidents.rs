//! Accidents: packs rot, or are away or cannot be read for a while. Segments of the index rot or go for good.

use std::collections::HashSet;

use super::world::Sea;
use crate::archive::objects::Folder;
use crate::format::pack::{Pack, UNIT_HEADER_BYTES, decode_pack};
use crate::store::{ByteRange, ObjectName, Store};

/// Most calls for which a pack cannot be read.
const UNREADABLE_MAX: u64 = 200;

/// Objects that accidents have harmed.
#[derive(Default)]
pub(super) struct Accidents {
    pub(super) count: u64,
    /// Packs that are away, with their bytes.
    away: Vec<(ObjectName, Vec<u8>)>,
    /// A pack that cannot be read before a call.
    unreadable: Option<(ObjectName, u64)>,
    /// Packs whose bytes changed, and segments that changed or went.
    rotten: HashSet<ObjectName>,
}

impl Accidents {
    pub(super) fn is_rotten(&self, name: &ObjectName) -> bool {
        self.rotten.contains(name)
    }

    pub(super) fn is_unreadable(&self, name: &ObjectName, call: u64) -> bool {
        self.unreadable.as_ref().is_some_and(|(unreadable, until)| unreadable == name && call < *until)
    }

    /// Returns whether a call that reads a pack gets something else than what was stored.
    pub(super) fn is_harmed(&self, name: &ObjectName, call: u64) -> bool {
        let is_away = self.away.iter().any(|(away, _)| away == name);
        is_away || self.is_rotten(name) || self.is_unreadable(name, call)
    }

    /// Returns whether a segment is rotten. What an archive knew about its packs then may be wrong for a while.
    pub(super) fn hit_a_segment(&self) -> bool {
        self.rotten.iter().any(|name| name.as_str().starts_with("segments/"))
    }

    /// Takes note that a pack or a segment is deleted.
    pub(super) fn deleted(&mut self, name: &ObjectName) {
        self.rotten.remove(name);
    }
}

impl Sea {
    /// Lets something happen to a pack that the ledger names, and sometimes to a segment. The archive may lose no more
    /// by it than the bytes that rot.
    pub(super) fn accident(&mut self) {
        self.accident_of_a_pack();
        // Few, because a damaged segment excuses failures for as long as it is there.
        if self.random.below(8) == 0 {
            self.accident_of_a_segment();
        }
    }

    /// A segment says nothing that tables do not say, so nothing may be lost by it.
    fn accident_of_a_segment(&mut self) {
        let segments = self.oracle.live_segments();
        if segments.is_empty() {
            return;
        }
        let segment = segments[usize::try_from(self.random.below(segments.len() as u64)).unwrap()];
        let name = Folder::Segments.object(segment);
        let Ok(mut bytes) = self.memory.get(&name, ByteRange::Whole) else { return };
        if self.accidents.is_rotten(&name) {
            return;
        }
        self.accidents.count += 1;
        if self.random.below(2) == 0 {
            self.memory.delete(&name).unwrap();
        } else {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
            self.memory.put(&name, &[&bytes]).unwrap();
        }
        self.accidents.rotten.insert(name);
    }

    fn accident_of_a_pack(&mut self) {
        let packs = self.oracle.live_packs();
        if packs.is_empty() {
            return;
        }
        let pack = packs[usize::try_from(self.random.below(packs.len() as u64)).unwrap()];
        let name = Folder::Packs.object(pack);
        // It may be away. A capture that made sure of it then has left an empty object.
        let Ok(mut bytes) = self.memory.get(&name, ByteRange::Whole) else { return };
        if bytes.is_empty() || self.accidents.is_rotten(&name) {
            return;
        }
        self.accidents.count += 1;
        match self.random.below(4) {
            0 => {
                self.memory.delete(&name).unwrap();
                self.accidents.away.push((name.clone(), bytes));
            }
            1 => {
                let until = self.calls + self.random.below(UNREADABLE_MAX);
                self.accidents.unreadable = Some((name.clone(), until));
            }
            2 => {
                // The table, which says what units say as well.
                let end = bytes.len() - 20;
                bytes[end] ^= 0x10;
                self.memory.put(&name, &[&bytes]).unwrap();
                self.accidents.rotten.insert(name.clone());
            }
            _ => {
                let Pack { table, .. } = decode_pack(self.oracle.archive(), pack, &bytes).unwrap();
                let unit = table[usize::try_from(self.random.below(table.len() as u64)).unwrap()];
                let at = unit.offset + UNIT_HEADER_BYTES + unit.stored_bytes / 2;
                bytes[at as usize] ^= 0x10;
                self.memory.put(&name, &[&bytes]).unwrap();
                self.accidents.rotten.insert(name.clone());
                self.oracle.rotted(pack, unit.name);
            }
        }
        self.oracle.touched(pack);
    }

    /// Lets a pack come back, if one is away.
    pub(super) fn let_return(&mut self) -> bool {
        if self.accidents.away.is_empty() {
            return false;
        }
        let number = usize::try_from(self.random.below(self.accidents.away.len() as u64)).unwrap();
        let (name, bytes) = self.accidents.away.swap_remove(number);
        self.memory.put(&name, &[&bytes]).unwrap();
        true
    }

    /// Lets everything come back.
    pub(super) fn let_all_return(&mut self) {
        self.accidents.unreadable = None;
        while self.let_return() {}
    }

    /// Returns whether nothing was damaged, and no repair has called a unit lost because a call failed.
    pub(super) fn is_sound(&self) -> bool {
        self.accidents.count == 0 && self.oracle.losses() == 0
    }
}
