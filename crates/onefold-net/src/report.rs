//! The reports of a machine that installs an image, from which a server writes its log and answers for its status.

use onefold_image::UnitName;
use onefold_image::multicast::HttpReason;
use serde::{Deserialize, Serialize};

/// Maximum length of a report in bytes.
pub(crate) const REPORT_BYTES_MAX: usize = 2048;
/// Maximum length of a machine's name in characters.
pub const MACHINE_NAME_CHARS_MAX: usize = 64;
/// Length of the number of an installation in hexadecimal digits.
const RUN_DIGITS: usize = 32;
/// Length of a hardware address, as in `52:54:00:12:34:56`.
const MAC_BYTES: usize = 17;

/// How far an installation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallProgress {
    /// Bytes of the image that are in their places.
    pub done_bytes: u64,
    /// Bytes of the image that the target needs, times two if they are read back.
    pub total_bytes: u64,
    /// Bytes that have come from the server.
    pub received_bytes: u64,
    /// Bytes of the image that were put in their places a second lately.
    pub bytes_per_second: u64,
    /// The stage that the others wait for, once that is known.
    pub limit: Option<LimitingStage>,
    /// The latest figures of the stages, once they are known.
    #[serde(default)]
    pub stages: Option<InstallStages>,
    /// Whether the image comes by multicast now.
    pub is_multicast: bool,
    /// Why the image comes over HTTP now, if it should come by multicast.
    pub http_cause: Option<HttpCause>,
    /// Packets of multicast that arrived.
    pub received_packets: u64,
    /// Packets that the server sent meanwhile.
    pub sent_packets: u64,
    /// Symbols of multicast that were lost, and requested again.
    #[serde(default)]
    pub requested_symbols: u64,
}

/// The stages of an installation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallStages {
    /// See [`LimitingStage::Network`].
    pub network: StageProgress,
    /// See [`LimitingStage::Processor`].
    pub processor: StageProgress,
    /// See [`LimitingStage::Disk`].
    pub disk: StageProgress,
}

/// The latest figures of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageProgress {
    /// Bytes a second, in the form that they have in this stage.
    pub bytes_per_second: u64,
    /// Part of the time in which the stage waited for the others, in percent.
    pub waiting_percent: u8,
}

impl InstallStages {
    fn is_valid(self) -> bool {
        [self.network, self.processor, self.disk].iter().all(|stage| stage.waiting_percent <= 100)
    }
}

/// The slowest stage of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitingStage {
    /// The network or the server.
    Network,
    /// The processor, which decompresses and verifies.
    Processor,
    /// The disk, which is written or compared.
    Disk,
}

impl LimitingStage {
    /// Returns its name, as reports have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LimitingStage::Network => "network",
            LimitingStage::Processor => "processor",
            LimitingStage::Disk => "disk",
        }
    }
}

/// Why an image comes over HTTP, though its machine has joined the session that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpCause {
    /// No packet has arrived.
    NothingArrives,
    /// Packets arrived before, and do not any more.
    Silent,
    /// For long, only short packets have arrived.
    NoSymbols,
    /// The machine loses far more packets than others, so the server does not send for it.
    Excluded,
    /// The requests of the machine do not arrive at the server.
    Unheard,
    /// The session waits for other machines, and this one has begun before.
    Waiting,
    /// One that this version does not know.
    #[serde(other)]
    Other,
}

impl From<HttpReason> for HttpCause {
    fn from(reason: HttpReason) -> HttpCause {
        match reason {
            HttpReason::NothingArrives => HttpCause::NothingArrives,
            HttpReason::Silence => HttpCause::Silent,
            HttpReason::NoSymbols => HttpCause::NoSymbols,
            HttpReason::Excluded => HttpCause::Excluded,
            HttpReason::Unheard => HttpCause::Unheard,
            HttpReason::Waiting => HttpCause::Waiting,
        }
    }
}

impl HttpCause {
    /// Returns the cause for people, as a sentence without its end.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            HttpCause::NothingArrives => "no packet of multicast arrives there",
            HttpCause::Silent => "multicast has fallen silent there",
            HttpCause::NoSymbols => "only short packets arrive there",
            HttpCause::Excluded => "excluded, with far more loss than others",
            HttpCause::Unheard => "requests by UDP do not arrive here",
            HttpCause::Waiting => "the session waits for other machines",
            HttpCause::Other => "for a reason that this version does not know",
        }
    }
}

/// Whether an installation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstallState {
    /// It goes on.
    Installing,
    /// All is written and durable.
    Finished,
    /// It has ended with an error, or was interrupted.
    Failed,
    /// The server has heard nothing of it for long. No machine says that of itself.
    Lost,
}

/// A report of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MachineReport {
    /// Random digits that tell this installation from all others.
    pub(crate) run: String,
    /// The name of the machine for people.
    pub(crate) name: String,
    /// The hardware address of the interface that leads to the server.
    pub(crate) mac: Option<String>,
    pub(crate) state: InstallState,
    /// Seconds since the installation began.
    pub(crate) seconds: u64,
    #[serde(flatten)]
    pub(crate) progress: InstallProgress,
}

impl MachineReport {
    /// Decodes a report; `None` if it is none. Members that are not known are passed over.
    pub(crate) fn decode(body: &[u8]) -> Option<MachineReport> {
        let report: MachineReport = serde_json::from_slice(body.get(..body.len().min(REPORT_BYTES_MAX + 1))?).ok()?;
        let is_run = report.run.len() == RUN_DIGITS && report.run.bytes().all(is_digit);
        let is_name = !report.name.is_empty() && report.name.chars().count() <= MACHINE_NAME_CHARS_MAX;
        let is_known = report.state != InstallState::Lost && report.progress.stages.is_none_or(InstallStages::is_valid);
        let is_valid = body.len() <= REPORT_BYTES_MAX && is_run && is_name && is_known;
        (is_valid && report.mac.as_deref().is_none_or(is_mac)).then_some(report)
    }

    /// Returns the bytes of the report, and nothing if it is too long.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok().filter(|bytes| bytes.len() <= REPORT_BYTES_MAX)
    }
}

/// A machine that installs an image from a server, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineStatus {
    /// The image with its version.
    pub image: String,
    /// The address from which the machine reports.
    pub address: String,
    /// The hardware address of its interface, if it told one.
    pub mac: Option<String>,
    /// The name that it gave itself. It may have any characters.
    pub name: String,
    /// Whether the installation goes on.
    pub state: InstallState,
    /// Seconds since the installation began.
    pub seconds: u64,
    /// Seconds since the last report.
    pub silent_seconds: u64,
    /// How far it is.
    #[serde(flatten)]
    pub progress: InstallProgress,
}

/// A session in which a server sends an image by multicast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// The image with its version.
    pub image: String,
    /// The group with its port.
    pub group: String,
    /// Rate to which the server has adapted to the losses of the machines, in bytes of UDP payload per second.
    pub rate_bytes_per_second: u64,
    /// The highest rate: the share of this image in the maximum of the server.
    pub ceiling_bytes_per_second: u64,
    /// Machines that lack chunks.
    pub machines: u32,
    /// Machines that are to fetch the rest over HTTP, since they lose far more packets than others.
    pub excluded_machines: u32,
    /// Whether the session waits for machines before it sends chunks.
    pub is_waiting: bool,
}

/// The status of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// The machines that have reported lately, sorted by image, name and address.
    pub machines: Vec<MachineStatus>,
    /// The sessions of multicast, sorted by image.
    #[serde(default)]
    pub sessions: Vec<SessionStatus>,
}

/// The path of the status.
pub(crate) const STATUS_PATH: &str = "v1/sessions";

/// Returns the path to which machines report that install the image whose manifest has this digest.
pub(crate) fn report_path(digest: [u8; 32]) -> String {
    format!("v1/sessions/{}/reports", UnitName(digest))
}

fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Returns whether a text is a hardware address.
pub(crate) fn is_mac(text: &str) -> bool {
    let mut bytes = text.bytes().enumerate();
    text.len() == MAC_BYTES && bytes.all(|(at, byte)| if at % 3 == 2 { byte == b':' } else { is_digit(byte) })
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn report(run: u64) -> MachineReport {
        MachineReport {
            run: format!("{run:032x}"),
            name: "lab-07".to_owned(),
            mac: Some("52:54:00:12:34:56".to_owned()),
            state: InstallState::Installing,
            seconds: 5,
            progress: InstallProgress { done_bytes: 1, total_bytes: 4, ..InstallProgress::default() },
        }
    }

    fn stages(waiting_percent: u8) -> InstallStages {
        let disk = StageProgress { bytes_per_second: u64::MAX, waiting_percent };
        InstallStages { disk, ..InstallStages::default() }
    }

    #[test]
    fn a_report_is_read_as_it_was_made() {
        let mut report = report(7);
        for limit in [None, Some(LimitingStage::Network), Some(LimitingStage::Processor), Some(LimitingStage::Disk)] {
            report.progress.limit = limit;
            report.progress.http_cause = limit.map(|_| HttpCause::Excluded);
            report.progress.stages = limit.map(|_| stages(100));
            report.progress.requested_symbols += 5;
            let bytes = report.encode().unwrap();
            assert_eq!(MachineReport::decode(&bytes), Some(report.clone()));
            let name = limit.map_or("null".to_owned(), |limit| format!("\"{}\"", limit.name()));
            assert!(String::from_utf8(bytes).unwrap().contains(&format!("\"limit\":{name}")));
        }
    }

    #[test]
    fn texts_that_are_no_reports_are_refused() {
        let good = report(7);
        let long_name = "ä".repeat(MACHINE_NAME_CHARS_MAX);
        assert!(MachineReport { name: long_name.clone(), ..good.clone() }.encode().is_some());
        let wrong = [
            MachineReport { run: "7".to_owned(), ..good.clone() },
            MachineReport { run: "G".repeat(RUN_DIGITS), ..good.clone() },
            MachineReport { name: String::new(), ..good.clone() },
            MachineReport { name: long_name + "x", ..good.clone() },
            MachineReport { mac: Some("52-54-00-12-34-56".to_owned()), ..good.clone() },
            MachineReport { mac: Some("52:54:00:12:34".to_owned()), ..good.clone() },
            MachineReport { state: InstallState::Lost, ..good.clone() },
            MachineReport { progress: InstallProgress { stages: Some(stages(101)), ..good.progress }, ..good.clone() },
        ];
        for report in wrong {
            assert_eq!(MachineReport::decode(&serde_json::to_vec(&report).unwrap()), None, "{report:?}");
        }
        let text = String::from_utf8(good.encode().unwrap()).unwrap();
        let mut earlier = text.clone();
        for later in ["\"http_cause\":null,", "\"stages\":null,", ",\"requested_symbols\":0"] {
            assert!(earlier.contains(later), "{later} in {earlier}");
            earlier = earlier.replacen(later, "", 1);
        }
        assert_eq!(MachineReport::decode(earlier.as_bytes()), Some(good));
        assert!(MachineReport::decode(text.replacen('{', "{\"more\":[1],", 1).as_bytes()).is_some());
        let later = text.replacen("\"http_cause\":null", "\"http_cause\":\"eclipse\"", 1);
        let cause = MachineReport::decode(later.as_bytes()).map(|report| report.progress.http_cause);
        assert_eq!(cause, Some(Some(HttpCause::Other)));
        let padded = text.replacen('{', &format!("{{{}", " ".repeat(REPORT_BYTES_MAX)), 1);
        for text in ["", "{}", "[]", &text.replace(":5", ":-5"), &padded] {
            assert_eq!(MachineReport::decode(text.as_bytes()), None, "{text:.80}");
        }
    }
}
