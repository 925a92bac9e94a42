//! Two starts of a server of the same image, group and key: nothing of the first one means anything to the second one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onefold_image::format::multicast::{PacketHeader, SessionId};
use onefold_net::{MulticastOptions, ServerOptions};
use socket2::{Domain, Protocol, Socket, Type};

use crate::fixture::{Fixture, server_options};
use crate::multicast::{install_to, key, multicast};

/// Packets of each kind that are sent again.
const REPLAYED: usize = 100;

/// The numbers of each session that an eavesdropper in the group has heard.
type Numbers = BTreeMap<SessionId, Vec<u64>>;

/// A machine in the group without the key. It hears all packets. As soon as a second session begins, it sends packets
/// of the first one again: as they were, and as if they were of the second one.
struct Eavesdropper {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(Numbers, usize)>,
}

impl Eavesdropper {
    fn new(group: SocketAddrV4) -> Eavesdropper {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.set_recv_buffer_size(8 << 20).unwrap();
        socket.bind(&group.into()).unwrap();
        let socket = UdpSocket::from(socket);
        socket.join_multicast_v4(group.ip(), &Ipv4Addr::LOCALHOST).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || listen(&socket, group, &is_stopped));
        Eavesdropper { stop, thread }
    }

    /// Returns what it has heard, and how many packets it has sent.
    fn finish(self) -> (Numbers, usize) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn listen(socket: &UdpSocket, group: SocketAddrV4, is_stopped: &AtomicBool) -> (Numbers, usize) {
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (mut numbers, mut kept, mut first, mut sent) = (Numbers::new(), Vec::new(), None, 0);
    let mut buffer = vec![0; 65_536];
    while !is_stopped.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        let packet = &buffer[..length];
        let (header, _) = PacketHeader::decode(packet).unwrap();
        if from == sender.local_addr().unwrap() {
            continue;
        }
        numbers.entry(header.session).or_default().push(header.sequence);
        if *first.get_or_insert(header.session) == header.session {
            kept.push(packet.to_vec());
        } else if sent == 0 {
            for packet in kept.iter().take(REPLAYED) {
                let (old, _) = PacketHeader::decode(packet).unwrap();
                let mut renamed = Vec::new();
                PacketHeader { session: header.session, ..old }.encode(&mut renamed);
                renamed.extend_from_slice(&packet[old.length_bytes()..]);
                for packet in [packet, &renamed] {
                    sent += usize::from(sender.send_to(packet, group).is_ok());
                }
            }
        }
    }
    (numbers, sent)
}

/// Waits until the thread of an earlier session has closed its socket.
fn wait_for_port(port: u16) {
    let began = Instant::now();
    while UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "UDP port {port} stays in use");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The nonce of a packet is its number, and the key is that of its session. So no nonce is used twice if no session
/// has the keys of another one, and no number comes twice in a session.
#[test]
fn a_restart_makes_new_keys_and_no_nonce_is_used_twice() {
    let (fixture, folder) = (Fixture::new(4 << 20), tempfile::tempdir().unwrap());
    // Slow enough that the session is under way when old packets come.
    let rate_bytes_per_second = NonZeroU64::new(8 << 20).unwrap();
    let options = MulticastOptions { rate_bytes_per_second, ..multicast(112, Some(key(folder.path(), 'a'))) };
    let eavesdropper = Eavesdropper::new(options.group);
    let mut reports = Vec::new();
    for start in 0..2 {
        wait_for_port(options.group.port());
        let (interface, multicast) = (Some("lo".to_owned()), Some(options.clone()));
        let server = fixture.serve_with(&ServerOptions { interface, multicast, ..server_options() });
        let path = folder.path().join(format!("disk-{start}"));
        let (installed, report, _) = install_to(&path, &server, key(folder.path(), 'a'));
        assert!(installed == fixture.disk.0, "start {start}");
        assert!(report.chunks > 2, "start {start}: {report:?}");
        reports.push(report);
    }
    let (numbers, sent) = eavesdropper.finish();
    assert_eq!(numbers.len(), 2, "each start has a session of its own: {:?}", numbers.keys());
    for (session, numbers) in &numbers {
        let different: BTreeSet<&u64> = numbers.iter().collect();
        assert_eq!(different.len(), numbers.len(), "{session:?} used a number twice");
        assert!(numbers.len() > REPLAYED, "only {} packets were heard", numbers.len());
    }
    assert_eq!(sent, 2 * REPLAYED);
    assert_eq!(reports[0].refused_packets, 0);
    // Those that come when the machine is finished do not count.
    let refused = reports[1].refused_packets;
    assert!((REPLAYED as u64..=sent as u64).contains(&refused), "{refused} of {sent} old packets were refused");
}
