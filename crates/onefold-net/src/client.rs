//! The HTTP client of stores.
//!
//! It differs from that of the library in three things. Two are because requests carry keys and the content of disks:
//! it follows no redirect, which may lead to any other host, and plain requests pass through no proxy. The third is
//! that a page which is no listing, as one that asks for a password in a foreign network, is none: the library would
//! take it for a listing of nothing.

use std::fmt;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client};

use crate::NetError;
use crate::settings::Settings;

/// How long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(10);
/// Maximum length of a page of a listing in bytes: 1000 names of 1024 bytes, each of which may be escaped.
const LISTING_BYTES_MAX: usize = 16 << 20;
/// The element that a listing is.
const LISTING: &[u8] = b"<ListBucketResult";
/// The element begins within so many bytes: before it are at most a declaration and comments.
const LISTING_START_MAX: usize = 4096;

/// An answer to the request for a listing is none.
#[derive(Debug, thiserror::Error)]
#[error("the answer is no listing of a bucket")]
pub(crate) struct NoListing;

/// Makes clients with these properties.
pub(crate) struct Connector(Client);

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

impl Connector {
    /// Makes the client of a store.
    ///
    /// # Errors
    /// When the certificates that the user gave make no sense.
    pub(crate) fn new(settings: &Settings) -> Result<Connector, NetError> {
        let failed = |error: reqwest::Error| NetError::Client(error.to_string());
        let mut builder = Client::builder()
            .redirect(Policy::none())
            .https_only(!settings.is_plain)
            // Each call has a limit of its own, which depends on its length.
            .connect_timeout(CONNECT);
        if settings.is_plain {
            builder = builder.no_proxy();
        }
        if let Some(pem) = &settings.ca {
            let certificates = Certificate::from_pem_bundle(pem).map_err(failed)?;
            if certificates.is_empty() {
                return Err(NetError::Client("the file of --ca has no certificate".to_owned()));
            }
            builder = builder.tls_certs_merge(certificates);
        }
        Ok(Connector(builder.build().map_err(failed)?))
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service(self.0.clone())))
    }
}

/// The client, which looks at listings.
#[derive(Debug)]
struct Service(Client);

impl HttpService for Service {
    fn call<'s, 'f>(&'s self, request: HttpRequest) -> BoxFuture<'f, Result<HttpResponse, HttpError>>
    where
        's: 'f,
        Self: 'f,
    {
        let is_listing = request.uri().query().is_some_and(|query| query.split('&').any(|part| part == "list-type=2"));
        Box::pin(async move {
            let answer = self.0.call(request).await?;
            if is_listing && answer.status().is_success() { listing(answer).await } else { Ok(answer) }
        })
    }
}

/// Returns an answer if it is a listing.
async fn listing(answer: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (head, body) = answer.into_parts();
    let mut parts = body.bytes_stream();
    let mut bytes = Vec::new();
    while let Some(part) = parts.next().await {
        let part = part?;
        if bytes.len() + part.len() > LISTING_BYTES_MAX {
            return Err(HttpError::new(HttpErrorKind::Decode, NoListing));
        }
        bytes.extend_from_slice(&part);
    }
    let start = &bytes[..bytes.len().min(LISTING_START_MAX)];
    if !start.windows(LISTING.len()).any(|window| window == LISTING) {
        return Err(HttpError::new(HttpErrorKind::Decode, NoListing));
    }
    Ok(HttpResponse::from_parts(head, HttpResponseBody::from(bytes)))
}
