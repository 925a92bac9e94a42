//! Why a request brings nothing, and whether it is worth repeating.

use std::io;

use onefold_image::store::Refusal;
use rustls::{CertificateError, InvalidMessage};

use crate::tls::OtherCertificate;

/// Why a request brings nothing.
pub(super) enum Failure {
    /// There is no such thing.
    Missing,
    /// No answer, or one that asks to wait.
    Unavailable(io::Error),
    /// An answer that repetition does not change.
    Refused(Refusal, io::Error),
}

/// Returns the failure of a server that does not answer in time.
pub(super) fn late() -> Failure {
    Failure::Unavailable(io::Error::new(io::ErrorKind::TimedOut, "there was no answer in time"))
}

/// Returns the failure of an answer that no server of images should give.
pub(super) fn strange(source: io::Error) -> Failure {
    Failure::Refused(Refusal::ImageServer, source)
}

/// Returns the failure of a connection, with its innermost cause, which says more than the library's words.
pub(super) fn lost(error: &reqwest::Error) -> Failure {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    let mut why = error.is_builder().then_some(Refusal::ImageServer);
    while let Some(source) = source_of(cause) {
        cause = source;
        why = cause.downcast_ref().and_then(refusal_of).or(why);
    }
    match why {
        // The library's words for these help nobody.
        Some(why @ (Refusal::Pin | Refusal::NoTls)) => Failure::Refused(why, io::Error::other(why.to_string())),
        Some(why) => Failure::Refused(why, io::Error::other(cause.to_string())),
        None => Failure::Unavailable(io::Error::other(cause.to_string())),
    }
}

/// Returns the source of an error. An I/O error passes over the error in it.
fn source_of<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e (dyn std::error::Error + 'static)> {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    inner.map(|inner| inner as _).or_else(|| error.source())
}

/// Returns why an encrypted connection is refused for good; `None` if it may succeed later.
fn refusal_of(error: &rustls::Error) -> Option<Refusal> {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) if other.0.is::<OtherCertificate>() => {
            Some(Refusal::Pin)
        }
        rustls::Error::InvalidCertificate(_) => Some(Refusal::ImageServerCertificate),
        // The beginning of an answer to a request that was none.
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Some(Refusal::NoTls),
        _ => None,
    }
}
