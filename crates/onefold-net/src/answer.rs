//! What an error of the library below means. The library hides status and body of an answer in texts, so this module
//! reads them there; tests over real connections notice if a later version words them differently.

use std::error::Error;
use std::io;

use object_store::client::HttpError;
use onefold_image::store::{ObjectName, Refusal, StoreError};

use crate::client::NoListing;

/// Maximum number of characters of an answer's text that are kept.
const TEXT_CHARACTERS_MAX: usize = 300;
/// Length of the text of an error from which on no further sources are added.
const CHAIN_BYTES_MAX: usize = 64 << 10;

/// How the library reports a redirect that says no address.
const BARE_REDIRECT: &str =
    "Received redirect without LOCATION, this normally indicates an incorrectly configured region";

/// Codes of S3 in the bodies of answers, and what they mean.
const CODES: [(&str, Refusal); 17] = [
    ("RequestTimeTooSkewed", Refusal::Clock),
    ("RequestExpired", Refusal::Clock),
    ("InvalidAccessKeyId", Refusal::Credentials),
    ("SignatureDoesNotMatch", Refusal::Credentials),
    ("InvalidToken", Refusal::Credentials),
    ("InvalidClientTokenId", Refusal::Credentials),
    ("ExpiredToken", Refusal::Expired),
    ("TokenRefreshRequired", Refusal::Expired),
    ("AccessDenied", Refusal::Denied),
    ("AllAccessDisabled", Refusal::Denied),
    ("AccountProblem", Refusal::Denied),
    ("NoSuchBucket", Refusal::NoBucket),
    ("InvalidBucketName", Refusal::NoBucket),
    ("PermanentRedirect", Refusal::Elsewhere),
    ("AuthorizationHeaderMalformed", Refusal::Elsewhere),
    ("IllegalLocationConstraintException", Refusal::Elsewhere),
    ("NotImplemented", Refusal::Condition),
];

/// An answer that is not a success.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The object does not exist.
    Missing,
    /// The condition of a creation does not hold, or another creation is under way.
    Exists,
    /// No byte of the object is in the range.
    OutOfRange,
    /// No answer, or one that asks to wait.
    Unavailable(io::Error),
    /// A refusal.
    Refused(Refusal, io::Error),
    /// An answer that no server of S3 should give. A call that changes something may have done so.
    Strange(io::Error),
}

/// Why there is no answer with a status.
enum LossCause {
    /// The connection failed, at its start or later.
    Connection,
    /// The certificate of the server is not accepted. No request was sent.
    Certificate,
    /// A redirect without an address.
    Redirect,
    /// There is an answer, but it makes no sense.
    Meaning,
}

impl LossCause {
    fn of(error: &object_store::Error) -> LossCause {
        let mut lost = LossCause::Meaning;
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = next {
            if error.is::<HttpError>() {
                lost = LossCause::Connection;
            }
            if error.to_string() == BARE_REDIRECT {
                return LossCause::Redirect;
            }
            if is_certificate(error) {
                return LossCause::Certificate;
            }
            if error.is::<NoListing>() {
                return LossCause::Meaning;
            }
            next = inner(error).or_else(|| error.source());
        }
        lost
    }
}

/// Returns the error in an I/O error, which `source` passes over.
fn inner<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    let inner = error.downcast_ref::<io::Error>()?.get_ref()?;
    Some(inner)
}

fn is_certificate(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)))
}

impl Answer {
    /// Returns what an error means.
    pub(crate) fn of(error: &object_store::Error) -> Answer {
        let text = chain(error);
        let code = code_of(&text);
        let status = status_of(&text);
        if let Some((_, why)) = CODES.iter().find(|(known, _)| code == Some(*known)) {
            return Answer::Refused(*why, Answer::told(&text));
        }
        match (error, status) {
            (object_store::Error::NotFound { .. }, _) | (_, Some(404)) => Answer::Missing,
            (object_store::Error::AlreadyExists { .. }, _) | (_, Some(409 | 412)) => Answer::Exists,
            (_, Some(416)) => Answer::OutOfRange,
            (_, Some(401 | 403)) => Answer::Refused(Refusal::Denied, Answer::told(&text)),
            (_, Some(300..=399)) => Answer::Refused(Refusal::Elsewhere, Answer::told(&text)),
            (_, Some(501)) => Answer::Refused(Refusal::Condition, Answer::told(&text)),
            (_, Some(408 | 429 | 500..=599)) => Answer::Unavailable(Answer::told(&text)),
            // Some servers report a slow client, or a body that was cut on its way, as a fault of the request.
            (_, Some(400)) if matches!(code, Some("RequestTimeout" | "IncompleteBody" | "BadDigest" | "SlowDown")) => {
                Answer::Unavailable(Answer::told(&text))
            }
            (_, Some(_)) => Answer::Refused(Refusal::Other, Answer::told(&text)),
            // The text names the request, so words in it may be those of a bucket.
            (_, None) => match LossCause::of(error) {
                LossCause::Connection => Answer::Unavailable(Answer::told(&text)),
                LossCause::Certificate => Answer::Refused(Refusal::Certificate, Answer::told(&text)),
                LossCause::Redirect => Answer::Refused(Refusal::Elsewhere, Answer::told(&text)),
                LossCause::Meaning => Answer::Strange(Answer::told(&text)),
            },
        }
    }

    /// Returns the answer to a call that took too long.
    pub(crate) fn late() -> Answer {
        Answer::Unavailable(io::Error::new(io::ErrorKind::TimedOut, "there was no answer in time"))
    }

    /// Returns the error of a call.
    pub(crate) fn error(self, action: &'static str, name: &str) -> StoreError {
        let unexpected = |text| StoreError::Refused {
            action,
            name: name.to_owned(),
            why: Refusal::Other,
            source: io::Error::other(text),
        };
        match self {
            Answer::Missing => match ObjectName::new(name) {
                Some(name) => StoreError::Missing(name),
                None => unexpected("404: not found"),
            },
            Answer::Exists => unexpected("409: conflict"),
            Answer::OutOfRange => unexpected("416: range not satisfiable"),
            Answer::Unavailable(source) => StoreError::Unavailable { action, name: name.to_owned(), source },
            Answer::Refused(why, source) => StoreError::Refused { action, name: name.to_owned(), why, source },
            Answer::Strange(source) if matches!(action, "read" | "list") => {
                StoreError::Refused { action, name: name.to_owned(), why: Refusal::Other, source }
            }
            Answer::Strange(source) => StoreError::GaveUp { action, name: name.to_owned(), source },
        }
    }

    /// Returns the essence of an answer: status, code and message of S3, or else the whole text.
    fn told(text: &str) -> io::Error {
        let essence = match (status_of(text), code_of(text), between(text, "<Message>", "</Message>")) {
            (Some(status), Some(code), Some(message)) => format!("the server says {status} {code}: {message}"),
            (Some(status), Some(code), None) => format!("the server says {status} {code}"),
            (Some(status), None, _) => format!("the server says {status}"),
            // The rest names the request, which the caller knows.
            (None, ..) => text.split_once(" - HTTP error: ").map_or(text, |(_, cause)| cause).to_owned(),
        };
        io::Error::other(essence.chars().take(TEXT_CHARACTERS_MAX).collect::<String>())
    }
}

/// Returns the messages of an error and of its sources, without those that the message before contains.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source.filter(|_| text.len() < CHAIN_BYTES_MAX) {
        let message = error.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = error.source();
    }
    text
}

/// Returns the HTTP status that a text of the library mentions.
fn status_of(text: &str) -> Option<u16> {
    let rest = text.split_once("status code: ")?.1;
    rest.get(..3)?.parse().ok()
}

/// Returns the code in the body of an answer.
fn code_of(text: &str) -> Option<&str> {
    between(text, "<Code>", "</Code>")
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}
