//! The events of a simulation, in the order of their times.

use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::time::Duration;

use onefold_block::random::SeededRandom;

use super::image::Image;
use super::machine::{Machine, receiver};
use super::network::{Link, ReplayWindow, happens};
use super::options::{NetworkOptions, Options};
use super::server::{SYMBOL_BYTES, Server};
use super::suspension::Suspension;
use super::{Outcome, Violation};
use crate::format::multicast::{ClientNumber, JoinReply, SessionId};
use crate::multicast::RepairSymbols;

pub(super) const MILLISECOND: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000 * MILLISECOND;
/// Time after which machines that are not finished never will be.
const END: u64 = 3000 * SECOND;
/// Clocks begin so far ahead that they may stand for a while.
const CLOCKS_AHEAD: u64 = 10_000 * SECOND;

/// An event. Of a machine, it concerns one life only.
#[derive(Debug)]
pub(super) enum Event {
    Packet { machine: usize, packet: Rc<Vec<u8>> },
    Request { datagram: Vec<u8> },
    Wake { machine: usize },
    ServerWake { life: u32 },
    Built { life: u32, chunk: u32, form: u32, bytes: Option<Vec<u8>> },
    RepairsMade { life: u32, symbols: RepairSymbols },
    JoinRequest { machine: usize, life: u32 },
    Joined { machine: usize, life: u32, reply: Box<JoinReply> },
    Left { session: SessionId, client: ClientNumber },
    Fetched { machine: usize, life: u32, chunk: u32 },
    Written { machine: usize, life: u32, chunk: u32, bytes: Vec<u8> },
    Compared { machine: usize, life: u32, chunk: u32 },
    Start { machine: usize },
    Death { machine: usize },
    Return { machine: usize },
    CutOff { machine: usize, until: u64, ahead: u64 },
    Suspension { machine: usize, time: u64 },
    ServerSuspension { time: u64 },
    ServerDeath { away: u64 },
    ServerReturn,
    FormChange,
}

/// An event with its time. The earliest is the greatest, and of equal times, the first one made.
#[derive(Debug)]
struct TimedEvent {
    at: u64,
    number: u64,
    event: Event,
}

impl PartialEq for TimedEvent {
    fn eq(&self, other: &TimedEvent) -> bool {
        self.number == other.number
    }
}

impl Eq for TimedEvent {}

impl PartialOrd for TimedEvent {
    fn partial_cmp(&self, other: &TimedEvent) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TimedEvent {
    fn cmp(&self, other: &TimedEvent) -> std::cmp::Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// A server, machines, and the network between them.
#[derive(Debug)]
pub(super) struct World {
    pub(super) options: Options,
    pub(super) random: SeededRandom,
    pub(super) image: Image,
    pub(super) machines: Vec<Machine>,
    pub(super) server: Option<Server>,
    pub(super) server_life: u32,
    /// Nanoseconds by which the server's clock is ahead.
    pub(super) server_clock_ahead: u64,
    pub(super) now: u64,
    pub(super) outcome: Outcome,
    events: BinaryHeap<TimedEvent>,
    number: u64,
    /// Machines that are dead and will return.
    returning: usize,
}

impl World {
    pub(super) fn new(options: Options) -> World {
        let random = SeededRandom::new(options.seed ^ 0x77e1);
        let image = Image::drawn(options.chunks, options.chunk_bytes_max, &random);
        let memory_bytes = options.memory_chunks * (options.chunk_bytes_max + 400);
        let link = |index: usize| {
            let is_slow = index < options.slow_links;
            let link_percent = if is_slow { options.slow_link_percent } else { options.network.link_percent };
            Link::new(NetworkOptions { link_percent, ..options.network }, options.rate)
        };
        let machine = |index: usize| Machine {
            receiver: receiver(options.chunks, memory_bytes, options.seed ^ index as u64, Duration::ZERO),
            link: link(index),
            is_deaf: random.below(100) < options.deaf,
            is_alive: false,
            life: 0,
            disk: vec![None; options.chunks as usize],
            is_update: options.updates > 0 && random.below(100) < options.updates,
            disk_bytes_per_second: if random.below(100) < options.slow_disks {
                options.rate / 4
            } else {
                8 * options.rate
            },
            disk_free_at: 0,
            suspension: Suspension::default(),
            clock_ahead: CLOCKS_AHEAD + random.below(1000) * SECOND,
            session: None,
            replays: ReplayWindow::default(),
            is_joining: false,
            is_http: false,
            is_fetching: false,
            finished_at: None,
            wake: None,
            former: Vec::new(),
        };
        let machines = (0..options.machines).map(machine).collect();
        let server = Some(Server::new(&options, 1, 0, CLOCKS_AHEAD));
        let (events, outcome) = (BinaryHeap::new(), Outcome::default());
        let mut world = World {
            options,
            image,
            machines,
            server,
            server_life: 1,
            server_clock_ahead: CLOCKS_AHEAD,
            now: 0,
            outcome,
            events,
            number: 0,
            returning: 0,
            random,
        };
        world.draw_events();
        world
    }

    /// Draws what will happen to machines and server.
    fn draw_events(&mut self) {
        let options = self.options;
        // About as long as everything takes without faults.
        let usual = options.join_ms * MILLISECOND
            + u64::from(options.chunks) * options.chunk_bytes_max * SECOND / options.rate
            + SECOND;
        for machine in 0..options.machines {
            let start = self.random.below(options.join_ms * MILLISECOND + 1);
            self.after(start, Event::Start { machine });
            let later = start + self.random.below(usual);
            if self.random.below(100) < options.deaths {
                self.after(later, Event::Death { machine });
                if self.random.below(100) < options.returns {
                    self.returning += 1;
                    let away = self.random.below(5 * SECOND);
                    self.after(later + away, Event::Return { machine });
                }
            }
            if self.random.below(100) < options.partitions {
                let at = start + self.random.below(usual);
                let until = at + self.random.below(10 * SECOND);
                let ahead = if self.random.below(2) == 0 { 0 } else { self.random.below(3600) * SECOND };
                self.after(at, Event::CutOff { machine, until, ahead });
            }
        }
        for _ in 0..options.restarts {
            let away = self.random.below(options.restart_ms_max * MILLISECOND);
            let at = self.random.below(usual);
            self.after(at, Event::ServerDeath { away });
        }
        for _ in 0..options.form_changes {
            let at = self.random.below(usual);
            self.after(at, Event::FormChange);
        }
        self.draw_suspensions(usual);
    }

    /// Adds an event that happens after a time in nanoseconds.
    pub(super) fn after(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.events.push(TimedEvent { at: self.now + time, number: self.number, event });
    }

    /// Runs until all machines are finished and the session has ended.
    pub(super) fn run(mut self) -> Result<Outcome, Violation> {
        while !self.is_finished() {
            let Some(TimedEvent { at, event, .. }) = self.events.pop() else { break };
            self.now = at;
            if at > END {
                break;
            }
            self.handle(event)?;
            self.outcome.events += 1;
        }
        self.check()?;
        self.outcome.finished_ms = self.now / MILLISECOND;
        let finished = self.now;
        self.outcome.timely_requests = self.outcome.arrived_requests;
        // Dead machines are forgotten, and the session ends by itself.
        while self.server.as_ref().is_some_and(|server| server.sender.is_running()) {
            let Some(TimedEvent { at, event, .. }) = self.events.pop() else { break };
            self.now = at;
            if at > finished + END {
                return Err("the session does not end".to_owned());
            }
            self.handle(event)?;
        }
        self.count();
        Ok(self.outcome)
    }

    fn is_finished(&self) -> bool {
        self.returning == 0
            && self.machines.iter().all(|machine| !machine.is_alive_or_new() || machine.finished_at.is_some())
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        let Some(event) = self.awake(event) else { return Ok(()) };
        match event {
            Event::Packet { machine, packet } => self.deliver(machine, &packet)?,
            Event::Request { datagram } => self.serve(&datagram)?,
            Event::Wake { machine } => {
                if self.machines[machine].wake == Some(self.now) {
                    self.machines[machine].wake = None;
                    self.drain(machine)?;
                }
            }
            Event::ServerWake { life } if life == self.server_life => self.drive_server(true)?,
            Event::Built { life, chunk, form, bytes } if life == self.server_life => self.built(chunk, form, bytes)?,
            Event::RepairsMade { life, symbols } if life == self.server_life => self.repairs_made(symbols)?,
            Event::ServerWake { .. } | Event::Built { .. } | Event::RepairsMade { .. } => {}
            Event::JoinRequest { machine, life } => self.admit(machine, life),
            Event::Joined { machine, life, reply } if life == self.machines[machine].life => {
                self.joined(machine, *reply)?
            }
            Event::Fetched { machine, life, chunk } if life == self.machines[machine].life => {
                self.fetched(machine, chunk)?
            }
            Event::Written { machine, life, chunk, bytes } if life == self.machines[machine].life => {
                self.written(machine, chunk, &bytes)?;
            }
            Event::Compared { machine, life, chunk } if life == self.machines[machine].life => {
                self.compared(machine, chunk)?;
            }
            Event::Joined { .. } | Event::Fetched { .. } | Event::Written { .. } | Event::Compared { .. } => {}
            Event::Left { session, client } => {
                if let Some(server) = self.server.as_mut().filter(|server| server.session == session) {
                    server.sender.leave(client);
                }
            }
            Event::Start { machine } => {
                self.machines[machine].is_alive = true;
                self.begin_comparison(machine);
                self.join(machine);
            }
            Event::Death { machine } => self.die(machine),
            Event::Return { machine } => self.revive(machine)?,
            Event::CutOff { machine, until, ahead } => {
                self.outcome.cut_offs += 1;
                self.machines[machine].link.cut(until);
                self.machines[machine].clock_ahead += ahead;
                self.drain(machine)?;
            }
            Event::Suspension { machine, time } => self.suspend(machine, time),
            Event::ServerSuspension { time } => self.suspend_server(time),
            Event::ServerDeath { away } => self.server_dies(away),
            Event::ServerReturn => {
                self.server = Some(Server::new(&self.options, self.server_life, self.now, self.server_clock_ahead));
            }
            Event::FormChange => self.image.change_forms(&self.random),
        }
        Ok(())
    }

    fn die(&mut self, machine: usize) {
        let machine = &mut self.machines[machine];
        if machine.is_alive && machine.finished_at.is_none() {
            machine.is_alive = false;
            machine.life += 1;
            self.outcome.deaths += 1;
        }
    }

    fn revive(&mut self, index: usize) -> Result<(), Violation> {
        self.returning -= 1;
        if self.machines[index].is_alive {
            return Ok(());
        }
        let memory_bytes = self.options.memory_chunks * (self.options.chunk_bytes_max + 400);
        let clock = self.machines[index].clock(self.now);
        let receiver = receiver(self.options.chunks, memory_bytes, self.random.next_u64(), clock);
        self.machines[index].restart(receiver);
        self.begin_comparison(index);
        self.join(index);
        self.drain(index)
    }

    fn server_dies(&mut self, away: u64) {
        if let Some(server) = self.server.take() {
            self.outcome.restarts += 1;
            self.outcome.add_server(&server.sender.counts());
            self.server_life += 1;
            self.after(away, Event::ServerReturn);
        }
    }

    /// Sends packets of the server to all machines.
    pub(super) fn spread(&mut self, packet: Vec<u8>) {
        let bytes = packet.len();
        let packet = Rc::new(packet);
        if happens(&self.random, self.options.network.common_loss) {
            return;
        }
        for machine in 0..self.machines.len() {
            let now = self.now;
            let receiver = &self.machines[machine];
            if receiver.is_deaf || !receiver.is_alive || receiver.finished_at.is_some() {
                continue;
            }
            for at in self.machines[machine].link.arrivals(bytes, now, &self.random) {
                self.after(at - now, Event::Packet { machine, packet: Rc::clone(&packet) });
            }
        }
    }

    /// Returns the time that a message over HTTP takes, for content of a length.
    pub(super) fn http_time(&self, bytes: usize) -> u64 {
        let takes = bytes as u64 * SECOND / self.options.rate;
        self.options.network.delay_ms * 2 * MILLISECOND + self.random.below(5 * MILLISECOND) + takes
    }

    /// Every living machine has the whole image.
    fn check(&self) -> Result<(), Violation> {
        for (index, machine) in self.machines.iter().enumerate().filter(|(_, machine)| machine.is_alive_or_new()) {
            let missing = machine.disk.iter().filter(|chunk| chunk.is_none()).count();
            if missing > 0 || machine.finished_at.is_none() {
                return Err(format!(
                    "machine {index} lacks {missing} chunks at {} ms; {} packets of {}: {machine:?}",
                    self.now / MILLISECOND,
                    machine.receiver.counts().received,
                    machine.receiver.counts().expected,
                ));
            }
            let differs =
                machine.disk.iter().zip(&self.image.plain).any(|(found, plain)| found.as_ref() != Some(plain));
            if differs {
                return Err(format!("machine {index} has wrong bytes"));
            }
        }
        Ok(())
    }

    /// Counts what happened.
    fn count(&mut self) {
        if let Some(server) = &self.server {
            let counts = server.sender.counts();
            self.outcome.add_server(&counts);
        }
        let bytes = |chunk| self.image.chunk(chunk).1.len() as u64;
        self.outcome.image_bytes = (0..self.options.chunks).map(bytes).sum();
        let is_update = self.machines.iter().all(|machine| machine.is_update);
        let needed = (0..self.options.chunks).filter(|chunk| !is_update || self.image.changed[*chunk as usize] > 0);
        self.outcome.needed_bytes = needed.map(bytes).sum();
        let fast = self.machines.iter().skip(self.options.slow_links);
        let fast = fast.filter(|machine| machine.disk_bytes_per_second > self.options.rate);
        let finished = fast.filter_map(|machine| machine.finished_at).max().unwrap_or(0);
        self.outcome.fast_finished_ms = finished / MILLISECOND;
        for machine in &self.machines {
            for counts in machine.former.iter().copied().chain([machine.receiver.counts()]) {
                self.outcome.dropped_chunks += counts.dropped_chunks;
                self.outcome.wrong_chunks += counts.wrong_chunks;
                self.outcome.requests += counts.requests;
                self.outcome.lost += counts.expected - counts.received.min(counts.expected);
            }
        }
        self.outcome.symbol_bytes = SYMBOL_BYTES.into();
    }
}

impl Machine {
    /// Returns whether it lives, or has not started yet.
    fn is_alive_or_new(&self) -> bool {
        self.is_alive || self.life == 0
    }
}

/// Returns a time in nanoseconds.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

/// Returns a number that is not 0.
pub(super) fn positive(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}
