//! The HTTP client of stores.
//!
//! It differs from that of the library in two things, both because requests carry keys and the content of disks: it
//! follows no redirect, which may lead to any other host, and plain requests pass through no proxy.

use std::fmt;
use std::time::Duration;

use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client};

use crate::NetError;
use crate::settings::Settings;

/// How long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(10);

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
        Ok(HttpClient::new(self.0.clone()))
    }
}
