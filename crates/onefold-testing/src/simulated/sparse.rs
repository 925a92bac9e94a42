//! A sparse array, for the blocks of a file.

/// Slots of a leaf.
const LEAF: usize = 32;

#[derive(Debug)]
struct Leaf<T> {
    number: u64,
    used: usize,
    slots: [Option<T>; LEAF],
}

/// An array of up to 2^64 slots. Only used slots and a few of their neighbours take memory.
#[derive(Debug)]
pub(super) struct SparseArray<T> {
    /// Sorted by number. In small files without long holes, each leaf is at the index of its number.
    leaves: Vec<Box<Leaf<T>>>,
    used: u64,
}

impl<T> Default for SparseArray<T> {
    fn default() -> SparseArray<T> {
        SparseArray { leaves: Vec::new(), used: 0 }
    }
}

fn split(index: u64) -> (u64, usize) {
    (index / LEAF as u64, usize::try_from(index % LEAF as u64).expect("below a leaf's length"))
}

impl<T> SparseArray<T> {
    /// Returns the number of used slots.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Returns the position of a leaf, or the one where it would be inserted.
    fn find(&self, number: u64) -> Result<usize, usize> {
        if let Ok(place) = usize::try_from(number)
            && self.leaves.get(place).is_some_and(|leaf| leaf.number == number)
        {
            return Ok(place);
        }
        self.leaves.binary_search_by_key(&number, |leaf| leaf.number)
    }

    pub(super) fn get(&self, index: u64) -> Option<&T> {
        let (number, slot) = split(index);
        self.leaves[self.find(number).ok()?].slots[slot].as_ref()
    }

    /// Sets the value of a slot; returns the old value.
    pub(super) fn set(&mut self, index: u64, value: Option<T>) -> Option<T> {
        let (number, slot) = split(index);
        let place = match self.find(number) {
            Ok(place) => place,
            Err(_) if value.is_none() => return None,
            Err(place) => {
                let leaf = Leaf { number, used: 0, slots: [const { None }; LEAF] };
                self.leaves.insert(place, Box::new(leaf));
                place
            }
        };
        let leaf = &mut self.leaves[place];
        let added = usize::from(value.is_some());
        let before = std::mem::replace(&mut leaf.slots[slot], value);
        let taken = usize::from(before.is_some());
        leaf.used = leaf.used + added - taken;
        self.used = self.used + added as u64 - taken as u64;
        if leaf.used == 0 {
            self.leaves.remove(place);
        }
        before
    }

    /// Returns the used slots from an index on, in order.
    pub(super) fn iter_from(&self, first: u64) -> impl Iterator<Item = (u64, &T)> {
        let (Ok(place) | Err(place)) = self.find(split(first).0);
        let slots = self.leaves[place..].iter().flat_map(|leaf| leaf.slots.iter().zip(leaf.number * LEAF as u64..));
        slots.filter_map(move |(slot, index)| slot.as_ref().filter(|_| index >= first).map(|value| (index, value)))
    }

    /// Returns the indices of used slots from an index on, in order, so that the caller can change them.
    pub(super) fn indices_from(&self, first: u64) -> Vec<u64> {
        self.iter_from(first).map(|(index, _)| index).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::simulated::dice::Dice;

    #[test]
    fn a_sparse_array_agrees_with_a_plain_map() {
        let (mut dice, mut sparse, mut plain) = (Dice::new(1, 1), SparseArray::default(), BTreeMap::new());
        for number in 0..5000 {
            let index = if dice.one_in(4) { dice.below(1 << 40) } else { dice.below(200) };
            let value = (!dice.one_in(3)).then_some(number);
            let before = match value {
                Some(value) => plain.insert(index, value),
                None => plain.remove(&index),
            };
            assert_eq!(sparse.set(index, value), before);
            assert_eq!((sparse.get(index), sparse.used()), (value.as_ref(), plain.len() as u64));
            if number % 50 == 0 {
                let first = dice.below(250);
                assert!(sparse.iter_from(first).eq(plain.range(first..).map(|(index, value)| (*index, value))));
            }
        }
        for index in sparse.indices_from(0) {
            sparse.set(index, None);
        }
        assert!(sparse.leaves.is_empty() && sparse.used() == 0);
    }
}
