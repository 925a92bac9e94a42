//! Machines and servers that are suspended for minutes: they do nothing meanwhile, and a few packets wait for them.
//!
//! The clock of a host that sleeps stands, as `CLOCK_MONOTONIC` does; that of a process that is stopped goes on, and
//! leaps for the process.

use std::time::Duration;

use super::world::{Event, MILLISECOND, World};

/// Packets or requests that wait in a socket.
const WAITING_MAX: u32 = 16;

/// Until when a machine or the server is suspended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Suspension {
    until: u64,
    /// Packets that wait for the end.
    waiting: u32,
}

impl Suspension {
    pub(super) fn is_over(&self, now: u64) -> bool {
        now >= self.until
    }

    /// Returns the time until the end for a packet that has room in the socket.
    fn room(&mut self, now: u64) -> Option<u64> {
        self.waiting += 1;
        (self.waiting <= WAITING_MAX).then(|| self.until - now)
    }
}

/// Whose turn an event is.
enum Actor {
    Machine(usize),
    Server,
}

impl World {
    /// Returns the time on the server's clock.
    pub(super) fn server_clock(&self) -> Duration {
        Duration::from_nanos(self.now + self.server_clock_ahead)
    }

    /// Draws who will be suspended, within a time.
    pub(super) fn draw_suspensions(&mut self, usual: u64) {
        let options = self.options;
        let longest = options.suspended_ms_max * MILLISECOND;
        for machine in 0..options.machines {
            if options.suspensions > 0 && self.random.below(100) < options.suspensions {
                let (at, time) = (self.random.below(usual), self.random.below(longest));
                self.after(at, Event::Suspension { machine, time });
            }
        }
        for _ in 0..options.server_suspensions {
            let (at, time) = (self.random.below(usual), self.random.below(longest));
            self.after(at, Event::ServerSuspension { time });
        }
    }

    /// Suspends a machine. Its clock stands meanwhile, or leaps at the end.
    pub(super) fn suspend(&mut self, index: usize, time: u64) {
        let (now, behind) = (self.now, self.time_behind(time));
        let machine = &mut self.machines[index];
        if machine.is_alive && machine.finished_at.is_none() {
            machine.suspension = Suspension { until: now + time, waiting: 0 };
            machine.wake = Some(now + time);
            machine.clock_ahead -= behind;
            self.outcome.suspensions += 1;
            self.after(time, Event::Wake { machine: index });
        }
    }

    /// Suspends the server, likewise.
    pub(super) fn suspend_server(&mut self, time: u64) {
        let (now, behind, life) = (self.now, self.time_behind(time), self.server_life);
        if let Some(server) = &mut self.server {
            server.suspension = Suspension { until: now + time, waiting: 0 };
            server.wake = Some(now + time);
            self.server_clock_ahead -= behind;
            self.outcome.server_suspensions += 1;
            self.after(time, Event::ServerWake { life });
        }
    }

    /// Draws by how much a suspension sets a clock back.
    fn time_behind(&self, time: u64) -> u64 {
        if self.random.below(2) == 0 { time } else { 0 }
    }

    /// Returns an event whose actor is awake. Otherwise the event comes when the suspension is over, or never if it is
    /// a packet without room.
    pub(super) fn awake(&mut self, event: Event) -> Option<Event> {
        let (actor, is_packet) = match &event {
            Event::Packet { machine, .. } => (Actor::Machine(*machine), true),
            Event::Joined { machine, .. }
            | Event::Fetched { machine, .. }
            | Event::Written { machine, .. }
            | Event::Compared { machine, .. } => (Actor::Machine(*machine), false),
            Event::Request { .. } => (Actor::Server, true),
            Event::JoinRequest { .. } | Event::Left { .. } | Event::Built { .. } | Event::RepairsMade { .. } => {
                (Actor::Server, false)
            }
            _ => return Some(event),
        };
        let now = self.now;
        let suspension = match actor {
            Actor::Machine(machine) => Some(&mut self.machines[machine].suspension),
            Actor::Server => self.server.as_mut().map(|server| &mut server.suspension),
        };
        let Some(suspension) = suspension.filter(|suspension| !suspension.is_over(now)) else { return Some(event) };
        let left = if is_packet { suspension.room(now) } else { Some(suspension.until - now) };
        if let Some(left) = left {
            self.after(left, event);
        }
        None
    }

    /// Returns whether nobody answers over HTTP.
    pub(super) fn is_server_away(&self) -> bool {
        self.server.as_ref().is_none_or(|server| !server.suspension.is_over(self.now))
    }
}
