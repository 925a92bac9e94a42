//! A cache of recently used values, bounded in bytes.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Values by key. When the cache exceeds its bound, the least recently used values are evicted.
#[derive(Debug)]
pub(crate) struct RecentCache<K, V> {
    values: HashMap<K, CacheEntry<V>>,
    /// Keys in the order of their last use.
    order: BTreeMap<u64, K>,
    next_use: u64,
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct CacheEntry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<K: Clone + Eq + Hash, V: Clone> RecentCache<K, V> {
    /// Returns an empty cache for `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> RecentCache<K, V> {
        RecentCache { values: HashMap::new(), order: BTreeMap::new(), next_use: 0, bytes: 0, bytes_max }
    }

    /// Returns a value and marks it as most recently used.
    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        let kept = self.values.get_mut(key)?;
        self.order.remove(&kept.used);
        kept.used = self.next_use;
        self.order.insert(kept.used, key.clone());
        self.next_use += 1;
        Some(kept.value.clone())
    }

    /// Inserts a value of `bytes` bytes, unless it alone exceeds the bound.
    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize) {
        self.remove(&key);
        if bytes > self.bytes_max {
            return;
        }
        while self.bytes > self.bytes_max - bytes {
            let Some((_, oldest)) = self.order.first_key_value() else { break };
            let oldest = oldest.clone();
            self.remove(&oldest);
        }
        self.order.insert(self.next_use, key.clone());
        self.values.insert(key, CacheEntry { value, bytes, used: self.next_use });
        self.next_use += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, key: &K) {
        if let Some(kept) = self.values.remove(key) {
            self.order.remove(&kept.used);
            self.bytes -= kept.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_holds_and_what_was_used_last_stays() {
        let mut recent = RecentCache::new(10);
        for key in 0..3 {
            recent.insert(key, key * 10, 4);
        }
        assert_eq!([0, 1, 2].map(|key| recent.get(&key)), [None, Some(10), Some(20)]);
        assert_eq!(recent.get(&1), Some(10));
        recent.insert(3, 30, 4);
        assert_eq!([1, 2, 3].map(|key| recent.get(&key)), [Some(10), None, Some(30)]);
        recent.insert(1, 11, 5);
        assert_eq!((recent.get(&1), recent.bytes), (Some(11), 9));
        recent.insert(4, 40, 11);
        assert_eq!((recent.get(&4), recent.get(&1), recent.bytes), (None, Some(11), 9));
        recent.insert(5, 50, 10);
        assert_eq!((recent.get(&1), recent.get(&5), recent.bytes, recent.order.len()), (None, Some(50), 10, 1));
    }
}
