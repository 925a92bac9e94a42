//! Reading ahead: a client that fetches the chunks of an image one after the other finds the next ones in memory.
//!
//! A request is answered first; reading ahead begins after it, on threads of its own. It never waits: without a free
//! thread, or with too many clients for the memory of recent units, the next request reads what it needs, as any other.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use onefold_image::UnitName;
use onefold_image::archive::ArchiveError;
use onefold_image::format::wire::CHUNK_BYTES_MAX;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::network::network_of;
use super::state::ServerState;
use super::tokens::Rights;

/// Maximum number of threads that read ahead.
const AHEAD_READERS_MAX: usize = 2;
/// Maximum number of threads that read ahead, or learn which chunks an image has. One learns at a time.
pub(super) const AHEAD_THREADS_MAX: usize = AHEAD_READERS_MAX + 1;
/// Chunks between the last one that a client requested and the last one that is read ahead for it, and the least number
/// of them that is worth a read.
const CHUNKS_AHEAD: usize = 4;
const CHUNKS_READ_MIN: usize = 2;
/// Maximum number of streams that are followed, in total and of one network. While each of them gets the memory of the
/// longest chunk, half of the recent units remain.
const STREAMS_MAX: usize = 64;
const NETWORK_STREAMS_MAX: usize = 4;
const STREAM_SHARE: usize = 2 * CHUNK_BYTES_MAX;
/// A stream without requests for so long leaves its place to another one.
const STREAM_AGE: Duration = Duration::from_secs(10);
/// A manifest is read once in this time to learn its chunks, whether that succeeds or not.
const TRY_AGE: Duration = Duration::from_secs(60);
/// Maximum number of manifests that are read in that time.
const TRIES_MAX: usize = 64;

/// The streams that may be in the order of an image, and turns to read ahead for them.
#[derive(Debug)]
pub(super) struct ReadAhead {
    streams: Mutex<Vec<Stream>>,
    streams_max: usize,
    turns: Arc<Semaphore>,
    /// The turn to learn the chunks of an image.
    learning: Arc<Semaphore>,
    tries: Mutex<Vec<LearningTry>>,
}

/// A manifest that was read to learn its chunks.
#[derive(Debug)]
struct LearningTry {
    manifest: [u8; 32],
    begun: Instant,
}

/// The latest requests of one network for the chunks of one image. Clients of a network that request the same image
/// share a stream.
#[derive(Debug)]
struct Stream {
    network: IpAddr,
    /// Digest of the manifest of the image.
    manifest: [u8; 32],
    /// One more than the highest position in the image of a chunk that was requested.
    next: usize,
    /// Which of the chunks before `next` were requested: bit 0 is for the last one.
    requested: u64,
    /// One more than the highest position that was read ahead.
    ahead: usize,
    /// Time of the last request.
    used: Instant,
    /// Gone once nothing is read ahead any more.
    turn: Weak<OwnedSemaphorePermit>,
}

impl Stream {
    fn new(network: IpAddr, manifest: [u8; 32], position: usize, now: Instant) -> Stream {
        Stream { network, manifest, next: position + 1, requested: 1, ahead: 0, used: now, turn: Weak::new() }
    }

    /// Notes a request. Returns whether it is beside an earlier one. Threads of a client make requests in almost the
    /// right order.
    fn note(&mut self, position: usize) -> bool {
        let distance = |from: usize, to: usize| u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX);
        if position >= self.next {
            self.requested = self.requested.checked_shl(distance(self.next, position + 1)).unwrap_or(0) | 1;
            self.next = position + 1;
            return self.requested & 2 != 0;
        }
        let Some(bit) = 1_u64.checked_shl(distance(position + 1, self.next)) else {
            (self.next, self.requested, self.ahead) = (position + 1, 1, 0);
            return false;
        };
        self.requested |= bit;
        self.requested & (bit << 1 | bit >> 1) != 0
    }

    /// Returns the positions to read ahead now in an image of so many chunks, as if they were read.
    fn advance(&mut self, chunks: usize) -> Option<Range<usize>> {
        let start = self.ahead.max(self.next);
        let end = (self.next + CHUNKS_AHEAD).min(chunks);
        let is_worthwhile = end >= start + CHUNKS_READ_MIN || (end == chunks && end > start);
        is_worthwhile.then(|| {
            self.ahead = end;
            start..end
        })
    }
}

impl ReadAhead {
    /// Returns an empty table for a server that keeps so many bytes of recent units.
    pub(super) fn new(recent_bytes: usize) -> ReadAhead {
        ReadAhead {
            streams: Mutex::default(),
            streams_max: (recent_bytes / STREAM_SHARE).min(STREAMS_MAX),
            turns: Arc::new(Semaphore::new(AHEAD_READERS_MAX)),
            learning: Arc::new(Semaphore::new(1)),
            tries: Mutex::default(),
        }
    }

    /// Takes a request of a chunk at a position in an image of so many chunks. Returns which positions to read ahead,
    /// and the turn to do so, which is held meanwhile. One network has one turn at most.
    fn take(
        &self,
        client: IpAddr,
        manifest: [u8; 32],
        (position, chunks): (usize, usize),
        now: Instant,
    ) -> Option<(Range<usize>, Arc<OwnedSemaphorePermit>)> {
        let network = network_of(client);
        let mut streams = self.streams.lock();
        let is_busy = streams.iter().any(|stream| stream.network == network && stream.turn.strong_count() > 0);
        let found = streams.iter_mut().find(|stream| stream.network == network && stream.manifest == manifest);
        let Some(stream) = found else {
            streams.retain(|stream| now.saturating_duration_since(stream.used) < STREAM_AGE);
            let of_network = streams.iter().filter(|stream| stream.network == network).count();
            if streams.len() < self.streams_max && of_network < NETWORK_STREAMS_MAX {
                streams.push(Stream::new(network, manifest, position, now));
            }
            return None;
        };
        stream.used = now;
        if !stream.note(position) || is_busy {
            return None;
        }
        let turn = Arc::new(Arc::clone(&self.turns).try_acquire_owned().ok()?);
        let range = stream.advance(chunks)?;
        stream.turn = Arc::downgrade(&turn);
        Some((range, turn))
    }

    /// Returns the turn to learn the chunks of an image, if it is free, and its manifest was not read a moment ago.
    fn begin_learning(&self, manifest: [u8; 32], now: Instant) -> Option<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.learning).try_acquire_owned().ok()?;
        let mut tries = self.tries.lock();
        tries.retain(|earlier| now.saturating_duration_since(earlier.begun) < TRY_AGE);
        if tries.len() >= TRIES_MAX || tries.iter().any(|earlier| earlier.manifest == manifest) {
            return None;
        }
        tries.push(LearningTry { manifest, begun: now });
        Some(turn)
    }
}

impl ServerState {
    /// Follows the requests of a client that may read a chunk and states the manifest that has it. Begins to read the
    /// next chunks if they are likely to be requested. Does not wait.
    pub(super) fn follow_chunks(self: &Arc<Self>, client: IpAddr, manifest: Option<UnitName>, chunk: &UnitName) {
        let Some(UnitName(manifest)) = manifest else { return };
        let Some(place) = self.chunk_lists().place(manifest, chunk) else {
            return self.learn_chunks(manifest);
        };
        let Some((range, turn)) = self.ahead().take(client, manifest, place, Instant::now()) else { return };
        let state = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let chunks = state.chunk_lists().chunks(manifest, range);
            // A request of the chunk tells its client what is wrong.
            let _ = state.served().read_ahead(&chunks);
            drop(turn);
        });
    }

    /// Reads which chunks an image has, for later requests. Does nothing unless a manifest may be read now, and the
    /// list has room beside those that are known.
    fn learn_chunks(self: &Arc<Self>, manifest: [u8; 32]) {
        let now = Instant::now();
        // A known image does not have the chunk.
        if self.chunk_lists().are_known(manifest) || self.chunk_lists().room_bytes(now) == 0 {
            return;
        }
        let Some(manifest_turn) = self.free_manifest_turn() else { return };
        let Some(turn) = self.ahead().begin_learning(manifest, now) else { return };
        let state = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            // A request of the chunks tells its client what is wrong.
            let _ = state.read_chunk_list(manifest, now);
            drop((manifest_turn, turn));
        });
    }

    /// Adds the chunks of a manifest to those that are known, if there is room for them.
    fn read_chunk_list(&self, manifest: [u8; 32], now: Instant) -> Result<(), ArchiveError> {
        let Some(record) = self.find_digest(&Rights::All, manifest) else { return Ok(()) };
        let room_bytes = self.chunk_lists().room_bytes(now);
        // The list takes more bytes than the manifest has for the chunks.
        if let Some(read) = self.archive().manifest_within(&record, room_bytes as u64)? {
            self.chunk_lists().add_if_room(manifest, record.image.name, read.chunks, now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: [u8; 32] = [7; 32];

    fn client(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    /// Returns the positions that are read ahead after each of these requests. Nothing takes time.
    fn read(positions: &[usize], chunks: usize) -> Vec<Option<Range<usize>>> {
        let (ahead, now) = (ReadAhead::new(64 << 20), Instant::now());
        let take = |position: &usize| ahead.take(client(1), MANIFEST, (*position, chunks), now).map(|(range, _)| range);
        positions.iter().map(take).collect()
    }

    #[test]
    fn chunks_in_order_are_read_ahead_once_and_others_are_not() {
        let found = read(&[0, 1, 2, 3, 4, 5], 100);
        assert_eq!(found, [None, Some(2..6), None, Some(6..8), None, Some(8..10)]);
        assert_eq!(read(&[9, 3, 17, 40, 80, 1], 100), [const { None }; 6]);
        assert_eq!(read(&[0, 95, 96, 97, 98, 99], 100), [None, None, Some(97..100), None, None, None]);
        assert_eq!(read(&[5, 5, 5], 100), [const { None }; 3], "a repeated request");
        assert_eq!(read(&[1000, 0, 1], 100), [None, None, Some(2..6)]);
    }

    /// Several threads of a client make requests at once.
    #[test]
    fn requests_may_change_places() {
        let found = read(&[1, 0, 3, 2, 5, 4], 100);
        assert_eq!(found, [None, Some(2..6), None, Some(6..8), None, Some(8..10)]);
    }

    #[test]
    fn a_client_has_one_turn_and_all_clients_have_few() {
        let (ahead, now) = (ReadAhead::new(64 << 20), Instant::now());
        let take = |number: u8, position: usize| ahead.take(client(number), MANIFEST, (position, 100), now);
        assert!((1..=4).all(|number| take(number, 0).is_none()));
        let first = take(1, 1).unwrap();
        assert!(take(1, 2).is_none() && take(1, 3).is_none(), "its turn has not ended");
        let second = take(2, 1).unwrap();
        assert!(take(3, 1).is_none(), "all turns are taken");
        drop((first, second));
        assert_eq!(take(3, 2).unwrap().0, 3..7);
        assert_eq!(take(1, 4).unwrap().0, 6..9);
        assert_eq!(ahead.turns.available_permits(), AHEAD_READERS_MAX);
    }

    #[test]
    fn clients_of_one_network_are_followed_in_several_images() {
        let (ahead, now) = (ReadAhead::new(64 << 20), Instant::now());
        let client = |number: u8| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()]);
        let take = |number: u8, position: usize| {
            ahead.take(client(number), [number; 32], (position, 100), now).map(|(range, _)| range)
        };
        for position in 0..2 {
            let read = [1, 2, 3, 4, 5].map(|number| take(number, position));
            let followed = (position == 1).then_some(2..6);
            assert_eq!(read, [followed.clone(), followed.clone(), followed.clone(), followed, None], "{position}");
        }
        let turn =
            ahead.take(client(1), [1; 32], (4, 100), now).or_else(|| ahead.take(client(1), [1; 32], (5, 100), now));
        assert!(turn.is_some() && take(2, 4).is_none() && take(2, 5).is_none(), "a network has one turn");
    }

    #[test]
    fn a_manifest_is_read_once_a_minute_and_one_at_a_time() {
        let (ahead, now) = (ReadAhead::new(0), Instant::now());
        let first = ahead.begin_learning([1; 32], now).unwrap();
        assert!(ahead.begin_learning([2; 32], now).is_none(), "another one is being read");
        drop(first);
        let just_before = now + TRY_AGE - Duration::from_millis(1);
        assert!(ahead.begin_learning([1; 32], just_before).is_none(), "it was read");
        let others = (2..=u8::MAX).filter(|number| ahead.begin_learning([*number; 32], just_before).is_some()).count();
        assert_eq!(others, TRIES_MAX - 1);
        assert!(ahead.begin_learning([1; 32], now + TRY_AGE).is_some());
    }

    #[test]
    fn as_many_clients_are_followed_as_the_memory_has_room_for() {
        let (ahead, now) = (ReadAhead::new(2 * STREAM_SHARE), Instant::now());
        let take = |number: u8, position: usize, now: Instant| {
            ahead.take(client(number), MANIFEST, (position, 100), now).map(|(range, _)| range)
        };
        assert!((1..=3).all(|number| take(number, 0, now).is_none()));
        assert_eq!([1, 2, 3].map(|number| take(number, 1, now)), [Some(2..6), Some(2..6), None]);
        let later = now + STREAM_AGE;
        assert_eq!(take(1, 3, later), None, "2 is missing");
        assert_eq!([take(3, 2, later), take(3, 3, later)], [None, Some(4..8)], "the place of the second one is free");
        assert_eq!(take(2, 2, later), None);
        assert_eq!(ahead.streams.lock().len(), 2);
        assert!(ReadAhead::new(0).take(client(1), MANIFEST, (0, 9), now).is_none());
    }
}
