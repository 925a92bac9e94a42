//! Keys of multicast sessions, derived from a key that both sides have in a file: where no TLS protects the reply to a
//! join.
//!
//! Nothing that is derived here is ever sent. Each start of a server is a random epoch, and each session has a number
//! of its own there. Each join of a client has its own number in the session, and random bytes of the client. So no key
//! is derived twice, even if an outsider repeats an old reply to a join.

use std::fmt;
use std::path::Path;

use onefold_image::format::multicast::{ClientNumber, SessionId};

use crate::NetError;
use crate::private::{read_private, wipe};

use super::seal::{KEY_BYTES, SessionKey};

/// Length of what a client draws for each join, in bytes.
pub(crate) const JOIN_BYTES: usize = 16;
/// Length of a request to join in bytes: what the client drew, and the proof that it has the key.
pub(crate) const JOIN_REQUEST_BYTES: usize = JOIN_BYTES + KEY_BYTES;
/// Purposes of derived keys. Another purpose is another key.
const GROUP_CONTEXT: &str = "onefold 2026-11-27 multicast: from the server to the group";
const CLIENT_CONTEXT: &str = "onefold 2026-11-27 multicast: from a client to the server";
const JOIN_CONTEXT: &str = "onefold 2026-11-27 multicast: a client joins the session of an image";

/// The key that the operator gave to the server and to its clients. It does not show itself.
#[derive(Clone, PartialEq, Eq)]
pub struct MulticastKey([u8; KEY_BYTES]);

impl fmt::Debug for MulticastKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MulticastKey(..)")
    }
}

impl Drop for MulticastKey {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl MulticastKey {
    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: [u8; KEY_BYTES]) -> MulticastKey {
        MulticastKey(bytes)
    }

    /// Reads a key from a file with 64 hexadecimal digits, as `openssl rand -hex 32` makes them.
    ///
    /// # Errors
    /// When the file cannot be read, is open to other users, or has anything else.
    pub fn read(path: &Path) -> Result<MulticastKey, NetError> {
        let mut bytes = read_private(path)?;
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        let key = MulticastKey::parse(text.trim_end_matches(['\n', '\r']));
        wipe(&mut bytes);
        key.ok_or_else(|| NetError::Content {
            path: path.to_owned(),
            what: "is no key: it has to have 64 hexadecimal digits, as `openssl rand -hex 32` prints them".to_owned(),
        })
    }

    fn parse(text: &str) -> Option<MulticastKey> {
        let mut key = [0; KEY_BYTES];
        let digits = text.as_bytes();
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            *byte = digit(0)? << 4 | digit(1)?;
        }
        Some(MulticastKey(key))
    }

    /// Returns the key of packets from the server to the group.
    pub(crate) fn of_group(&self, session: SessionId, epoch: u64) -> SessionKey {
        self.derive(GROUP_CONTEXT, &[&session.0.to_le_bytes(), &epoch.to_le_bytes()])
    }

    /// Returns the key of packets from one client to the server. `random` is what the client sent when it joined.
    pub(crate) fn of_client(
        &self,
        session: SessionId,
        epoch: u64,
        client: ClientNumber,
        random: &[u8; JOIN_BYTES],
    ) -> SessionKey {
        let parts = [&session.0.to_le_bytes()[..], &epoch.to_le_bytes(), &client.0.to_le_bytes(), random];
        self.derive(CLIENT_CONTEXT, &parts)
    }

    /// Returns the request to join the session of an image, by the digest of its manifest. `random` is drawn for it.
    pub(crate) fn join_request(&self, digest: &[u8; 32], random: &[u8; JOIN_BYTES]) -> [u8; JOIN_REQUEST_BYTES] {
        let mut request = [0; JOIN_REQUEST_BYTES];
        let (drawn, proof) = request.split_at_mut(JOIN_BYTES);
        drawn.copy_from_slice(random);
        proof.copy_from_slice(&self.derive(JOIN_CONTEXT, &[digest, random]).0);
        request
    }

    /// Returns the random bytes of a request to join the session of an image; `None` if its sender has another key.
    pub(crate) fn verify_join(
        &self,
        digest: &[u8; 32],
        request: &[u8; JOIN_REQUEST_BYTES],
    ) -> Option<[u8; JOIN_BYTES]> {
        let (random, proof) = request.split_first_chunk::<JOIN_BYTES>()?;
        let expected = self.derive(JOIN_CONTEXT, &[digest, random]);
        // This comparison takes equally long for all proofs.
        (blake3::Hash::from_bytes(expected.0) == blake3::Hash::from_slice(proof).ok()?).then_some(*random)
    }

    fn derive(&self, context: &str, parts: &[&[u8]]) -> SessionKey {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        hasher.update(&self.0);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        SessionKey(*hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_file_has_exactly_one_key_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let write = |text: &[u8], mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        let read = |text: &str| {
            write(text.as_bytes(), 0o600);
            MulticastKey::read(&path)
        };
        let digits = "0aF1".repeat(16);
        for end in ["", "\n", "\r\n"] {
            assert_eq!(
                read(&format!("{digits}{end}")).unwrap(),
                MulticastKey([0x0a, 0xf1].repeat(16).try_into().unwrap())
            );
        }
        for text in ["", "0a", &digits[1..], &format!("{digits}0"), &digits.replace('F', "g"), &format!("{digits}\n0")]
        {
            assert!(matches!(read(text), Err(NetError::Content { .. })), "{text}");
        }
        write(&[0xff; 2 * KEY_BYTES], 0o600);
        assert!(matches!(MulticastKey::read(&path), Err(NetError::Content { .. })));
        write(digits.as_bytes(), 0o644);
        assert!(matches!(MulticastKey::read(&path), Err(NetError::Open { .. })));
        assert!(matches!(MulticastKey::read(&folder.path().join("none")), Err(NetError::File { .. })));
    }

    #[test]
    fn a_join_proves_the_key_for_one_image() {
        let (one, other) = (MulticastKey([1; KEY_BYTES]), MulticastKey([2; KEY_BYTES]));
        let request = one.join_request(&[5; 32], &[3; JOIN_BYTES]);
        assert_eq!(one.verify_join(&[5; 32], &request), Some([3; JOIN_BYTES]));
        assert_eq!(other.verify_join(&[5; 32], &request), None);
        assert_eq!(one.verify_join(&[6; 32], &request), None, "another image");
        for bit in 0..8 * JOIN_REQUEST_BYTES {
            let mut changed = request;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(one.verify_join(&[5; 32], &changed), None, "bit {bit}");
        }
    }

    #[test]
    fn each_purpose_session_and_join_has_a_key_of_its_own() {
        let (one, other) = (MulticastKey([1; KEY_BYTES]), MulticastKey([2; KEY_BYTES]));
        let mut keys = Vec::new();
        for key in [&one, &other] {
            for (session, epoch) in [(1, 5), (2, 5), (1, 6)].map(|(session, epoch)| (SessionId(session), epoch)) {
                keys.push(key.of_group(session, epoch));
                for client in [ClientNumber(1), ClientNumber(2)] {
                    keys.extend([3, 4].map(|byte| key.of_client(session, epoch, client, &[byte; JOIN_BYTES])));
                }
            }
        }
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key), "{index}");
        }
        assert_eq!(one.of_group(SessionId(1), 5), keys[0]);
        assert_eq!(format!("{one:?}"), "MulticastKey(..)");
    }
}
