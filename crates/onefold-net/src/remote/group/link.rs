//! The sockets of a session that a machine has joined, and the keys of its packets.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use onefold_image::format::multicast::{
    JoinReply, PacketHeader, PacketKind, REQUEST_HEADER_BYTES, Request, TAG_BYTES, body_bytes_max,
};
use onefold_linux::DatagramBatch;

use super::GroupWay;
use super::join::{JoinedSession, LinkKeys};
use crate::multicast::{GroupSocket, Membership, Opener, Sealer, interface_of, request_socket};

/// A session as one machine is connected to it.
#[derive(Debug)]
pub(super) struct GroupLink {
    pub(super) reply: JoinReply,
    group: GroupSocket,
    requests: UdpSocket,
    /// Name of the interface on which the group was joined.
    pub(super) interface: String,
    sealer: Sealer,
    opener: Opener,
    /// The highest sequence number of the server that came.
    highest: u64,
    /// Datagrams that were not the server's.
    foreign: u64,
}

/// A packet as it came.
pub(super) enum Packet<'p> {
    /// Its header and its plain body.
    Opened(PacketHeader, &'p [u8]),
    /// The header of a packet of another session, which this machine has no key for.
    OfOtherSession(PacketHeader),
}

impl GroupLink {
    /// Opens sockets for a session.
    ///
    /// # Errors
    /// When the server cannot be reached from here, or the group cannot be joined.
    pub(super) fn open(joined: JoinedSession) -> io::Result<GroupLink> {
        let JoinedSession { reply, keys: LinkKeys { group: group_key, client: client_key } } = joined;
        let (requests, local) = request_socket(SocketAddrV4::new(reply.source, reply.request_port))?;
        let group = GroupSocket::join(SocketAddrV4::new(reply.group, reply.port), reply.source, local)?;
        Ok(GroupLink {
            sealer: Sealer::new(&client_key),
            opener: Opener::new(&group_key),
            interface: interface_of(local),
            reply,
            group,
            requests,
            highest: 0,
            foreign: 0,
        })
    }

    /// Continues with the reply to another join. If that is to the same session, its packets that came before do not
    /// count again.
    ///
    /// # Errors
    /// As [`GroupLink::open`]; nothing has changed then.
    pub(super) fn reopen(&mut self, joined: JoinedSession) -> io::Result<()> {
        let session_of = |reply: &JoinReply| (reply.session, reply.epoch, reply.group, reply.port, reply.source);
        let is_same = session_of(&self.reply) == session_of(&joined.reply);
        let mut link = GroupLink::open(joined)?;
        link.foreign = self.foreign;
        if is_same {
            // This machine has another number now.
            self.leave();
            std::mem::swap(&mut link.opener, &mut self.opener);
            link.highest = self.highest;
        }
        *self = link;
        Ok(())
    }

    /// Returns buffers for the packets of the session.
    pub(super) fn batch(&self) -> DatagramBatch {
        DatagramBatch::new(REQUEST_HEADER_BYTES + body_bytes_max(self.reply.symbol_bytes) + TAG_BYTES)
    }

    /// Describes the way that packets take.
    pub(super) fn text(&self) -> String {
        format!("multicast from {} to {}", self.reply.source, self.reply.group)
    }

    /// Returns the way that packets take.
    pub(super) fn way(&self) -> GroupWay {
        GroupWay {
            interface: self.interface.clone(),
            source: SocketAddrV4::new(self.reply.source, self.reply.request_port),
            group: SocketAddrV4::new(self.reply.group, self.reply.port),
            ttl: self.reply.ttl,
            is_source_specific: self.group.membership() == Membership::SourceSpecific,
        }
    }

    /// Returns how long packets may wait in the socket: they fill an eighth of its room at the rate of the session. The
    /// kernel counts up to three times their length, a burst comes on top, and the thread may be late by as much.
    pub(super) fn pause_max(&self) -> Duration {
        pause_max(self.group.room_bytes(), self.reply.rate_bytes_per_second)
    }

    /// Returns the number of datagrams that were dropped unread, and of those among them that are not sealed under this
    /// session's key.
    pub(super) fn refused(&self) -> (u64, u64) {
        let dropped = self.opener.dropped();
        (self.foreign + dropped.truncated + dropped.repeated + dropped.old + dropped.forged, dropped.forged)
    }

    /// Seals and sends a request: header, plain body, and room for the tag. What the network does not take is lost, as
    /// it may be later.
    pub(super) fn send(&mut self, datagram: &mut [u8]) {
        let Ok((header, _)) = PacketHeader::decode(datagram) else { return };
        if self.sealer.seal(header.sequence, header.length_bytes(), datagram).is_ok() {
            let _ = self.requests.send(datagram);
        }
    }

    /// Tells the server that this machine lacks nothing any more, or has given up. If the message is lost, the server
    /// notices after a while.
    pub(super) fn leave(&mut self) {
        let kind = PacketKind::Request(self.reply.client);
        // Numbers count from 1.
        let header = PacketHeader { kind, session: self.reply.session, sequence: self.sealer.next().max(1) };
        let request = Request { seen: self.highest, ..Request::default() };
        let mut datagram = Vec::new();
        header.encode(&mut datagram);
        request.encode(body_bytes_max(self.reply.symbol_bytes), &mut datagram);
        datagram.resize(datagram.len() + TAG_BYTES, 0);
        self.send(&mut datagram);
    }

    /// Receives datagrams, and passes the packets among them. Waits for the first for at most `patience`. Returns
    /// whether any datagram came.
    ///
    /// # Errors
    /// When the socket fails.
    pub(super) fn receive(
        &mut self,
        batch: &mut DatagramBatch,
        patience: Duration,
        mut each: impl FnMut(Packet<'_>),
    ) -> io::Result<bool> {
        if !self.group.receive(batch, patience)? {
            return Ok(false);
        }
        let source: Ipv4Addr = self.reply.source;
        for (datagram, sender) in batch.datagrams() {
            let header = PacketHeader::decode(datagram).ok().map(|(header, _)| header);
            match header.filter(|_| *sender.ip() == source) {
                None => self.foreign += 1,
                Some(header) if header.session != self.reply.session => each(Packet::OfOtherSession(header)),
                Some(header) => {
                    if let Ok(body) = self.opener.open(header.sequence, header.length_bytes(), datagram) {
                        self.highest = self.highest.max(header.sequence);
                        each(Packet::Opened(header, body));
                    }
                }
            }
        }
        Ok(true)
    }
}

/// Returns the time in which packets at a rate take an eighth of so much room.
fn pause_max(room_bytes: usize, bytes_per_second: u64) -> Duration {
    let nanoseconds = room_bytes as u128 / 8 * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ordinary program gets 416 KiB from most systems, and a packet of 1,500 bytes takes 2,304 of it, or 4,352.
    #[test]
    fn packets_of_a_pause_fit_into_a_small_buffer_at_any_rate() {
        const ROOM: usize = 425_984;
        for (gigabits, packet_room) in [(1, 4352), (10, 4352), (100, 4352), (10, 2304)] {
            let rate = gigabits * 125_000_000;
            let packets = pause_max(ROOM, rate).as_nanos() * u128::from(rate) / 1_000_000_000 / 1500;
            assert!((packets + 32) * packet_room < ROOM as u128, "{gigabits} Gbit/s: {packets} packets");
            assert!(packets > 30, "{gigabits} Gbit/s: {packets} packets");
        }
        assert!(pause_max(16 << 20, 125_000_000) > Duration::from_millis(10), "a large buffer does not limit it");
        assert_eq!(pause_max(ROOM, 0), Duration::from_secs(ROOM as u64 / 8), "a rate of zero");
    }
}
