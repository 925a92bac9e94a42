//! Batches of datagrams, segmentation of datagrams, and the addresses of network interfaces.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::net::Ipv4Addr;
use std::ptr;

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;

/// Number of datagrams in one call.
pub(crate) const DATAGRAMS_MAX: usize = 32;

/// Receives the datagrams that are there into buffers, and sets the length and the sender of each. Returns how many
/// came. Does not wait.
pub(crate) fn receive(
    socket: impl AsFd,
    buffers: &mut [Vec<u8>],
    outcomes: &mut [(usize, libc::sockaddr_in)],
) -> Result<usize, Errno> {
    let count = buffers.len().min(outcomes.len()).min(DATAGRAMS_MAX);
    // SAFETY: `iovec` is made of a pointer that may be null and an integer.
    let mut parts: [libc::iovec; DATAGRAMS_MAX] = unsafe { std::mem::zeroed() };
    // SAFETY: `mmsghdr` is made of integers and pointers that may be null.
    let mut headers: [libc::mmsghdr; DATAGRAMS_MAX] = unsafe { std::mem::zeroed() };
    for index in 0..count {
        let (buffer, (_, sender)) = (&mut buffers[index], &mut outcomes[index]);
        parts[index] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let header = &mut headers[index].msg_hdr;
        header.msg_iov = &raw mut parts[index];
        header.msg_iovlen = 1;
        header.msg_name = ptr::from_mut(sender).cast();
        header.msg_namelen = length_of::<libc::sockaddr_in>()?;
    }
    let socket = socket.as_fd().as_raw_fd();
    let wanted = libc::c_uint::try_from(count).map_err(|_| Errno::INVAL)?;
    // SAFETY: each of the `wanted` headers names one buffer and one address, with their lengths. They are borrowed
    // mutably by this function for longer than the call. No timeout is given.
    let received = unsafe { libc::recvmmsg(socket, headers.as_mut_ptr(), wanted, libc::MSG_DONTWAIT, ptr::null_mut()) };
    let received = usize::try_from(received).map_err(|_| last_error())?;
    for (outcome, header) in outcomes.iter_mut().zip(&headers).take(received) {
        outcome.0 = header.msg_len as usize;
    }
    Ok(received)
}

/// Has the kernel cut what is sent in one piece into datagrams of `bytes` (`UDP_SEGMENT`).
pub(crate) fn segment(socket: impl AsFd, bytes: u16) -> Result<(), Errno> {
    let bytes = libc::c_int::from(bytes);
    let length = length_of::<libc::c_int>()?;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the option reads one `int`, which `bytes` is, during the call.
    match unsafe { libc::setsockopt(socket, libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const bytes).cast(), length) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Returns the name and each IPv4 address of all network interfaces.
pub(crate) fn addresses() -> Result<Vec<(Vec<u8>, Ipv4Addr)>, Errno> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: the call writes one pointer, to a list that stays until `freeifaddrs`.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(last_error());
    }
    let mut found = Vec::new();
    // SAFETY: the list's elements are valid until it is freed below; the last one has no next one.
    let mut next = unsafe { first.as_ref() };
    while let Some(interface) = next {
        // SAFETY: the address is null or a valid `sockaddr`, whose family says what else it is.
        let family = unsafe { interface.ifa_addr.as_ref() }.map(|address| libc::c_int::from(address.sa_family));
        if family == Some(libc::AF_INET) {
            // SAFETY: an address of this family is a `sockaddr_in`. It may be aligned as a `sockaddr` only.
            let address = unsafe { interface.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            // SAFETY: the name is a string that ends with a zero, and is copied before the list is freed.
            let name = unsafe { CStr::from_ptr(interface.ifa_name) };
            found.push((name.to_bytes().to_vec(), Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr))));
        }
        // SAFETY: as for the first element.
        next = unsafe { interface.ifa_next.as_ref() };
    }
    // SAFETY: the list is one of `getifaddrs`, freed once, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// Returns the length of a structure as the kernel takes it.
fn length_of<T>() -> Result<libc::socklen_t, Errno> {
    libc::socklen_t::try_from(size_of::<T>()).map_err(|_| Errno::INVAL)
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
