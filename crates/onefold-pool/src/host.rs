//! The identity of a host.

/// Identity of a host, as in its heartbeat in a pool.
pub type HostId = [u8; 16];
