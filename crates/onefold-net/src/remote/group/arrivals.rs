//! Chunks on their way from the receiving thread to the threads of an installation.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use onefold_image::multicast::ReceivedChunk;
use onefold_image::{LackingPart, UnitName};
use parking_lot::{Condvar, Mutex};

/// Chunks that threads fetch over HTTP at once. The next one is on its way while one is written.
const FETCHED_AT_ONCE: usize = 4;

/// How a thread gets a chunk, by its index.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// It has come, and may have to be decoded.
    Received(u32, ReceivedChunk),
    /// It is to be fetched.
    OverHttp(u32),
}

/// Chunks that are ready for the threads of an installation. Its memory is bounded by the receiver, which counts chunks
/// until they are settled.
#[derive(Debug)]
pub(super) struct ArrivalQueue {
    names: Vec<UnitName>,
    state: Mutex<QueueState>,
    has_come: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    ready: VecDeque<Content>,
    /// Chunks that [`ArrivalQueue::next`] has returned, until they are taken.
    taken: HashMap<UnitName, Content>,
    returned: usize,
    /// For each chunk, whether it was appended.
    appended: Vec<bool>,
    /// Chunks that have been read.
    settled: Vec<u32>,
    /// Chunks that have been compared, with what is lacking of them.
    compared: Vec<(u32, LackingPart)>,
}

impl ArrivalQueue {
    /// Returns an empty queue for an image with these chunks.
    pub(super) fn new(names: &[UnitName]) -> ArrivalQueue {
        let state = QueueState { appended: vec![false; names.len()], ..QueueState::default() };
        ArrivalQueue { names: names.to_vec(), state: Mutex::new(state), has_come: Condvar::new() }
    }

    /// Returns the number of chunks of the image.
    pub(super) fn chunks(&self) -> usize {
        self.names.len()
    }

    /// Appends a chunk. Each is appended once.
    pub(super) fn push(&self, content: Content) {
        let mut state = self.state.lock();
        let index = match &content {
            Content::Received(index, _) | Content::OverHttp(index) => *index as usize,
        };
        if let Some(appended) = state.appended.get_mut(index) {
            *appended = true;
        }
        state.ready.push_back(content);
        drop(state);
        self.has_come.notify_one();
    }

    /// Has all chunks that were not appended fetched over HTTP.
    fn push_rest(&self) {
        let mut state = self.state.lock();
        let rest = (0..).zip(&state.appended).filter(|(_, appended)| !**appended).map(|(index, _)| index);
        let rest: Vec<u32> = rest.collect();
        state.appended.fill(true);
        state.ready.extend(rest.into_iter().map(Content::OverHttp));
        drop(state);
        self.has_come.notify_all();
    }

    /// Returns how many chunks wait to be fetched over HTTP.
    pub(super) fn waiting_over_http(&self) -> usize {
        self.state.lock().ready.iter().filter(|content| matches!(content, Content::OverHttp(_))).count()
    }

    /// Returns the chunks that have been read since the last call.
    pub(super) fn settled(&self) -> Vec<u32> {
        std::mem::take(&mut self.state.lock().settled)
    }

    /// See [`onefold_image::Arrivals::compared`].
    pub(super) fn note_compared(&self, index: usize, part: LackingPart) {
        self.state.lock().compared.extend(u32::try_from(index).ok().map(|chunk| (chunk, part)));
    }

    /// Returns the chunks that have been compared since the last call.
    pub(super) fn compared(&self) -> Vec<(u32, LackingPart)> {
        std::mem::take(&mut self.state.lock().compared)
    }

    /// Returns whether a chunk that [`ArrivalQueue::next`] has returned has come.
    pub(super) fn has_come(&self, name: &UnitName) -> bool {
        matches!(self.state.lock().taken.get(name), Some(Content::Received(..)))
    }

    /// See [`onefold_image::Arrivals::next`].
    pub(super) fn next(&self, patience: Duration) -> Option<Vec<usize>> {
        let mut state = self.state.lock();
        let until = Instant::now() + patience;
        while state.ready.is_empty() && state.returned < self.names.len() {
            if self.has_come.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        let mut next = Vec::new();
        while next.len() < FETCHED_AT_ONCE {
            // A chunk that has come is written at once; others follow one another.
            let content = match state.ready.pop_front() {
                Some(content @ Content::Received(..)) if !next.is_empty() => {
                    state.ready.push_front(content);
                    break;
                }
                Some(content) => content,
                None => break,
            };
            let (index, is_there) = match &content {
                Content::Received(index, _) => (*index as usize, true),
                Content::OverHttp(index) => (*index as usize, false),
            };
            let Some(name) = self.names.get(index) else { continue };
            state.taken.insert(*name, content);
            state.returned += 1;
            next.push(index);
            if is_there {
                break;
            }
        }
        next.sort_unstable();
        let is_over = next.is_empty() && state.returned >= self.names.len();
        if is_over {
            self.has_come.notify_all();
        }
        (!is_over).then_some(next)
    }

    /// Returns how to get a chunk that [`ArrivalQueue::next`] has returned, once.
    pub(super) fn take(&self, name: &UnitName) -> Option<Content> {
        self.state.lock().taken.remove(name)
    }

    /// See [`onefold_image::Arrivals::finish`]. A chunk of zeros, or one that the image has twice, may not have been
    /// read.
    pub(super) fn finish(&self, indices: &[usize]) {
        let mut state = self.state.lock();
        for index in indices {
            let Some(name) = self.names.get(*index) else { continue };
            state.taken.remove(name);
            state.settled.extend(u32::try_from(*index));
        }
    }

    /// Notes that a chunk has been read, so that its memory is free.
    pub(super) fn settle(&self, chunk: u32) {
        self.state.lock().settled.push(chunk);
    }
}

/// Has the rest come over HTTP when the receiving thread ends, however that happens: the installation would wait for
/// ever for what that thread no longer appends.
pub(super) struct RestOverHttp(pub(super) Arc<ArrivalQueue>);

impl Drop for RestOverHttp {
    fn drop(&mut self) {
        self.0.push_rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(chunks: u8) -> (ArrivalQueue, Vec<UnitName>) {
        let names: Vec<UnitName> = (0..chunks).map(|byte| UnitName([byte; 32])).collect();
        (ArrivalQueue::new(&names), names)
    }

    fn received(chunk: u8) -> Content {
        Content::Received(chunk.into(), vec![chunk].into())
    }

    #[test]
    fn each_chunk_is_returned_once_whichever_way_it_comes() {
        let (queue, names) = queue(7);
        assert_eq!(queue.next(Duration::ZERO), Some(Vec::new()), "none has come");
        for content in [received(5), Content::OverHttp(1), Content::OverHttp(0), received(6)] {
            queue.push(content);
        }
        assert_eq!(queue.waiting_over_http(), 2);
        assert_eq!(queue.next(Duration::ZERO), Some(vec![5]));
        assert_eq!(queue.next(Duration::ZERO), Some(vec![0, 1]));
        assert_eq!(queue.next(Duration::ZERO), Some(vec![6]));
        assert!(queue.has_come(&names[6]) && !queue.has_come(&names[1]) && !queue.has_come(&names[2]));
        assert_eq!(queue.take(&names[1]), Some(Content::OverHttp(1)));
        assert_eq!(queue.take(&names[1]), None);
        assert_eq!(queue.take(&names[6]), Some(received(6)));
        queue.settle(6);
        assert_eq!((queue.settled(), queue.settled()), (vec![6], Vec::new()));
        queue.finish(&[0, 1]);
        assert_eq!((queue.take(&names[0]), queue.settled()), (None, vec![0, 1]), "no thread has read chunk 0");
        for chunk in 2..5 {
            queue.push(Content::OverHttp(chunk));
        }
        assert_eq!(queue.next(Duration::ZERO), Some(vec![2, 3, 4]));
        assert_eq!(queue.next(Duration::from_secs(60)), None, "all have come");
    }

    #[test]
    fn a_thread_that_waits_gets_the_chunk_that_comes() {
        let (queue, _) = queue(1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.next(Duration::from_secs(60)));
            queue.push(received(0));
            assert_eq!(waiting.join().unwrap(), Some(vec![0]));
        });
    }

    #[test]
    fn what_a_thread_that_ends_has_not_appended_comes_over_http() {
        let queue = Arc::new(ArrivalQueue::new(&[1, 2, 3].map(|byte| UnitName([byte; 32]))));
        let ends = RestOverHttp(Arc::clone(&queue));
        queue.push(Content::OverHttp(1));
        assert_eq!(queue.next(Duration::ZERO), Some(vec![1]));
        let panics = std::thread::spawn(move || {
            let _ends = ends;
            panic!("the thread that receives");
        });
        assert!(panics.join().is_err());
        assert_eq!((queue.next(Duration::ZERO), queue.next(Duration::ZERO)), (Some(vec![0, 2]), None));
    }
}
