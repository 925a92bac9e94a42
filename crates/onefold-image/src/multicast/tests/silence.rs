//! Machines that multicast does not reach, and machines whose server starts again.

use std::sync::Arc;
use std::time::Duration;

use onefold_block::random::SeededRandom;

use super::reply_of;
use crate::format::multicast::{
    Beacon, ClientNumber, JoinReply, PacketHeader, PacketKind, Request, SessionId, Symbol, TAG_BYTES, body_bytes_max,
};
use crate::multicast::{HttpReason, Receiver, ReceiverAction, ReceiverSettings, SILENCE, Settlement};

const CHUNKS: u32 = 5;

fn reply(session: u32) -> JoinReply {
    let (session, epoch) = (SessionId(session), session.into());
    JoinReply { session, epoch, rate_bytes_per_second: 1_000_000, ..reply_of(CHUNKS) }
}

/// A receiver with a clock in milliseconds.
struct TimedReceiver {
    receiver: Receiver,
    now_ms: u64,
    sequence: u64,
}

impl TimedReceiver {
    fn joined() -> TimedReceiver {
        let settings = ReceiverSettings { chunks: CHUNKS, memory_bytes: 10_000 };
        let mut receiver = Receiver::new(settings, Arc::new(SeededRandom::new(1)), Duration::ZERO);
        receiver.joined(reply(1), Duration::ZERO);
        TimedReceiver { receiver, now_ms: 0, sequence: 0 }
    }

    /// Passes time, and returns each action with the time in milliseconds at which it came.
    fn pass(&mut self, milliseconds: u64) -> Vec<(u64, ReceiverAction)> {
        let mut actions = Vec::new();
        for now_ms in self.now_ms..self.now_ms + milliseconds {
            let now = Duration::from_millis(now_ms);
            actions.extend(std::iter::from_fn(|| self.receiver.next_action(now)).map(|action| (now_ms, action)));
        }
        self.now_ms += milliseconds;
        actions
    }

    /// Passes a beacon that lists all chunks as queued. Returns whether it is of use.
    fn hear_beacon(&mut self, session: u32) -> bool {
        let queued = (0..CHUNKS).collect();
        self.hear(session, &Beacon { epoch: session.into(), machines: 1, queued, ..Beacon::default() })
    }

    /// Passes a beacon.
    fn hear(&mut self, session: u32, beacon: &Beacon) -> bool {
        let mut body = Vec::new();
        beacon.encode(body_bytes_max(128), &mut body);
        self.sequence += 1;
        let kind = PacketKind::Beacon;
        let header = PacketHeader { kind, session: SessionId(session), sequence: self.sequence };
        self.receiver.packet(header, &body, Duration::from_millis(self.now_ms)).is_ok()
    }
}

fn is_request(action: &ReceiverAction) -> Option<Request> {
    let ReceiverAction::Send(datagram) = action else { return None };
    let (_, body) = PacketHeader::decode(&datagram[..datagram.len() - TAG_BYTES]).unwrap();
    Some(Request::decode(body, CHUNKS).unwrap())
}

fn find(actions: &[(u64, ReceiverAction)], wanted: &ReceiverAction) -> Option<u64> {
    actions.iter().find(|(_, action)| action == wanted).map(|(at, _)| *at)
}

#[test]
fn a_machine_that_hears_nothing_turns_to_http_after_three_seconds_and_keeps_listening() {
    let mut machine = TimedReceiver::joined();
    let actions = machine.pass(60_000);
    let use_http = ReceiverAction::UseHttp(HttpReason::NothingArrives);
    assert_eq!(find(&actions, &use_http), Some(3000));
    assert_eq!(actions.iter().filter(|(_, action)| *action == use_http).count(), 1, "it is said once");
    assert_eq!(find(&actions, &ReceiverAction::Join), None, "joining again would change nothing");
    let requests: Vec<Request> = actions.iter().filter_map(|(_, action)| is_request(action)).collect();
    assert!(!requests[0].lacking.is_empty());
    let late = actions.iter().filter(|(at, _)| *at > 3000).filter_map(|(_, action)| is_request(action));
    let late: Vec<Request> = late.collect();
    assert!((3..=6).contains(&late.len()), "{} signs of life", late.len());
    assert!(late.iter().all(|request| request.lacking.is_empty() && request.left == CHUNKS), "no data for nobody");
    assert_eq!(machine.receiver.claim(0), Some(0));
    machine.receiver.settle(0, Settlement::Present);
    assert!(machine.hear_beacon(1));
    assert_eq!(machine.pass(1)[0].1, ReceiverAction::UseMulticast);
    assert_eq!((machine.receiver.absent(), machine.receiver.claim(0)), (4, Some(1)));
}

#[test]
fn a_machine_whose_stream_falls_silent_joins_again_within_five_seconds() {
    let mut machine = TimedReceiver::joined();
    machine.pass(50);
    assert!(machine.hear_beacon(1));
    let actions = machine.pass(10_000);
    let silent = 50 + u64::try_from(SILENCE.as_millis()).unwrap();
    assert_eq!(find(&actions, &ReceiverAction::UseHttp(HttpReason::Silence)), Some(silent));
    let joins: Vec<u64> =
        actions.iter().filter(|(_, action)| *action == ReceiverAction::Join).map(|(at, _)| *at).collect();
    assert!(joins[0] <= silent + 1000, "{joins:?}");
    assert!(joins.windows(2).all(|pair| (2000..=4000).contains(&(pair[1] - pair[0]))), "{joins:?}");
    machine.receiver.joined(reply(2), Duration::from_millis(machine.now_ms));
    assert!(!machine.hear_beacon(1), "packets of the old session are of no use");
    assert!(machine.hear_beacon(2));
    let actions = machine.pass(300);
    assert!(find(&actions, &ReceiverAction::UseMulticast).is_some());
    assert!(actions.iter().all(|(_, action)| is_request(action).is_none()), "the beacon answers: {actions:?}");
}

/// A network may pass beacons and drop symbols, if its MTU is smaller than the server's. Or the server has forgotten
/// the machine, so the machine joins again.
#[test]
fn a_machine_that_hears_only_beacons_turns_to_http_until_a_symbol_comes() {
    let mut machine = TimedReceiver::joined();
    let pass = |machine: &mut TimedReceiver, tenths: u64| -> Vec<(u64, ReceiverAction)> {
        let mut actions = Vec::new();
        for _ in 0..tenths {
            assert!(machine.hear_beacon(1));
            actions.extend(machine.pass(100).into_iter().filter(|(_, action)| is_request(action).is_none()));
        }
        actions
    };
    assert!(pass(&mut machine, 600).is_empty(), "the session may wait for other machines");
    let sending = Beacon { epoch: 1, machines: 1, sending: [2].into_iter().collect(), ..Beacon::default() };
    assert!(machine.hear(1, &sending));
    let stalled = |at| [(at, ReceiverAction::UseHttp(HttpReason::NoSymbols)), (at, ReceiverAction::Join)];
    assert_eq!(pass(&mut machine, 400), stalled(79_900));
    machine.receiver.joined(reply(1), Duration::from_millis(machine.now_ms));
    assert!(machine.hear(1, &sending));
    assert_eq!(pass(&mut machine, 100), [], "one join is enough");
    assert!(machine.receiver.next_time().unwrap() >= Duration::from_millis(machine.now_ms));
    let mut body = Vec::new();
    Symbol { chunk: 0, form: 1, chunk_bytes: 200, index: 0, payload: &[1; 128] }.encode(&mut body);
    machine.sequence += 1;
    let header = PacketHeader { kind: PacketKind::Symbol, session: SessionId(1), sequence: machine.sequence };
    machine.receiver.packet(header, &body, Duration::from_millis(machine.now_ms)).unwrap();
    let symbol_at = machine.now_ms;
    let actions = pass(&mut machine, 250);
    assert_eq!(actions[0], (symbol_at, ReceiverAction::UseMulticast));
    assert_eq!(actions[1..], stalled(symbol_at + 20_000), "the rest of the chunk does not come");
    (0..CHUNKS).for_each(|chunk| machine.receiver.settle(chunk, Settlement::Present));
    assert_eq!(machine.pass(1)[0].1, ReceiverAction::Finish);
}

/// A server that has started again may wait for more machines than are left.
#[test]
fn a_machine_that_has_begun_waits_for_no_others_when_the_server_starts_again() {
    for has_begun in [true, false] {
        let mut machine = TimedReceiver::joined();
        let sending = if has_begun { [2].into_iter().collect() } else { Default::default() };
        assert!(machine.hear(1, &Beacon { epoch: 1, machines: 1, sending, ..Beacon::default() }));
        machine.pass(4000);
        machine.receiver.joined(reply(2), Duration::from_millis(machine.now_ms));
        let mut actions = Vec::new();
        for _ in 0..400 {
            assert!(machine.hear_beacon(2));
            actions.extend(machine.pass(100));
        }
        let http = find(&actions, &ReceiverAction::UseHttp(HttpReason::NoSymbols));
        assert_eq!(http, has_begun.then_some(24_000));
    }
}

/// A packet of another session shows that the server has started again. Anybody can send one, so it only hastens a join
/// that silence causes.
#[test]
fn packets_of_another_session_hasten_a_join_after_silence_only() {
    let mut machine = TimedReceiver::joined();
    machine.pass(50);
    assert!(machine.hear_beacon(1));
    assert!(!machine.hear_beacon(2));
    assert_eq!(find(&machine.pass(900), &ReceiverAction::Join), None, "the session is alive");
    machine.pass(600);
    assert!(!machine.hear_beacon(2));
    let join = find(&machine.pass(1400), &ReceiverAction::Join);
    assert!(join.is_some_and(|at| at < 3000), "{join:?}");
}

#[test]
fn chunks_that_the_server_cannot_send_come_over_http() {
    let mut machine = TimedReceiver::joined();
    machine.pass(1);
    let beacon = Beacon { epoch: 1, machines: 1, unavailable: [3].into_iter().collect(), ..Beacon::default() };
    let mut body = Vec::new();
    beacon.encode(body_bytes_max(128), &mut body);
    let header = PacketHeader { kind: PacketKind::Beacon, session: SessionId(1), sequence: 1 };
    machine.receiver.packet(header, &body, Duration::from_millis(1)).unwrap();
    assert_eq!(machine.pass(1)[0].1, ReceiverAction::FetchByHttp { chunk: 3 });
    let requests: Vec<Request> = machine.pass(2000).iter().filter_map(|(_, action)| is_request(action)).collect();
    assert!(!requests.is_empty() && requests.iter().all(|request| !request.lacking.contains(3) && request.left == 4));
}

/// The server excludes a machine that loses far more packets than the others. Its cable may be mended later.
#[test]
fn an_excluded_machine_joins_again_after_a_minute() {
    let mut machine = TimedReceiver::joined();
    let excluded = [1].into_iter().collect();
    let beacon = Beacon { epoch: 1, machines: 2, excluded, queued: (0..CHUNKS).collect(), ..Beacon::default() };
    machine.pass(10);
    assert!(machine.hear(1, &beacon));
    let actions = machine.pass(100);
    assert_eq!(find(&actions, &ReceiverAction::UseHttp(HttpReason::Excluded)), Some(10));
    assert_eq!(actions.iter().find_map(|(_, action)| is_request(action)).map(|request| request.left), Some(0));
    machine.pass(3000);
    assert!(machine.hear(1, &beacon), "the server lists it until it has got the answer");
    let listed = machine.now_ms;
    let actions = machine.pass(3000);
    assert_eq!(actions.len(), 1, "the answer comes again: {actions:?}");
    for _ in 0..560 {
        assert!(machine.hear_beacon(1));
        assert!(machine.pass(100).is_empty());
    }
    let actions = machine.pass(61_500);
    let joins: Vec<u64> = actions.iter().map(|(at, _)| *at).collect();
    assert_eq!(joins, [listed + 60_000, listed + 120_000], "{actions:?}");
    assert!(actions.iter().all(|(_, action)| *action == ReceiverAction::Join));
    let number = JoinReply { client: ClientNumber(2), ..reply(1) };
    machine.receiver.joined(number, Duration::from_millis(machine.now_ms));
    assert!(machine.hear(1, &beacon), "it lists the earlier number");
    let actions = machine.pass(100);
    assert_eq!(actions.iter().map(|(_, action)| action).next(), Some(&ReceiverAction::UseMulticast));
    assert!(actions.iter().all(|(_, action)| !matches!(action, ReceiverAction::UseHttp(_))), "{actions:?}");
}

/// Without TLS somebody on the way may answer a join. A chunk that has begun with symbols of one size begins anew then.
#[test]
fn a_reply_with_another_size_of_symbols_drops_what_has_begun() {
    let mut machine = TimedReceiver::joined();
    let pass = |machine: &mut TimedReceiver, payload: &[u8]| {
        let mut body = Vec::new();
        Symbol { chunk: 0, form: 1, chunk_bytes: 1000, index: 0, payload }.encode(&mut body);
        machine.sequence += 1;
        let header = PacketHeader { kind: PacketKind::Symbol, session: SessionId(1), sequence: machine.sequence };
        machine.receiver.packet(header, &body, Duration::from_millis(machine.now_ms)).unwrap();
    };
    pass(&mut machine, &[1; 128]);
    machine.receiver.joined(JoinReply { symbol_bytes: 1000, ..reply(1) }, Duration::from_millis(1));
    pass(&mut machine, &[2; 1000]);
    let actions = machine.pass(1);
    let whole = |(_, action): &(u64, ReceiverAction)| matches!(action, ReceiverAction::Take { chunk: 0, .. });
    assert!(actions.iter().any(whole), "{actions:?}");
}

/// Nobody requested chunks any more, so the server sent no beacons. That was taken for silence.
#[test]
fn a_machine_that_waits_for_nothing_by_multicast_does_not_call_the_server_silent() {
    let mut machine = TimedReceiver::joined();
    machine.pass(10);
    assert!(machine.hear_beacon(1));
    (0..CHUNKS).for_each(|chunk| assert_eq!(machine.receiver.claim(chunk), Some(chunk)));
    let actions = machine.pass(20_000);
    assert!(
        actions.iter().all(|(_, action)| is_request(action).is_some_and(|request| request.left == 0)),
        "{actions:?}"
    );
    assert!((1..10).contains(&actions.len()), "{} requests", actions.len());
    (1..CHUNKS).for_each(|chunk| machine.receiver.settle(chunk, Settlement::Present));
    machine.receiver.settle(0, Settlement::Lacking);
    assert_eq!(machine.pass(10)[0].1, ReceiverAction::UseHttp(HttpReason::Silence), "it lacks one again");
}

/// The thread of such a machine looked each half millisecond, until HTTP had brought the rest.
#[test]
fn a_machine_that_waits_for_nothing_rests_though_the_server_has_started_again() {
    let mut machine = TimedReceiver::joined();
    machine.pass(50);
    assert!(machine.hear_beacon(1));
    machine.pass(1500);
    assert!(!machine.hear_beacon(2));
    (0..CHUNKS).for_each(|chunk| assert_eq!(machine.receiver.claim(chunk), Some(chunk)));
    for _ in 0..200 {
        machine.pass(100);
        let next = machine.receiver.next_time().unwrap();
        assert!(next >= Duration::from_millis(machine.now_ms), "{next:?} at {} ms", machine.now_ms);
    }
}

/// Chunks that others request pass, and symbols that are lost on the way to this machine never come again.
#[test]
fn a_machine_whose_requests_do_not_arrive_turns_to_http_within_seconds() {
    for (unheard, is_queued) in [(1, false), (1, true), (2, false), (2, true)] {
        let mut machine = TimedReceiver::joined();
        let unheard_set = [unheard].into_iter().collect();
        let queued = (0..CHUNKS).filter(|_| is_queued).collect();
        let beacon = Beacon { epoch: 1, machines: 2, unheard: unheard_set, queued, ..Beacon::default() };
        let mut found = None;
        for _ in 0..100 {
            assert!(machine.hear(1, &beacon));
            let actions = machine.pass(100);
            found = found.or(find(&actions, &ReceiverAction::UseHttp(HttpReason::Unheard)));
        }
        assert_eq!(found, if unheard == 1 { Some(2000) } else { None }, "one request may be on its way; {is_queued}");
    }
}

/// A server that has started again waits for a whole class, of which most machines have ended.
#[test]
fn a_machine_that_has_begun_waits_for_no_others_after_a_restart() {
    let mut machine = TimedReceiver::joined();
    let sending = |epoch| Beacon { epoch, machines: 1, sending: [2].into_iter().collect(), ..Beacon::default() };
    assert!(machine.hear(1, &sending(1)));
    machine.pass(100);
    let wait = |machine: &mut TimedReceiver, session| {
        machine.receiver.joined(JoinReply { waits_for: 30, ..reply(session) }, Duration::from_millis(machine.now_ms));
        assert!(machine.hear_beacon(session));
        machine.pass(1)
    };
    assert_eq!(wait(&mut machine, 2), [(100, ReceiverAction::UseHttp(HttpReason::Waiting))]);
    assert!(machine.hear_beacon(2));
    let others = machine.pass(5000).into_iter().filter(|(_, action)| *action == ReceiverAction::UseMulticast);
    assert_eq!(others.count(), 0, "beacons are no chunks");
    assert!(machine.hear(2, &sending(2)));
    let symbol = Symbol { chunk: 2, form: 1, chunk_bytes: 300, index: 0, payload: &[7; 128] };
    let mut body = Vec::new();
    symbol.encode(&mut body);
    let header = PacketHeader { kind: PacketKind::Symbol, session: SessionId(2), sequence: 100 };
    machine.receiver.packet(header, &body, Duration::from_millis(machine.now_ms)).unwrap();
    assert!(find(&machine.pass(10), &ReceiverAction::UseMulticast).is_some());
    // A machine that has got nothing yet waits with the others.
    let mut fresh = TimedReceiver::joined();
    assert!(wait(&mut fresh, 2).iter().all(|(_, action)| is_request(action).is_some()));
}
