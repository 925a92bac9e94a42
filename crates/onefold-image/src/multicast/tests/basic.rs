//! One sender and one receiver without a network in between.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use onefold_block::random::SeededRandom;

use super::reply_of;
use crate::format::multicast::{
    JoinReply, PacketHeader, PacketKind, RepairCode, Request, SessionId, Symbol, TAG_BYTES,
};
use crate::multicast::rules::{Rule, leave_out};
use crate::multicast::{
    PacketBurst, Receiver, ReceiverAction, ReceiverSettings, Sender, SenderSettings, SessionStart, Settlement,
    UnwantedPacket,
};

const CHUNKS: u32 = 5;
const CHUNK_BYTES: usize = 1000;
const SYMBOL_BYTES: u16 = 128;
const SETTINGS: SenderSettings = SenderSettings {
    session: SessionId(7),
    epoch: 3,
    chunks: CHUNKS,
    symbol_bytes: SYMBOL_BYTES,
    rate_bytes_per_second: NonZeroU64::new(100_000).unwrap(),
    rate_floor_bytes_per_second: NonZeroU64::new(1_000).unwrap(),
    cache_bytes: 3000,
    clients_max: 2,
    repairs: RepairCode::RaptorQ,
};

fn receiver(memory_bytes: usize) -> Receiver {
    let settings = ReceiverSettings { chunks: CHUNKS, memory_bytes };
    Receiver::new(settings, Arc::new(SeededRandom::new(1)), Duration::ZERO)
}

fn reply(sender: &mut Sender, now: Duration) -> JoinReply {
    JoinReply {
        client: sender.join(now).unwrap(),
        machines: sender.machines(),
        repairs: SETTINGS.repairs,
        ..reply_of(CHUNKS)
    }
}

fn chunk_bytes(chunk: u32) -> Vec<u8> {
    vec![u8::try_from(chunk).unwrap() + 1; CHUNK_BYTES]
}

/// Returns the header and the plain body of a packet.
fn opened(packet: &[u8]) -> (PacketHeader, &[u8]) {
    PacketHeader::decode(&packet[..packet.len() - TAG_BYTES]).unwrap()
}

fn pass_requests(receiver: &mut Receiver, sender: &mut Sender, now: Duration) -> Vec<ReceiverAction> {
    let mut others = Vec::new();
    while let Some(action) = receiver.next_action(now) {
        match action {
            ReceiverAction::Send(datagram) => {
                let (header, body) = opened(&datagram);
                let PacketKind::Request(client) = header.kind else { panic!("{header:?}") };
                sender.request(client, &Request::decode(body, CHUNKS).unwrap(), now);
            }
            action => others.push(action),
        }
    }
    others
}

#[test]
fn a_machine_gets_every_chunk_once_and_the_session_ends() {
    let mut sender = Sender::new(SETTINGS, Duration::ZERO);
    let mut receiver = receiver(10_000);
    receiver.joined(reply(&mut sender, Duration::ZERO), Duration::ZERO);
    let (mut taken, mut burst, mut client) = (Vec::new(), PacketBurst::default(), None);
    for millisecond in 0..2000 {
        let now = Duration::from_millis(millisecond);
        for action in pass_requests(&mut receiver, &mut sender, now) {
            match action {
                ReceiverAction::Take { chunk, content } => {
                    assert_eq!(content.into_bytes(), Some(chunk_bytes(chunk)));
                    taken.push(chunk);
                    receiver.settle(chunk, Settlement::Present);
                }
                ReceiverAction::Finish => client = sender.clients().next().map(|status| status.client),
                action => panic!("{action:?}"),
            }
        }
        if let Some(client) = client.take() {
            sender.leave(client);
        }
        while let Some(chunk) = sender.next_build() {
            sender.chunk_built(chunk, chunk, chunk_bytes(chunk), now);
        }
        burst.clear();
        sender.send(now, &mut burst);
        for packet in burst.packets_mut() {
            let (header, body) = opened(packet);
            receiver.packet(header, body, now).unwrap();
        }
    }
    assert_eq!(taken, [0, 1, 2, 3, 4]);
    assert!(!sender.is_running() && sender.next_send().is_none() && receiver.next_time().is_none());
    let counts = sender.counts();
    // The first request is for one chunk: the machine does not know yet how many it has room for.
    assert_eq!((counts.requests, counts.payload_bytes, counts.repeated_bytes), (2, 5000, 0));
    let counts = receiver.counts();
    assert_eq!((counts.received, counts.repeated_bytes), (counts.expected, 0));
}

/// A sender that wakes up for each packet does little else.
#[test]
fn a_sender_with_symbols_sends_several_at_a_time() {
    let rate = NonZeroU64::new(10_000_000).unwrap();
    let settings = SenderSettings { rate_bytes_per_second: rate, cache_bytes: 1 << 20, ..SETTINGS };
    let mut sender = Sender::new(settings, Duration::ZERO);
    let client = sender.join(Duration::ZERO).unwrap();
    sender.request(
        client,
        &Request { left: 1, lacking: [0].into_iter().collect(), ..Request::default() },
        Duration::ZERO,
    );
    let chunk = sender.next_build().unwrap();
    sender.chunk_built(chunk, 1, vec![5; 100 * usize::from(SYMBOL_BYTES)], Duration::ZERO);
    let mut burst = PacketBurst::default();
    let (mut wakes, mut packets) = (0, 0);
    while packets < 100 {
        let now = sender.next_send().unwrap();
        burst.clear();
        sender.send(now, &mut burst);
        (wakes, packets) = (wakes + 1, packets + burst.len());
        assert!(wakes < 10, "{packets} packets in {wakes} bursts");
    }
}

#[test]
fn a_session_of_many_machines_ends_soon_after_the_last_one_dies() {
    let mut sender = Sender::new(SenderSettings { clients_max: 1000, ..SETTINGS }, Duration::ZERO);
    let request = |left| Request { left, lacking: (0..left).collect(), ..Request::default() };
    let mut now = Duration::from_secs(1);
    let clients: Vec<_> = (0..1000).map(|_| sender.join(now).unwrap()).collect();
    for left in [CHUNKS, 0] {
        for client in &clients[..clients.len() - 1] {
            now += Duration::from_millis(1);
            sender.request(*client, &request(left), now);
        }
        sender.request(clients[999], &request(CHUNKS), now);
    }
    assert_eq!(sender.machines(), 1);
    let died = now;
    while sender.is_running() {
        now += Duration::from_millis(10);
        (0..CHUNKS).for_each(|chunk| sender.chunk_failed(chunk, now));
        sender.send(now, &mut PacketBurst::default());
        assert!(now < died + Duration::from_secs(16), "{:?} after its death", now - died);
    }
    assert!(now > died + Duration::from_secs(14), "it may have lost two requests");
}

#[test]
fn a_machine_that_lacks_nothing_makes_room_for_another() {
    let mut sender = Sender::new(SETTINGS, Duration::ZERO);
    let request = |left| Request { left, lacking: (0..left).collect(), ..Request::default() };
    for second in 1..10 {
        let now = Duration::from_secs(second);
        let client = sender.join(now).unwrap();
        sender.request(client, &request(CHUNKS), now);
        assert_eq!((sender.clients().count(), sender.machines(), sender.is_running()), (1, 1, true));
        sender.request(client, &request(0), now);
        assert_eq!((sender.clients().count(), sender.machines()), (0, 0));
        // A machine that was forgotten, or has given up too early, is back with its request.
        sender.request(client, &request(1), now);
        assert_eq!(sender.machines(), 1);
        sender.request(client, &request(0), now);
    }
}

/// A machine of the session can seal packets with any sequence number.
#[test]
fn any_sequence_number_is_counted_without_overflow() {
    let mut sender = Sender::new(SETTINGS, Duration::ZERO);
    let mut receiver = receiver(10_000);
    for _ in 0..2 {
        receiver.joined(reply(&mut sender, Duration::ZERO), Duration::ZERO);
        for sequence in [5, 0, u64::MAX, 1, u64::MAX - 1] {
            let mut body = Vec::new();
            Symbol { chunk: 0, form: 1, chunk_bytes: 1, index: 0, payload: &[1] }.encode(&mut body);
            let header = PacketHeader { kind: PacketKind::Symbol, session: SETTINGS.session, sequence };
            receiver.packet(header, &body, Duration::ZERO).unwrap();
        }
    }
    assert_eq!(receiver.counts().received, 10);
}

/// Passes the even symbols of one form of a chunk, then the odd ones of another, and returns the bytes of the chunk if
/// it is complete.
fn mixed() -> Option<Vec<u8>> {
    let mut sender = Sender::new(SETTINGS, Duration::ZERO);
    let mut receiver = receiver(10_000);
    receiver.joined(reply(&mut sender, Duration::ZERO), Duration::ZERO);
    let mut sequence = 0;
    for (form, remainder) in [(1u8, 0), (2, 1)] {
        for index in (0..8).filter(|index| index % 2 == remainder) {
            let length = if index == 7 { CHUNK_BYTES - 7 * 128 } else { 128 };
            let payload = vec![form; length];
            let symbol = Symbol {
                chunk: 0,
                form: form.into(),
                chunk_bytes: u32::try_from(CHUNK_BYTES).unwrap(),
                index,
                payload: &payload,
            };
            let mut body = Vec::new();
            symbol.encode(&mut body);
            sequence += 1;
            let header = PacketHeader { kind: PacketKind::Symbol, session: SETTINGS.session, sequence };
            receiver.packet(header, &body, Duration::ZERO).unwrap();
        }
    }
    let actions = std::iter::from_fn(|| receiver.next_action(Duration::ZERO));
    actions.into_iter().find_map(|action| match action {
        ReceiverAction::Take { content, .. } => content.into_bytes(),
        _ => None,
    })
}

#[test]
fn forms_of_a_chunk_are_never_mixed() {
    assert_eq!(mixed(), None);
    leave_out(Some(Rule::FormsApart));
    let mixed = mixed();
    leave_out(None);
    assert!(mixed.is_some(), "the test notices mixed forms");
}

#[test]
fn packets_that_are_not_for_a_machine_change_nothing() {
    let mut sender = Sender::new(SETTINGS, Duration::ZERO);
    let mut receiver = receiver(10_000);
    let header = |kind, session| PacketHeader { kind, session: SessionId(session), sequence: 1 };
    let beacon = |receiver: &mut Receiver, session| {
        receiver.packet(header(PacketKind::Beacon, session), &[0; 22], Duration::ZERO)
    };
    assert_eq!(beacon(&mut receiver, 7), Err(UnwantedPacket::OtherSession), "it has not joined");
    receiver.joined(reply(&mut sender, Duration::ZERO), Duration::ZERO);
    assert_eq!(beacon(&mut receiver, 8), Err(UnwantedPacket::OtherSession));
    assert_eq!(beacon(&mut receiver, 7), Err(UnwantedPacket::OtherSession), "another epoch");
    let mut far = Vec::new();
    Symbol { chunk: CHUNKS, form: 1, chunk_bytes: 1, index: 0, payload: &[1] }.encode(&mut far);
    let symbol = header(PacketKind::Symbol, 7);
    assert_eq!(receiver.packet(symbol, &far, Duration::ZERO), Err(UnwantedPacket::Foreign));
    assert!(matches!(receiver.packet(symbol, &far[1..], Duration::ZERO), Err(UnwantedPacket::Format(_))));
    assert_eq!(receiver.counts().received, 0);
}

/// Returns whether a sender has anything but beacons to send, and builds what it wants.
fn sends_symbols(sender: &mut Sender, now: Duration) -> bool {
    while let Some(chunk) = sender.next_build() {
        sender.chunk_built(chunk, chunk, chunk_bytes(chunk), now);
    }
    let mut burst = PacketBurst::default();
    sender.send(now, &mut burst);
    burst.packets_mut().any(|packet| opened(packet).0.kind == PacketKind::Symbol)
}

#[test]
fn a_session_begins_once_its_machines_have_joined_or_after_a_while() {
    let start = SessionStart { machines: NonZeroU32::new(3).unwrap(), at_most: Duration::from_secs(60) };
    let request = Request { left: CHUNKS, lacking: (0..CHUNKS).collect(), ..Request::default() };
    for joins in [2, 3, 4] {
        let mut sender = Sender::new(SenderSettings { clients_max: 10, ..SETTINGS }, Duration::ZERO);
        sender.wait_for(start);
        let mut began = None;
        for second in 5..100 {
            let now = Duration::from_secs(second);
            let clients: Vec<_> = sender.clients().map(|status| status.client).collect();
            for client in clients {
                sender.request(client, &Request { seen: second, ..request.clone() }, now);
            }
            // One machine joins every ten seconds, from the tenth on.
            if second % 10 == 0 && second / 10 <= joins {
                let client = sender.join(now).unwrap();
                sender.request(client, &request, now);
            }
            if sends_symbols(&mut sender, now) && began.is_none() {
                began = Some(second);
            }
            assert!(second < 10 || sender.is_running(), "beacons go on");
            assert_eq!(sender.is_sending(), began.is_some(), "only a session that sends takes a share of the rate");
        }
        assert_eq!(began, Some(if joins < 3 { 10 + 60 } else { 30 }), "{joins} machines");
    }
}
