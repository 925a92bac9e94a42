//! Reports of machines, and the lines that they bring.

use onefold_image::ImageName;

use super::*;
use crate::report::InstallProgress;

const DIGEST: [u8; 32] = [7; 32];

fn address(last: u8) -> IpAddr {
    [192, 0, 2, last].into()
}

fn image() -> (ImageVersion, [u8; 32]) {
    (ImageVersion { name: ImageName::new("web").unwrap(), version: 3 }, DIGEST)
}

fn report(run: usize, done_bytes: u64) -> MachineReport {
    MachineReport {
        run: format!("{run:032x}"),
        name: "lab-07".to_owned(),
        mac: Some("52:54:00:12:34:56".to_owned()),
        state: InstallState::Installing,
        seconds: 42,
        progress: InstallProgress {
            done_bytes,
            total_bytes: 1000,
            received_bytes: 1 << 20,
            is_multicast: true,
            sent_packets: 1000,
            received_packets: 997,
            ..InstallProgress::default()
        },
    }
}

fn over_http(run: usize, done_bytes: u64) -> MachineReport {
    let mut report = report(run, done_bytes);
    report.progress.is_multicast = false;
    report
}

/// Takes a report as the server does.
fn take(machines: &Machines, report: MachineReport, now: Instant) -> Vec<String> {
    let known = machines.update(address(17), DIGEST, &report, now).map(|answer| answer.lines);
    known.unwrap_or_else(|| machines.insert(address(17), image(), report, now))
}

#[test]
fn the_life_of_a_machine_is_a_few_lines() {
    let (machines, mut now) = (Machines::default(), Instant::now());
    let whose = "web@3: 192.0.2.17, 52:54:00:12:34:56 `lab-07`";
    assert_eq!(take(&machines, report(1, 0), now), [format!("{whose} began by multicast")]);
    for done_bytes in 1..500 {
        now += Duration::from_secs(1);
        assert!(take(&machines, report(1, done_bytes), now).is_empty());
    }
    assert_eq!(take(&machines, over_http(1, 500), now), [format!("{whose} moved to HTTP at 50.0 %")]);
    assert!(take(&machines, report(1, 590), now).is_empty(), "at most one such line in ten seconds");
    now += MOVED_EVERY;
    assert_eq!(take(&machines, report(1, 600), now), [format!("{whose} moved to multicast at 60.0 %")]);
    now += LOST_AFTER;
    let tail = "1.00 MiB received, 0.3 % of the packets lost, 42 s";
    assert_eq!(machines.pass(now), [format!("{whose} is lost at 60.0 %: {tail}")]);
    assert!(machines.pass(now).is_empty());
    assert_eq!(take(&machines, report(1, 700), now), [format!("{whose} is back at 70.0 % by multicast")]);
    let finished = MachineReport { state: InstallState::Finished, ..report(1, 1000) };
    assert_eq!(take(&machines, finished.clone(), now), [format!("{whose} finished: {tail}")]);
    assert!(take(&machines, finished, now).is_empty(), "a report that is repeated is no news");
    assert!(take(&machines, report(1, 990), now).is_empty(), "a report that arrives late changes nothing");
    assert_eq!(machines.status(now)[0].state, InstallState::Finished);
    now += SHOWN_FOR;
    assert!(machines.pass(now).is_empty() && machines.status(now).is_empty(), "it is forgotten");
}

#[test]
fn a_server_that_starts_again_goes_on_with_its_machines() {
    let now = Instant::now();
    assert!(take(&Machines::default(), report(1, 450), now)[0].ends_with("goes on at 45.0 % by multicast"));
    let failed = MachineReport { state: InstallState::Failed, ..report(1, 450) };
    assert!(take(&Machines::default(), failed, now)[0].contains("`lab-07` failed at 45.0 %: "));
}

/// A machine asks for the image before it hears anything by multicast.
#[test]
fn a_machine_has_begun_once_its_way_is_known() {
    let (machines, now) = (Machines::default(), Instant::now());
    let early = |run| MachineReport { seconds: 1, ..over_http(run, 0) };
    for (run, next, end) in [
        (1, MachineReport { seconds: 2, ..report(1, 0) }, "`lab-07` began by multicast"),
        (2, MachineReport { seconds: 2, ..over_http(2, 1) }, "`lab-07` began over HTTP"),
        (3, MachineReport { seconds: BEGUN_SECONDS, ..over_http(3, 0) }, "`lab-07` began over HTTP"),
    ] {
        assert!(take(&machines, early(run), now).is_empty());
        let lines = take(&machines, next.clone(), now);
        assert!(lines.len() == 1 && lines[0].ends_with(end), "{lines:?}");
        assert!(take(&machines, next, now).is_empty());
    }
}

#[test]
fn a_machine_that_was_lost_may_have_another_address() {
    let (machines, now) = (Machines::default(), Instant::now());
    take(&machines, report(1, 0), now);
    machines.pass(now + LOST_AFTER);
    let lines = machines.update(address(18), DIGEST, &report(1, 9), now + LOST_AFTER).unwrap().lines;
    assert!(lines[0].contains("192.0.2.18") && lines[0].contains("is back"), "{lines:?}");
}

#[test]
fn the_machines_of_a_network_leave_room_for_others() {
    let (machines, now) = (Machines::default(), Instant::now());
    let of = |network: u128, host: usize| IpAddr::from((network << 64 | host as u128).to_be_bytes());
    for run in 0..MACHINES_OF_NETWORK_MAX + 10 {
        machines.insert(of(1, run), image(), report(run, 0), now);
    }
    assert_eq!(machines.status(now).len(), MACHINES_OF_NETWORK_MAX);
    assert_eq!(machines.report_pause(), Duration::from_secs(5), "with 1,024 machines");
    let next = report(MACHINES_MAX, 0);
    assert!(!machines.takes(&next, of(1, 5000)) && machines.takes(&next, of(2, 0)));
    assert!(!machines.takes(&report(0, 0), of(2, 0)), "this one is known");
}

#[test]
fn nobody_reports_for_a_machine_at_another_address() {
    let (machines, now) = (Machines::default(), Instant::now());
    take(&machines, report(1, 0), now);
    assert_eq!(machines.update(address(18), DIGEST, &report(1, 9), now), None);
    assert_eq!(machines.update(address(17), [8; 32], &report(1, 9), now), None);
    assert!(machines.insert(address(18), image(), report(1, 9), now).is_empty());
    assert_eq!(machines.status(now)[0].progress.done_bytes, 0);
}

#[test]
fn the_number_of_machines_is_bounded_and_those_that_have_ended_make_room() {
    let (machines, now) = (Machines::default(), Instant::now());
    for run in 0..2 * MACHINES_OF_ADDRESS_MAX {
        take(&machines, report(run, 0), now);
    }
    assert_eq!(machines.status(now).len(), MACHINES_OF_ADDRESS_MAX);
    for run in 0..2 * MACHINES_MAX {
        let address = IpAddr::from(u32::to_be_bytes(0x0a00_0000 + u32::try_from(run / 60).unwrap()));
        machines.insert(address, image(), report(1000 + run, 0), now);
    }
    assert_eq!(machines.status(now).len(), MACHINES_MAX);
    assert_eq!(machines.report_pause(), REPORT_EVERY_MAX);
    take(&machines, MachineReport { state: InstallState::Finished, ..report(0, 1000) }, now);
    assert!(!take(&machines, report(999_999, 0), now + Duration::from_secs(60)).is_empty());
    assert!(take(&machines, report(999_998, 0), now + Duration::from_secs(60)).is_empty());
    assert_eq!(machines.status(now).len(), MACHINES_MAX);
}

#[test]
fn a_name_writes_no_line_of_its_own() {
    let (machines, now) = (Machines::default(), Instant::now());
    let mut forged = report(1, 0);
    forged.name = "x\nweb@3: 192.0.2.1 `y` finished\u{1b}[2J".to_owned();
    let lines = take(&machines, forged, now);
    assert!(lines.len() == 1 && !lines[0].contains(['\n', '\u{1b}']), "{lines:?}");
}

#[test]
fn an_installation_ends_when_its_image_is_gone() {
    let (machines, now) = (Machines::default(), Instant::now());
    take(&machines, report(1, 0), now);
    assert_eq!(machines.report_pause(), REPORT_EVERY);
    let is_ended = || machines.update(address(17), DIGEST, &report(1, 1), now).unwrap().is_ended;
    let later = now + Duration::from_secs(1);
    machines.end_others(&[DIGEST, [8; 32]].into(), later);
    assert!(!is_ended());
    machines.end_others(&[[8; 32]].into(), now);
    assert!(!is_ended(), "the list may be older than the image");
    machines.end_others(&[[8; 32]].into(), later);
    assert!(is_ended());
}
