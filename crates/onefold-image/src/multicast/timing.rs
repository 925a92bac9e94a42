//! The times of the protocol. Those of requests grow with the number of machines, so that the requests per second that
//! reach the server do not.

use std::time::Duration;

use super::rules::{Rule, follows};

/// Time between two beacons.
pub const BEACON_EVERY: Duration = Duration::from_millis(100);
/// Time for which a beacon lists a chunk as just sent.
pub(super) const JUST_SENT: Duration = Duration::from_millis(150);
/// Time after which a beacon answers no request any more.
pub(super) const BEACON_LASTS: Duration = Duration::from_millis(350);
/// Time without any packet after which a machine turns to HTTP.
pub const SILENCE: Duration = Duration::from_secs(3);
/// Longest time that a session may wait for machines before it sends chunks.
pub const SESSION_WAIT_MAX: Duration = Duration::from_secs(15 * 60);
/// Time for which the server does not build a chunk again that it could not build.
pub(super) const UNAVAILABLE: Duration = Duration::from_secs(10);
/// Shortest time between two attempts to join again; the longest is twice that.
pub(super) const REJOIN_MIN: Duration = Duration::from_secs(2);
/// Shortest time between two attempts to be heard by a server that no packet has come from; the longest is twice that.
pub(super) const PROBE_MIN: Duration = Duration::from_secs(10);
/// Time after the join of a machine from which on beacons list it, while no request of it arrives.
pub(super) const UNHEARD_AFTER: Duration = Duration::from_secs(3);
/// Least time for which a machine must have sent requests in vain to believe that. A request may be on its way.
pub(super) const UNHEARD_FOR: Duration = Duration::from_secs(2);
/// The same for the number of its requests, of which the network may lose some.
pub(super) const UNHEARD_REQUESTS: u64 = 3;
/// Time after the last beacon that lists a machine as excluded until it joins again.
pub(super) const EXCLUDED_FOR: Duration = Duration::from_secs(60);

/// Requests per second of all machines together, on average, when all have something to request.
const REQUESTS_PER_SECOND: u32 = 12;
/// Longest pause that a long queue causes, on average.
const QUEUE_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Shortest time between two reports of a machine that has nothing to request.
const REPORT_MIN: Duration = Duration::from_secs(5);
/// Shortest and longest time without any symbol after which a machine that hears beacons turns to HTTP.
const STALL_MIN: Duration = Duration::from_secs(20);
const STALL_MAX: Duration = Duration::from_secs(180);

/// Returns the average pause before a request: with `machines` that lack chunks, and a queue of this length.
pub(super) fn request_pause(machines: u32, queue: Duration) -> Duration {
    let machines = if follows(Rule::PausesGrow) { machines.max(1) } else { 1 };
    (Duration::from_secs(1) * machines / REQUESTS_PER_SECOND).max((queue / 8).min(QUEUE_PAUSE_MAX))
}

/// Returns the longest time between two requests of a machine that lacks chunks, whether it has to request any or not.
pub(super) fn report_pause(machines: u32) -> Duration {
    (request_pause(machines, Duration::ZERO) * 3).max(REPORT_MIN)
}

/// Returns the time without any symbol of a lacking chunk after which a machine turns to HTTP, though it hears beacons.
pub(super) fn stall_patience(machines: u32) -> Duration {
    (request_pause(machines, Duration::ZERO) * 6).clamp(STALL_MIN, STALL_MAX)
}

/// Returns the time after which a machine that sends no request counts as gone.
pub(super) fn client_silence(machines: u32) -> Duration {
    report_pause(machines) * 3
}
