//! Many datagrams in one call, and the addresses of network interfaces.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::ffi::OsStringExt;

use rustix::fd::AsFd;
use rustix::io::Errno;

use crate::sys::network;

/// Maximum number of datagrams in one call.
pub const DATAGRAMS_MAX: usize = network::DATAGRAMS_MAX;

/// Buffers for the datagrams of one call.
pub struct DatagramBatch {
    buffers: Vec<Vec<u8>>,
    /// Length and sender of each datagram.
    outcomes: Vec<(usize, libc::sockaddr_in)>,
    count: usize,
}

impl std::fmt::Debug for DatagramBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramBatch").field("count", &self.count).finish_non_exhaustive()
    }
}

impl DatagramBatch {
    /// Returns buffers for [`DATAGRAMS_MAX`] datagrams of at most `datagram_bytes` each. A longer one is cut there.
    #[must_use]
    pub fn new(datagram_bytes: usize) -> DatagramBatch {
        let nobody =
            libc::sockaddr_in { sin_family: 0, sin_port: 0, sin_addr: libc::in_addr { s_addr: 0 }, sin_zero: [0; 8] };
        DatagramBatch {
            buffers: vec![vec![0; datagram_bytes]; DATAGRAMS_MAX],
            outcomes: vec![(0, nobody); DATAGRAMS_MAX],
            count: 0,
        }
    }

    /// Receives the datagrams of an IPv4 socket that are there. Returns how many came, and does not wait.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn receive(&mut self, socket: impl AsFd) -> io::Result<usize> {
        self.count = 0;
        self.count = match network::receive(socket, &mut self.buffers, &mut self.outcomes) {
            Err(Errno::AGAIN | Errno::INTR) => 0,
            received => received?,
        };
        Ok(self.count)
    }

    /// Returns the datagrams of the last call, each with its sender.
    pub fn datagrams(&mut self) -> impl Iterator<Item = (&mut [u8], SocketAddrV4)> {
        let received = self.buffers.iter_mut().zip(&self.outcomes).take(self.count);
        received.map(|(buffer, (length, sender))| {
            let length = buffer.len().min(*length);
            let address = Ipv4Addr::from(u32::from_be(sender.sin_addr.s_addr));
            (&mut buffer[..length], SocketAddrV4::new(address, u16::from_be(sender.sin_port)))
        })
    }
}

/// Has the kernel, or the network card, cut what is sent in one piece into datagrams of `bytes`.
///
/// # Errors
/// When the kernel cannot.
pub fn segment_datagrams(socket: impl AsFd, bytes: u16) -> io::Result<()> {
    Ok(network::segment(socket, bytes)?)
}

/// Returns the name and each IPv4 address of all network interfaces of this machine.
///
/// # Errors
/// When the kernel does not tell them.
pub fn interface_addresses() -> io::Result<Vec<(OsString, Ipv4Addr)>> {
    let addresses = network::addresses()?;
    Ok(addresses.into_iter().map(|(name, address)| (OsString::from_vec(name), address)).collect())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let sockets = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let [sender, receiver] = sockets;
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        (sender, receiver)
    }

    #[test]
    fn one_call_receives_all_datagrams_that_are_there() {
        let (sender, receiver) = pair();
        let sent: Vec<Vec<u8>> = (0..40).map(|index: u8| vec![index; usize::from(index)]).collect();
        sent.iter().for_each(|datagram| _ = sender.send(datagram).unwrap());
        let mut batch = DatagramBatch::new(30);
        let mut received = Vec::new();
        for expected in [DATAGRAMS_MAX, 8] {
            assert_eq!(batch.receive(&receiver).unwrap(), expected);
            for (datagram, from) in batch.datagrams() {
                assert_eq!(from.to_string(), sender.local_addr().unwrap().to_string());
                received.push(datagram.to_vec());
            }
        }
        let cut: Vec<&[u8]> = sent.iter().map(|datagram| &datagram[..datagram.len().min(30)]).collect();
        assert_eq!(received, cut);
    }

    #[test]
    fn nothing_that_is_there_is_nothing_received() {
        let (sender, receiver) = pair();
        let mut batch = DatagramBatch::new(10);
        sender.send(b"one").unwrap();
        assert_eq!(batch.receive(&receiver).unwrap(), 1);
        assert_eq!(batch.receive(&receiver).unwrap(), 0);
        assert_eq!(batch.datagrams().count(), 0);
    }

    #[test]
    fn a_long_piece_is_cut_into_datagrams() {
        let (sender, receiver) = pair();
        segment_datagrams(&sender, 100).unwrap();
        sender.send(&[9; 250]).unwrap();
        let mut lengths = Vec::new();
        let mut batch = DatagramBatch::new(300);
        while lengths.len() < 3 {
            batch.receive(&receiver).unwrap();
            lengths.extend(batch.datagrams().map(|(datagram, _)| datagram.len()));
        }
        assert_eq!(lengths, [100, 100, 50]);
    }

    #[test]
    fn this_machine_has_a_loopback_interface() {
        let addresses = interface_addresses().unwrap();
        assert!(addresses.contains(&("lo".into(), Ipv4Addr::LOCALHOST)), "{addresses:?}");
    }
}
