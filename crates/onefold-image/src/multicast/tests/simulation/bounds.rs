//! The bounds on time, bytes sent and requests.

use super::options::Options;
use super::{Outcome, Violation};

/// Checks that an outcome is within its bounds.
pub(super) fn check(options: &Options, outcome: &Outcome) -> Result<(), Violation> {
    let seconds = outcome.finished_ms as f64 / 1000.0;
    let bounds = [
        ("seconds", seconds, seconds_max(options, outcome)),
        ("requests", outcome.timely_requests as f64, requests_max(options, seconds)),
        ("bytes sent / image", outcome.sent_ratio(), ratio_max(options, outcome)),
    ];
    for (what, found, bound) in bounds {
        if found > bound {
            return Err(format!("{what}: {found:.2} > {bound:.2}: {outcome:?}"));
        }
    }
    Ok(())
}

/// Returns whether nothing but independent losses happens, and all machines have room for the image.
fn is_calm(options: &Options) -> bool {
    let accidents = options.deaths + options.partitions + options.restarts + options.form_changes + options.forged;
    let accidents = accidents + options.suspensions + options.server_suspensions;
    let network = options.network;
    let has_room = options.memory_chunks >= u64::from(options.chunks) && network.link_percent >= 110;
    accidents + options.build_fails + options.deaf + options.slow_disks + network.burst == 0
        && has_room
        && options.join_ms <= 100
        && network.delay_ms + network.jitter_ms <= 50
}

/// Returns the chance that a packet is lost to one machine, without bursts.
fn loss(options: &Options) -> f64 {
    (options.network.loss + options.network.common_loss) as f64 / 1_000_000.0
}

/// Returns how often each symbol is sent on average until all machines have it, if only lacking symbols are sent again.
fn transmissions(loss: f64, machines: usize) -> f64 {
    let lacking_after = |rounds: i32| 1.0 - (1.0 - loss.powi(rounds)).powi(i32::try_from(machines).unwrap());
    (0..60).map(lacking_after).sum()
}

/// Bytes that are sent, for each byte of the image. Each machine may need the image at another time.
///
/// Machines that join after a tiny image has been sent have all of it sent again, which this bound does not allow for:
/// seeds 1207 and 70002078 exceed it. A bound that allowed for them would hide `Rule::FlightsCount`.
fn ratio_max(options: &Options, outcome: &Outcome) -> f64 {
    if is_calm(options) {
        // In a small image, few losses are many for each symbol.
        let chance = if outcome.image_bytes < 100 * outcome.symbol_bytes { 10.0 * loss(options) } else { 0.0 };
        let needed = outcome.needed_bytes as f64 / outcome.image_bytes as f64;
        return (transmissions(loss(options), options.machines) * 1.06 + chance) * needed + 0.1;
    }
    3.0 + options.machines as f64 + 100_000.0 / outcome.image_bytes as f64
}

fn requests_max(options: &Options, seconds: f64) -> f64 {
    let per_second = if is_calm(options) && loss(options) == 0.0 { 6.0 } else { 13.0 };
    10.0 + per_second * seconds
}

/// Repairs take a while for each machine; a machine of little memory takes the image in several windows, and each of
/// them takes a while.
fn seconds_max(options: &Options, outcome: &Outcome) -> f64 {
    let image = outcome.image_bytes as f64 / options.rate as f64;
    let comparison = if options.updates > 0 { image * 100.0 / options.compare_percent as f64 } else { 0.0 };
    let usual = options.join_ms as f64 / 1000.0 + image + comparison;
    let windows = u64::from(options.chunks).div_ceil(options.memory_chunks) as f64;
    let repairs = if loss(options) == 0.0 { 0.0 } else { 0.2 * options.machines as f64 };
    let suspensions = options.suspensions.min(1) + options.server_suspensions;
    let accidents =
        (options.restarts * options.restart_ms_max + suspensions * options.suspended_ms_max) as f64 / 1000.0;
    let in_bursts = (options.network.burst * options.network.burst_packets_max) as f64 / 2_000_000.0;
    let rounds = 1.0 + 4.0 * (loss(options) + in_bursts);
    let transfers = 6.0 * usual + windows * (1.0 + 6.0 * options.network.delay_ms as f64 / 1000.0) + repairs;
    let waits = (1 + options.restarts) as f64 * options.wait_ms_max as f64 / 1000.0;
    30.0 + rounds * transfers + accidents + waits
}
