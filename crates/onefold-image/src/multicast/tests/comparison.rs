//! A machine that compares its target with the image while packets arrive.

use std::sync::Arc;
use std::time::Duration;

use onefold_block::random::SeededRandom;

use super::reply_of;
use crate::format::multicast::{
    Beacon, JoinReply, PacketHeader, PacketKind, Request, SessionId, Symbol, TAG_BYTES, body_bytes_max,
};
use crate::multicast::{Receiver, ReceiverAction, ReceiverSettings, Settlement};

const CHUNKS: u32 = 4;
const CHUNK_BYTES: u32 = 300;
const SYMBOL_BYTES: u16 = 128;
const SESSION: SessionId = SessionId(7);

/// Returns a machine that is alone, and has room for so many chunks.
fn comparing(memory_chunks: u32) -> Receiver {
    let settings =
        ReceiverSettings { chunks: CHUNKS, memory_bytes: usize::try_from(memory_chunks * CHUNK_BYTES).unwrap() };
    let mut receiver = Receiver::new(settings, Arc::new(SeededRandom::new(1)), Duration::ZERO);
    receiver.expect_comparison();
    receiver.joined(reply_of(CHUNKS), Duration::ZERO);
    receiver
}

/// Passes a symbol of a chunk.
fn pass(receiver: &mut Receiver, sequence: u64, chunk: u32, index: u16, now: Duration) {
    let length = if index == 2 { 44 } else { 128 };
    let mut body = Vec::new();
    let payload = vec![u8::try_from(chunk).unwrap(); length];
    Symbol { chunk, form: 1, chunk_bytes: CHUNK_BYTES, index, payload: &payload }.encode(&mut body);
    receiver.packet(PacketHeader { kind: PacketKind::Symbol, session: SESSION, sequence }, &body, now).unwrap();
}

/// The chunks that a request asks for: whole ones, and begun ones.
type RequestChunks = (Vec<u32>, Vec<u32>);

/// Returns all actions that are due, and the last request apart.
fn actions(receiver: &mut Receiver, now: Duration) -> (Vec<ReceiverAction>, Option<Request>) {
    let (mut others, mut request) = (Vec::new(), None);
    while let Some(action) = receiver.next_action(now) {
        let ReceiverAction::Send(datagram) = action else {
            others.push(action);
            continue;
        };
        let (_, body) = PacketHeader::decode(&datagram[..datagram.len() - TAG_BYTES]).unwrap();
        request = Some(Request::decode(body, CHUNKS).unwrap());
    }
    (others, request)
}

/// Returns all actions that are due, and what the last request asks for.
fn drain(receiver: &mut Receiver, now: Duration) -> (Vec<ReceiverAction>, Option<RequestChunks>) {
    let (others, request) = actions(receiver, now);
    let requested = request.map(|request| {
        let begun = request.begun.iter().map(|begun| begun.chunk).collect();
        (request.lacking.iter().collect(), begun)
    });
    (others, requested)
}

/// Lets a second pass, in which a machine that is alone makes its requests. Returns what they ask for.
fn requested(receiver: &mut Receiver, from: Duration) -> RequestChunks {
    let (mut lacking, mut begun) = (Vec::new(), Vec::new());
    for step in 0..100 {
        if let (_, Some(request)) = drain(receiver, from + Duration::from_millis(10 * step)) {
            lacking.extend(request.0);
            begun.extend(request.1);
        }
    }
    for chunks in [&mut lacking, &mut begun] {
        chunks.sort_unstable();
        chunks.dedup();
    }
    (lacking, begun)
}

#[test]
fn only_compared_chunks_are_requested_and_others_are_taken_as_they_pass() {
    let mut receiver = comparing(10);
    assert_eq!(requested(&mut receiver, Duration::ZERO), (vec![], vec![]), "nothing is compared");
    let second = Duration::from_secs(1);
    assert!(!receiver.compared(2, 300, 300, second), "it lacks all of the chunk");
    assert_eq!(requested(&mut receiver, second).0, [2]);
    // Another machine has requested chunk 1. One symbol is lost.
    (0..3).for_each(|index| pass(&mut receiver, 1 + u64::from(index), 1, index, 2 * second));
    pass(&mut receiver, 4, 0, 0, 2 * second);
    let (actions, _) = drain(&mut receiver, 2 * second);
    assert!(matches!(actions[..], [ReceiverAction::Take { chunk: 1, .. }]), "{actions:?}");
    assert!(!receiver.compared(1, 0, 300, 2 * second), "the caller has it in hand already");
    assert!(requested(&mut receiver, 2 * second).1.is_empty(), "chunk 0 is begun, and perhaps needless");
    assert!(!receiver.compared(0, 300, 300, 3 * second));
    assert_eq!(requested(&mut receiver, 3 * second).1, [0]);
}

/// Regression: chunks that had passed in part before their comparison took all memory, and those that were compared
/// had to wait until these were.
#[test]
fn chunks_that_may_not_be_requested_yet_leave_room_for_others() {
    let mut receiver = comparing(2);
    // Others drive the stream, and a symbol of each chunk is lost.
    pass(&mut receiver, 1, 2, 0, Duration::ZERO);
    pass(&mut receiver, 2, 3, 0, Duration::ZERO);
    let second = Duration::from_secs(1);
    assert!(!receiver.compared(0, 300, 300, second));
    assert_eq!(requested(&mut receiver, second).0, [0]);
    (0..3).for_each(|index| pass(&mut receiver, 3 + u64::from(index), 0, index, 2 * second));
    let (actions, _) = drain(&mut receiver, 2 * second);
    assert!(matches!(actions[..], [ReceiverAction::Take { chunk: 0, .. }]), "{actions:?}");
}

/// Regression: without a request no session began, and without its beacons a machine that compared turned to HTTP.
#[test]
fn a_machine_that_has_nothing_to_request_yet_begins_the_session() {
    let mut receiver = comparing(10);
    let mut left = Vec::new();
    for tenth in 0..80 {
        let now = Duration::from_millis(100 * tenth);
        let (others, request) = actions(&mut receiver, now);
        assert_eq!(others, [], "{now:?}");
        left.extend(request.map(|request| (tenth, request.lacking.is_empty(), request.left)));
        // The first requests are lost.
        if left.len() >= 3 {
            let mut body = Vec::new();
            Beacon { epoch: 3, machines: 1, ..Beacon::default() }.encode(body_bytes_max(SYMBOL_BYTES), &mut body);
            let header = PacketHeader { kind: PacketKind::Beacon, session: SESSION, sequence: tenth + 1 };
            receiver.packet(header, &body, now).unwrap();
        }
    }
    assert!(left.iter().all(|(_, is_empty, left)| *is_empty && *left == CHUNKS), "{left:?}");
    let [(0, ..), (..), (third, ..), (report, ..)] = left[..] else { panic!("{left:?}") };
    assert!(third < 20 && report >= third + 50, "once beacons come, only reports follow: {left:?}");
}

#[test]
fn a_needless_chunk_gives_its_memory_back_and_is_not_taken_any_more() {
    let mut receiver = comparing(1);
    pass(&mut receiver, 1, 0, 0, Duration::ZERO);
    pass(&mut receiver, 2, 1, 0, Duration::ZERO);
    assert_eq!(receiver.counts().dropped_chunks, 1, "there is room for one chunk");
    assert!(receiver.compared(0, 10, 300, Duration::ZERO), "it lacks little");
    (0..3).for_each(|index| pass(&mut receiver, 3 + u64::from(index), 2, index, Duration::ZERO));
    pass(&mut receiver, 6, 0, 1, Duration::ZERO);
    assert_eq!(receiver.counts().repeated_bytes, 128);
    let (actions, _) = drain(&mut receiver, Duration::ZERO);
    assert!(matches!(actions[..], [ReceiverAction::Take { chunk: 2, .. }]), "{actions:?}");
    for chunk in [1, 3] {
        assert!(receiver.compared(chunk, 0, 300, Duration::ZERO));
    }
    (0..CHUNKS).for_each(|chunk| receiver.settle(chunk, Settlement::Present));
    assert_eq!(drain(&mut receiver, Duration::ZERO).0, [ReceiverAction::Finish]);
}

/// The first machines of a room would fetch over HTTP what is sent to all of them a little later.
#[test]
fn machines_that_will_come_count_in_a_comparison() {
    for (waits_for, is_spared) in [(0, true), (2, false)] {
        let mut receiver = comparing(10);
        receiver.joined(JoinReply { waits_for, ..reply_of(CHUNKS) }, Duration::ZERO);
        assert_eq!(receiver.compared(0, 150, 300, Duration::ZERO), is_spared, "of half a chunk");
        // Once chunks are sent, the machines that are there count.
        pass_beacon(&mut receiver);
        assert!(receiver.compared(1, 150, 300, Duration::ZERO));
    }
}

/// Passes a beacon of a session that sends to one machine.
fn pass_beacon(receiver: &mut Receiver) {
    let mut body = Vec::new();
    let sending = [3].into_iter().collect();
    Beacon { epoch: 3, machines: 1, sending, ..Beacon::default() }.encode(body_bytes_max(SYMBOL_BYTES), &mut body);
    let header = PacketHeader { kind: PacketKind::Beacon, session: SESSION, sequence: 1 };
    receiver.packet(header, &body, Duration::ZERO).unwrap();
}
