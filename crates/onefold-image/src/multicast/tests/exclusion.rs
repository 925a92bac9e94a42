//! Which machines a sender excludes for their losses, and which losses slow it.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use onefold_block::random::SeededRandom;

use super::reply_of;
use crate::format::multicast::{
    Beacon, ClientNumber, JoinReply, PacketHeader, PacketKind, RepairCode, Request, SessionId, TAG_BYTES,
};
use crate::multicast::{
    HttpReason, PacketBurst, Receiver, ReceiverAction, ReceiverSettings, Sender, SenderSettings, SessionStart,
};

const CHUNKS: u32 = 5;

/// A sender and machines that report as many packets per second as they like.
struct Reports {
    sender: Sender,
    machines: Vec<Machine>,
}

#[derive(Clone, Copy)]
struct Machine {
    number: ClientNumber,
    received: u64,
    expected: u64,
}

impl Reports {
    fn of(machines: usize) -> Reports {
        Reports::of_large_class(machines, 100)
    }

    /// As [`Self::of`], for more machines.
    fn of_large_class(machines: usize, clients_max: u32) -> Reports {
        let settings = SenderSettings {
            session: SessionId(7),
            epoch: 3,
            chunks: CHUNKS,
            symbol_bytes: 128,
            rate_bytes_per_second: NonZeroU64::new(100_000).unwrap(),
            rate_floor_bytes_per_second: NonZeroU64::new(1_000).unwrap(),
            cache_bytes: 3000,
            clients_max,
            repairs: RepairCode::RaptorQ,
        };
        let mut sender = Sender::new(settings, Duration::ZERO);
        let join = |_| Machine { number: sender.join(Duration::ZERO).unwrap(), received: 0, expected: 0 };
        let machines = (0..machines).map(join).collect();
        Reports { sender, machines }
    }

    /// Has a machine report further packets.
    fn report(&mut self, machine: usize, received: u64, expected: u64, second: u64) {
        let machine = &mut self.machines[machine];
        (machine.received, machine.expected) = (machine.received + received, machine.expected + expected);
        let request = Request {
            seen: 1_000_000 + machine.expected,
            received: machine.received,
            expected: machine.expected,
            left: CHUNKS,
            lacking: (0..CHUNKS).collect(),
            begun: Vec::new(),
        };
        self.sender.request(machine.number, &request, Duration::from_secs(second));
    }

    /// Returns the next beacon.
    fn beacon(&mut self, second: u64) -> Beacon {
        let mut burst = PacketBurst::default();
        self.sender.send(Duration::from_secs(second), &mut burst);
        let beacon = burst.packets_mut().find_map(|packet| {
            let (header, body) = PacketHeader::decode(&packet[..packet.len() - TAG_BYTES]).unwrap();
            (header.kind == PacketKind::Beacon).then(|| Beacon::decode(body, CHUNKS).unwrap())
        });
        beacon.unwrap()
    }
}

/// The reply to the join of the first machine.
fn reply(reports: &Reports) -> JoinReply {
    JoinReply {
        client: reports.machines[0].number,
        machines: reports.sender.machines(),
        waits_for: reports.sender.waits_for(),
        repairs: RepairCode::RaptorQ,
        ..reply_of(CHUNKS)
    }
}

#[test]
fn one_disturbance_excludes_no_machine_and_lasting_loss_does() {
    for (later_loss, excluded) in [(0, None), (10, Some(6))] {
        let mut reports = Reports::of(3);
        let mut found = None;
        for second in 0..20 {
            // The first machine reports each five seconds.
            if second % 5 == 1 {
                let loss = if second == 1 { 10 } else { later_loss };
                reports.report(0, 0, 0, second);
                reports.report(0, 1000 - 10 * loss, 1000, second);
            }
            [1, 2].into_iter().for_each(|machine| reports.report(machine, 1000, 1000, second));
            let first = reports.machines[0].number;
            if found.is_none() && reports.beacon(second).excluded.contains(first.0) {
                found = Some(second);
                assert_eq!(reports.sender.status().excluded, 1);
            }
        }
        assert_eq!(found, excluded, "{later_loss} % are lost later");
    }
}

#[test]
fn beacons_list_machines_from_which_no_request_comes() {
    let mut reports = Reports::of(3);
    reports.report(0, 0, 0, 0);
    let unheard = |reports: &mut Reports, second| reports.beacon(second).unheard.iter().collect::<Vec<_>>();
    assert!(unheard(&mut reports, 2).is_empty(), "they have just joined");
    let numbers: Vec<u32> = reports.machines.iter().map(|machine| machine.number.0).collect();
    assert_eq!(unheard(&mut reports, 4), numbers[1..]);
    reports.report(1, 0, 0, 4);
    assert_eq!(unheard(&mut reports, 5), numbers[2..]);
    let status = reports.sender.status();
    assert_eq!((status.rate_bytes_per_second.get(), status.machines), (100_000, 3));
    assert_eq!((status.excluded, status.is_waiting), (0, false));
}

/// In a session that waits, beacons answer all that a machine lacks. The server forgets a machine that it never hears,
/// and lists it until then.
#[test]
fn a_machine_whose_requests_are_lost_learns_of_it_while_the_session_waits_for_others() {
    for machines in [2, 16, 100] {
        let mut reports = Reports::of_large_class(machines, 200);
        let (all, at_most) = (NonZeroU32::new(200).unwrap(), Duration::from_secs(3600));
        reports.sender.wait_for(SessionStart { machines: all, at_most });
        let settings = ReceiverSettings { chunks: CHUNKS, memory_bytes: 10_000 };
        let mut receiver = Receiver::new(settings, Arc::new(SeededRandom::new(1)), Duration::ZERO);
        receiver.joined(reply(&reports), Duration::ZERO);
        let (mut burst, mut found) = (PacketBurst::default(), None);
        for tick in 0..6000_u64 {
            let now = Duration::from_millis(10 * tick);
            // The others report each second.
            if tick % 100 == 0 {
                (1..machines).for_each(|machine| reports.report(machine, 0, 0, tick / 100));
            }
            burst.clear();
            reports.sender.send(now, &mut burst);
            for packet in burst.packets_mut() {
                let (header, body) = PacketHeader::decode(&packet[..packet.len() - TAG_BYTES]).unwrap();
                receiver.packet(header, body, now).unwrap();
            }
            let actions = std::iter::from_fn(|| receiver.next_action(now));
            if actions.into_iter().any(|action| action == ReceiverAction::UseHttp(HttpReason::Unheard)) {
                found = found.or(Some(tick / 100));
            }
        }
        let second = found.expect("the machine is not told");
        assert!((3..=4 + machines as u64 / 2).contains(&second), "{machines} machines: {second} s");
    }
}

/// Many machines join at once, and every second one is heard at first.
#[test]
fn unheard_machines_leave_room_for_the_queue_in_beacons() {
    let mut reports = Reports::of_large_class(1000, 1000);
    (0..1000).step_by(2).for_each(|machine| reports.report(machine, 0, 0, 0));
    let beacon = reports.beacon(4);
    assert!(!beacon.unheard.is_empty());
    assert!(!beacon.queued.is_empty() || !beacon.sending.is_empty(), "{beacon:?}");
}

/// Machines that multicast does not reach go on over HTTP. They must not count as machines that lose nothing.
#[test]
fn machines_that_hear_nothing_do_not_keep_the_rate_too_high_for_another() {
    let mut reports = Reports::of(4);
    reports.report(0, 0, 0, 0);
    // The length of the queue does not change, so its time tells the rate.
    let at_the_ceiling = u64::from(reports.beacon(0).queue_ms);
    let mut rate = 100_000;
    for second in 1..30 {
        reports.report(0, 1000 * 15_000 / rate.max(15_000), 1000, second);
        [1, 2, 3].into_iter().for_each(|machine| reports.report(machine, 0, 0, second));
        let beacon = reports.beacon(second);
        assert!(beacon.excluded.iter().next().is_none(), "second {second}");
        rate = 100_000 * at_the_ceiling / u64::from(beacon.queue_ms);
        assert!(second < 5 || rate < 20_000, "second {second}: {rate}");
    }
}
