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

use super::network::network_of;
use crate::report::{InstallState, MachineReport, MachineStatus};
use limit::LineLimit;

/// Maximum number of machines that are known, and of those that report from one address, or from one network of IPv6:
/// it may be a room, or a machine with many addresses.
const MACHINES_MAX: usize = 4096;
const MACHINES_OF_ADDRESS_MAX: usize = 64;
const MACHINES_OF_NETWORK_MAX: usize = 1024;
/// A machine brings at most one line about its way to get chunks in so long.
const MOVED_EVERY: Duration = Duration::from_secs(10);
/// Seconds after which an installation counts as begun, though nothing is in its place yet.
const BEGUN_SECONDS: u64 = 5;
/// Time between two reports of a machine. While many machines are known, it is longer: each further number of machines
/// adds as much, up to a bound.
pub(super) const REPORT_EVERY: Duration = Duration::from_secs(1);
const REPORT_MACHINES: usize = 256;
const REPORT_EVERY_MAX: Duration = Duration::from_secs(10);
/// A machine is lost when it has not reported for so long.
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
    /// Time of the first report.
    first: Instant,
    /// Whether the last line about its way said multicast, and the time of that line; `None` before the first one.
    told: Option<(bool, Instant)>,
    /// Whether the image was removed, and the installation is to end.
    is_ended: bool,
}

/// The answer to a report of an installation that is known.
#[derive(Debug, Default, PartialEq, Eq)]
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

    /// Returns whether the machine itself has said how its installation ended.
    fn has_ended(&self) -> bool {
        matches!(self.report.state, InstallState::Finished | InstallState::Failed)
    }

    /// Returns whether its way to get chunks is known: it may wait for multicast before.
    fn has_way(&self) -> bool {
        let MachineReport { seconds, progress, .. } = &self.report;
        progress.is_multicast || progress.done_bytes > 0 || *seconds >= BEGUN_SECONDS
    }

    /// Returns the line that the last report is worth, if any. `before` is the state by the report before it.
    fn line(&mut self, before: Option<InstallState>, now: Instant) -> Option<String> {
        if self.is_over() {
            return Some(lines::of_end(self));
        }
        let is_multicast = self.report.progress.is_multicast;
        let line = match (before, self.told) {
            (Some(InstallState::Lost), _) => lines::of_return(self),
            (_, None) if !self.has_way() => return None,
            (None, None) => lines::of_first(self),
            (Some(_), None) => lines::of_begin(self),
            (_, Some((told, at))) if told != is_multicast && now.saturating_duration_since(at) >= MOVED_EVERY => {
                lines::of_move(self)
            }
            _ => return None,
        };
        self.told = Some((is_multicast, now));
        Some(line)
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
    /// Takes a report of an installation that is known: it came from the same address, about the same image. A machine
    /// that was lost may have another address. Returns `None` if the installation is not known.
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
        let is_same = machine.address == address || machine.report.state == InstallState::Lost;
        if machine.digest != digest || !is_same {
            return None;
        }
        if machine.has_ended() {
            // An earlier report that arrives late.
            return Some(ReportAnswer { lines: Vec::new(), is_ended: machine.is_ended });
        }
        let before = std::mem::replace(&mut machine.report, report.clone());
        (machine.address, machine.heard) = (address, now);
        let line = machine.line(Some(before.state), now);
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
        let mut machine =
            Machine { image, digest, address, report, heard: now, first: now, told: None, is_ended: false };
        let line = machine.line(None, now);
        table.machines.insert(run, machine);
        table.limit.pass(line, now)
    }

    /// Returns whether the first report of an installation would be shown.
    pub(super) fn takes(&self, report: &MachineReport, address: IpAddr) -> bool {
        let table = self.0.lock();
        !table.machines.contains_key(&report.run) && (!table.is_full(address) || table.first_over(address).is_some())
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

    /// Ends the installations of images that are not among those with these digests, which were read after the time
    /// `before`. Machines that are known since then may install an image that is newer.
    pub(super) fn end_others(&self, digests: &HashSet<[u8; 32]>, before: Instant) {
        for machine in self.0.lock().machines.values_mut().filter(|machine| machine.first < before) {
            machine.is_ended = !digests.contains(&machine.digest);
        }
    }

    /// Returns the time after which a machine is to report again, in whole seconds.
    pub(super) fn report_pause(&self) -> Duration {
        let further = self.0.lock().machines.len() / REPORT_MACHINES;
        (REPORT_EVERY * u32::try_from(1 + further).unwrap_or(u32::MAX)).min(REPORT_EVERY_MAX)
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
        !self.is_full(address) || self.first_over(address).is_some_and(|run| self.machines.remove(&run).is_some())
    }

    /// Returns whether a machine at an address has to take the place of another one.
    fn is_full(&self, address: IpAddr) -> bool {
        self.machines.len() >= MACHINES_MAX || self.bound(address).is_some()
    }

    /// Returns the network or the address that has as many machines as it may, for a machine at an address.
    fn bound(&self, address: IpAddr) -> Option<Bound> {
        let has = |bound: &Bound, most: usize| {
            self.machines.values().filter(|machine| bound.includes(machine.address)).count() >= most
        };
        let bounds = [
            (Bound::Address(address), MACHINES_OF_ADDRESS_MAX),
            (Bound::Network(network_of(address)), MACHINES_OF_NETWORK_MAX),
        ];
        bounds.into_iter().find(|(bound, most)| has(bound, *most)).map(|(bound, _)| bound)
    }

    /// Returns the installation that ended first among those whose end makes room for a machine at an address.
    fn first_over(&self, address: IpAddr) -> Option<String> {
        let bound = self.bound(address);
        let may_go = |machine: &Machine| machine.is_over() && bound.is_none_or(|bound| bound.includes(machine.address));
        let over = self.machines.iter().filter(|(_, machine)| may_go(machine));
        over.min_by_key(|(_, machine)| machine.heard).map(|(run, _)| run.clone())
    }
}

/// Addresses whose machines are counted together.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Address(IpAddr),
    Network(IpAddr),
}

impl Bound {
    fn includes(self, address: IpAddr) -> bool {
        match self {
            Bound::Address(bound) => bound == address,
            Bound::Network(network) => network_of(address) == network,
        }
    }
}

#[cfg(test)]
mod tests;
