//! Packs on their way into the store: a thread puts one while the writer fills the next.

use std::collections::VecDeque;
use std::fmt;
use std::panic;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::store::{ObjectName, Store, StoreError};

/// Packs that are not known to be durable, oldest first.
pub(super) struct Puts {
    store: Arc<dyn Store>,
    waiting: VecDeque<WaitingObject>,
    /// Buffer of the last pack that became durable.
    spare: Option<Vec<u8>>,
    /// Thread that puts the first of them.
    under_way: Option<JoinHandle<Result<(), StoreError>>>,
    /// Whether threads put packs; otherwise the next call of `begin` or `settle` does.
    has_threads: bool,
}

struct WaitingObject {
    name: ObjectName,
    bytes: Arc<Vec<u8>>,
}

impl fmt::Debug for Puts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Puts").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl Puts {
    pub(super) fn new(store: Arc<dyn Store>, has_threads: bool) -> Puts {
        Puts { store, waiting: VecDeque::new(), spare: None, under_way: None, has_threads }
    }

    /// Queues a pack. [`Puts::begin`] or [`Puts::settle`] puts it.
    pub(super) fn push(&mut self, name: ObjectName, bytes: Vec<u8>) {
        self.waiting.push_back(WaitingObject { name, bytes: Arc::new(bytes) });
    }

    /// Returns a buffer for a pack of about `bytes`: that of a durable pack, if there is one.
    pub(super) fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.spare.take().unwrap_or_default();
        buffer.clear();
        buffer.reserve_exact(bytes);
        buffer
    }

    /// Makes all packs but the last durable, and starts a thread that puts the last one. So at most one finished pack
    /// is in memory.
    pub(super) fn begin(&mut self) -> Result<(), StoreError> {
        self.settle_until(1)?;
        let (None, true, Some(WaitingObject { name, bytes })) =
            (&self.under_way, self.has_threads, self.waiting.front())
        else {
            return Ok(());
        };
        let (store, name, bytes) = (Arc::clone(&self.store), name.clone(), Arc::clone(bytes));
        // If no thread can be started, the next call of `begin` or `settle` puts the pack.
        self.under_way = thread::Builder::new().name("put".to_owned()).spawn(move || store.put(&name, &[&bytes])).ok();
        Ok(())
    }

    /// Makes all packs durable. A pack whose put fails stays queued, and the next call tries again.
    pub(super) fn settle(&mut self) -> Result<(), StoreError> {
        self.settle_until(0)
    }

    /// Returns whether a queued pack has no thread that puts it, because a put failed.
    pub(super) fn has_failed(&self) -> bool {
        !self.waiting.is_empty() && self.under_way.is_none()
    }

    fn settle_until(&mut self, left: usize) -> Result<(), StoreError> {
        while self.waiting.len() > left
            && let Some(WaitingObject { name, bytes }) = self.waiting.front()
        {
            match self.under_way.take() {
                Some(put) => put.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked))?,
                None => self.store.put(name, &[bytes])?,
            }
            // The thread has ended, and its share of the buffer with it.
            self.spare = self.waiting.pop_front().and_then(|put| Arc::try_unwrap(put.bytes).ok());
        }
        Ok(())
    }
}

impl Drop for Puts {
    /// Joins the thread, so that it does not outlive the writer. Nothing relies on the pack that it puts here.
    fn drop(&mut self) {
        if let Some(put) = self.under_way.take() {
            let _ = put.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::faulty::FaultyStore;
    use crate::store::{ByteRange, MemoryStore};

    #[test]
    fn a_pack_whose_put_fails_is_put_again_before_the_next() {
        let memory = Arc::new(MemoryStore::default());
        for failing in 1..=3 {
            let name = |number: u8| ObjectName::new(&format!("packs/{failing}/{number}")).unwrap();
            let faulty = Arc::new(FaultyStore::new(Arc::clone(&memory) as Arc<dyn Store>, Arc::default(), 1, 0));
            let mut puts = Puts::new(Arc::clone(&faulty) as Arc<dyn Store>, true);
            faulty.kill_after(failing);
            let mut failures = 0;
            for number in 0..4u8 {
                puts.push(name(number), vec![number; 5]);
                failures += u64::from(puts.begin().is_err());
            }
            failures += u64::from(puts.settle().is_err());
            assert!(failures > 0 && puts.has_failed());
            faulty.revive();
            puts.settle().unwrap();
            assert!(!puts.has_failed());
            for number in 0..4u8 {
                assert_eq!(memory.get(&name(number), ByteRange::Whole).unwrap(), [number; 5]);
            }
        }
    }

    #[test]
    fn buffers_of_durable_packs_are_used_again() {
        let memory = Arc::new(MemoryStore::default());
        for has_threads in [false, true] {
            let mut puts = Puts::new(Arc::clone(&memory) as Arc<dyn Store>, has_threads);
            let mut places = Vec::new();
            for number in 0..6u8 {
                let mut buffer = puts.buffer(100_000);
                assert!(buffer.is_empty() && buffer.capacity() >= 100_000);
                places.push(buffer.as_ptr());
                buffer.extend_from_slice(&[number; 5]);
                puts.push(ObjectName::new(&format!("packs/{has_threads}/{number}")).unwrap(), buffer);
                puts.begin().unwrap();
            }
            puts.settle().unwrap();
            // One is filled while another one is put, so there are two, in turn.
            assert!(places.windows(2).all(|two| two[0] != two[1]));
            assert!(places.windows(3).all(|three| three[0] == three[2]));
        }
        for number in 0..6u8 {
            let name = ObjectName::new(&format!("packs/true/{number}")).unwrap();
            assert_eq!(memory.get(&name, ByteRange::Whole).unwrap(), [number; 5]);
        }
    }
}
