//! The text of a line about one machine.

use onefold_block::Show;
use onefold_block::size::{human, percent};

use super::Machine;
use crate::report::{InstallProgress, InstallState, MachineReport};

/// Returns the line for a machine that is new. The server may have been started again meanwhile.
pub(super) fn of_first(machine: &Machine) -> String {
    let progress = &machine.report.progress;
    match progress.done_bytes {
        0 => of_begin(machine),
        _ => format!("{} goes on at {}{}", whose(machine), done(progress), way(progress)),
    }
}

/// Returns the line for a machine that has begun.
pub(super) fn of_begin(machine: &Machine) -> String {
    format!("{} began{}", whose(machine), way(&machine.report.progress))
}

/// Returns the line for a machine that was lost.
pub(super) fn of_return(machine: &Machine) -> String {
    let progress = &machine.report.progress;
    format!("{} is back at {}{}", whose(machine), done(progress), way(progress))
}

/// Returns the line for a machine whose chunks come in another way.
pub(super) fn of_move(machine: &Machine) -> String {
    let progress = &machine.report.progress;
    let to = if progress.is_multicast { "multicast" } else { "HTTP" };
    let cause = progress.http_cause.map(|cause| format!(": {}", cause.text())).unwrap_or_default();
    format!("{} moved to {to} at {}{cause}", whose(machine), done(progress))
}

/// Returns the line for the end of a machine.
pub(super) fn of_end(machine: &Machine) -> String {
    let MachineReport { state, seconds, progress, .. } = &machine.report;
    let end = match state {
        InstallState::Finished => "finished".to_owned(),
        InstallState::Failed => format!("failed at {}", done(progress)),
        InstallState::Lost | InstallState::Installing => format!("is lost at {}", done(progress)),
    };
    let received = human(progress.received_bytes);
    format!("{} {end}: {received} received{}, {seconds} s", whose(machine), loss(progress))
}

/// Returns the image and the machine that installs it. The server itself knows the address.
fn whose(machine: &Machine) -> String {
    let MachineReport { name, mac, .. } = &machine.report;
    let mac = mac.as_ref().map(|mac| format!(", {mac}")).unwrap_or_default();
    format!("{}: {}{mac} `{}`", machine.image, machine.address, name.shown())
}

fn way(progress: &InstallProgress) -> &'static str {
    if progress.is_multicast { " by multicast" } else { " over HTTP" }
}

fn done(progress: &InstallProgress) -> String {
    percent(progress.done_bytes.min(progress.total_bytes), progress.total_bytes)
}

/// Returns which part of the packets was lost, if there were any.
fn loss(progress: &InstallProgress) -> String {
    let InstallProgress { sent_packets, received_packets, .. } = *progress;
    let lost = sent_packets.saturating_sub(received_packets);
    if sent_packets == 0 { String::new() } else { format!(", {} of the packets lost", percent(lost, sent_packets)) }
}
