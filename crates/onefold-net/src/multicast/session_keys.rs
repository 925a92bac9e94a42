//! The keys of a session at its server: derived from a key that both sides have in a file, or drawn, and handed out
//! over TLS.
//!
//! A session draws the key of its group once, and another key for each machine that joins it. So no two machines, no
//! two sessions and no two starts of a server have a key in common, and each may count its packets from 1.

use std::fmt;
use std::io;
use std::sync::Arc;

use onefold_block::Random;
use onefold_image::format::multicast::{ClientNumber, SessionId, SessionKeys};

use super::keys::{JOIN_BYTES, MulticastKey};
use super::seal::{KEY_BYTES, SessionKey};

/// Where the keys of a server's sessions come from.
#[derive(Clone)]
pub(crate) enum KeySource {
    /// They are derived from the key that the operator gave to both sides.
    File(MulticastKey),
    /// The server draws them, and hands them to machines that join over TLS.
    Drawn(Arc<dyn Random>),
}

impl KeySource {
    /// Returns the keys of a new session.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub(crate) fn begin(&self, session: SessionId, epoch: u64) -> io::Result<ServerKeys> {
        let group = match self {
            KeySource::File(key) => key.of_group(session, epoch),
            KeySource::Drawn(random) => drawn(&**random)?,
        };
        Ok(ServerKeys { source: self.clone(), session, epoch, group })
    }
}

/// The keys of one session, as its server has them.
pub(crate) struct ServerKeys {
    source: KeySource,
    session: SessionId,
    epoch: u64,
    group: SessionKey,
}

impl fmt::Debug for ServerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerKeys").field("session", &self.session).finish_non_exhaustive()
    }
}

impl ServerKeys {
    /// Returns the key of packets to the group.
    pub(crate) fn group(&self) -> &SessionKey {
        &self.group
    }

    /// Returns the key of the requests of a machine that joins as `client`, and the keys that its reply has. `random`
    /// is what the machine sent, if it has the key in a file.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub(crate) fn of_client(
        &self,
        client: ClientNumber,
        random: &[u8; JOIN_BYTES],
    ) -> io::Result<(SessionKey, Option<SessionKeys>)> {
        match &self.source {
            KeySource::File(key) => Ok((key.of_client(self.session, self.epoch, client, random), None)),
            KeySource::Drawn(source) => {
                let key = drawn(&**source)?;
                let handed = SessionKeys { group: self.group.0, client: key.0 };
                Ok((key, Some(handed)))
            }
        }
    }
}

fn drawn(random: &dyn Random) -> io::Result<SessionKey> {
    let mut key = SessionKey([0; KEY_BYTES]);
    random.fill(&mut key.0)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use onefold_block::random::SeededRandom;

    use super::*;

    struct NoRandom;

    impl Random for NoRandom {
        fn fill(&self, _: &mut [u8]) -> io::Result<()> {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }

    #[test]
    fn drawn_keys_differ_between_machines_joins_and_sessions_and_are_what_the_reply_has() {
        let source = KeySource::Drawn(Arc::new(SeededRandom::new(3)));
        let mut keys = Vec::new();
        // The same session again, as after a new start with the same numbers.
        for session in [1, 1, 2] {
            let session = source.begin(SessionId(session), 5).unwrap();
            keys.push(session.group().clone());
            for client in [1, 1, 2] {
                let (key, handed) = session.of_client(ClientNumber(client), &[0; JOIN_BYTES]).unwrap();
                let handed = handed.unwrap();
                assert_eq!((&handed.group, &handed.client), (&session.group().0, &key.0));
                keys.push(key);
            }
            assert!(!format!("{session:?}").contains("group"));
        }
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key), "{index}");
        }
    }

    #[test]
    fn a_key_of_a_file_is_never_in_a_reply() {
        let key = MulticastKey::of_bytes([7; KEY_BYTES]);
        let session = KeySource::File(key.clone()).begin(SessionId(1), 5).unwrap();
        let (client, handed) = session.of_client(ClientNumber(2), &[4; JOIN_BYTES]).unwrap();
        assert_eq!(handed, None);
        assert!(client == key.of_client(SessionId(1), 5, ClientNumber(2), &[4; JOIN_BYTES]));
        assert!(*session.group() == key.of_group(SessionId(1), 5));
    }

    #[test]
    fn without_random_bytes_there_is_no_key() {
        assert!(KeySource::Drawn(Arc::new(NoRandom)).begin(SessionId(1), 5).is_err());
    }
}
