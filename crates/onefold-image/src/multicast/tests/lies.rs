//! Machines of the session that claim what is not so.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::format::multicast::{
    Beacon, BegunChunk, ClientNumber, IndexSet, PacketHeader, PacketKind, RepairCode, Request, SessionId, Symbol,
    TAG_BYTES,
};
use crate::multicast::{PacketBurst, RepairJob, RepairSymbols, Sender, SenderSettings};

const CHUNK_BYTES: usize = 1000;
const SYMBOL_BYTES: u16 = 128;
/// Symbols of each chunk.
const SYMBOLS: u16 = 8;

/// A sender of two chunks, and one machine.
struct Session {
    sender: Sender,
    client: ClientNumber,
    second: u64,
    /// Makes repair symbols.
    run: fn(RepairJob) -> RepairSymbols,
}

impl Session {
    fn new() -> Session {
        let settings = SenderSettings {
            session: SessionId(7),
            epoch: 3,
            chunks: 2,
            symbol_bytes: SYMBOL_BYTES,
            rate_bytes_per_second: NonZeroU64::new(1_000_000).unwrap(),
            rate_floor_bytes_per_second: NonZeroU64::new(1_000).unwrap(),
            cache_bytes: 3000,
            clients_max: 10,
            repairs: RepairCode::RaptorQ,
        };
        let mut sender = Sender::new(settings, Duration::ZERO);
        let client = sender.join(Duration::ZERO).unwrap();
        Session { sender, client, second: 0, run: RepairJob::run }
    }

    /// Passes a request for symbols of the first chunk, and returns the indices of the symbols that are sent.
    fn sent(&mut self, needed: u16, next_repair: u16) -> Vec<u16> {
        let begun = BegunChunk { chunk: 0, form: 1, needed, next_repair, missing: IndexSet::default() };
        self.request(vec![begun]);
        let mut sent = Vec::new();
        for _ in 0..10 {
            self.second += 1;
            let now = Duration::from_secs(self.second);
            while let Some(chunk) = self.sender.next_build() {
                self.sender.chunk_built(chunk, 1, vec![5; CHUNK_BYTES], now);
            }
            while let Some(job) = self.sender.next_repair_job() {
                self.sender.repairs_made((self.run)(job));
            }
            let mut burst = PacketBurst::default();
            self.sender.send(now, &mut burst);
            for packet in burst.packets_mut() {
                let (header, body) = PacketHeader::decode(&packet[..packet.len() - TAG_BYTES]).unwrap();
                if header.kind == PacketKind::Symbol {
                    sent.push(Symbol::decode(body, SYMBOL_BYTES, RepairCode::RaptorQ).unwrap().index);
                }
            }
        }
        sent
    }

    fn request(&mut self, begun: Vec<BegunChunk>) {
        self.second += 1;
        let request = Request { seen: 1 << 40, left: 1, begun, ..Request::default() };
        self.sender.request(self.client, &request, Duration::from_secs(self.second));
    }
}

#[test]
fn claims_of_repair_symbols_cost_one_whole_chunk_at_most() {
    let mut session = Session::new();
    assert_eq!(session.sent(1, 64_799), [SYMBOLS], "the claim is ignored");
    assert_eq!(session.sent(2, 0), [SYMBOLS + 1, SYMBOLS + 2]);
    let (mut claim, mut whole) = (0u16, 0);
    for _ in 0..16 {
        claim = claim.saturating_add(4000);
        let sent = session.sent(1, claim);
        whole += u32::from(sent == (0..SYMBOLS).collect::<Vec<_>>());
    }
    assert_eq!((claim, whole), (64_000, 0));
    assert_eq!(session.sent(1, u16::MAX - SYMBOLS), (0..SYMBOLS).collect::<Vec<_>>(), "no repair symbols are left");
    assert_eq!(session.sent(1, 0), [SYMBOLS], "they begin anew");
}

/// Their place would stay taken otherwise, and two of them would end all repairs.
#[test]
fn a_chunk_whose_repair_symbols_cannot_be_made_is_sent_as_a_whole() {
    let mut session = Session::new();
    session.run = |job| RepairSymbols { block: None, ..job.run() };
    for _ in 0..5 {
        assert_eq!(session.sent(1, 0), (0..SYMBOLS).collect::<Vec<_>>());
    }
}

/// The pauses of all machines depend on the length of the queue.
#[test]
fn a_machine_that_claims_to_need_many_symbols_does_not_make_the_queue_long() {
    let mut session = Session::new();
    session.sent(1, 0);
    session.request(vec![BegunChunk {
        chunk: 0,
        form: 1,
        needed: u16::MAX,
        next_repair: 0,
        missing: IndexSet::default(),
    }]);
    let mut burst = PacketBurst::default();
    session.sender.send(Duration::from_secs(session.second), &mut burst);
    let beacon = burst.packets_mut().find_map(|packet| {
        let (header, body) = PacketHeader::decode(&packet[..packet.len() - TAG_BYTES]).unwrap();
        (header.kind == PacketKind::Beacon).then(|| Beacon::decode(body, 2).unwrap())
    });
    assert!(beacon.unwrap().queue_ms <= 1, "a chunk takes a millisecond");
}
