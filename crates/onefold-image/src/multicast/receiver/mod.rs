//! The receiver: a machine that takes chunks of one image as they pass, and requests those that do not come.
//!
//! Symbols of any chunk come in any order. The receiver puts chunks together in bounded memory and hands over complete
//! ones; its caller verifies them. It reads no clock, sends nothing and fetches nothing by itself: it returns actions.

mod assembly;
mod chunk;
mod comparison;
mod exclusion;
mod progress;
mod reach;
mod requests;
mod session;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use onefold_block::random::Random;

use self::assembly::{Assemblies, SymbolOutcome};
use self::exclusion::Exclusion;
use self::progress::Progress;
pub use self::reach::HttpReason;
use self::reach::{Reach, ReachStep};
use self::session::SessionState;
use super::USUAL_CHUNK_BYTES;
use super::coding::ReceivedChunk;
use crate::format::FormatError;
use crate::format::multicast::{
    Beacon, BegunChunk, IndexSet, PacketHeader, PacketKind, Request, Symbol, TAG_BYTES, request_bytes_max,
};

/// Facts that a receiver begins with.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverSettings {
    /// Number of chunks of the image, by its manifest.
    pub chunks: u32,
    /// Memory for chunks that are put together, and for complete ones until they are settled, in bytes. A longer chunk
    /// never has room, so this is at least 4 MiB and two symbols.
    pub memory_bytes: usize,
}

/// A task for the caller of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverAction {
    /// Send this request to the server: header, plain body, and room for the tag of the seal.
    Send(Vec<u8>),
    /// Verify and write a complete chunk, and then call [`Receiver::settle`].
    Take {
        /// Index of the chunk in the image.
        chunk: u32,
        /// Its symbols, which may have to be decoded.
        content: ReceivedChunk,
    },
    /// Fetch this chunk over HTTP, and then call [`Receiver::settle`].
    FetchByHttp {
        /// Index of the chunk in the image.
        chunk: u32,
    },
    /// Fetch all lacking chunks over HTTP until multicast returns: call [`Receiver::claim`] for each.
    UseHttp(HttpReason),
    /// Fetch no further chunks over HTTP, since packets arrive again.
    UseMulticast,
    /// Join again, and then call [`Receiver::joined`]. Without a reply, the action comes again while
    /// the server is silent.
    Join,
    /// All chunks are present. Leave the session over HTTP.
    Finish,
}

/// The fate of a chunk that the caller had in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It is verified and written.
    Present,
    /// It is not what the manifest says. It will be fetched over HTTP.
    Wrong,
    /// It was not taken, or could not be fetched. It is lacking again.
    Lacking,
}

/// Why a packet is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnwantedPacket {
    /// It belongs to another session.
    #[error("the packet belongs to another session")]
    OtherSession,
    /// It is a request, or its chunk is none of the image's.
    #[error("the packet is not for a machine of this image")]
    Foreign,
    /// It is no packet.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Counts of a receiver since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounts {
    /// Packets that arrived.
    pub received: u64,
    /// Packets that the server sent while this machine listened, by their sequence numbers.
    pub expected: u64,
    /// Bytes of symbols that were put into a chunk.
    pub useful_bytes: u64,
    /// Bytes of symbols of chunks that were there already.
    pub repeated_bytes: u64,
    /// Chunks that were dropped for want of room.
    pub dropped_chunks: u64,
    /// Chunks that were not what the manifest says.
    pub wrong_chunks: u64,
    /// Requests.
    pub requests: u64,
    /// Lacking symbols that were requested; those of a chunk that was requested twice count twice.
    pub requested_symbols: u64,
}

/// The state of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// Not complete: begun if it has an assembly.
    Lacking,
    /// As well, but the caller may have it elsewhere. Its symbols are taken as they pass, and none is requested.
    Uncompared,
    /// Handed over to the caller; takes so many bytes of memory.
    Taken(u32),
    /// The caller fetches it over HTTP.
    ByHttp,
    Present,
}

/// The receiver of one machine.
pub struct Receiver {
    states: Vec<ChunkState>,
    /// Number of chunks that are lacking or in the caller's hands, without those that come over HTTP.
    left: u32,
    /// Number of chunks that are not present.
    absent: u32,
    /// Number of chunks that are lacking, and may be requested.
    lacking: u32,
    assemblies: Assemblies,
    session: Option<SessionState>,
    reach: Reach,
    progress: Progress,
    /// The chunk where the search for lacking ones begins: behind the last one that was begun.
    cursor: u32,
    actions: VecDeque<ReceiverAction>,
    counts: ReceiverCounts,
    is_finished: bool,
    /// While the server does not send for this machine.
    excluded: Option<Exclusion>,
    random: Arc<dyn Random>,
    now: Duration,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("left", &self.left).field("session", &self.session).finish_non_exhaustive()
    }
}

impl Receiver {
    /// Returns a receiver that lacks all chunks. Its pauses are drawn from `random`; times are those of a clock that
    /// does not go backwards.
    #[must_use]
    pub fn new(settings: ReceiverSettings, random: Arc<dyn Random>, now: Duration) -> Receiver {
        Receiver {
            states: vec![ChunkState::Lacking; settings.chunks as usize],
            left: settings.chunks,
            absent: settings.chunks,
            lacking: settings.chunks,
            assemblies: Assemblies::new(settings.memory_bytes),
            session: None,
            reach: Reach::new(now),
            progress: Progress::new(now),
            cursor: 0,
            actions: VecDeque::new(),
            counts: ReceiverCounts::default(),
            is_finished: false,
            excluded: None,
            random,
            now,
        }
    }

    /// Takes a packet that was opened: its header and its plain body. Each packet is passed at most once. Of a packet
    /// of another session, which cannot be opened, the header is passed with an empty body.
    ///
    /// # Errors
    /// When the packet is of no use. It changes nothing, except that one of another session shows that the server has
    /// started again.
    pub fn packet(&mut self, header: PacketHeader, body: &[u8], now: Duration) -> Result<(), UnwantedPacket> {
        self.pass(now);
        let Some(session) = &mut self.session else { return Err(UnwantedPacket::OtherSession) };
        if header.session != session.reply.session {
            self.reach.hear_other(self.now, &*self.random);
            return Err(UnwantedPacket::OtherSession);
        }
        match header.kind {
            PacketKind::Symbol => {
                let symbol = Symbol::decode(body, session.reply.symbol_bytes, session.reply.repairs)?;
                if symbol.chunk as usize >= self.states.len() {
                    return Err(UnwantedPacket::Foreign);
                }
                session.note(header.sequence, &mut self.counts);
                self.take_symbol(&symbol, header.sequence);
            }
            PacketKind::Beacon => {
                let beacon = Beacon::decode(body, session.reply.chunks)?;
                if beacon.epoch != session.reply.epoch {
                    return Err(UnwantedPacket::OtherSession);
                }
                // An older beacon that comes late says nothing new.
                let is_newest = header.sequence > session.highest;
                session.note(header.sequence, &mut self.counts);
                if is_newest {
                    let unavailable = beacon.unavailable.clone();
                    let client = session.reply.client.0;
                    session.timer.is_unheard = beacon.unheard.contains(client);
                    let is_in_vain = session.timer.is_unheard && session.has_requested_in_vain(self.now);
                    let unserved = if beacon.excluded.contains(client) { Some(HttpReason::Excluded) } else { None };
                    let unserved = unserved.or(is_in_vain.then_some(HttpReason::Unheard));
                    // A session that waits for machines sends no symbols yet.
                    if !session.timer.hear(beacon, self.now) {
                        self.progress.wait(self.now);
                    }
                    self.fetch_unavailable(&unavailable);
                    if let Some(reason) = unserved {
                        self.exclude(reason);
                    }
                }
            }
            PacketKind::Request(_) => return Err(UnwantedPacket::Foreign),
        }
        if self.reach.hear(self.now) && !self.progress.is_stalled() && self.excluded.is_none() {
            self.progress.wait(self.now);
            self.actions.push_back(ReceiverAction::UseMulticast);
        }
        Ok(())
    }

    /// Notes the fate of a chunk that the caller has taken, claimed or fetched.
    pub fn settle(&mut self, chunk: u32, settlement: Settlement) {
        let Some(state) = self.states.get(chunk as usize).copied() else { return };
        if let ChunkState::Taken(bytes) = state {
            self.assemblies.release(bytes as usize);
            // There may have been no room for others until now.
            self.progress.wait(self.now);
        }
        match settlement {
            Settlement::Present => self.change(chunk, ChunkState::Present),
            Settlement::Lacking if state != ChunkState::Present => self.change(chunk, ChunkState::Lacking),
            Settlement::Wrong if matches!(state, ChunkState::Taken(_)) => {
                self.counts.wrong_chunks += 1;
                self.change(chunk, ChunkState::ByHttp);
                self.actions.push_back(ReceiverAction::FetchByHttp { chunk });
            }
            Settlement::Wrong if state == ChunkState::ByHttp => self.change(chunk, ChunkState::Lacking),
            Settlement::Lacking | Settlement::Wrong => {}
        }
    }

    /// Returns the next lacking chunk in the order of the image, from `from` on, which the caller now fetches over
    /// HTTP: the receiver takes no packets of it any more. The caller settles it. Returns `None` if no chunk from there
    /// on is lacking.
    pub fn claim(&mut self, from: u32) -> Option<u32> {
        let is_open = |chunk: &u32| self.is_open(*chunk);
        let chunk = (from..u32::try_from(self.states.len()).unwrap_or(u32::MAX)).find(is_open)?;
        self.change(chunk, ChunkState::ByHttp);
        Some(chunk)
    }

    /// Returns the next thing to do, until there is none.
    pub fn next_action(&mut self, now: Duration) -> Option<ReceiverAction> {
        self.pass(now);
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        if self.absent == 0 {
            return (!std::mem::replace(&mut self.is_finished, true)).then_some(ReceiverAction::Finish);
        }
        self.session.as_ref()?;
        if let Some(exclusion) = &mut self.excluded {
            return exclusion.is_over(self.now).then_some(ReceiverAction::Join);
        }
        // A server whose machines lack nothing sends nothing, and is not silent.
        let step = if self.is_waiting() { self.reach.step(self.now, &*self.random) } else { None };
        match step {
            Some(ReachStep::UseHttp(reason)) => return Some(ReceiverAction::UseHttp(reason)),
            Some(ReachStep::Join) => return Some(ReceiverAction::Join),
            Some(ReachStep::Probe) => return Some(self.request(IndexSet::default())),
            // A machine that waits for no chunk takes no step, and reports that.
            None if self.is_waiting() && !self.reach.is_expecting() => return None,
            None => {}
        }
        if self.stalls() {
            // The server may have forgotten this machine, and drop its requests.
            self.actions.push_back(ReceiverAction::Join);
            return Some(ReceiverAction::UseHttp(HttpReason::NoSymbols));
        }
        self.due_request()
    }

    /// Returns when [`Self::next_action`] may have something new, unless a packet comes before.
    #[must_use]
    pub fn next_time(&self) -> Option<Duration> {
        if !self.actions.is_empty() || (self.absent == 0 && !self.is_finished) {
            return Some(self.now);
        }
        let session = self.session.as_ref().filter(|_| self.absent > 0)?;
        if let Some(exclusion) = &self.excluded {
            return Some(exclusion.ends());
        }
        if !self.is_waiting() {
            return Some(session.timer.next());
        }
        let reach = self.reach.next();
        if !self.reach.is_expecting() {
            return Some(reach);
        }
        let stall = self.progress.next(session.timer.stall_patience());
        Some(stall.into_iter().fold(reach.min(session.timer.next()), Duration::min))
    }

    /// Returns the number of chunks that are not present.
    #[must_use]
    pub fn absent(&self) -> u32 {
        self.absent
    }

    /// Returns the counts since the start.
    #[must_use]
    pub fn counts(&self) -> ReceiverCounts {
        self.counts
    }

    /// Returns whether a chunk is to come by multicast, or this machine went on over HTTP because no packet came.
    fn is_waiting(&self) -> bool {
        self.left > 0 || self.reach.is_http()
    }

    /// Lets time pass. A time that is before an earlier one changes nothing.
    fn pass(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    fn take_symbol(&mut self, symbol: &Symbol<'_>, sequence: u64) {
        let bytes = symbol.payload.len() as u64;
        if !self.is_open(symbol.chunk) {
            self.counts.repeated_bytes += bytes;
            return;
        }
        let outcome = self.assemblies.place(symbol, sequence, self.is_requestable(symbol.chunk));
        let is_progress = matches!(outcome, SymbolOutcome::Placed | SymbolOutcome::Complete(_));
        if is_progress && self.progress.note(self.now) && !self.reach.is_http() && self.excluded.is_none() {
            self.actions.push_back(ReceiverAction::UseMulticast);
        }
        match outcome {
            SymbolOutcome::Placed => {
                self.counts.useful_bytes += bytes;
                self.cursor = symbol.chunk + 1;
            }
            SymbolOutcome::Complete(content) => {
                self.counts.useful_bytes += bytes;
                let memory = self.assemblies.memory_bytes(symbol.chunk_bytes);
                self.change(symbol.chunk, ChunkState::Taken(u32::try_from(memory).unwrap_or(u32::MAX)));
                self.actions.push_back(ReceiverAction::Take { chunk: symbol.chunk, content });
            }
            SymbolOutcome::Repeated => self.counts.repeated_bytes += bytes,
            SymbolOutcome::Refused { is_first } => self.counts.dropped_chunks += u64::from(is_first),
        }
    }

    /// Turns to HTTP for chunks that the server cannot send by multicast.
    fn fetch_unavailable(&mut self, unavailable: &IndexSet) {
        for chunk in unavailable.iter() {
            if self.is_open(chunk) {
                self.change(chunk, ChunkState::ByHttp);
                self.actions.push_back(ReceiverAction::FetchByHttp { chunk });
            }
        }
    }

    /// Changes the state of a chunk.
    fn change(&mut self, chunk: u32, to: ChunkState) {
        let Some(state) = self.states.get_mut(chunk as usize) else { return };
        let is_left = |state: ChunkState| u32::from(state.is_open() || matches!(state, ChunkState::Taken(_)));
        let is_absent = |state: ChunkState| u32::from(state != ChunkState::Present);
        let is_lacking = |state: ChunkState| u32::from(state == ChunkState::Lacking);
        self.left = self.left - is_left(*state) + is_left(to);
        self.absent = self.absent - is_absent(*state) + is_absent(to);
        self.lacking = self.lacking - is_lacking(*state) + is_lacking(to);
        *state = to;
        if to != ChunkState::Lacking {
            self.assemblies.drop_begun(chunk);
        }
    }

    /// Returns lacking chunks of which no symbol has come, in the machine's own order: from behind the last begun chunk
    /// on, and not more than there is room for.
    fn window(&self) -> impl Iterator<Item = u32> + '_ {
        let room = self.assemblies.room_chunks(USUAL_CHUNK_BYTES);
        let count = u32::try_from(self.states.len()).unwrap_or(u32::MAX);
        let begun: IndexSet = self.assemblies.begun().collect();
        let is_unbegun = move |chunk: &u32| self.is_requestable(*chunk) && !begun.contains(*chunk);
        let start = self.cursor.min(count);
        (start..count).chain(0..start).filter(is_unbegun).take(room)
    }

    /// Returns true when symbols have failed to come for too long.
    fn stalls(&mut self) -> bool {
        let Some(session) = &self.session else { return false };
        let (patience, mut progress) = (session.timer.stall_patience(), self.progress);
        let is_needed = || self.begun().next().is_some() || self.window().next().is_some();
        let stalls = progress.stalls(self.now, patience, is_needed);
        self.progress = progress;
        stalls
    }

    /// Returns the request that is due now.
    fn due_request(&mut self) -> Option<ReceiverAction> {
        let mut session = self.session.take()?;
        // The first request begins the session, even if there are no chunks to request yet. A machine that the server
        // has not heard requests again before the server forgets it, though beacons answer all that it lacks.
        let is_first = session.highest == 0 && self.left > 0;
        let has_news = session.timer.is_unheard || session.has_losses() || is_first;
        let is_needed = |timer: &requests::RequestTimer| {
            has_news || self.begun().chain(self.window()).any(|chunk| !timer.is_answered(chunk, self.now))
        };
        let is_due = session.timer.is_due(self.now, is_needed, &*self.random);
        self.session = Some(session);
        if !is_due {
            return None;
        }
        let mut lacking: Vec<u32> = self.window().collect();
        lacking.sort_unstable();
        Some(self.request(lacking.into_iter().collect()))
    }

    /// Returns a request for these chunks, and for the lacking symbols of all begun ones.
    fn request(&mut self, lacking: IndexSet) -> ReceiverAction {
        let begun: Vec<_> = self.assemblies.missing().filter(|begun| self.is_requestable(begun.chunk)).collect();
        self.request_for(self.left, lacking, begun)
    }

    fn request_for(&mut self, left: u32, lacking: IndexSet, begun: Vec<BegunChunk>) -> ReceiverAction {
        let mut datagram = Vec::new();
        self.counts.requests += 1;
        self.counts.requested_symbols += begun.iter().map(|chunk| u64::from(chunk.needed)).sum::<u64>();
        if let Some(session) = &mut self.session {
            session.begin_report(self.now);
            let expected = session.expected();
            let request = Request {
                seen: session.highest,
                received: session.received.min(expected),
                expected,
                left,
                lacking,
                begun,
            };
            let kind = PacketKind::Request(session.reply.client);
            let header = PacketHeader { kind, session: session.reply.session, sequence: session.requests };
            header.encode(&mut datagram);
            request.encode(request_bytes_max(session.reply.symbol_bytes), &mut datagram);
            datagram.resize(datagram.len() + TAG_BYTES, 0);
        }
        ReceiverAction::Send(datagram)
    }
}
