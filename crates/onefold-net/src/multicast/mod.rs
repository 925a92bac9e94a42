//! Sockets of multicast and the sealing of packets, for server and clients.
//!
//! The state machines in `onefold_image::multicast` decide when which packets are sent.

mod keys;
mod seal;
mod session_keys;
mod socket;
mod window;

pub use keys::MulticastKey;

pub(crate) use keys::{JOIN_BYTES, JOIN_REQUEST_BYTES};
pub(crate) use seal::{Opener, Sealer, SessionKey};
pub(crate) use session_keys::{KeySource, ServerKeys};
pub(crate) use socket::{
    GroupRoute, GroupSocket, Membership, ServerSocket, address_of, interface_of, mtu_bytes, request_socket,
};
