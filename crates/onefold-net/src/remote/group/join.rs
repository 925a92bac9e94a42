//! Joining: a request over HTTP whose answer comes later, and the keys that a machine has then.

use std::io;
use std::sync::{Arc, mpsc};

use onefold_block::Random;
use onefold_block::random::SystemRandom;
use onefold_image::UnitName;
use onefold_image::format::FormatError;
use onefold_image::format::multicast::JoinReply;
use thiserror::Error;

use crate::multicast::{JOIN_BYTES, MulticastKey, SessionKey};
use crate::private::wipe;
use crate::remote::transport::RemoteTransport;

/// The keys of one machine in a session.
pub(super) struct LinkKeys {
    /// Of packets from the server to the group.
    pub(super) group: SessionKey,
    /// Of the machine's requests.
    pub(super) client: SessionKey,
}

/// A session that a machine may use: the reply, whose keys are taken out.
pub(super) struct JoinedSession {
    pub(super) reply: JoinReply,
    pub(super) keys: LinkKeys,
}

/// Why an attempt to join a session failed.
#[derive(Debug, Error)]
pub(super) enum JoinError {
    /// The server refuses, or cannot be reached.
    #[error("the server does not accept the join")]
    NoReply,
    /// The reply is damaged, or of another version.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The reply has keys over a plain connection or beside those of a file, or has none.
    #[error("the reply to a join has keys where none may be, or lacks them")]
    Keys,
}

/// Joins the session of an image, on another thread.
pub(super) struct Join {
    pub(super) http: Arc<RemoteTransport>,
    /// Digest of the image's manifest.
    pub(super) digest: [u8; 32],
    /// `None` if the reply has the keys.
    pub(super) key: Option<MulticastKey>,
    /// Receives the outcome of each attempt.
    pub(super) answers: mpsc::Sender<Result<JoinedSession, JoinError>>,
}

impl Join {
    /// Begins one attempt, whose answer comes later.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub(super) fn begin(&self) -> io::Result<()> {
        let mut random = [0; JOIN_BYTES];
        let body = match &self.key {
            None => Vec::new(),
            Some(key) => {
                SystemRandom.fill(&mut random)?;
                key.join_request(&self.digest, &random).to_vec()
            }
        };
        let (answers, key) = (self.answers.clone(), self.key.clone());
        // Keys that came over a plain connection are no secret.
        let may_be_handed = self.http.is_encrypted();
        let path = format!("v1/sessions/{}", UnitName(self.digest));
        self.http.post_once(&path, body, move |answer| {
            let _ = answers.send(answered(answer, key.as_ref(), &random, may_be_handed));
        });
        Ok(())
    }
}

/// Returns the session of an answer, which has keys and is wiped.
fn answered(
    answer: Option<Vec<u8>>,
    key: Option<&MulticastKey>,
    random: &[u8; JOIN_BYTES],
    may_be_handed: bool,
) -> Result<JoinedSession, JoinError> {
    let mut answer = answer.ok_or(JoinError::NoReply)?;
    let reply = JoinReply::decode(&answer);
    wipe(&mut answer);
    joined(reply?, key, random, may_be_handed)
}

/// Returns the session of a reply, and the keys in it: handed out where that is allowed, or derived from a key.
fn joined(
    mut reply: JoinReply,
    key: Option<&MulticastKey>,
    random: &[u8; JOIN_BYTES],
    may_be_handed: bool,
) -> Result<JoinedSession, JoinError> {
    let keys = match (key, reply.keys.take()) {
        (None, Some(handed)) if may_be_handed => {
            LinkKeys { group: SessionKey(handed.group), client: SessionKey(handed.client) }
        }
        (Some(key), None) => LinkKeys {
            group: key.of_group(reply.session, reply.epoch),
            client: key.of_client(reply.session, reply.epoch, reply.client, random),
        },
        // A server that mixes both up is none of ours.
        (None, _) | (Some(_), Some(_)) => return Err(JoinError::Keys),
    };
    Ok(JoinedSession { reply, keys })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use onefold_image::format::multicast::{ClientNumber, RepairCode, SessionId, SessionKeys};

    use super::*;

    #[test]
    fn keys_come_from_one_place_and_never_over_a_plain_connection() {
        let handed = SessionKeys { group: [1; 32], client: [2; 32] };
        let reply = |keys: Option<&SessionKeys>| JoinReply {
            group: Ipv4Addr::new(239, 192, 3, 7),
            source: Ipv4Addr::new(192, 0, 2, 5),
            port: 1,
            request_port: 2,
            symbol_bytes: 1000,
            ttl: 1,
            rate_bytes_per_second: 1,
            session: SessionId(3),
            epoch: 4,
            client: ClientNumber(5),
            machines: 1,
            waits_for: 0,
            chunks: 6,
            repairs: RepairCode::RaptorQ,
            keys: keys.cloned(),
        };
        let random = [7; JOIN_BYTES];
        let found = joined(reply(Some(&handed)), None, &random, true).unwrap();
        assert!(found.keys.group == SessionKey([1; 32]) && found.keys.client == SessionKey([2; 32]));
        assert_eq!(found.reply.keys, None, "they are kept at one place");
        let key = MulticastKey::of_bytes([9; 32]);
        let found = joined(reply(None), Some(&key), &random, false).unwrap();
        assert!(found.keys.group == key.of_group(SessionId(3), 4));
        assert!(found.keys.client == key.of_client(SessionId(3), 4, ClientNumber(5), &random));
        assert!(joined(reply(Some(&handed)), None, &random, false).is_err(), "they came over a plain connection");
        assert!(joined(reply(None), None, &random, true).is_err(), "there are none");
        assert!(joined(reply(Some(&handed)), Some(&key), &random, true).is_err(), "there are two");
        let mut bytes = reply(None).encode();
        assert!(answered(Some(bytes.clone()), Some(&key), &random, false).is_ok());
        bytes[4] = 1;
        let cause = answered(Some(bytes), Some(&key), &random, false).err().map(|error| error.to_string());
        assert!(cause.is_some_and(|cause| cause.contains("version 1 ")), "the reply is that of an earlier version");
        assert!(matches!(answered(None, Some(&key), &random, false), Err(JoinError::NoReply)));
    }
}
