//! The control socket of a daemon, to which `stat`, `clone`, `scrub`, `umount` and other commands connect.
//!
//! A Unix socket carries one JSON object per line ([`ControlRequest`], [`ControlReply`]). Permissions depend on what
//! the kernel reports about the peer and its open files, never on what the peer says about itself. Everything is
//! bounded: the length of a line, the number of clients, and the time that a client may stay silent.

mod client;
mod connecting;
mod connection;
mod ending;
mod message;
mod open_file;
mod peer;
mod served;
mod server;
mod socket;
mod stat_form;
mod verbs;
mod wire;

pub use client::{ControlClient, ControlError, OnProgress, hand_over};
pub(crate) use ending::ServiceEnd;
pub use message::{
    ControlAnswer, ControlReply, ControlRequest, FailureKind, LINE_BYTES_MAX, ScrubProblem, ScrubReport,
};
pub(crate) use served::{ServedMount, ServedPool};
pub(crate) use server::ControlServer;
pub(crate) use socket::ControlSocket;
pub use socket::SocketError;
pub use wire::WireError;
