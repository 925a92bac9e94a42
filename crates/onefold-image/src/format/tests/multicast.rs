//! Datagrams of multicast, and the reply to a join.

use std::net::Ipv4Addr;

use onefold_block::random::{Random, SeededRandom};

use crate::format::FormatError;
use crate::format::multicast::*;

const CHUNKS: u32 = 100_000;
const SYMBOL_BYTES: u16 = 128;
/// The size of symbols on an ordinary link.
const USUAL_SYMBOL_BYTES: u16 = 1428;

pub(super) fn headers() -> Vec<Vec<u8>> {
    let header = |kind, sequence| {
        let mut bytes = Vec::new();
        PacketHeader { kind, session: SessionId(0x0403_0201), sequence }.encode(&mut bytes);
        bytes
    };
    let request = PacketKind::Request(ClientNumber(7));
    vec![header(PacketKind::Symbol, 1), header(PacketKind::Beacon, 1 << 40), header(request, u64::MAX)]
}

pub(super) fn header_again(bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
    let (header, rest) = PacketHeader::decode(bytes)?;
    let mut again = Vec::new();
    header.encode(&mut again);
    assert_eq!(again.len(), header.length_bytes());
    if rest.is_empty() { Ok(again) } else { Err(FormatError::Length { structure: "header" }) }
}

pub(super) fn symbols() -> Vec<Vec<u8>> {
    let symbol = |index: u16, payload: &[u8]| {
        let mut bytes = Vec::new();
        Symbol { chunk: 70_000, form: 0xf0f1_f2f3, chunk_bytes: 300, index, payload }.encode(&mut bytes);
        bytes
    };
    vec![symbol(0, &[7; 128]), symbol(2, &[9; 44]), symbol(3, &[5; 128])]
}

pub(super) fn symbol_again(bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
    let mut again = Vec::new();
    Symbol::decode(bytes, SYMBOL_BYTES, RepairCode::RaptorQ)?.encode(&mut again);
    Ok(again)
}

pub(super) fn beacons() -> Vec<Vec<u8>> {
    let beacon = Beacon {
        epoch: 5,
        machines: 16,
        queue_ms: 2300,
        sending: [9].into_iter().collect(),
        just_sent: [7, 8].into_iter().collect(),
        unavailable: [50_000].into_iter().collect(),
        excluded: [3, 1 << 31].into_iter().collect(),
        unheard: [4, 5].into_iter().collect(),
        queued: (10..300).chain(1000..99_999).collect(),
    };
    [Beacon::default(), beacon].map(|beacon| encoded_beacon(&beacon, usize::MAX)).to_vec()
}

pub(super) fn beacon_again(bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
    Ok(encoded_beacon(&Beacon::decode(bytes, CHUNKS)?, usize::MAX))
}

fn encoded_beacon(beacon: &Beacon, bytes_max: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    beacon.encode(bytes_max, &mut bytes);
    bytes
}

pub(super) fn requests() -> Vec<Vec<u8>> {
    let missing = |chunk, symbols: &[u32]| BegunChunk {
        chunk,
        form: 0xf0f1_f2f3,
        needed: 300,
        next_repair: 7,
        missing: symbols.iter().copied().collect(),
    };
    let request = Request {
        seen: 1 << 33,
        received: 990,
        expected: 1000,
        left: 60_002,
        lacking: (40_000..99_999).collect(),
        begun: vec![missing(3, &[0, 1, 2, 65_535]), missing(70, &[8]), missing(71, &[])],
    };
    [Request::default(), request].map(|request| encoded_request(&request, usize::MAX)).to_vec()
}

pub(super) fn request_again(bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
    Ok(encoded_request(&Request::decode(bytes, CHUNKS)?, usize::MAX))
}

fn encoded_request(request: &Request, bytes_max: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(bytes_max, &mut bytes);
    bytes
}

pub(super) fn joins() -> Vec<Vec<u8>> {
    let reply = JoinReply {
        group: Ipv4Addr::new(239, 192, 3, 7),
        source: Ipv4Addr::new(192, 0, 2, 5),
        port: 7444,
        request_port: 7445,
        symbol_bytes: USUAL_SYMBOL_BYTES,
        ttl: 4,
        rate_bytes_per_second: 118_000_000,
        session: SessionId(0x0403_0201),
        epoch: 5,
        client: ClientNumber(7),
        machines: 3,
        waits_for: 30,
        chunks: CHUNKS,
        repairs: RepairCode::RaptorQ,
        keys: None,
    };
    let keys = Some(SessionKeys { group: [1; 32], client: [2; 32] });
    vec![reply.encode(), JoinReply { keys, ..reply }.encode()]
}

#[test]
fn a_datagram_fills_an_ethernet_frame() {
    assert_eq!(symbol_bytes_for(1500), USUAL_SYMBOL_BYTES);
    let datagram = HEADER_BYTES + body_bytes_max(USUAL_SYMBOL_BYTES) + TAG_BYTES;
    assert_eq!(datagram, 1500 - 20 - 8);
    assert_eq!(REQUEST_HEADER_BYTES + request_bytes_max(USUAL_SYMBOL_BYTES) + TAG_BYTES, datagram);
    assert_eq!(symbol_bytes_for(9000), SYMBOL_BYTES_MAX);
    assert_eq!((symbol_bytes_for(0), symbol_bytes_for(u16::MAX)), (SYMBOL_BYTES_MIN, SYMBOL_BYTES_MAX));
}

#[test]
fn keys_are_not_printed() {
    let reply = JoinReply::decode(&joins()[1]).unwrap();
    assert!(format!("{reply:?}").contains("SessionKeys { .. }"));
}

#[test]
fn a_reply_that_no_machine_can_use_is_refused() {
    let reply = joins().remove(0);
    let is_refused = |change: &dyn Fn(&mut JoinReply)| {
        let mut changed = JoinReply::decode(&reply).unwrap();
        change(&mut changed);
        JoinReply::decode(&changed.encode()).is_err()
    };
    assert!(is_refused(&|reply| reply.group = Ipv4Addr::new(192, 0, 2, 1)));
    assert!(is_refused(&|reply| reply.source = reply.group));
    assert!(is_refused(&|reply| reply.source = Ipv4Addr::UNSPECIFIED));
    assert!(is_refused(&|reply| reply.port = 0));
    assert!(is_refused(&|reply| reply.symbol_bytes = SYMBOL_BYTES_MAX + 1));
    assert!(is_refused(&|reply| reply.client = ClientNumber(0)));
    assert!(is_refused(&|reply| reply.rate_bytes_per_second = 0));
    assert!(is_refused(&|reply| reply.chunks = CHUNKS_MAX + 1));
    let mut other_family = reply.clone();
    other_family[5] = 6;
    assert!(matches!(JoinReply::decode(&other_family), Err(FormatError::Newer { features: 6, .. })));
    for version in [1, 3] {
        let mut other_version = reply.clone();
        other_version[4] = version;
        let found = JoinReply::decode(&other_version);
        assert!(matches!(found, Err(FormatError::Newer { version: found, .. }) if found == u16::from(version)));
    }
}

#[test]
fn a_symbol_has_the_length_that_its_index_has() {
    let decode = |index, length, symbol_bytes| {
        let mut bytes = Vec::new();
        let payload = vec![1; length];
        Symbol { chunk: 1, form: 2, chunk_bytes: 300, index, payload: &payload }.encode(&mut bytes);
        let decode = |repairs| Symbol::decode(&bytes, symbol_bytes, repairs).is_ok();
        let is_original = usize::from(index) * usize::from(symbol_bytes) < 300;
        assert!(!is_original || decode(RepairCode::None) == decode(RepairCode::RaptorQ));
        decode(RepairCode::None)
    };
    assert!(decode(0, 128, 128) && decode(2, 44, 128) && decode(0, 300, 1428));
    assert!(!decode(0, 127, 128) && !decode(2, 45, 128) && !decode(2, 128, 128) && !decode(3, 0, 128));
    assert!(!decode(0, 128, 0), "no session has such symbols");
    assert_eq!(symbols_of(4 << 20, SYMBOL_BYTES_MIN), 1 << 15);
}

#[test]
fn repair_symbols_are_whole_and_exist_for_chunks_of_bounded_size() {
    let decode = |symbols: u32, index, length, repairs| {
        let mut bytes = Vec::new();
        let payload = vec![1; length];
        Symbol { chunk: 1, form: 2, chunk_bytes: symbols * 128 - 1, index, payload: &payload }.encode(&mut bytes);
        Symbol::decode(&bytes, 128, repairs).is_ok()
    };
    let most = CODED_SYMBOLS_MAX.into();
    assert!(decode(3, 3, 128, RepairCode::RaptorQ) && decode(most, u16::MAX, 128, RepairCode::RaptorQ));
    assert!(!decode(3, 3, 127, RepairCode::RaptorQ) && !decode(3, 3, 129, RepairCode::RaptorQ));
    assert!(!decode(3, 3, 128, RepairCode::None));
    assert!(!decode(most + 1, CODED_SYMBOLS_MAX + 1, 128, RepairCode::RaptorQ));
}

/// Returns a drawn set of numbers below `bound`: a few long runs, or many numbers.
fn drawn_set(random: &SeededRandom, bound: u32) -> IndexSet {
    let one_in = [2, 10, 1000][usize::try_from(random.below(3)).unwrap()];
    (0..bound).filter(|_| random.below(one_in) == 0).collect()
}

#[test]
fn notes_that_are_too_long_name_the_first_chunks() {
    let random = SeededRandom::new(3);
    for _ in 0..200 {
        let bytes_max = 60 + usize::try_from(random.below(1500)).unwrap();
        let (lacking, queued) = (drawn_set(&random, 5000), drawn_set(&random, 5000));
        let beacon = Beacon { sending: [1].into_iter().collect(), queued, ..Beacon::default() };
        let bytes = encoded_beacon(&beacon, bytes_max);
        assert!(bytes.len() <= bytes_max);
        let decoded = Beacon::decode(&bytes, CHUNKS).unwrap();
        assert_eq!(decoded.sending, beacon.sending);
        assert!(beacon.queued.iter().zip(decoded.queued.iter()).all(|(all, first)| all == first));
        let begun = (0..5u32).map(|chunk| BegunChunk {
            chunk: 6000 + chunk,
            form: 1,
            needed: 1,
            next_repair: 0,
            missing: drawn_set(&random, 900),
        });
        let begun: Vec<BegunChunk> = begun.filter(|begun| !begun.missing.is_empty()).collect();
        let request = Request { left: CHUNKS, lacking, begun, ..Request::default() };
        let bytes = encoded_request(&request, bytes_max);
        assert!(bytes.len() <= bytes_max, "{} > {bytes_max}", bytes.len());
        let decoded = Request::decode(&bytes, CHUNKS).unwrap();
        assert!(request.lacking.iter().zip(decoded.lacking.iter()).all(|(all, first)| all == first));
        for (all, first) in request.begun.iter().zip(&decoded.begun) {
            assert_eq!(all.chunk, first.chunk);
            assert!(all.missing.iter().zip(first.missing.iter()).all(|(all, first)| all == first));
        }
        let has_room = bytes_max > bytes.len() + 20;
        assert!(!has_room || request.lacking == decoded.lacking && request.begun == decoded.begun);
    }
}

#[test]
fn arbitrary_datagrams_cost_little_and_end() {
    let random = SeededRandom::new(9);
    for _ in 0..5000 {
        let mut bytes = vec![0; usize::try_from(random.below(1500)).unwrap()];
        random.fill(&mut bytes).unwrap();
        if let Some(first) = bytes.first_mut() {
            *first = 1;
        }
        for again in [header_again, symbol_again, beacon_again, request_again] {
            if let Ok(encoded) = again(&bytes) {
                assert_eq!(encoded, bytes);
            }
        }
    }
}

#[test]
fn sets_know_their_numbers() {
    let set: IndexSet = [0, 1, 2, 5, 9, 10].into_iter().collect();
    let expected = [0, 1, 2, 5, 9, 10];
    assert_eq!(set.iter().collect::<Vec<u32>>(), expected);
    assert_eq!(set.len(), 6);
    for number in 0..20 {
        assert_eq!(set.contains(number), expected.contains(&number), "{number}");
    }
    let mut unordered: IndexSet = [5, 3, 5].into_iter().collect();
    unordered.push(u32::MAX);
    assert_eq!(unordered.iter().collect::<Vec<u32>>(), [5]);
}
