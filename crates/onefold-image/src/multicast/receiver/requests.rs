//! **Decides whether a machine requests anything, and when.** A request that the last beacon answers is not made.

use std::time::Duration;

use onefold_block::random::Random;

use crate::format::multicast::Beacon;
use crate::multicast::rules::{Rule, follows};
use crate::multicast::timing::{
    BEACON_EVERY, BEACON_LASTS, SESSION_WAIT_MAX, report_pause, request_pause, stall_patience,
};

/// When a machine requests chunks.
#[derive(Debug)]
pub(super) struct RequestTimer {
    /// The last beacon, and its time.
    beacon: Option<(Duration, Beacon)>,
    /// Number of machines that lack chunks, by the join reply or the last beacon.
    machines: u32,
    /// Until when the session may wait for machines; `None` once it has sent a symbol.
    waits_until: Option<Duration>,
    /// Time of the next request, if there is a reason for one.
    due: Option<Duration>,
    /// Time of the next look whether there is a reason.
    look: Duration,
    /// Time of the last request, or of the join.
    last: Duration,
    /// Whether the last beacon lists this machine as one from which no request has come.
    pub(super) is_unheard: bool,
}

impl RequestTimer {
    /// Returns the timer of a machine that has just joined. The first machine requests at once; others wait for a
    /// beacon, which may answer them.
    pub(super) fn joined(machines: u32, now: Duration, random: &dyn Random) -> RequestTimer {
        let pause = request_pause(machines, Duration::ZERO);
        let wait = if machines <= 1 { Duration::ZERO } else { BEACON_EVERY * 3 / 2 + drawn(pause * 2, random) };
        let waits_until = Some(now + SESSION_WAIT_MAX);
        let (due, look) = (Some(now + wait), now + wait);
        RequestTimer { beacon: None, machines, waits_until, due, look, last: now, is_unheard: false }
    }

    /// Takes a beacon. Returns whether the session has begun to send symbols, or could have waited for machines no
    /// longer.
    pub(super) fn hear(&mut self, beacon: Beacon, now: Duration) -> bool {
        let is_sending = !beacon.sending.is_empty() || !beacon.just_sent.is_empty();
        self.waits_until = self.waits_until.filter(|until| !is_sending && now < *until);
        self.machines = beacon.machines;
        self.look = now;
        self.beacon = Some((now, beacon));
        self.waits_until.is_none()
    }

    /// Continues with the wait of an earlier join. A machine that has begun waits for no others any more, and a new
    /// session does not make the wait of a machine longer.
    pub(super) fn continue_wait(&mut self, before: &RequestTimer) {
        self.waits_until = before.waits_until;
    }

    /// Forgets the beacons of an earlier session.
    pub(super) fn forget_beacons(&mut self) {
        self.beacon = None;
    }

    /// Returns the number of machines that lack chunks, with this one.
    pub(super) fn machines(&self) -> u32 {
        self.machines
    }

    /// Returns whether the session may still wait for machines, as far as this machine knows.
    pub(super) fn is_waiting(&self) -> bool {
        self.waits_until.is_some()
    }

    /// Looks for a reason for a request at once: there are chunks to request that were not known before.
    pub(super) fn look_again(&mut self, now: Duration) {
        self.look = self.look.min(now);
    }

    /// Returns whether a fresh beacon lists a chunk, so that a request for it would tell the server nothing new.
    pub(super) fn is_answered(&self, chunk: u32, now: Duration) -> bool {
        let fresh = self.beacon.as_ref().filter(|(at, _)| now.saturating_sub(*at) <= BEACON_LASTS);
        follows(Rule::BeaconsAnswer)
            && fresh.is_some_and(|(_, beacon)| {
                let sets = [&beacon.queued, &beacon.sending, &beacon.just_sent, &beacon.unavailable];
                sets.into_iter().any(|set| set.contains(chunk))
            })
    }

    /// Returns whether a request is to be made now. `is_needed` tells whether there is a reason for one.
    pub(super) fn is_due(
        &mut self,
        now: Duration,
        is_needed: impl Fn(&RequestTimer) -> bool,
        random: &dyn Random,
    ) -> bool {
        if now >= self.look {
            self.look = now + BEACON_LASTS;
            let is_needed = is_needed(self);
            self.due = match self.due {
                Some(due) if is_needed => Some(due),
                None if is_needed => Some(now.max(self.last + BEACON_EVERY) + drawn(self.pause() * 2, random)),
                _ => None,
            };
        }
        let is_due = self.due.is_some_and(|due| due <= now) && is_needed(self);
        if self.due.is_some_and(|due| due <= now) && !is_due {
            self.due = None;
        }
        if is_due || now >= self.last + report_pause(self.machines) {
            (self.due, self.last, self.look) = (None, now, now + BEACON_LASTS);
            return true;
        }
        false
    }

    /// Returns when [`Self::is_due`] may have another result.
    pub(super) fn next(&self) -> Duration {
        let next = self.look.min(self.last + report_pause(self.machines));
        self.due.map_or(next, |due| next.min(due))
    }

    /// Returns the time without any symbol of a lacking chunk after which the machine turns to HTTP.
    pub(super) fn stall_patience(&self) -> Duration {
        stall_patience(self.machines)
    }

    /// Returns the average pause before a request.
    fn pause(&self) -> Duration {
        // The server soon forgets a machine that it has not heard, however long its queue is.
        let beacon = self.beacon.as_ref().filter(|_| !self.is_unheard);
        let queue = beacon.map_or(0, |(_, beacon)| beacon.queue_ms);
        request_pause(self.machines, Duration::from_millis(queue.into()))
    }
}

/// Draws a time below `max`. Half of it if the system has no randomness.
pub(super) fn drawn(max: Duration, random: &dyn Random) -> Duration {
    let mut bytes = [0; 4];
    let part = random.fill(&mut bytes).map_or(u32::MAX / 2, |()| u32::from_le_bytes(bytes));
    let nanoseconds = (max.as_nanos() * u128::from(part)) >> 32;
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}
