//! Tells a server how far an installation from it is, about every second, or as often as the server wants. Nothing
//! depends on that: a report that is lost, or refused, is replaced by the next one.

use std::fmt;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onefold_block::Random;
use onefold_block::random::SystemRandom;
use onefold_image::archive::ImageRecord;
use onefold_linux::interface_addresses;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::RemoteArchive;
use super::transport::Reports;
use crate::report::{InstallProgress, InstallState, MachineReport, is_mac, report_path};

/// Bounds of the time between two reports, and the longest one after a report that failed.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
const FAILED: Duration = Duration::from_secs(10);
/// How long the last report of an installation may take.
const LAST: Duration = Duration::from_secs(2);
/// The folder in which the kernel describes network interfaces.
const INTERFACES: &str = "/sys/class/net";

/// Returns how far an installation is. A thread of the runtime calls it, so it does not wait.
pub type ProgressHook = Arc<dyn Fn() -> InstallProgress + Send + Sync>;

/// Reports an installation until it is dropped. The last report says how the installation ended.
pub struct InstallReporter {
    reports: Reports,
    machine: ReportingMachine,
    task: JoinHandle<()>,
    is_ended: Arc<AtomicBool>,
    is_finished: bool,
    /// Dropped last: connections belong to it.
    runtime: Arc<Runtime>,
}

/// The facts of a report that do not change, and the source of the others.
#[derive(Clone)]
struct ReportingMachine {
    path: String,
    run: String,
    name: String,
    mac: Option<String>,
    began: Instant,
    progress: ProgressHook,
}

impl fmt::Debug for InstallReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstallReporter").field("run", &self.machine.run).finish_non_exhaustive()
    }
}

/// Where an installation of an image is reported, once it begins.
pub struct ReportPlace {
    reports: Reports,
    /// Dropped last: connections belong to it.
    runtime: Arc<Runtime>,
    path: String,
}

impl fmt::Debug for ReportPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportPlace").field("path", &self.path).finish_non_exhaustive()
    }
}

impl RemoteArchive {
    /// Returns where the installation of an image is reported.
    #[must_use]
    pub fn report_place(&self, record: &ImageRecord) -> ReportPlace {
        let (reports, runtime) = self.images.transport().reports();
        ReportPlace { reports, runtime, path: report_path(record.digest) }
    }
}

impl ReportPlace {
    /// Begins to report an installation on a machine with this name. `progress` returns how far it is.
    #[must_use]
    pub fn begin(self, name: String, progress: ProgressHook) -> InstallReporter {
        let ReportPlace { reports, runtime, path } = self;
        let mac = mac_towards(reports.server());
        let machine = ReportingMachine { path, run: run(), name, mac, began: Instant::now(), progress };
        let is_ended = Arc::new(AtomicBool::new(false));
        let (sent, told, ends) = (reports.clone(), machine.clone(), Arc::clone(&is_ended));
        let task = runtime.spawn(async move {
            while let Some(report) = told.report(InstallState::Installing).encode() {
                match sent.send(&told.path, report).await {
                    Some(answer) if answer.status() == StatusCode::GONE => return ends.store(true, Ordering::Relaxed),
                    Some(answer) if answer.status() == StatusCode::OK => sleep(pause(answer.headers())).await,
                    // The server may have too many connections.
                    _ => sleep(sent.jitter(FAILED)).await,
                }
            }
        });
        InstallReporter { reports, machine, task, is_ended, is_finished: false, runtime }
    }
}

impl InstallReporter {
    /// Returns a flag that is set once the server ends the installation, as its operator has removed the image.
    #[must_use]
    pub fn is_ended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_ended)
    }

    /// Reports that all is written and durable.
    pub fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for InstallReporter {
    fn drop(&mut self) {
        self.task.abort();
        let state = if self.is_finished { InstallState::Finished } else { InstallState::Failed };
        if let Some(report) = self.machine.report(state).encode() {
            let last = self.reports.send(&self.machine.path, report);
            let _ = self.runtime.block_on(async { timeout(LAST, last).await });
        }
    }
}

impl ReportingMachine {
    fn report(&self, state: InstallState) -> MachineReport {
        MachineReport {
            run: self.run.clone(),
            name: self.name.clone(),
            mac: self.mac.clone(),
            state,
            seconds: self.began.elapsed().as_secs(),
            progress: (self.progress)(),
        }
    }
}

/// Returns the time after which a server wants the next report.
fn pause(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    seconds.map_or(PAUSE_MIN, Duration::from_secs).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// Returns the number of a new installation. Without random bytes it is one that may be in use, and the server shows
/// one of the two.
fn run() -> String {
    let mut bytes = [0; 16];
    let _ = SystemRandom.fill(&mut bytes);
    format!("{:032x}", u128::from_le_bytes(bytes))
}

/// Returns the hardware address of the interface that leads to a server; `None` if it has none, as within one machine.
fn mac_towards(server: &Url) -> Option<String> {
    let place = (server.host_str()?.trim_matches(['[', ']']), server.port_or_known_default()?);
    let server = place.to_socket_addrs().ok()?.find(|place| place.is_ipv4())?;
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    // Nothing is sent: the kernel only chooses the way.
    socket.connect(server).ok()?;
    let IpAddr::V4(local) = socket.local_addr().ok()?.ip() else { return None };
    let (interface, _) = interface_addresses().ok()?.into_iter().find(|(_, address)| *address == local)?;
    let text = std::fs::read_to_string(Path::new(INTERFACES).join(interface).join("address")).ok()?;
    let mac = text.trim();
    (is_mac(mac) && mac.bytes().any(|byte| !matches!(byte, b'0' | b':'))).then(|| mac.to_owned())
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn the_server_decides_within_bounds_how_often_machines_report() {
        for (value, seconds) in [(None, 1), (Some("7"), 7), (Some("0"), 1), (Some("soon"), 1), (Some("86400"), 60)] {
            let value = value.map(|value| (RETRY_AFTER, HeaderValue::from_static(value)));
            assert_eq!(pause(&value.into_iter().collect()), Duration::from_secs(seconds));
        }
    }

    #[test]
    fn each_installation_has_a_number_of_its_own() {
        let (one, other) = (run(), run());
        assert!(one != other && one.len() == 32, "{one} {other}");
    }

    #[test]
    fn a_machine_has_no_hardware_address_towards_itself() {
        for server in ["http://127.0.0.1:7443/", "http://[::1]:7443/", "http://localhost/"] {
            assert_eq!(mac_towards(&Url::parse(server).unwrap()), None, "{server}");
        }
    }
}
