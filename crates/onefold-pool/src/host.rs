//! The identity of a host.

/// Identity of a host, as its mark in a pool gives it.
pub type HostId = [u8; 16];
