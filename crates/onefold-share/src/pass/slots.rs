//! Sets of arena slots.

use std::collections::BTreeMap;

use crate::format::Slot;

const WORDS: usize = (Slot::IN_FILE / 64) as usize;

/// A set of slots: a bit for each slot of an arena file that has any, 32 KiB a file.
#[derive(Debug, Default)]
pub(crate) struct SlotSet {
    files: BTreeMap<u32, Box<[u64; WORDS]>>,
}

impl SlotSet {
    pub(crate) fn insert(&mut self, slot: Slot) {
        let words = self.files.entry(slot.arena()).or_insert_with(|| Box::new([0; WORDS]));
        let (word, bit) = place(slot);
        words[word] |= bit;
    }

    pub(crate) fn contains(&self, slot: Slot) -> bool {
        let (word, bit) = place(slot);
        self.files.get(&slot.arena()).is_some_and(|words| words[word] & bit != 0)
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        let (word, bit) = place(slot);
        if let Some(words) = self.files.get_mut(&slot.arena()) {
            words[word] &= !bit;
        }
    }

    /// Adds all slots of another set.
    pub(super) fn add(&mut self, other: &SlotSet) {
        for (number, words) in &other.files {
            let own = self.files.entry(*number).or_insert_with(|| Box::new([0; WORDS]));
            own.iter_mut().zip(words.iter()).for_each(|(own, word)| *own |= word);
        }
    }

    /// Removes all slots of another set.
    pub(super) fn remove_all(&mut self, other: &SlotSet) {
        for (number, words) in &other.files {
            if let Some(own) = self.files.get_mut(number) {
                own.iter_mut().zip(words.iter()).for_each(|(own, word)| *own &= !word);
            }
        }
    }

    /// Returns how many slots it has.
    pub(super) fn count(&self) -> u64 {
        let words = self.files.values().flat_map(|words| words.iter());
        words.map(|word| u64::from(word.count_ones())).sum()
    }

    /// Returns whether it has a slot of this arena file that `other` has not.
    pub(super) fn has_more(&self, arena: u32, other: &SlotSet) -> bool {
        let Some(words) = self.files.get(&arena) else { return false };
        match other.files.get(&arena) {
            Some(others) => words.iter().zip(others.iter()).any(|(word, other)| word & !other != 0),
            None => words.iter().any(|word| *word != 0),
        }
    }
}

fn place(slot: Slot) -> (usize, u64) {
    let word = usize::try_from(slot.index() / 64).expect("below the words of a file");
    (word, 1 << (slot.index() % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in_and_nothing_else() {
        let slots = [(0, 0), (0, 63), (0, 64), (7, Slot::IN_FILE - 1)].map(|(arena, at)| Slot::new(arena, at).unwrap());
        let mut set = SlotSet::default();
        slots.iter().for_each(|slot| set.insert(*slot));
        assert!(slots.iter().all(|slot| set.contains(*slot)) && set.count() == 4);
        let mut more = SlotSet::default();
        assert!(set.has_more(0, &more) && set.has_more(7, &more) && !set.has_more(1, &more));
        slots[..3].iter().for_each(|slot| more.insert(*slot));
        assert!(!set.has_more(0, &more) && set.has_more(7, &more) && !more.has_more(0, &set));
        more.remove(slots[1]);
        more.remove(Slot::new(9, 0).unwrap());
        assert!(more.contains(slots[0]) && !more.contains(slots[1]) && set.has_more(0, &more));
        for other in [(0, 1), (0, 65), (7, 0), (1, 0)] {
            assert!(!set.contains(Slot::new(other.0, other.1).unwrap()));
        }
    }
}
