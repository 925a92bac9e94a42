//! `onefold image serve --status`

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use onefold_block::Clock;
use onefold_block::Show;
use onefold_block::size::percent;
use onefold_net::{
    HttpCause, InstallStages, InstallState, MachineStatus, ServerStatus, SessionStatus, StageProgress, StatusClient,
};
use serde_json::{Value, json};

use super::remote;
use crate::cli::Talk;
use crate::cli::image_server::ServeArgs;
use crate::failure::{Failure, Outcome};
use crate::interrupt::{Interrupt, InterruptibleClock};
use crate::output::{Document, Report, TextTable};
use crate::progress::duration;
use crate::size::{grouped, human};

/// Time between two looks of `--watch`.
const WATCH: Duration = Duration::from_secs(2);
/// Moves to the upper left corner of a terminal and clears it.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";
/// Maximum length of a machine's name in the table, and the end of a longer one.
const NAME_CHARS: usize = 20;
const CUT: &str = "...";
/// Machines that a line about several names.
const NAMES_MAX: usize = 3;

pub(super) fn run(server: &str, arguments: &ServeArgs, talk: Talk) -> Outcome<Report> {
    let cannot = || "cannot read the status of the server".to_owned();
    let options = remote::options(&arguments.store, &arguments.client)?;
    let client = StatusClient::new(server, options).map_err(|error| Failure::of_net(cannot(), &error))?;
    let read = || client.read().map_err(|error| Failure::of_archive(cannot(), &error));
    if !arguments.watch {
        let status = read()?;
        return Ok(Report::done(text(&status), json(&status)));
    }
    let clock = InterruptibleClock(Interrupt::watch());
    loop {
        let status = read()?;
        if print(&status, talk.json).is_err() || clock.0.is_asked() {
            return Ok(Report::done("", Value::Null));
        }
        clock.sleep(WATCH);
        if clock.0.is_asked() {
            return Ok(Report::done("", Value::Null));
        }
    }
}

/// Prints one look of `--watch`. Fails once nobody reads it.
fn print(status: &ServerStatus, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        writeln!(out, "{}", Document::line(&json(status)))?;
    } else {
        let clear = if io::stdout().is_terminal() { CLEAR } else { "" };
        writeln!(out, "{clear}{}\n", text(status))?;
    }
    out.flush()
}

/// Returns the status for people: a table for each image.
fn text(status: &ServerStatus) -> String {
    let images = status.machines.chunk_by(|one, next| one.image == next.image);
    let mut parts: Vec<String> = images.map(|machines| of_image(machines, &status.sessions)).collect();
    // Machines of a session may not have reported yet.
    let is_shown = |session: &&SessionStatus| status.machines.iter().any(|machine| machine.image == session.image);
    let others = status.sessions.iter().filter(|session| !is_shown(session));
    parts.extend(others.map(|session| format!("{}:\n{}", session.image.shown(), of_session(session))));
    if parts.is_empty() { "no machine has reported lately".to_owned() } else { parts.join("\n\n") }
}

/// Returns the line of a session.
fn of_session(session: &SessionStatus) -> String {
    let (rate, ceiling) = (human(session.rate_bytes_per_second), human(session.ceiling_bytes_per_second));
    // Nothing is sent before the session begins, and once no machine lacks anything.
    let state = match session.machines {
        _ if session.is_waiting => "waits for machines".to_owned(),
        0 => "idle".to_owned(),
        _ => format!("{rate}/s of {ceiling}/s"),
    };
    let excluded = match session.excluded_machines {
        0 => String::new(),
        count => format!(", {} excluded", grouped(count.into())),
    };
    format!("{}: {state}{excluded}", session.group.shown())
}

/// Returns lines about the machines that turned to HTTP: a cause, and their names.
fn causes(machines: &[MachineStatus]) -> String {
    let mut of_cause: BTreeMap<HttpCause, Vec<&MachineStatus>> = BTreeMap::new();
    for machine in machines.iter().filter(|machine| machine.state == InstallState::Installing) {
        if let Some(cause) = machine.progress.http_cause {
            of_cause.entry(cause).or_default().push(machine);
        }
    }
    let line = |(cause, machines): (&HttpCause, &Vec<&MachineStatus>)| {
        let names = machines.iter().take(NAMES_MAX).map(|machine| shortened(machine.name.shown().to_string()));
        let names = names.collect::<Vec<_>>().join(", ");
        let others = match machines.len().saturating_sub(NAMES_MAX) {
            0 => String::new(),
            others => format!(" and {} more", grouped(others as u64)),
        };
        format!("\n{names}{others} over HTTP: {}", cause.text())
    };
    of_cause.iter().map(line).collect()
}

/// Returns the machines that install one image.
fn of_image(machines: &[MachineStatus], sessions: &[SessionStatus]) -> String {
    let count = |state| machines.iter().filter(|machine| machine.state == state).count();
    let mut text = machines.first().map(|machine| machine.image.shown().to_string()).unwrap_or_default() + ":";
    let states = [
        (InstallState::Installing, "installing"),
        (InstallState::Finished, "finished"),
        (InstallState::Failed, "failed"),
        (InstallState::Lost, "lost"),
    ];
    let counts = states.into_iter().map(|(state, name)| (count(state), name)).filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, name)| format!(" {count} {name}")).collect();
    text += &counts.join(",");
    let session = sessions.iter().find(|session| machines.first().is_some_and(|first| first.image == session.image));
    text += &session.map(|session| format!("\n{}", of_session(session))).unwrap_or_default();
    let mut table = TextTable::new(["machine", "address", "done", "rate", "limit", "way", "time", "left"]);
    let mut details = TextTable::new(["machine", "MAC", "waits: network", "processor", "disk", "lost", "again"]);
    for machine in machines {
        table.row(row(machine));
        details.row(details_row(machine));
    }
    format!("{text}\n{table}{}\n{details}", causes(machines))
}

/// Returns what stands for a figure that there is not.
fn none() -> String {
    "-".to_owned()
}

/// Returns a machine as a row: how far it is. The rest of a long name is in `--json`.
fn row(machine: &MachineStatus) -> [String; 8] {
    let progress = &machine.progress;
    let is_going = machine.state == InstallState::Installing;
    let done = percent(progress.done_bytes.min(progress.total_bytes), progress.total_bytes);
    let left = progress.total_bytes.saturating_sub(progress.done_bytes).checked_div(progress.bytes_per_second);
    [
        shortened(machine.name.shown().to_string()),
        machine.address.shown().to_string(),
        match machine.state {
            InstallState::Installing => done,
            InstallState::Finished => "finished".to_owned(),
            InstallState::Failed => "failed".to_owned(),
            InstallState::Lost => "lost".to_owned(),
        },
        if is_going { format!("{}/s", human(progress.bytes_per_second)) } else { none() },
        progress.limit.filter(|_| is_going).map_or_else(none, |limit| limit.name().to_owned()),
        if progress.is_multicast { "multicast".to_owned() } else { "HTTP".to_owned() },
        duration(machine.seconds),
        left.filter(|_| is_going).map_or_else(none, duration),
    ]
}

/// Returns a machine as a row of the second table: for which part of the time its stages wait, and losses of multicast.
fn details_row(machine: &MachineStatus) -> [String; 7] {
    let progress = &machine.progress;
    let stages = progress.stages.filter(|_| machine.state == InstallState::Installing);
    let waits = |stage: fn(InstallStages) -> StageProgress| {
        stages.map_or_else(none, |stages| format!("{} %", stage(stages).waiting_percent))
    };
    let lost = progress.sent_packets.saturating_sub(progress.received_packets);
    let of_multicast = |text: String| if progress.sent_packets > 0 { text } else { none() };
    [
        shortened(machine.name.shown().to_string()),
        machine.mac.as_ref().map_or_else(none, |mac| mac.shown().to_string()),
        waits(|stages| stages.network),
        waits(|stages| stages.processor),
        waits(|stages| stages.disk),
        of_multicast(percent(lost, progress.sent_packets)),
        of_multicast(grouped(progress.requested_symbols)),
    ]
}

/// Returns the beginning of a name that is too long for a table.
fn shortened(name: String) -> String {
    if name.chars().count() <= NAME_CHARS {
        return name;
    }
    name.chars().take(NAME_CHARS - CUT.len()).chain(CUT.chars()).collect()
}

/// Returns the status for machines.
fn json(status: &ServerStatus) -> Value {
    serde_json::to_value(status).unwrap_or_else(|_| json!({ "machines": [], "sessions": [] }))
}

#[cfg(test)]
mod tests {
    use onefold_net::{InstallProgress, LimitingStage};

    use super::*;

    fn machine(name: &str, state: InstallState) -> MachineStatus {
        MachineStatus {
            image: "web@3".to_owned(),
            address: "192.0.2.17".to_owned(),
            mac: Some("52:54:00:12:34:56".to_owned()),
            name: name.to_owned(),
            state,
            seconds: 61,
            silent_seconds: 0,
            progress: InstallProgress {
                done_bytes: 250,
                total_bytes: 1000,
                bytes_per_second: 3 << 20,
                limit: Some(LimitingStage::Disk),
                stages: Some(InstallStages {
                    network: StageProgress { bytes_per_second: 2 << 20, waiting_percent: 70 },
                    processor: StageProgress { bytes_per_second: 3 << 20, waiting_percent: 90 },
                    disk: StageProgress { bytes_per_second: 3 << 20, waiting_percent: 40 },
                }),
                requested_symbols: 1234,
                is_multicast: true,
                received_packets: 98,
                sent_packets: 100,
                ..InstallProgress::default()
            },
        }
    }

    #[test]
    fn the_status_has_a_table_for_each_image() {
        let mut other = machine("b", InstallState::Finished);
        other.image = "xen@1".to_owned();
        (other.mac, other.progress.is_multicast, other.progress.sent_packets) = (None, false, 0);
        let machines = vec![machine("a", InstallState::Installing), machine("b\u{1b}[2J", InstallState::Lost), other];
        let text = text(&ServerStatus { machines, ..ServerStatus::default() });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "web@3: 1 installing, 1 lost");
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        let expected = "a 192.0.2.17 25.0 % 3.00 MiB/s disk multicast 1 min 1 s 0 s";
        assert_eq!(words.join(" "), expected);
        let words: Vec<&str> = lines[5].split_whitespace().collect();
        assert_eq!(words.join(" "), "a 52:54:00:12:34:56 70 % 90 % 40 % 2.0 % 1,234");
        assert!(!text.contains('\u{1b}') && lines[3].contains("lost") && lines[6].contains(" - "), "{text}");
        assert_eq!(lines[8], "xen@1: 1 finished");
        assert!(lines[10].contains("HTTP") && lines[10].contains(" -"), "{text}");
        let words: Vec<&str> = lines[12].split_whitespace().collect();
        assert_eq!(words, ["b", "-", "-", "-", "-", "-", "-"]);
    }

    #[test]
    fn a_table_of_usual_machines_fits_a_terminal_and_a_long_name_is_cut() {
        let status = |name: &str| {
            text(&ServerStatus { machines: vec![machine(name, InstallState::Installing)], ..ServerStatus::default() })
        };
        let width = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(width(&status("lab-07")) <= 80, "{}", status("lab-07"));
        let long = status(&"\u{202e}".repeat(64));
        assert!(width(&long) <= width(&status(&"x".repeat(NAME_CHARS))) && long.contains("... "), "{long}");
    }

    #[test]
    fn sessions_show_their_rates_and_machines_why_they_turned_to_http() {
        let session = SessionStatus {
            image: "web@3".to_owned(),
            group: "239.192.3.7:7443".to_owned(),
            rate_bytes_per_second: 10 << 20,
            ceiling_bytes_per_second: 80 << 20,
            machines: 30,
            excluded_machines: 1,
            is_waiting: false,
        };
        let waiting = SessionStatus {
            image: "xen@1".to_owned(),
            group: "239.192.3.8:7444".to_owned(),
            excluded_machines: 0,
            is_waiting: true,
            ..session.clone()
        };
        let idle = SessionStatus {
            image: "yum@1".to_owned(),
            group: "239.192.3.9:7445".to_owned(),
            machines: 0,
            is_waiting: false,
            ..waiting.clone()
        };
        let mut machines: Vec<MachineStatus> =
            (1..=5).map(|number| machine(&format!("lab-{number}"), InstallState::Installing)).collect();
        machines[0].progress.http_cause = Some(HttpCause::Excluded);
        machines[1..].iter_mut().for_each(|machine| machine.progress.http_cause = Some(HttpCause::Unheard));
        let text = text(&ServerStatus { machines, sessions: vec![session, waiting, idle] });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "239.192.3.7:7443: 10.00 MiB/s of 80.00 MiB/s, 1 excluded");
        assert_eq!(lines[8], "lab-1 over HTTP: excluded, with far more loss than others");
        assert_eq!(lines[9], "lab-2, lab-3, lab-4 and 1 more over HTTP: requests by UDP do not arrive here");
        let (waiting, idle) = ("239.192.3.8:7444: waits for machines", "239.192.3.9:7445: idle");
        assert_eq!(lines[17..], ["xen@1:", waiting, "", "yum@1:", idle]);
    }

    #[test]
    fn a_server_without_machines_says_so() {
        assert_eq!(text(&ServerStatus::default()), "no machine has reported lately");
    }
}
