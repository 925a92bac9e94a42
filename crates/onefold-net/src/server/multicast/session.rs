//! The thread of one session: it opens requests, and seals and sends what the sender's state machine decides. It never
//! reads the archive.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use onefold_image::UnitName;
use onefold_image::format::multicast::{
    ClientNumber, JoinReply, PacketHeader, PacketKind, REQUEST_HEADER_BYTES, Request, TAG_BYTES, body_bytes_max,
};
use onefold_image::multicast::{PacketBurst, Sender, SenderSettings, SenderStatus, SessionStart};
use onefold_linux::DatagramBatch;
use parking_lot::Mutex;

use super::builders::{Builders, BuiltContent, TaskResult};
use super::shares::RateShare;
use crate::multicast::{GroupRoute, JOIN_BYTES, Opener, Sealer, ServerKeys, ServerSocket};
use crate::server::state::ServerState;

/// Longest time without a look at joins and at the end of the server.
const LOOK: Duration = Duration::from_millis(20);
/// How long a session without machines that lack anything stays.
const IDLE: Duration = Duration::from_secs(30);
/// How often the keys of machines that are gone are dropped.
const FORGET: Duration = Duration::from_secs(5);
/// How often the figures for the status are set.
const FIGURES: Duration = Duration::from_millis(200);
/// Keys that are kept until then, for each machine that there may be: a machine that was forgotten, since it was
/// silent for long, is back with its next request.
const MEMBERS_PER_CLIENT: usize = 2;
/// Machines of one address in a session; further ones are served over HTTP. Each machine makes all others wait longer
/// before a request: so many of them by 1.3 seconds on average.
const OF_ADDRESS_MAX: usize = 16;
/// Batches of requests that are taken before the next packets are sent.
const BATCHES_MAX: usize = 4;

/// A machine that wants to join.
pub(super) struct Join {
    /// Random bytes of a machine that has the key in a file, which make its key its own.
    pub(super) random: [u8; JOIN_BYTES],
    /// Address of the machine, or the network of 64 bits that it has for itself.
    pub(super) address: IpAddr,
    pub(super) reply: mpsc::SyncSender<Option<JoinReply>>,
}

/// A machine that has joined.
struct Member {
    opener: Opener,
    address: IpAddr,
}

/// Figures of a session for the status of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionFigures {
    pub(super) status: SenderStatus,
    /// The highest rate of the session now, in bytes of UDP payload per second.
    pub(super) ceiling: NonZeroU64,
}

/// One session.
pub(super) struct Session {
    settings: SenderSettings,
    share: RateShare,
    route: GroupRoute,
    socket: ServerSocket,
    keys: ServerKeys,
    sender: Sender,
    sealer: Sealer,
    members: HashMap<ClientNumber, Member>,
    builders: Builders,
    state: Arc<ServerState>,
    began: Instant,
    /// Since when no machine lacks anything.
    idle_since: Instant,
    forgot: Instant,
    has_failed: bool,
    figures: Arc<Mutex<SessionFigures>>,
    figured: Instant,
}

impl Session {
    /// Prepares a session and starts the threads that build its chunks.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(super) fn new(
        settings: SenderSettings,
        share: RateShare,
        route: GroupRoute,
        socket: ServerSocket,
        keys: ServerKeys,
        state: Arc<ServerState>,
        chunks: Vec<UnitName>,
    ) -> io::Result<Session> {
        let archive = Arc::clone(&state);
        let build = move |index: u32| chunks.get(index as usize).and_then(|name| built(&archive, name));
        let builders = Builders::start(build)?;
        let began = Instant::now();
        let sender = Sender::new(settings, Duration::ZERO);
        let figures = SessionFigures { status: sender.status(), ceiling: settings.rate_bytes_per_second };
        Ok(Session {
            sender,
            sealer: Sealer::new(keys.group()),
            members: HashMap::new(),
            settings,
            share,
            route,
            socket,
            keys,
            builders,
            state,
            began,
            idle_since: began,
            forgot: began,
            has_failed: false,
            figures: Arc::new(Mutex::new(figures)),
            figured: began,
        })
    }

    /// Has the session wait for machines before it sends chunks.
    pub(super) fn wait_for(&mut self, start: SessionStart) {
        self.sender.wait_for(start);
    }

    /// Returns the figures of the session, which are set from time to time while it runs.
    pub(super) fn figures(&self) -> Arc<Mutex<SessionFigures>> {
        Arc::clone(&self.figures)
    }

    /// Sends until the server ends, or no machine has lacked anything for a while. Then `end` is called, which returns
    /// a machine that still wants to join.
    pub(super) fn run(
        mut self,
        joined: &mpsc::Receiver<Join>,
        is_stopped: &dyn Fn() -> bool,
        end: &dyn Fn() -> Option<Join>,
    ) {
        let mut burst = PacketBurst::default();
        let packet_bytes = REQUEST_HEADER_BYTES + body_bytes_max(self.settings.symbol_bytes) + TAG_BYTES;
        let mut batch = DatagramBatch::new(packet_bytes);
        while !is_stopped() {
            joined.try_iter().for_each(|join| self.join(&join));
            self.build();
            self.send(&mut burst);
            if let Err(error) = self.receive(&mut batch) {
                self.report("receive requests", &error);
                std::thread::sleep(LOOK);
            }
            if self.is_idle() {
                match end() {
                    Some(join) => self.join(&join),
                    None => return,
                }
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn join(&mut self, join: &Join) {
        let client = if self.has_place(join.address) { self.sender.join(self.now()) } else { None };
        let reply = client.and_then(|client| self.admit(client, join));
        let is_admitted = reply.is_some();
        let is_answered = join.reply.try_send(reply).is_ok();
        if !(is_admitted && is_answered)
            && let Some(client) = client
        {
            // No machine has this number: there is no key for it, or the request has been answered without it.
            self.sender.leave(client);
            self.members.remove(&client);
        }
    }

    /// Returns the reply to a machine that joins under a number; `None` if there is no key for it.
    fn admit(&mut self, client: ClientNumber, join: &Join) -> Option<JoinReply> {
        let (key, keys) = match self.keys.of_client(client, &join.random) {
            Ok(keys) => keys,
            Err(error) => {
                self.report("draw a key for", &error);
                return None;
            }
        };
        self.idle_since = Instant::now();
        self.members.insert(client, Member { opener: Opener::new(&key), address: join.address });
        Some(JoinReply {
            group: *self.route.group.ip(),
            source: *self.route.source.ip(),
            port: self.route.group.port(),
            request_port: self.route.source.port(),
            symbol_bytes: self.settings.symbol_bytes,
            ttl: self.route.ttl,
            rate_bytes_per_second: self.settings.rate_bytes_per_second.get(),
            session: self.settings.session,
            epoch: self.settings.epoch,
            client,
            machines: self.sender.machines().max(1),
            waits_for: self.sender.waits_for(),
            chunks: self.settings.chunks,
            repairs: self.settings.repairs,
            keys,
        })
    }

    /// Returns whether one more machine of an address may join. Those that are gone do not count, and cannot return.
    fn has_place(&mut self, address: IpAddr) -> bool {
        let is_of_address = |member: &Member| member.address == address;
        let count = |members: &HashMap<_, Member>| members.values().filter(|member| is_of_address(member)).count();
        if count(&self.members) >= OF_ADDRESS_MAX {
            let present = self.present();
            self.members.retain(|client, member| !is_of_address(member) || present.contains(client));
        }
        count(&self.members) < OF_ADDRESS_MAX
    }

    /// Returns the machines that the sender knows.
    fn present(&self) -> HashSet<ClientNumber> {
        self.sender.clients().map(|client| client.client).collect()
    }

    /// Takes built chunks and repair symbols, and has the next ones made.
    fn build(&mut self) {
        while let Some(result) = self.builders.next() {
            let now = self.now();
            match result {
                TaskResult::Chunk { index, content: Some((form, bytes)) } => {
                    self.sender.chunk_built(index, form, bytes, now)
                }
                TaskResult::Chunk { index, content: None } => self.sender.chunk_failed(index, now),
                TaskResult::Repairs(symbols) => self.sender.repairs_made(symbols),
            }
        }
        while let Some(chunk) = self.sender.next_build() {
            self.builders.build(chunk);
        }
        while let Some(job) = self.sender.next_repair_job() {
            self.builders.repair(job);
        }
    }

    fn send(&mut self, burst: &mut PacketBurst) {
        burst.clear();
        let ceiling = self.share.rate(self.sender.is_sending());
        self.sender.set_ceiling(ceiling);
        if self.figured.elapsed() >= FIGURES {
            self.figured = Instant::now();
            *self.figures.lock() = SessionFigures { status: self.sender.status(), ceiling };
        }
        self.sender.send(self.now(), burst);
        if burst.is_empty() {
            return;
        }
        for packet in burst.packets_mut() {
            let Ok((header, _)) = PacketHeader::decode(packet) else { continue };
            if let Err(error) = self.sealer.seal(header.sequence, header.length_bytes(), packet) {
                // No packet leaves unsealed.
                return self.report("seal packets", &error);
            }
        }
        match self.socket.send(burst.parts()) {
            Ok(()) => self.has_failed = false,
            Err(error) => self.report("send to the group", &error),
        }
    }

    /// Takes requests until packets are to be sent, or a chunk has been built.
    fn receive(&mut self, batch: &mut DatagramBatch) -> io::Result<()> {
        let now = self.now();
        let mut patience = self.sender.next_send().map_or(LOOK, |at| at.saturating_sub(now).min(LOOK));
        for _ in 0..BATCHES_MAX {
            if !self.socket.receive(batch, self.builders.waker(), patience)? {
                break;
            }
            for (datagram, _) in batch.datagrams() {
                self.request(datagram);
            }
            patience = Duration::ZERO;
        }
        Ok(())
    }

    /// Takes a request. What is none, or not that of a machine of this session, is dropped.
    fn request(&mut self, datagram: &mut [u8]) {
        let Ok((header, _)) = PacketHeader::decode(datagram) else { return };
        let PacketHeader { kind: PacketKind::Request(client), session, sequence } = header else { return };
        if session != self.settings.session {
            return;
        }
        let now = self.now();
        let Some(member) = self.members.get_mut(&client) else { return };
        let Ok(body) = member.opener.open(sequence, header.length_bytes(), datagram) else { return };
        let Ok(request) = Request::decode(body, self.settings.chunks) else { return };
        self.sender.request(client, &request, now);
    }

    /// Returns whether no machine has lacked anything for a while. Drops the keys of machines that are gone, once there
    /// are many.
    fn is_idle(&mut self) -> bool {
        let now = Instant::now();
        if now - self.forgot >= FORGET && self.members.len() > MEMBERS_PER_CLIENT * self.settings.clients_max as usize {
            self.forgot = now;
            let present = self.present();
            self.members.retain(|client, _| present.contains(client));
        }
        if self.sender.is_running() {
            self.idle_since = now;
        }
        now - self.idle_since >= IDLE
    }

    /// Reports the first of several failures in a row.
    fn report(&mut self, action: &str, error: &dyn std::error::Error) {
        if !std::mem::replace(&mut self.has_failed, true) {
            self.state.report(&io::Error::other(format!("cannot {action} {}: {error}", self.route.group)));
        }
    }
}

/// Returns a chunk from the archive.
fn built(state: &ServerState, name: &UnitName) -> BuiltContent {
    match state.served().chunk(name) {
        Ok(chunk) => Some((chunk.form.short(), chunk.pieces.concat())),
        Err(error) => {
            state.report(&error);
            None
        }
    }
}
