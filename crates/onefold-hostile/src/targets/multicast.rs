//! Datagrams of multicast, as an insider with the keys of a session could send them: decoders, then a sender that gets
//! hostile requests and a receiver that gets hostile packets.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use onefold_block::random::SeededRandom;
use onefold_image::format::FormatError;
use onefold_image::format::multicast::{
    Beacon, BegunChunk, ClientNumber, IndexSet, JoinReply, PacketHeader, PacketKind, RepairCode, Request, SessionId,
    Symbol,
};
use onefold_image::multicast::{
    BURST_PACKETS_MAX, PacketBurst, Receiver, ReceiverAction, ReceiverSettings, Sender, SenderSettings, Settlement,
};

use crate::Choices;

const CHUNKS: u32 = 40;
const SYMBOL_BYTES: u16 = 128;
const SESSION: SessionId = SessionId(7);
const MEMORY_BYTES: usize = 64 << 10;

/// Whatever the bytes are, a decoder refuses them, or its encoder writes exactly them; and both machines go on.
pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    if choices.below(3) == 0 {
        decode(&mut choices);
    } else {
        converse(&mut choices);
    }
}

fn decode(choices: &mut Choices<'_>) {
    let kind = choices.below(5);
    let mut message = sample(choices, kind);
    damage(choices, &mut message);
    if let Ok(encoded) = again(kind, &message) {
        assert!(encoded == message, "bytes are accepted that no encoder writes: {message:02x?}");
    }
}

/// Decodes a message, and encodes the result.
fn again(kind: u64, bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
    let mut encoded = Vec::new();
    match kind {
        0 => Symbol::decode(bytes, SYMBOL_BYTES, RepairCode::RaptorQ)?.encode(&mut encoded),
        1 => Beacon::decode(bytes, CHUNKS)?.encode(usize::MAX, &mut encoded),
        2 => Request::decode(bytes, CHUNKS)?.encode(usize::MAX, &mut encoded),
        3 => encoded = JoinReply::decode(bytes)?.encode(),
        _ => {
            let (header, rest) = PacketHeader::decode(bytes)?;
            header.encode(&mut encoded);
            encoded.extend_from_slice(rest);
        }
    }
    Ok(encoded)
}

/// Returns the plain bytes of a sound message.
fn sample(choices: &mut Choices<'_>, kind: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    match kind {
        0 => {
            let index = u16::try_from(choices.below(7)).expect("small");
            let payload = [choices.byte(); 128];
            let payload = if index == 2 { &payload[..44] } else { &payload };
            let chunk = u32::try_from(choices.below(CHUNKS.into())).expect("small");
            let form = choices.below(2).try_into().expect("small");
            Symbol { chunk, form, chunk_bytes: 300, index, payload }.encode(&mut bytes);
        }
        1 => {
            let sets = std::array::from_fn(|_| set(choices, CHUNKS));
            let [sending, just_sent, unavailable, queued] = sets;
            let (machines, queue_ms) = (choices.byte().into(), choices.byte().into());
            let excluded = if choices.below(8) == 0 { set(choices, 3) } else { IndexSet::default() };
            let unheard = if choices.below(8) == 0 { set(choices, 3) } else { IndexSet::default() };
            let beacon =
                Beacon { epoch: 1, machines, queue_ms, sending, just_sent, unavailable, excluded, unheard, queued };
            beacon.encode(usize::MAX, &mut bytes);
        }
        2 => {
            let lacking = set(choices, 20);
            let begun = (20..20 + u32::from(choices.byte() % 8)).map(|chunk| {
                let mut missing = set(choices, 1000);
                missing.push(u32::from(u16::MAX));
                let (needed, next_repair) = (u16::from(choices.byte()) + 1, choices.byte().into());
                BegunChunk { chunk, form: choices.byte().into(), needed, next_repair, missing }
            });
            let begun = begun.collect();
            let seen = choices.below(100);
            let request = Request { seen, received: 1, expected: 2, left: CHUNKS, lacking, begun };
            request.encode(usize::MAX, &mut bytes);
        }
        3 => bytes = reply().encode(),
        _ => PacketHeader { kind: PacketKind::Request(ClientNumber(1)), session: SESSION, sequence: 9 }
            .encode(&mut bytes),
    }
    bytes
}

fn set(choices: &mut Choices<'_>, bound: u32) -> IndexSet {
    let bits = choices.number();
    (0..bound).filter(|number| bits >> (number % 61) & 1 == 1).collect()
}

fn reply() -> JoinReply {
    JoinReply {
        group: [239, 1, 1, 1].into(),
        source: [192, 0, 2, 5].into(),
        port: 1,
        request_port: 2,
        symbol_bytes: SYMBOL_BYTES,
        ttl: 1,
        rate_bytes_per_second: 1,
        session: SESSION,
        epoch: 1,
        client: ClientNumber(1),
        machines: 1,
        waits_for: 0,
        chunks: CHUNKS,
        repairs: RepairCode::RaptorQ,
        keys: None,
    }
}

/// Changes bytes, the length, or nothing.
fn damage(choices: &mut Choices<'_>, message: &mut Vec<u8>) {
    for _ in 0..choices.below(4) {
        match choices.below(3) {
            0 if !message.is_empty() => {
                let at = choices.index(message.len());
                message[at] = choices.byte();
            }
            1 => message.truncate(choices.index(message.len() + 1)),
            _ => message.extend_from_slice(choices.take(4)),
        }
    }
}

/// Passes hostile packets and requests to a receiver and a sender.
fn converse(choices: &mut Choices<'_>) {
    let settings = SenderSettings {
        session: SESSION,
        epoch: 1,
        chunks: CHUNKS,
        symbol_bytes: SYMBOL_BYTES,
        rate_bytes_per_second: NonZeroU64::new(1_000_000).expect("it is one"),
        rate_floor_bytes_per_second: NonZeroU64::new(10_000).expect("it is one"),
        cache_bytes: 2000,
        clients_max: 3,
        repairs: RepairCode::RaptorQ,
    };
    let mut sender = Sender::new(settings, Duration::ZERO);
    let settings = ReceiverSettings { chunks: CHUNKS, memory_bytes: MEMORY_BYTES };
    let mut receiver = Receiver::new(settings, Arc::new(SeededRandom::new(1)), Duration::ZERO);
    if choices.below(2) == 0 {
        receiver.expect_comparison();
    }
    receiver.joined(reply(), Duration::ZERO);
    let _ = sender.join(Duration::ZERO);
    let (mut now, mut sequence) = (Duration::ZERO, 0);
    while !choices.is_used_up() {
        now += Duration::from_millis(choices.below(200));
        let kind = choices.below(3);
        let mut message = sample(choices, kind);
        damage(choices, &mut message);
        if kind == 2 {
            if let Ok(request) = Request::decode(&message, CHUNKS) {
                sender.request(ClientNumber(choices.below(4).try_into().expect("small")), &request, now);
            }
        } else {
            sequence = if choices.below(8) == 0 { choices.number().max(1) } else { sequence % (1 << 60) + 1 };
            let kind = if kind == 0 { PacketKind::Symbol } else { PacketKind::Beacon };
            let _ = receiver.packet(PacketHeader { kind, session: SESSION, sequence }, &message, now);
        }
        if choices.below(2) == 0 {
            let (chunk, lacking_bytes) = (choices.below(CHUNKS.into()).try_into().expect("small"), choices.below(400));
            if receiver.compared(chunk, lacking_bytes, 300, now) {
                receiver.settle(chunk, *choices.one_of(&[Settlement::Present, Settlement::Lacking]));
            }
        }
        drive(choices, &mut sender, &mut receiver, now);
    }
}

/// Lets both sides do all that they can do now.
fn drive(choices: &mut Choices<'_>, sender: &mut Sender, receiver: &mut Receiver, now: Duration) {
    for _ in 0..CHUNKS {
        let Some(chunk) = sender.next_build() else { break };
        match choices.below(4) {
            0 => sender.chunk_failed(chunk, now),
            form => sender.chunk_built(chunk, form.try_into().expect("small"), vec![1; 300], now),
        }
    }
    for _ in 0..CHUNKS {
        let Some(job) = sender.next_repair_job() else { break };
        sender.repairs_made(job.run());
    }
    let mut burst = PacketBurst::default();
    sender.send(now, &mut burst);
    assert!(burst.len() <= BURST_PACKETS_MAX, "a burst of {} packets", burst.len());
    let mut actions = 0;
    while let Some(action) = receiver.next_action(now) {
        actions += 1;
        assert!(actions < 1000, "a receiver rests");
        match action {
            ReceiverAction::Take { chunk, content } => {
                let length = content.into_bytes().map_or(0, |bytes| bytes.len());
                assert!(length <= MEMORY_BYTES, "a chunk is longer than the memory");
                let settlement = choices.one_of(&[Settlement::Present, Settlement::Wrong, Settlement::Lacking]);
                receiver.settle(chunk, *settlement);
            }
            ReceiverAction::FetchByHttp { chunk } => receiver.settle(chunk, Settlement::Lacking),
            _ => {}
        }
    }
}
