//! The server of a simulation, and what passes between it and machines.

use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::time::Duration;

use super::Violation;
use super::network::{ReplayWindow, happens};
use super::options::Options;
use super::suspension::Suspension;
use super::world::{Event, MILLISECOND, SECOND, World, nanoseconds, positive};
use crate::format::multicast::{
    HEADER_BYTES, JoinReply, PacketHeader, PacketKind, Request, SYMBOL_HEADER_BYTES, SessionId, TAG_BYTES,
};
use crate::multicast::pacing::DELAY_MAX;
use crate::multicast::{
    BURST_PACKETS_MAX, PacketBurst, ReceiverAction, RepairSymbols, Sender, SenderSettings, SessionStart, Settlement,
    UnwantedPacket,
};

pub(super) const SYMBOL_BYTES: u16 = 128;
const PACKET_BYTES: usize = HEADER_BYTES + SYMBOL_HEADER_BYTES + SYMBOL_BYTES as usize + TAG_BYTES;
/// A burst, and one packet that the rate covers.
const BURST_BYTES_MAX: usize = (BURST_PACKETS_MAX + 1) * PACKET_BYTES;

/// A server from its start to its death.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) sender: Sender,
    pub(super) session: SessionId,
    epoch: u64,
    replays: std::collections::BTreeMap<u32, ReplayWindow>,
    pub(super) suspension: Suspension,
    /// When it wants to wake up, and when it does.
    wanted_wake: Option<u64>,
    pub(super) wake: Option<u64>,
    /// Bytes that were sent and that the rate has not covered yet, and when they were counted.
    uncovered_nanobytes: u64,
    counted_at: u64,
}

impl Server {
    pub(super) fn new(options: &Options, life: u32, now: u64, clock_ahead: u64) -> Server {
        let (session, epoch) = (SessionId(life), u64::from(life) << 32);
        let settings = SenderSettings {
            session,
            epoch,
            chunks: options.chunks,
            symbol_bytes: SYMBOL_BYTES,
            rate_bytes_per_second: positive(options.rate),
            rate_floor_bytes_per_second: positive(options.rate / 50),
            cache_bytes: usize::try_from(options.cache_chunks * (options.chunk_bytes_max + 104)).unwrap(),
            clients_max: 1 << 16,
            repairs: options.repairs,
        };
        let mut sender = Sender::new(settings, Duration::from_nanos(now + clock_ahead));
        if let Some(machines) = NonZeroU32::new(options.wait_for) {
            sender.wait_for(SessionStart { machines, at_most: Duration::from_millis(options.wait_ms_max) });
        }
        Server {
            sender,
            session,
            epoch,
            replays: std::collections::BTreeMap::new(),
            suspension: Suspension::default(),
            wanted_wake: None,
            wake: None,
            uncovered_nanobytes: 0,
            counted_at: now,
        }
    }

    /// Counts a packet. The server may be ahead of its rate by a burst, or by what it makes up for if that is more.
    fn check_pace(&mut self, bytes: usize, rate: u64, now: u64) -> Result<(), Violation> {
        let covered = (now - self.counted_at).saturating_mul(rate);
        self.counted_at = now;
        self.uncovered_nanobytes = self.uncovered_nanobytes.saturating_sub(covered) + bytes as u64 * SECOND;
        let delayed = nanoseconds(DELAY_MAX) * rate / SECOND + PACKET_BYTES as u64;
        let bound = delayed.max(BURST_BYTES_MAX as u64);
        if self.uncovered_nanobytes / SECOND > bound {
            return Err(format!("a burst of {} bytes", self.uncovered_nanobytes / SECOND));
        }
        Ok(())
    }
}

impl World {
    /// Lets the server build and send what it can.
    pub(super) fn drive_server(&mut self, is_wake: bool) -> Result<(), Violation> {
        let (now, rate, life) = (self.now, self.options.rate, self.server_life);
        let (clock, ahead) = (self.server_clock(), self.server_clock_ahead);
        let Some(server) = self.server.as_mut().filter(|server| server.suspension.is_over(now)) else { return Ok(()) };
        if is_wake && server.wake != Some(now) {
            return Ok(());
        }
        let mut builds = Vec::new();
        while let Some(chunk) = server.sender.next_build() {
            builds.push(chunk);
        }
        let mut jobs = Vec::new();
        while let Some(job) = server.sender.next_repair_job() {
            jobs.push(job);
        }
        let mut packets = Vec::new();
        loop {
            let mut burst = PacketBurst::default();
            server.sender.send(clock, &mut burst);
            if burst.is_empty() {
                break;
            }
            for packet in burst.packets_mut() {
                server.check_pace(packet.len(), rate, now)?;
                packets.push(packet.to_vec());
            }
        }
        let at_once: usize = packets.iter().map(Vec::len).sum();
        if at_once > BURST_BYTES_MAX {
            return Err(format!("{at_once} bytes at once"));
        }
        let next = server.sender.next_send().map(|time| nanoseconds(time).saturating_sub(ahead).max(now));
        if next != server.wanted_wake || is_wake {
            let is_late = self.options.late_wakes > 0 && happens(&self.random, self.options.late_wakes);
            let late = if is_late { self.random.below(self.options.late_ms_max * MILLISECOND + 1) } else { 0 };
            (server.wanted_wake, server.wake) = (next, next.map(|at| at + late));
            if let Some(at) = server.wake {
                self.after(at - now, Event::ServerWake { life });
            }
        }
        for chunk in builds {
            let takes = self.random.below(self.options.build_ms_max * MILLISECOND + 1);
            let (form, bytes) = self.image.chunk(chunk);
            let bytes = (!happens(&self.random, self.options.build_fails)).then_some(bytes);
            self.after(takes, Event::Built { life, chunk, form, bytes });
        }
        for job in jobs {
            let takes = self.random.below(self.options.build_ms_max * MILLISECOND + 1);
            self.after(takes, Event::RepairsMade { life, symbols: job.run() });
        }
        for packet in packets {
            self.outcome.packets += 1;
            self.spread(packet);
        }
        Ok(())
    }

    pub(super) fn built(&mut self, chunk: u32, form: u32, bytes: Option<Vec<u8>>) -> Result<(), Violation> {
        let now = self.server_clock();
        if let Some(server) = &mut self.server {
            match bytes {
                Some(bytes) => server.sender.chunk_built(chunk, form, bytes, now),
                None => server.sender.chunk_failed(chunk, now),
            }
        }
        self.drive_server(false)
    }

    pub(super) fn repairs_made(&mut self, symbols: RepairSymbols) -> Result<(), Violation> {
        if let Some(server) = &mut self.server {
            server.sender.repairs_made(symbols);
        }
        self.drive_server(false)
    }

    /// A request arrives at the server.
    pub(super) fn serve(&mut self, datagram: &[u8]) -> Result<(), Violation> {
        let clock = self.server_clock();
        let Some(server) = &mut self.server else { return Ok(()) };
        let (header, body) = opened(datagram);
        let PacketKind::Request(client) = header.kind else { return Err("a machine sent no request".to_owned()) };
        if header.session != server.session || !server.replays.entry(client.0).or_default().accepts(header.sequence) {
            return Ok(());
        }
        let request = Request::decode(body, self.options.chunks).map_err(|error| error.to_string())?;
        server.sender.request(client, &request, clock);
        self.outcome.arrived_requests += 1;
        self.drive_server(false)
    }

    /// A machine asks to join.
    pub(super) fn join(&mut self, machine: usize) {
        let (time, life) = (self.http_time(0), self.machines[machine].life);
        self.machines[machine].is_joining = true;
        self.after(time, Event::JoinRequest { machine, life });
    }

    /// The server answers a machine that asks to join, if both are there.
    pub(super) fn admit(&mut self, machine: usize, life: u32) {
        if self.machines[machine].life != life {
            return;
        }
        let (is_cut, clock) = (self.machines[machine].link.is_cut(self.now), self.server_clock());
        let Some(server) = self.server.as_mut().filter(|_| !is_cut) else {
            // Without a session, nobody but the caller tries again.
            if self.machines[machine].session.is_none() {
                self.after(SECOND, Event::JoinRequest { machine, life });
            } else {
                self.machines[machine].is_joining = false;
            }
            return;
        };
        if let Some((session, client)) =
            self.machines[machine].session.filter(|(session, _)| *session == server.session)
        {
            debug_assert_eq!(session, server.session);
            server.sender.leave(client);
        }
        let client = server.sender.join(clock).unwrap();
        let reply = JoinReply {
            group: Ipv4Addr::new(239, 1, 1, 1),
            source: Ipv4Addr::new(192, 0, 2, 5),
            port: 1,
            request_port: 2,
            symbol_bytes: SYMBOL_BYTES,
            ttl: 1,
            rate_bytes_per_second: self.options.rate,
            session: server.session,
            epoch: server.epoch,
            client,
            machines: server.sender.machines(),
            waits_for: server.sender.waits_for(),
            chunks: self.options.chunks,
            repairs: self.options.repairs,
            keys: None,
        };
        let reply = JoinReply::decode(&reply.encode()).unwrap();
        self.outcome.joins += 1;
        let time = self.http_time(0);
        self.after(time, Event::Joined { machine, life, reply: Box::new(reply) });
    }

    pub(super) fn joined(&mut self, index: usize, reply: JoinReply) -> Result<(), Violation> {
        let machine = &mut self.machines[index];
        machine.is_joining = false;
        if machine.session.is_none_or(|(session, _)| session != reply.session) {
            machine.replays = ReplayWindow::default();
        }
        machine.session = Some((reply.session, reply.client));
        machine.receiver.joined(reply, machine.clock(self.now));
        self.drain(index)
    }

    /// A packet arrives at a machine.
    pub(super) fn deliver(&mut self, index: usize, packet: &[u8]) -> Result<(), Violation> {
        let is_forged = happens(&self.random, self.options.forged);
        let machine = &mut self.machines[index];
        let (header, body) = opened(packet);
        let Some((session, _)) = machine.session.filter(|_| machine.is_alive) else { return Ok(()) };
        let now = machine.clock(self.now);
        let result = if header.session != session {
            // It cannot be opened.
            machine.receiver.packet(header, &[], now)
        } else if machine.replays.accepts(header.sequence) {
            let mut body = body.to_vec();
            if is_forged && header.kind == PacketKind::Symbol {
                self.outcome.forged += 1;
                *body.last_mut().unwrap() ^= 1;
            }
            machine.receiver.packet(header, &body, now)
        } else {
            Ok(())
        };
        match result {
            Ok(()) | Err(UnwantedPacket::OtherSession) => self.drain(index),
            Err(error) => Err(format!("machine {index}: {error}")),
        }
    }

    /// Does what a receiver wants, and wakes it again in time.
    pub(super) fn drain(&mut self, index: usize) -> Result<(), Violation> {
        let machine = &self.machines[index];
        if !machine.is_alive || !machine.suspension.is_over(self.now) {
            return Ok(());
        }
        let clock = self.machines[index].clock(self.now);
        for _ in 0..10_000 {
            let Some(action) = self.machines[index].receiver.next_action(clock) else {
                self.wake_in_time(index);
                return Ok(());
            };
            self.act(index, action)?;
        }
        Err(format!("machine {index} never rests"))
    }

    fn wake_in_time(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        let at = machine.receiver.next_time().map(|time| nanoseconds(time).saturating_sub(machine.clock_ahead));
        // Not at once: a machine that wants to be woken now and then does nothing would never rest.
        let at = at.map(|at| at.max(self.now + MILLISECOND / 10));
        if machine.wake.is_none_or(|wake| at.is_some_and(|at| at < wake) || wake <= self.now) {
            machine.wake = at;
            if let Some(at) = at {
                self.after(at - self.now, Event::Wake { machine: index });
            }
        }
    }

    fn act(&mut self, index: usize, action: ReceiverAction) -> Result<(), Violation> {
        let (now, life) = (self.now, self.machines[index].life);
        match action {
            ReceiverAction::Send(datagram) => {
                let is_lost = happens(&self.random, self.options.network.loss) || self.machines[index].link.is_cut(now);
                if !is_lost {
                    let delay = self.options.network.delay_ms * MILLISECOND;
                    let jitter = self.random.below(self.options.network.jitter_ms * MILLISECOND + 1);
                    self.after(delay + jitter, Event::Request { datagram });
                }
            }
            ReceiverAction::Take { chunk, content } => {
                // Symbols that do not suffice are rare.
                let Some(bytes) = content.into_bytes() else {
                    self.outcome.undecided_chunks += 1;
                    self.machines[index].receiver.settle(chunk, Settlement::Wrong);
                    return Ok(());
                };
                let machine = &mut self.machines[index];
                let takes = bytes.len() as u64 * SECOND / machine.disk_bytes_per_second;
                machine.disk_free_at = machine.disk_free_at.max(now) + takes;
                let time = machine.disk_free_at - now;
                self.after(time, Event::Written { machine: index, life, chunk, bytes });
            }
            ReceiverAction::FetchByHttp { chunk } => self.fetch(index, chunk),
            ReceiverAction::UseHttp(_) => {
                self.outcome.http_turns += 1;
                self.machines[index].is_http = true;
                self.fetch_next(index);
            }
            ReceiverAction::UseMulticast => {
                self.outcome.http_returns += 1;
                self.machines[index].is_http = false;
            }
            ReceiverAction::Join if !self.machines[index].is_joining => self.join(index),
            ReceiverAction::Join => {}
            ReceiverAction::Finish => {
                self.machines[index].finished_at = Some(now);
                let leaves = self.random.below(10) > 0;
                if let Some((session, client)) = self.machines[index].session.filter(|_| leaves) {
                    let time = self.http_time(0);
                    self.after(time, Event::Left { session, client });
                }
            }
        }
        Ok(())
    }

    /// Fetches the next lacking chunk over HTTP, unless one is under way.
    fn fetch_next(&mut self, index: usize) {
        if self.machines[index].is_fetching || !self.machines[index].is_http {
            return;
        }
        if let Some(chunk) = self.machines[index].receiver.claim(0) {
            self.machines[index].is_fetching = true;
            self.fetch(index, chunk);
        }
    }

    fn fetch(&mut self, index: usize, chunk: u32) {
        self.fetch_part(index, chunk, self.image.plain[chunk as usize].len() as u64);
    }

    /// Fetches so many bytes of a chunk over HTTP, which its disk lacks.
    pub(super) fn fetch_part(&mut self, index: usize, chunk: u32, bytes: u64) {
        let (time, life) = (self.http_time(usize::try_from(bytes).unwrap()), self.machines[index].life);
        self.after(time, Event::Fetched { machine: index, life, chunk });
    }

    /// The answer to a request over HTTP arrives, or none.
    pub(super) fn fetched(&mut self, index: usize, chunk: u32) -> Result<(), Violation> {
        if self.is_server_away() || self.machines[index].link.is_cut(self.now) {
            self.after(SECOND / 2, Event::Fetched { machine: index, life: self.machines[index].life, chunk });
            return Ok(());
        }
        self.outcome.fetched += 1;
        let content = self.image.plain[chunk as usize].clone();
        let machine = &mut self.machines[index];
        machine.disk[chunk as usize] = Some(content);
        machine.receiver.settle(chunk, Settlement::Present);
        machine.is_fetching = false;
        self.fetch_next(index);
        self.drain(index)
    }

    /// A chunk has passed the verification, and is on the disk; or it is wrong.
    pub(super) fn written(&mut self, index: usize, chunk: u32, bytes: &[u8]) -> Result<(), Violation> {
        let content = self.image.verified(chunk, bytes);
        if content.is_none() && self.options.forged == 0 {
            return Err(format!("machine {index}: chunk {chunk} is wrong"));
        }
        let machine = &mut self.machines[index];
        let settlement = if content.is_some() { Settlement::Present } else { Settlement::Wrong };
        if let Some(content) = content {
            machine.disk[chunk as usize] = Some(content);
        }
        machine.receiver.settle(chunk, settlement);
        self.drain(index)
    }
}

/// Returns the header and the plain body of a datagram.
fn opened(datagram: &[u8]) -> (PacketHeader, &[u8]) {
    PacketHeader::decode(&datagram[..datagram.len() - TAG_BYTES]).unwrap()
}
