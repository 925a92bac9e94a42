//! Sockets of multicast. Interface, address, ports and TTL are set explicitly; no default route is needed.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::ops::Range;
use std::time::Duration;

use onefold_block::Show;
use onefold_linux::{DatagramBatch, interface_addresses, segment_datagrams};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{ip_mtu, set_socket_recv_buffer_size_force};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};
use socket2::{Domain, Protocol, Socket, Type};

/// Maximum length of what the kernel cuts into packets.
const SEGMENTED_BYTES_MAX: usize = 60 << 10;
/// Room for received packets that wait for the receiving thread, in bytes: at 1 Gbit/s they come in 70 milliseconds.
/// The kernel may grant less to a program that may not administer the network.
const RECEIVE_BYTES: usize = 8 << 20;
/// The same for packets that wait to be sent. A burst fits.
const SEND_BYTES: usize = 1 << 20;

/// How a group is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupRoute {
    /// The group and the port of its receivers.
    pub(crate) group: SocketAddrV4,
    /// The server's address on the interface that the packets leave by, and the port that they come from.
    pub(crate) source: SocketAddrV4,
    /// How many networks packets may cross: 1 is the interface's own.
    pub(crate) ttl: u8,
}

/// The server's socket: packets to the group leave here, and requests arrive here.
#[derive(Debug)]
pub(crate) struct ServerSocket {
    socket: UdpSocket,
    group: SocketAddrAny,
    /// Length of the packets that the kernel cuts; 0 if it cannot.
    segment_bytes: usize,
}

impl ServerSocket {
    /// Opens a socket for packets of at most `packet_bytes` each.
    ///
    /// # Errors
    /// When the address is not this machine's, the port is taken, or an option cannot be set.
    pub(crate) fn open(route: GroupRoute, packet_bytes: u16) -> io::Result<ServerSocket> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind(&SocketAddr::V4(route.source).into())?;
        socket.set_multicast_if_v4(route.source.ip())?;
        socket.set_multicast_ttl_v4(route.ttl.into())?;
        // Clients on the server's own machine are served, too.
        socket.set_multicast_loop_v4(true)?;
        // More than the system allows is not granted, and not needed.
        let _ = socket.set_send_buffer_size(SEND_BYTES);
        let can_segment = segment_datagrams(&socket, packet_bytes).is_ok();
        Ok(ServerSocket {
            socket: socket.into(),
            group: SocketAddr::V4(route.group).into(),
            segment_bytes: if can_segment { packet_bytes.into() } else { 0 },
        })
    }

    /// Sends packets to the group. They lie one after the other in `bytes`, and `ends` says where each one ends.
    ///
    /// # Errors
    /// When one cannot be sent; those behind it are not sent, either.
    pub(crate) fn send(&mut self, (bytes, ends): (&[u8], &[usize])) -> io::Result<()> {
        match self.send_runs(bytes, &runs(ends, self.segment_bytes)) {
            // Some interfaces take no packets that the kernel cuts. Receivers ignore packets that come twice.
            Err(Errno::IO | Errno::INVAL) if self.segment_bytes > 0 => {
                segment_datagrams(&self.socket, 0)?;
                self.segment_bytes = 0;
                Ok(self.send_runs(bytes, &runs(ends, 0))?)
            }
            sent => Ok(sent?),
        }
    }

    /// Sends parts of `bytes`, with as few calls as the kernel allows.
    fn send_runs(&self, bytes: &[u8], runs: &[Range<usize>]) -> Result<(), Errno> {
        let slices: Vec<IoSlice<'_>> = runs.iter().map(|run| IoSlice::new(&bytes[run.clone()])).collect();
        let mut rest = slices.as_slice();
        while !rest.is_empty() {
            let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
                rest.iter().map(|_| SendAncillaryBuffer::default()).collect();
            let parts = rest.chunks(1).zip(&mut controls);
            let mut messages: Vec<MMsgHdr<'_>> =
                parts.map(|(run, control)| MMsgHdr::new_with_addr(&self.group, run, control)).collect();
            // An error of a later message is returned by the next call.
            let sent = sendmmsg(&self.socket, &mut messages, SendFlags::empty())?;
            rest = rest.get(sent.max(1)..).unwrap_or_default();
        }
        Ok(())
    }

    /// Takes requests that have arrived, and waits for the first one for at most `patience`, or until `waker` is
    /// readable. Returns whether any came.
    ///
    /// # Errors
    /// When the socket fails.
    pub(crate) fn receive(
        &self,
        batch: &mut DatagramBatch,
        waker: BorrowedFd<'_>,
        patience: Duration,
    ) -> io::Result<bool> {
        receive(&self.socket, batch, Some(waker), patience)
    }
}

/// Divides a burst, in which packets have these ends, into runs that the kernel takes in one piece each: packets of the
/// segments' length, and one shorter one at the end.
fn runs(ends: &[usize], segment_bytes: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let (mut start, mut is_open) = (0, false);
    for end in ends {
        let length = end - start;
        match runs.last_mut() {
            Some(run) if is_open && end - run.start <= SEGMENTED_BYTES_MAX && length <= segment_bytes => run.end = *end,
            _ => runs.push(start..*end),
        }
        is_open = length == segment_bytes;
        start = *end;
    }
    runs
}

/// Returns the length of the longest packets that leave by the interface with the address `source`, with all headers.
///
/// # Errors
/// When there is no such interface.
pub(crate) fn mtu_bytes(source: Ipv4Addr, group: SocketAddrV4) -> io::Result<u16> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.set_multicast_if_v4(&source)?;
    socket.connect(&SocketAddr::V4(group).into())?;
    Ok(u16::try_from(ip_mtu(&socket)?).unwrap_or(u16::MAX))
}

/// Returns the first IPv4 address of an interface.
///
/// # Errors
/// When there is no such interface, or it has none.
pub(crate) fn address_of(interface: &str) -> io::Result<Ipv4Addr> {
    let addresses = interface_addresses()?;
    let found = addresses.into_iter().find(|(name, _)| name == interface).map(|(_, address)| address);
    found.ok_or_else(|| io::Error::other("there is no such interface with an IPv4 address"))
}

/// Returns the name of the interface that has an address, for messages; the address itself if the name is not known.
pub(crate) fn interface_of(address: Ipv4Addr) -> String {
    let addresses = interface_addresses().unwrap_or_default();
    let found = addresses.into_iter().find(|(_, other)| *other == address);
    found.map_or_else(|| address.to_string(), |(name, _)| name.shown().to_string())
}

/// How a client listens to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// To packets from the server only; routers and switches know the source.
    SourceSpecific,
    /// To packets from anywhere, because the system or the network knows no sources.
    AnySource,
}

/// The socket with which a client listens to a group.
#[derive(Debug)]
pub(crate) struct GroupSocket {
    socket: UdpSocket,
    membership: Membership,
    /// Room for received packets, in bytes of the kernel's memory.
    room_bytes: usize,
}

impl GroupSocket {
    /// Joins a group on the interface with the address `local`.
    ///
    /// # Errors
    /// When there is no such interface, or no way to join.
    pub(crate) fn join(group: SocketAddrV4, source: Ipv4Addr, local: Ipv4Addr) -> io::Result<GroupSocket> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        // Several clients may run on one machine.
        socket.set_reuse_address(true)?;
        // Bound to the group, it gets no datagrams to other addresses with this port.
        socket.bind(&SocketAddr::V4(group).into())?;
        // Other programs' memberships bring nothing here.
        socket.set_multicast_all_v4(false)?;
        // Most systems allow others only as much as comes in a few milliseconds.
        if set_socket_recv_buffer_size_force(&socket, RECEIVE_BYTES).is_err() {
            let _ = socket.set_recv_buffer_size(RECEIVE_BYTES);
        }
        let membership = match socket.join_ssm_v4(&source, group.ip(), &local) {
            Ok(()) => Membership::SourceSpecific,
            Err(_) => {
                socket.join_multicast_v4(group.ip(), &local)?;
                Membership::AnySource
            }
        };
        let room_bytes = socket.recv_buffer_size()?;
        Ok(GroupSocket { socket: socket.into(), membership, room_bytes })
    }

    /// Returns the room for received packets that the system has granted, in bytes of the kernel's memory. A packet
    /// takes up to three times its length of it.
    pub(crate) fn room_bytes(&self) -> usize {
        self.room_bytes
    }

    /// Returns how the group was joined.
    pub(crate) fn membership(&self) -> Membership {
        self.membership
    }

    /// Receives packets, and waits for the first one for at most `patience`. Returns whether any came.
    ///
    /// # Errors
    /// When the socket fails.
    pub(crate) fn receive(&self, batch: &mut DatagramBatch, patience: Duration) -> io::Result<bool> {
        receive(&self.socket, batch, None, patience)
    }
}

/// Returns a socket for requests to the server. Its address is that of the interface which leads there.
///
/// # Errors
/// When the server cannot be reached from here.
pub(crate) fn request_socket(server: SocketAddrV4) -> io::Result<(UdpSocket, Ipv4Addr)> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(server)?;
    match socket.local_addr()? {
        SocketAddr::V4(local) => Ok((socket, *local.ip())),
        SocketAddr::V6(_) => Err(io::Error::from(io::ErrorKind::Unsupported)),
    }
}

/// Takes datagrams, and waits for the first one, or until one of `wakers` is readable. The socket's own timeout is too
/// coarse for the pacing of packets.
fn receive(
    socket: &UdpSocket,
    batch: &mut DatagramBatch,
    waker: Option<BorrowedFd<'_>>,
    patience: Duration,
) -> io::Result<bool> {
    if batch.receive(socket)? > 0 || patience.is_zero() {
        return Ok(batch.datagrams().next().is_some());
    }
    let mut sources = vec![PollFd::new(socket, PollFlags::IN)];
    sources.extend(waker.map(|waker| PollFd::from_borrowed_fd(waker, PollFlags::IN)));
    let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
    match poll(&mut sources, Some(&patience)) {
        Ok(_) | Err(Errno::INTR) => Ok(batch.receive(socket)? > 0),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fd::AsFd;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Sockets of a server and a client over loopback, with a group and ports of their own.
    fn sockets(group: [u8; 4], packet_bytes: u16) -> (ServerSocket, GroupSocket) {
        // A free port.
        let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let group = SocketAddrV4::new(group.into(), port);
        let route = GroupRoute { group, source: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), ttl: 1 };
        let server = ServerSocket::open(route, packet_bytes).unwrap();
        let client = GroupSocket::join(group, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST).unwrap();
        (server, client)
    }

    fn burst(packets: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        let mut ends = Vec::new();
        packets.iter().for_each(|packet| ends.push(ends.last().unwrap_or(&0) + packet.len()));
        (packets.concat(), ends)
    }

    fn received(client: &GroupSocket, count: usize) -> Vec<Vec<u8>> {
        let mut batch = DatagramBatch::new(2000);
        let mut packets = Vec::new();
        while packets.len() < count && client.receive(&mut batch, SECOND).unwrap() {
            packets.extend(batch.datagrams().map(|(packet, _)| packet.to_vec()));
        }
        packets
    }

    #[test]
    fn a_burst_reaches_the_group_with_and_without_segmentation() {
        let (mut server, client) = sockets([239, 192, 3, 7], 1000);
        assert_eq!(client.membership(), Membership::SourceSpecific);
        let lengths = [1000, 1000, 700, 1000, 40, 40, 1000, 1000, 1000, 1];
        let packets: Vec<Vec<u8>> = (0..32).map(|at: u8| vec![at; lengths[usize::from(at) % lengths.len()]]).collect();
        let (bytes, ends) = burst(&packets);
        for segment_bytes in [server.segment_bytes, 0] {
            server.segment_bytes = segment_bytes;
            if segment_bytes == 0 {
                // As with a kernel that knows no segmentation.
                segment_datagrams(&server.socket, 0).unwrap();
            }
            server.send((&bytes, &ends)).unwrap();
            assert_eq!(received(&client, packets.len()), packets);
        }
    }

    #[test]
    fn a_burst_is_sent_packet_by_packet_where_it_cannot_be_cut() {
        let (mut server, client) = sockets([239, 192, 3, 11], 1000);
        // The kernel does not cut anything into so many segments.
        segment_datagrams(&server.socket, 1).unwrap();
        let packets: Vec<Vec<u8>> = (0..32).map(|at: u8| vec![at; 1000]).collect();
        let (bytes, ends) = burst(&packets);
        server.send((&bytes, &ends)).unwrap();
        assert_eq!((received(&client, packets.len()), server.segment_bytes), (packets, 0));
    }

    #[test]
    fn packets_of_another_source_do_not_arrive() {
        let (mut server, client) = sockets([239, 192, 3, 8], 1000);
        let stranger = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
        stranger.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
        stranger.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
        let group = SocketAddr::try_from(server.group.clone()).unwrap();
        stranger.send_to(b"forged", &group.into()).unwrap();
        server.send((b"genuine", &[7])).unwrap();
        assert_eq!(received(&client, 1), [b"genuine"]);
        assert!(!client.receive(&mut DatagramBatch::new(10), Duration::from_millis(20)).unwrap());
    }

    #[test]
    fn requests_reach_the_server_from_the_interface_that_leads_there() {
        let (server, _) = sockets([239, 192, 3, 9], 1000);
        let SocketAddr::V4(address) = server.socket.local_addr().unwrap() else { panic!("IPv4") };
        let (requests, local) = request_socket(address).unwrap();
        assert_eq!(local, Ipv4Addr::LOCALHOST);
        requests.send(b"request").unwrap();
        let mut batch = DatagramBatch::new(100);
        let waker = eventfd(0, EventfdFlags::empty()).unwrap();
        assert!(server.receive(&mut batch, waker.as_fd(), SECOND).unwrap());
        let (request, from) = batch.datagrams().next().unwrap();
        assert_eq!((&*request, SocketAddr::V4(from)), (b"request".as_slice(), requests.local_addr().unwrap()));
        assert!(!server.receive(&mut batch, waker.as_fd(), Duration::ZERO).unwrap());
        rustix::io::write(&waker, &1_u64.to_ne_bytes()).unwrap();
        assert!(!server.receive(&mut batch, waker.as_fd(), 60 * SECOND).unwrap(), "woken");
    }

    #[test]
    fn a_run_ends_with_a_shorter_packet_or_where_it_is_full() {
        let runs = |lengths: &[usize], segment_bytes| {
            let (_, ends) = burst(&lengths.iter().map(|length| vec![0; *length]).collect::<Vec<_>>());
            runs(&ends, segment_bytes).into_iter().map(|run| run.len()).collect::<Vec<_>>()
        };
        assert_eq!(runs(&[9, 9, 9], 9), [27]);
        assert_eq!(runs(&[9, 9, 4, 9, 4, 4, 4], 9), [22, 13, 4, 4]);
        assert_eq!(runs(&[9, 12, 9], 9), [9, 12, 9]);
        assert_eq!(runs(&[9, 9], 0), [9, 9]);
        assert_eq!(runs(&[30_000; 5], 30_000), [60_000, 60_000, 30_000]);
        assert_eq!(runs(&[], 9), [0; 0]);
    }

    #[test]
    fn the_length_of_packets_is_that_of_the_interface() {
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 192, 3, 10), 7443);
        assert_eq!(mtu_bytes(Ipv4Addr::LOCALHOST, group).unwrap(), u16::MAX);
        assert!(mtu_bytes(Ipv4Addr::new(192, 0, 2, 77), group).is_err(), "no interface of this machine");
    }
}
