//! Encrypted connections: the certificate of a server, and how a client verifies it.
//!
//! | part          | is                                                                       |
//! |---------------|--------------------------------------------------------------------------|
//! | `fingerprint` | the digest of a certificate, by which clients pin it                     |
//! | `identity`    | the certificate and the key of a server, from files or made by the server |
//! | `pinned`      | the client's side of a pinned certificate                                |

mod fingerprint;
mod identity;
mod pinned;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use fingerprint::{Fingerprint, InvalidFingerprint};
pub(crate) use identity::HTTP2;
pub use identity::ServerIdentity;
pub(crate) use pinned::{OtherCertificate, pinned_config};

/// Returns the algorithms of all connections.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
