//! A client that accepts one certificate, which its user knows by its fingerprint.
//!
//! The pin replaces authorities, names and dates: the certificate is the one that the user has read at the server, so
//! nothing else could vouch better for it. The server still has to prove, in each handshake, that it has the key of the
//! certificate, which anybody could show.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, SignatureScheme};

use super::{Fingerprint, provider};
use crate::NetError;

/// The server has another certificate than the pinned one.
#[derive(Debug, thiserror::Error)]
#[error("the certificate is not the pinned one")]
pub(crate) struct OtherCertificate;

/// Accepts the certificate with one fingerprint.
#[derive(Debug)]
struct PinnedVerifier {
    pin: Fingerprint,
    provider: Arc<CryptoProvider>,
}

/// Returns how connections to a server with this certificate are encrypted.
///
/// # Errors
/// When the library lacks the usual algorithms.
pub(crate) fn pinned_config(pin: Fingerprint) -> Result<ClientConfig, NetError> {
    let provider = provider();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| NetError::Client(error.to_string()))?;
    let verifier = Arc::new(PinnedVerifier { pin, provider });
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match Fingerprint::of(end_entity) == self.pin {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::Other(OtherError(Arc::new(OtherCertificate))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::pki_types::pem::PemObject;

    use super::*;
    use crate::ServerIdentity;

    const SECONDS_PER_YEAR: u64 = 31_557_600;

    /// Nothing else of an installation depends on the time of day, which may jump by years while it runs.
    #[test]
    fn the_certificate_that_a_server_made_is_accepted_whatever_the_clock_shows() {
        let folder = tempfile::tempdir().unwrap();
        let identity = ServerIdentity::kept(folder.path(), &["localhost".to_owned()]).unwrap();
        let certificate = CertificateDer::from_pem_file(folder.path().join("certificate.pem")).unwrap();
        let pinned = PinnedVerifier { pin: identity.fingerprint(), provider: provider() };
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let trusted = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        for years in [0, 1, 56, 200, 8000] {
            let now = UnixTime::since_unix_epoch(Duration::from_secs(years * SECONDS_PER_YEAR));
            for verifier in [&pinned as &dyn ServerCertVerifier, &*trusted] {
                let verified = verifier.verify_server_cert(&certificate, &[], &name, &[], now);
                assert!(verified.is_ok(), "{} years after 1970: {verified:?}", years);
            }
        }
    }
}
