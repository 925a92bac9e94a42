//! Measures the load that machines put on a sender of multicast: `multicast_load MACHINES LOSS`, where each machine
//! loses LOSS packets of a million by itself. All of them are state machines in this process, and time is simulated, so
//! a thousand machines need no network. Prints one JSON object: requests a second that reach the sender while machines
//! lack chunks, the number of farewells (the last request of each machine, which says that it has all), bytes of chunks
//! that the sender sends for each byte of the image, and the processor time of its decisions, packets and repair
//! symbols. Seals and sockets are left out: they take the same time for each packet, however many machines there are.

use std::error::Error;
use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use onefold_block::Random;
use onefold_block::random::SeededRandom;
use onefold_image::format::multicast::{
    ClientNumber, JoinReply, PacketHeader, PacketKind, RepairCode, Request, SessionId, TAG_BYTES,
};
use onefold_image::multicast::{
    PacketBurst, Receiver, ReceiverAction, ReceiverSettings, Sender, SenderSettings, Settlement,
};
use rustix::time::{ClockId, clock_gettime};

type Done<T> = Result<T, Box<dyn Error>>;

/// Short chunks, so that a thousand machines that put some together have room in the memory.
const CHUNK_BYTES: usize = 64 << 10;
const CHUNKS: u32 = 160;
const SYMBOL_BYTES: u16 = 1428;
const RATE: NonZeroU64 = NonZeroU64::new(1 << 20).unwrap();
const MEMORY_BYTES: usize = 5 << 20;
/// Time between two looks at the machines.
const STEP: Duration = Duration::from_millis(1);
/// Within this time, all machines begin.
const STARTS: Duration = Duration::from_millis(500);
const END: Duration = Duration::from_secs(600);
const MILLION: u64 = 1_000_000;

fn main() -> Done<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machines, loss] = &arguments[..] else { return Err("usage: multicast_load MACHINES LOSS".into()) };
    let (machines, loss) = (machines.parse()?, loss.parse()?);
    if !(1..=4096).contains(&machines) || loss > MILLION {
        return Err("expected 1 to 4096 machines, and a loss of at most 1000000".into());
    }
    let mut group = Group::new(machines, loss)?;
    let mut now = Duration::ZERO;
    while group.machines.iter().any(|machine| !machine.is_finished) {
        if now >= END {
            return Err("the machines do not finish".into());
        }
        group.step(now)?;
        now += STEP;
    }
    let (counts, seconds) = (group.sender.counts(), now.as_secs_f64());
    println!(
        r#"{{ "seconds": {seconds:.3}, "requests": {}, "requests_per_second": {:.3}, "farewells": {}, "sent_ratio": {:.5}, "sender_seconds": {:.6} }}"#,
        group.requests,
        group.requests as f64 / seconds,
        group.farewells,
        (counts.payload_bytes + counts.repeated_bytes) as f64 / (u64::from(CHUNKS) * CHUNK_BYTES as u64) as f64,
        group.sender_time.as_secs_f64(),
    );
    Ok(())
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
}

/// A sender and its machines.
struct Group {
    sender: Sender,
    /// Processor time of the sender.
    sender_time: Duration,
    machines: Vec<Machine>,
    requests: u64,
    farewells: u64,
    loss: u64,
    random: SeededRandom,
}

struct Machine {
    receiver: Receiver,
    starts: Duration,
    client: Option<ClientNumber>,
    /// The highest sequence number that it has received.
    highest: u64,
    is_finished: bool,
}

impl Group {
    fn new(machines: u64, loss: u64) -> Done<Group> {
        let random = SeededRandom::new(machines ^ (loss << 16));
        let settings = SenderSettings {
            session: SessionId(1),
            epoch: 1,
            chunks: CHUNKS,
            symbol_bytes: SYMBOL_BYTES,
            rate_bytes_per_second: RATE,
            rate_floor_bytes_per_second: RATE,
            cache_bytes: MEMORY_BYTES,
            clients_max: u32::try_from(machines)?,
            repairs: RepairCode::RaptorQ,
        };
        let receiver_settings = ReceiverSettings { chunks: CHUNKS, memory_bytes: MEMORY_BYTES };
        let machine = |number| {
            let starts = STARTS * u32::try_from(random.below(1000)).unwrap_or(0) / 1000;
            let receiver = Receiver::new(receiver_settings, Arc::new(SeededRandom::new(number)), Duration::ZERO);
            Machine { receiver, starts, client: None, highest: 0, is_finished: false }
        };
        let machines = (0..machines).map(machine).collect();
        let sender = Sender::new(settings, Duration::ZERO);
        Ok(Group { sender, sender_time: Duration::ZERO, machines, requests: 0, farewells: 0, loss, random })
    }

    /// Lets the sender send what it may, and each machine do what is due.
    fn step(&mut self, now: Duration) -> Done<()> {
        for index in 0..self.machines.len() {
            if self.machines[index].client.is_none() && self.machines[index].starts <= now {
                self.join(index, now)?;
            }
        }
        self.build(now)?;
        loop {
            let mut burst = PacketBurst::default();
            self.timed(|sender| sender.send(now, &mut burst));
            if burst.is_empty() {
                break;
            }
            for packet in burst.packets_mut() {
                self.deliver(packet, now)?;
            }
        }
        for index in 0..self.machines.len() {
            if self.machines[index].receiver.next_time().is_some_and(|at| at <= now) {
                self.act(index, now)?;
            }
        }
        Ok(())
    }

    fn timed<T>(&mut self, work: impl FnOnce(&mut Sender) -> T) -> T {
        let begun = processor_time();
        let done = work(&mut self.sender);
        self.sender_time += processor_time().saturating_sub(begun);
        done
    }

    fn join(&mut self, index: usize, now: Duration) -> Done<()> {
        let client = self.timed(|sender| sender.join(now)).ok_or("there is no place")?;
        let reply = JoinReply {
            group: Ipv4Addr::new(239, 1, 1, 1),
            source: Ipv4Addr::LOCALHOST,
            port: 1,
            request_port: 2,
            symbol_bytes: SYMBOL_BYTES,
            ttl: 1,
            rate_bytes_per_second: RATE.get(),
            session: SessionId(1),
            epoch: 1,
            client,
            machines: self.sender.machines().max(1),
            waits_for: 0,
            chunks: CHUNKS,
            repairs: RepairCode::RaptorQ,
            keys: None,
        };
        self.machines[index].client = Some(client);
        self.machines[index].receiver.joined(reply, now);
        Ok(())
    }

    /// Builds the chunks that the sender wants next, and makes the repair symbols.
    fn build(&mut self, now: Duration) -> Done<()> {
        while let Some(chunk) = self.timed(Sender::next_build) {
            let mut bytes = vec![0; CHUNK_BYTES];
            SeededRandom::new(chunk.into()).fill(&mut bytes)?;
            self.timed(|sender| sender.chunk_built(chunk, 1, bytes, now));
        }
        while let Some(job) = self.timed(Sender::next_repair_job) {
            self.timed(|sender| sender.repairs_made(job.run()));
        }
        Ok(())
    }

    /// Brings a packet to each machine that does not lose it.
    fn deliver(&mut self, packet: &[u8], now: Duration) -> Done<()> {
        let (header, body) = PacketHeader::decode(&packet[..packet.len() - TAG_BYTES])?;
        for machine in self.machines.iter_mut().filter(|machine| machine.client.is_some() && !machine.is_finished) {
            if self.random.below(MILLION) >= self.loss {
                machine.highest = machine.highest.max(header.sequence);
                machine.receiver.packet(header, body, now)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, index: usize, now: Duration) -> Done<()> {
        while let Some(action) = self.machines[index].receiver.next_action(now) {
            match action {
                ReceiverAction::Send(datagram) => self.take_request(&datagram, now)?,
                ReceiverAction::Take { chunk, content } => {
                    // The bytes themselves are not needed.
                    drop(content);
                    self.machines[index].receiver.settle(chunk, Settlement::Present);
                }
                ReceiverAction::Finish => {
                    self.machines[index].is_finished = true;
                    self.take_farewell(index, now);
                }
                action => return Err(format!("a machine leaves the group: {action:?}").into()),
            }
        }
        Ok(())
    }

    /// Takes the request with which a machine says that it has all.
    fn take_farewell(&mut self, index: usize, now: Duration) {
        let machine = &self.machines[index];
        let Some(client) = machine.client else { return };
        let request = Request { seen: machine.highest, ..Request::default() };
        self.farewells += 1;
        self.timed(|sender| sender.request(client, &request, now));
    }

    fn take_request(&mut self, datagram: &[u8], now: Duration) -> Done<()> {
        self.requests += 1;
        let (header, body) = PacketHeader::decode(&datagram[..datagram.len() - TAG_BYTES])?;
        let PacketKind::Request(client) = header.kind else { return Err("no request".into()) };
        let begun = processor_time();
        let request = Request::decode(body, CHUNKS)?;
        self.sender.request(client, &request, now);
        self.sender_time += processor_time().saturating_sub(begun);
        Ok(())
    }
}
