//! The sender: a server that sends the chunks of one image to a group of machines.
//!
//! All that it knows of machines is soft: their recent requests, any of which may be lost. Machines may join, leave
//! and die at any moment, and so may the sender. It reads no clock, builds nothing and sends nothing by itself: its
//! caller gives it the time, requests and built chunks, asks it which chunk to build, and sends the packets that it
//! returns.

mod cache;
mod clients;
mod gate;
mod loss;
mod status;
mod transmission;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use self::cache::{BuiltChunk, ChunkCache};
pub use self::clients::ClientStatus;
use self::clients::Clients;
pub use self::gate::SessionStart;
use self::gate::StartGate;
pub use self::status::SenderStatus;
use self::transmission::{Plan, Transmission};
use super::USUAL_CHUNK_BYTES;
use super::burst::PacketBurst;
use super::coding::{RepairJob, RepairSymbols};
use super::demand::Demand;
use super::order::{RepairShare, next_to_build, next_to_send};
use super::pacing::{BURST_PACKETS_MAX, Pacing, time_of};
use super::rate::RateControl;
use super::timing::{BEACON_EVERY, JUST_SENT, UNAVAILABLE};
use crate::format::multicast::{
    Beacon, ClientNumber, HEADER_BYTES, PacketHeader, PacketKind, RepairCode, Request, SessionId, TAG_BYTES,
    body_bytes_max,
};
use crate::format::wire::CHUNK_BYTES_MAX;

/// Maximum number of chunks that are being built, or are built and not sent yet.
const BUILDS_AHEAD: usize = 8;
/// Maximum number of chunks whose repair symbols are being made.
const CODING_MAX: usize = 2;
/// Maximum number of chunks that are noted as unavailable. The earliest is forgotten first.
const UNAVAILABLE_MAX: usize = 256;

/// Facts that a sender begins with.
#[derive(Clone, Copy, Debug)]
pub struct SenderSettings {
    /// The session. Two senders never have the same one under the same keys.
    pub session: SessionId,
    /// Start of the server.
    pub epoch: u64,
    /// Number of chunks of the image.
    pub chunks: u32,
    /// Size of symbols in bytes.
    pub symbol_bytes: u16,
    /// Maximum rate, in bytes of UDP payload per second.
    pub rate_bytes_per_second: NonZeroU64,
    /// Rate that losses do not go below, likewise; at most the maximum counts.
    pub rate_floor_bytes_per_second: NonZeroU64,
    /// Memory for chunks that were built, in bytes.
    pub cache_bytes: usize,
    /// Maximum number of machines.
    pub clients_max: u32,
    /// The repair symbols that are sent.
    pub repairs: RepairCode,
}

/// Counts of a sender since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounts {
    /// Packets.
    pub packets: u64,
    /// Bytes of UDP payload of all packets.
    pub bytes: u64,
    /// Bytes of chunks that were sent for the first time.
    pub payload_bytes: u64,
    /// Bytes of chunks that were sent again.
    pub repeated_bytes: u64,
    /// Requests that counted.
    pub requests: u64,
    /// Requests that did not: too many, of unknown machines, or out of order.
    pub ignored_requests: u64,
}

/// The sender of one image.
#[derive(Debug)]
pub struct Sender {
    settings: SenderSettings,
    clients: Clients,
    /// Until the session begins to send chunks, if it waits for machines.
    gate: Option<StartGate>,
    demand: Demand,
    cache: ChunkCache,
    building: BTreeSet<u32>,
    /// Chunks whose repair symbols are being made.
    coding: BTreeSet<u32>,
    /// Whether at most one machine has lost packets, by the last requests.
    are_losses_of_one: bool,
    transmission: Option<Transmission>,
    share: RepairShare,
    /// Chunks whose transmission ended within the last moment.
    just_sent: VecDeque<(Duration, u32)>,
    /// Chunks that could not be built, and until when they are not built again.
    unavailable: BTreeMap<u32, Duration>,
    rate: RateControl,
    pacing: Pacing,
    /// Time of the next beacon while the session runs.
    next_beacon: Option<Duration>,
    sequence: u64,
    /// Chunks that have been sent as a whole.
    sent: BTreeSet<u32>,
    /// Length of the last chunk in bytes, from which the length of the queue is estimated.
    chunk_bytes: usize,
    /// Length of the longest chunk so far in bytes, and whether there was one.
    longest_chunk_bytes: usize,
    has_built: bool,
    counts: SenderCounts,
    now: Duration,
}

impl Sender {
    /// Returns a sender that no machine has joined, at the time `now`. Times are those of a clock that does not go
    /// backwards.
    #[must_use]
    pub fn new(settings: SenderSettings, now: Duration) -> Sender {
        let packet_bytes = HEADER_BYTES + body_bytes_max(settings.symbol_bytes) + TAG_BYTES;
        Sender {
            clients: Clients::new(settings.clients_max),
            gate: None,
            demand: Demand::new(settings.chunks, settings.symbol_bytes),
            cache: ChunkCache::new(settings.cache_bytes),
            building: BTreeSet::new(),
            coding: BTreeSet::new(),
            are_losses_of_one: true,
            transmission: None,
            share: RepairShare::default(),
            just_sent: VecDeque::new(),
            unavailable: BTreeMap::new(),
            rate: RateControl::new(settings.rate_floor_bytes_per_second, settings.rate_bytes_per_second),
            pacing: Pacing::new(settings.rate_bytes_per_second, packet_bytes, now),
            next_beacon: None,
            sequence: 0,
            sent: BTreeSet::new(),
            chunk_bytes: USUAL_CHUNK_BYTES,
            longest_chunk_bytes: USUAL_CHUNK_BYTES,
            has_built: false,
            counts: SenderCounts::default(),
            now,
            settings,
        }
    }

    /// Has the session begin later. Until then it sends beacons only, so machines know that the server is there.
    pub fn wait_for(&mut self, start: SessionStart) {
        self.gate = Some(StartGate::new(start));
    }

    /// Adds a machine, and returns its number. `None` if there are too many machines.
    pub fn join(&mut self, now: Duration) -> Option<ClientNumber> {
        self.pass(now);
        let client = self.clients.join(self.now);
        self.open_gate();
        client
    }

    /// Removes a machine that has ended. Machines that die are removed once they have been silent for long.
    pub fn leave(&mut self, client: ClientNumber) {
        if let Some(request) = self.clients.leave(client) {
            self.demand.remove(&request);
        }
    }

    /// Takes the request of a machine, which replaces its earlier ones. The first one begins the session. A machine
    /// that lacks nothing is removed with it.
    pub fn request(&mut self, client: ClientNumber, request: &Request, now: Duration) {
        self.pass(now);
        if !self.clients.accept(client, request, self.now) {
            self.counts.ignored_requests += 1;
            return;
        }
        self.counts.requests += 1;
        self.are_losses_of_one = self.clients.are_losses_of_one();
        self.adjust_rate();
        if request.left == 0 {
            return self.leave(client);
        }
        if let Some(replaced) = self.clients.replace_request(client, None) {
            self.demand.remove(&replaced);
        }
        for excluded in self.clients.exclude() {
            self.demand.remove(&excluded);
        }
        if !self.clients.is_served(client) {
            return;
        }
        let sending = self.transmission.as_ref().map(|transmission| transmission.chunk);
        let unavailable = &self.unavailable;
        let is_served = |chunk| sending == Some(chunk) || unavailable.contains_key(&chunk);
        let counted = self.demand.add(request, is_served);
        self.clients.replace_request(client, Some(counted));
        if self.next_beacon.is_none() {
            self.next_beacon = Some(self.now);
        }
    }

    /// Changes the maximum rate, in bytes of UDP payload per second.
    pub fn set_ceiling(&mut self, bytes_per_second: NonZeroU64) {
        self.rate.set_ceiling(bytes_per_second);
        self.pacing.set_rate(self.rate.rate(), self.now);
    }

    /// Returns a chunk that is to be built, with which [`Self::chunk_built`] or [`Self::chunk_failed`] is called then.
    /// Each chunk is returned once; several may be under way.
    pub fn next_build(&mut self) -> Option<u32> {
        let ready = self.cache.count(|chunk| self.demand.is_wanted(chunk));
        // A chunk that has to go before it is sent would be built again.
        let ahead_max = BUILDS_AHEAD.min(self.settings.cache_bytes / self.longest_chunk_bytes).max(1);
        if self.building.len() + ready >= ahead_max {
            return None;
        }
        let is_there = |chunk| self.cache.contains(chunk) || self.building.contains(&chunk);
        let chunk = next_to_build(&self.demand, is_there)?;
        self.building.insert(chunk);
        Some(chunk)
    }

    /// Returns a job that makes repair symbols, with whose result [`Self::repairs_made`] is called then. Each is
    /// returned once; few are under way.
    pub fn next_repair_job(&mut self) -> Option<RepairJob> {
        if self.coding.len() >= CODING_MAX {
            return None;
        }
        let has_none = |chunk: &u32| matches!(self.plan(*chunk), Some(Plan::Repairs { is_made: false, .. }));
        let chunk = self.cache.indices().find(|chunk| !self.coding.contains(chunk) && has_none(chunk))?;
        let (built, plan) = (self.cache.look(chunk)?, self.plan(chunk)?);
        let job = plan.job(chunk, built, self.settings.symbol_bytes)?;
        self.coding.insert(chunk);
        Some(job)
    }

    /// Takes repair symbols that were made. A chunk that they cannot be made for is sent as a whole instead.
    pub fn repairs_made(&mut self, symbols: RepairSymbols) {
        self.coding.remove(&symbols.chunk);
        let Some(mut built) = self.cache.get(symbols.chunk).filter(|built| built.form == symbols.form) else { return };
        built.repairs = symbols.block.map(Arc::new);
        let demand = &self.demand;
        self.cache.insert(symbols.chunk, built, |chunk| demand.is_wanted(chunk));
    }

    /// Takes a chunk that was built, with the number of its form: equal numbers mean equal bytes.
    pub fn chunk_built(&mut self, chunk: u32, form: u32, bytes: Vec<u8>, now: Duration) {
        if bytes.is_empty() || bytes.len() > CHUNK_BYTES_MAX {
            return self.chunk_failed(chunk, now);
        }
        self.pass(now);
        self.building.remove(&chunk);
        if self.demand.repairs().get(&chunk).is_some_and(|repair| repair.form != form) {
            self.demand.begin_anew(chunk);
        }
        let longest = self.longest_chunk_bytes.max(bytes.len());
        self.longest_chunk_bytes = if self.has_built { longest } else { bytes.len() };
        (self.chunk_bytes, self.has_built) = (bytes.len(), true);
        let demand = &self.demand;
        let built = BuiltChunk { form, bytes: Arc::new(bytes), repairs: Some(Arc::default()) };
        self.cache.insert(chunk, built, |chunk| demand.is_wanted(chunk));
    }

    /// Notes that a chunk cannot be built. Machines get it over HTTP, or learn there why not.
    pub fn chunk_failed(&mut self, chunk: u32, now: Duration) {
        self.pass(now);
        self.building.remove(&chunk);
        self.demand.answer(chunk);
        self.unavailable.insert(chunk, self.now + UNAVAILABLE);
        if self.unavailable.len() > UNAVAILABLE_MAX {
            let earliest = self.unavailable.iter().min_by_key(|(_, until)| **until).map(|(chunk, _)| *chunk);
            earliest.map(|chunk| self.unavailable.remove(&chunk));
        }
    }

    /// Appends the packets that may be sent now, and fills the burst to at most [`BURST_PACKETS_MAX`] packets.
    pub fn send(&mut self, now: Duration, burst: &mut PacketBurst) {
        self.pass(now);
        while burst.len() < BURST_PACKETS_MAX && self.pacing.due() <= self.now {
            let Some(next_beacon) = self.next_beacon else { return };
            let bytes = if next_beacon <= self.now {
                self.push_beacon(burst)
            } else if self.has_symbols() {
                self.push_symbol(burst)
            } else {
                return;
            };
            self.counts.packets += 1;
            self.counts.bytes += bytes as u64;
            self.pacing.pay(bytes, self.now);
        }
    }

    /// Returns when the next packets are to be sent, unless a request or a built chunk comes before; `None` while no
    /// session runs.
    #[must_use]
    pub fn next_send(&self) -> Option<Duration> {
        let beacon = self.next_beacon?;
        let has_symbols = self.gate.is_none() && (self.transmission.is_some() || self.next_chunk().is_some());
        Some(if has_symbols { self.pacing.worthwhile() } else { self.pacing.due().max(beacon) })
    }

    /// Returns whether a session runs: from the first request until no machine lacks anything, or all are silent.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.next_beacon.is_some()
    }

    /// Returns whether the session that runs has begun to send chunks, rather than waiting for machines.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        self.is_running() && self.gate.is_none()
    }

    /// Lets time pass. A time that is before an earlier one changes nothing.
    fn pass(&mut self, now: Duration) {
        self.now = self.now.max(now);
        self.open_gate();
    }

    /// Begins the session if its machines are there, or have been waited for long enough.
    fn open_gate(&mut self) {
        if self.gate.as_mut().is_some_and(|gate| gate.opens(self.clients.lacking(), self.now)) {
            self.gate = None;
        }
    }

    /// Changes the rate if the losses of the machines are a reason.
    fn adjust_rate(&mut self) {
        match self.rate.judge(self.clients.losses(), self.clients.hearing()) {
            Ordering::Equal => return,
            Ordering::Greater if !self.rate.is_trial() => self.clients.forget_losses(),
            // Losses at the rate before do not count for this one.
            Ordering::Greater | Ordering::Less => self.clients.begin_losses(self.sequence),
        }
        self.pacing.set_rate(self.rate.rate(), self.now);
    }

    fn next_chunk(&self) -> Option<u32> {
        let is_ready = |chunk: &u32| !matches!(self.plan(*chunk), Some(Plan::Repairs { is_made: false, .. }));
        next_to_send(&self.demand, self.cache.indices().filter(is_ready), self.share)
    }

    /// Returns what is sent of a cached chunk that machines lack.
    fn plan(&self, chunk: u32) -> Option<Plan> {
        let built = self.cache.look(chunk)?;
        let repair = self.demand.repairs().get(&chunk);
        let Some(repair) = repair.filter(|repair| repair.form == built.form && self.demand.machines(chunk) == 0) else {
            return Some(Plan::Whole);
        };
        let next = self.demand.next_repair(chunk, repair);
        Some(Plan::of_repair(&self.settings, built, repair, next, self.are_losses_of_one))
    }

    /// Returns whether there is a symbol to send. Begins the next transmission if none is under way.
    fn has_symbols(&mut self) -> bool {
        if self.gate.is_some() {
            return false;
        }
        while self.transmission.is_none() {
            let Some(chunk) = self.next_chunk() else { return false };
            self.begin(chunk);
        }
        true
    }

    /// Begins the transmission of a chunk, or of symbols that machines lack.
    fn begin(&mut self, chunk: u32) {
        let (Some(plan), Some(built)) = (self.plan(chunk), self.cache.get(chunk)) else { return };
        let is_whole = self.demand.machines(chunk) > 0;
        let repair = self.demand.answer(chunk);
        let symbols = plan.symbols(&built, repair.as_ref(), self.settings.symbol_bytes);
        match plan {
            Plan::Whole => self.demand.note_repairs(chunk, 0),
            Plan::Originals => {}
            Plan::Repairs { first, count, .. } => self.demand.note_repairs(chunk, first + count),
        }
        self.share.add(is_whole, symbols.len() * usize::from(self.settings.symbol_bytes));
        let is_again = !self.sent.insert(chunk);
        if !symbols.is_empty() {
            self.transmission = Some(Transmission { chunk, built, is_again, symbols: symbols.into_iter() });
        }
    }

    /// Appends the next symbol. Returns its bytes on the wire.
    fn push_symbol(&mut self, burst: &mut PacketBurst) -> usize {
        let Some(transmission) = &mut self.transmission else { return 0 };
        let Some(index) = transmission.symbols.next() else { return 0 };
        let symbol = transmission.symbol(index, self.settings.symbol_bytes);
        self.sequence += 1;
        self.demand.note_sent(symbol.chunk, self.sequence);
        let sent = if transmission.is_again { &mut self.counts.repeated_bytes } else { &mut self.counts.payload_bytes };
        *sent += symbol.payload.len() as u64;
        let header = PacketHeader { kind: PacketKind::Symbol, session: self.settings.session, sequence: self.sequence };
        let length = burst.push(header, |body| symbol.encode(body));
        if transmission.symbols.as_slice().is_empty() {
            self.just_sent.push_back((self.now, transmission.chunk));
            self.transmission = None;
        }
        length
    }

    /// Appends a beacon. Returns its bytes on the wire. The session ends with it if no machine lacks chunks.
    fn push_beacon(&mut self, burst: &mut PacketBurst) -> usize {
        for request in self.clients.expire(self.now) {
            self.demand.remove(&request);
        }
        let now = self.now;
        self.just_sent.retain(|(at, _)| now.saturating_sub(*at) <= JUST_SENT);
        self.unavailable.retain(|_, until| now < *until);
        let beacon = self.beacon();
        self.sequence += 1;
        let header = PacketHeader { kind: PacketKind::Beacon, session: self.settings.session, sequence: self.sequence };
        let bytes_max = body_bytes_max(self.settings.symbol_bytes);
        let is_over = beacon.machines == 0 && self.transmission.is_none();
        if is_over {
            self.demand.clear();
        }
        self.next_beacon = (!is_over).then(|| self.now + BEACON_EVERY);
        burst.push(header, |body| beacon.encode(bytes_max, body))
    }

    fn beacon(&self) -> Beacon {
        let mut just_sent: Vec<u32> = self.just_sent.iter().map(|(_, chunk)| *chunk).collect();
        just_sent.sort_unstable();
        let symbol_bytes = usize::from(self.settings.symbol_bytes);
        // A machine may claim to need more symbols than a chunk has.
        let most = |chunk: u32| self.cache.look(chunk).map_or(self.longest_chunk_bytes, |built| built.bytes.len());
        let repairs = self.demand.repairs().iter();
        let repairs = repairs.map(|(chunk, repair)| most(*chunk).min(usize::from(repair.needed) * symbol_bytes));
        let sending = self.transmission.as_ref();
        let queue_bytes = repairs.sum::<usize>()
            + self.demand.ranking().len() * self.chunk_bytes
            + sending.map_or(0, |transmission| transmission.symbols.len() * symbol_bytes);
        let queue = time_of(queue_bytes, self.rate.rate());
        Beacon {
            epoch: self.settings.epoch,
            machines: self.clients.lacking(),
            queue_ms: u32::try_from(queue.as_millis()).unwrap_or(u32::MAX),
            sending: sending.map(|transmission| transmission.chunk).into_iter().collect(),
            just_sent: just_sent.into_iter().collect(),
            unavailable: self.unavailable.keys().copied().collect(),
            excluded: self.clients.excluded(),
            unheard: self.clients.unheard(self.now),
            queued: self.demand.queued(),
        }
    }
}
