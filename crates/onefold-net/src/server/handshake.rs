//! The beginning of an encrypted connection. It costs a signature and some memory before anything is known of the
//! client, so it has its own bounds: of time, in total, and of each address.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::connection::{CountedStream, Protocol};
use super::places::Places;
use crate::tls::HTTP2;
use crate::{NetError, ServerIdentity};

/// How long a handshake may take, including the wait for its turn.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Maximum number of handshakes at once, and of those of one address.
const HANDSHAKES_MAX: usize = 256;
const HANDSHAKES_OF_CLIENT_MAX: usize = 16;
/// How often a connection looks for its turn.
const LOOK: Duration = Duration::from_millis(20);
/// First byte of a handshake.
const HANDSHAKE_RECORD: u8 = 0x16;
/// Answer to a request that is not encrypted.
const NOT_ENCRYPTED: &[u8] = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\
    Content-Length: 60\r\n\r\nthis server encrypts its connections: use https://HOST:PORT\n";

/// Makes handshakes.
#[derive(Clone)]
pub(super) struct Handshakes {
    config: Arc<ServerConfig>,
    places: Places,
}

impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshakes").field("places", &self.places).finish_non_exhaustive()
    }
}

impl Handshakes {
    /// Returns the handshakes of a server with this certificate.
    ///
    /// # Errors
    /// When the library lacks the usual algorithms.
    pub(super) fn new(identity: &ServerIdentity) -> Result<Handshakes, NetError> {
        let places = Places::new(HANDSHAKES_MAX, HANDSHAKES_OF_CLIENT_MAX);
        Ok(Handshakes { config: identity.config()?, places })
    }

    /// Returns the encrypted stream over a new connection, and the version of HTTP that the client has chosen; `None`
    /// if none comes about in time.
    pub(super) async fn make(
        &self,
        stream: CountedStream,
        client: IpAddr,
    ) -> Option<(Protocol, TlsStream<CountedStream>)> {
        let stream = timeout(HANDSHAKE, self.make_in_turn(stream, client)).await.ok()??;
        let protocol = match stream.get_ref().1.alpn_protocol() {
            Some(HTTP2) => Protocol::Two,
            _ => Protocol::One,
        };
        Some((protocol, stream))
    }

    async fn make_in_turn(&self, mut stream: CountedStream, client: IpAddr) -> Option<TlsStream<CountedStream>> {
        match stream.first_byte().await.ok()? {
            HANDSHAKE_RECORD => {
                let _place = self.places.wait(client, LOOK).await;
                TlsAcceptor::from(Arc::clone(&self.config)).accept(stream).await.ok()
            }
            first => {
                // A client that has begun a request is told; others do not know HTTP.
                if first.is_ascii_uppercase() {
                    let _ = stream.write_all(NOT_ENCRYPTED).await;
                    let _ = stream.shutdown().await;
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_request_that_is_not_encrypted_has_the_stated_length() {
        let text = std::str::from_utf8(NOT_ENCRYPTED).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{}", body.len());
    }
}
