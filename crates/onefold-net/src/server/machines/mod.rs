//! The machines that install images, by their own reports: how far each one is, and lines of the log about it.
//!
//! All of it is soft. A server that starts again learns it anew from the next reports, and no image is sent because of
//! them. So a machine that lies shows a wrong figure, and gains nothing.
//!
//! | part    | is                                    |
//! |---------|---------------------------------------|
//! | `limit` | how many lines a log takes            |
//! | `lines` | the text of a line about one machine  |

mod limit;
mod lines;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use onefold_image::ImageVersion;
use parking_lot::Mutex;

use crate::report::{InstallState, MachineReport, MachineStatus};
use limit::LineLimit;

/// Maximum number of machines that are known, and of those that report from one address.
const MACHINES_MAX: usize = 4096;
const MACHINES_OF_ADDRESS_MAX: usize = 64;
/// A machine is lost when it has not reported for so long. Machines report about every second.
const LOST_AFTER: Duration = Duration::from_secs(30);
/// How long the status shows a machine that has finished, failed, or is lost.
const SHOWN_FOR: Duration = Duration::from_secs(600);

/// All machines that have reported lately.
#[derive(Debug, Default)]
pub(super) struct Machines(Mutex<MachineTable>);

#[derive(Debug, Default)]
struct MachineTable {
    /// By the number of the installation.
    machines: HashMap<String, Machine>,
    limit: LineLimit,
}

/// A machine, by its last report.
#[derive(Debug)]
struct Machine {
    image: ImageVersion,
    /// Digest of the manifest of the image.
    digest: [u8; 32],
    address: IpAddr,
    report: MachineReport,
    /// Time of the report.
    heard: Instant,
    /// Whether the image was removed, and the installation is to end.
    is_ended: bool,
}

/// The answer to a report of an installation that is known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReportAnswer {
    /// Lines for the log.
    pub(super) lines: Vec<String>,
    /// Whether the installation is to end.
    pub(super) is_ended: bool,
}

impl Machine {
    /// Returns whether the machine has ended in any way.
    fn is_over(&self) -> bool {
        self.report.state != InstallState::Installing
    }

    /// Returns what decides about its place among others.
    fn rank(&self) -> (&ImageVersion, &str, IpAddr, &str) {
        (&self.image, &self.report.name, self.address, &self.report.run)
    }

    /// Returns the machine for clients that want to see all machines.
    fn status(&self, now: Instant) -> MachineStatus {
        let MachineReport { name, mac, state, seconds, progress, .. } = self.report.clone();
        MachineStatus {
            image: self.image.to_string(),
            address: self.address.to_string(),
            mac,
            name,
            state,
            seconds,
            silent_seconds: now.saturating_duration_since(self.heard).as_secs(),
            progress,
        }
    }
}

impl Machines {
    /// Takes a report of an installation that is known: it came from the same address, about the same image. Returns
    /// `None` if it is not known.
    pub(super) fn update(
        &self,
        address: IpAddr,
        digest: [u8; 32],
        report: &MachineReport,
        now: Instant,
    ) -> Option<ReportAnswer> {
        let mut table = self.0.lock();
        let table = &mut *table;
        let machine = table.machines.get_mut(&report.run)?;
        if (machine.address, machine.digest) != (address, digest) {
            return None;
        }
        let before = std::mem::replace(&mut machine.report, report.clone());
        machine.heard = now;
        let line = lines::of_change(machine, &before);
        Some(ReportAnswer { is_ended: machine.is_ended, lines: table.limit.pass(line, now) })
    }

    /// Takes the first report of an installation of an image whose manifest has this digest. Returns lines for the log.
    /// An installation that there is no room for is not shown.
    pub(super) fn insert(
        &self,
        address: IpAddr,
        (image, digest): (ImageVersion, [u8; 32]),
        report: MachineReport,
        now: Instant,
    ) -> Vec<String> {
        let mut table = self.0.lock();
        let is_known = table.machines.contains_key(&report.run);
        if is_known || !table.has_room(address) {
            return Vec::new();
        }
        let run = report.run.clone();
        let machine = Machine { image, digest, address, report, heard: now, is_ended: false };
        let line = lines::of_begin(&machine);
        table.machines.insert(run, machine);
        table.limit.pass(Some(line), now)
    }

    /// Notices machines that have been silent for long, and forgets those that ended some time ago. Returns lines for
    /// the log.
    pub(super) fn pass(&self, now: Instant) -> Vec<String> {
        let mut table = self.0.lock();
        let table = &mut *table;
        let silent = |machine: &Machine| now.saturating_duration_since(machine.heard);
        table.machines.retain(|_, machine| !machine.is_over() || silent(machine) < SHOWN_FOR);
        let mut passed = Vec::new();
        for machine in table.machines.values_mut() {
            if !machine.is_over() && silent(machine) >= LOST_AFTER {
                machine.report.state = InstallState::Lost;
                passed.extend(table.limit.pass(Some(lines::of_end(machine)), now));
            }
        }
        passed.extend(table.limit.pass(None, now));
        passed
    }

    /// Ends the installations of images that are not among those with these digests.
    pub(super) fn end_others(&self, digests: &HashSet<[u8; 32]>) {
        for machine in self.0.lock().machines.values_mut() {
            machine.is_ended = !digests.contains(&machine.digest);
        }
    }

    /// Returns whether no machine is known.
    pub(super) fn are_none(&self) -> bool {
        self.0.lock().machines.is_empty()
    }

    /// Returns the machines, sorted by image, name and address.
    pub(super) fn status(&self, now: Instant) -> Vec<MachineStatus> {
        let table = self.0.lock();
        let mut machines: Vec<&Machine> = table.machines.values().collect();
        machines.sort_by(|one, other| one.rank().cmp(&other.rank()));
        machines.into_iter().map(|machine| machine.status(now)).collect()
    }
}

impl MachineTable {
    /// Returns whether there is room for another machine at an address. Forgets the machine that ended first if that
    /// makes room.
    fn has_room(&mut self, address: IpAddr) -> bool {
        let of_address = self.machines.values().filter(|machine| machine.address == address).count();
        let is_for_address = of_address >= MACHINES_OF_ADDRESS_MAX;
        if !is_for_address && self.machines.len() < MACHINES_MAX {
            return true;
        }
        let may_go = |machine: &Machine| machine.is_over() && (!is_for_address || machine.address == address);
        let over = self.machines.iter().filter(|(_, machine)| may_go(machine));
        let first = over.min_by_key(|(_, machine)| machine.heard).map(|(run, _)| run.clone());
        first.is_some_and(|run| self.machines.remove(&run).is_some())
    }
}

#[cfg(test)]
mod tests;
