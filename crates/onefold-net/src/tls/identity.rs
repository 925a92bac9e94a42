//! The certificate of a server and its key: the operator's, or one that the server makes at its first start and keeps.
//!
//! A folder keeps `key.pem`, which only its owner may read, and `certificate.pem`. Both appear whole or not at all,
//! first the key. So a start that is cut leaves nothing, or a key that the next start makes the certificate for, and
//! two servers that start at once use the same files. A certificate without its key is an error: a new one would have
//! another fingerprint, and no client would accept it.

use std::fmt;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::{Fingerprint, provider};
use crate::NetError;
use crate::private::{make_folder, read_private};
use crate::settings::read_certificates;

const KEY_FILE: &str = "key.pem";
const CERTIFICATE_FILE: &str = "certificate.pem";
/// Everybody may read a certificate: clients that verify it by its file need it.
const CERTIFICATE_MODE: u32 = 0o644;
/// Name of the subject of a certificate that the server makes.
const SUBJECT: &str = "Onefold image server";
/// The name of HTTP/2 in a handshake.
pub(crate) const HTTP2: &[u8] = b"h2";
/// Versions of HTTP that the server offers, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [HTTP2, b"http/1.1"];

/// The certificate of a server, with its key.
#[derive(Clone)]
pub struct ServerIdentity {
    certified: Arc<CertifiedKey>,
    fingerprint: Fingerprint,
}

impl fmt::Debug for ServerIdentity {
    /// Shows no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerIdentity").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

impl ServerIdentity {
    /// Reads the operator's certificate and its key from files in PEM form. Certificates of authorities may follow the
    /// server's own.
    ///
    /// # Errors
    /// When a file cannot be read, has no certificate or key, or others may read the key; when the key is not that of
    /// the certificate.
    pub fn read(certificate: &Path, key: &Path) -> Result<ServerIdentity, NetError> {
        let pem = read_private(key)?;
        let private = PrivateKeyDer::from_pem_slice(&pem);
        let private = private.map_err(|_| content(key, "has no private key in PEM form without a password"))?;
        let chain = CertificateDer::pem_slice_iter(&read_certificates(certificate)?).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|_| content(certificate, "has no certificates in PEM form"))?;
        let first = chain.first().ok_or_else(|| content(certificate, "has no certificate in PEM form"))?;
        let fingerprint = Fingerprint::of(first);
        let certified = CertifiedKey::from_der(chain, private, &provider());
        let certified = certified.map_err(|error| content(certificate, &refusal(&error)))?;
        Ok(ServerIdentity { certified: Arc::new(certified), fingerprint })
    }

    /// Reads the certificate and the key that a folder keeps. Makes them, and the folder, if they are absent: a
    /// certificate for `names`, which may be addresses, that never expires.
    ///
    /// # Errors
    /// As [`ServerIdentity::read`], or when the files cannot be made, others may change the folder, or the key of an
    /// existing certificate is missing.
    pub fn kept(folder: &Path, names: &[String]) -> Result<ServerIdentity, NetError> {
        make_folder(folder)?;
        let (certificate, key) = (folder.join(CERTIFICATE_FILE), folder.join(KEY_FILE));
        let exists = |path: &Path| path.try_exists().map_err(|source| NetError::File { path: path.to_owned(), source });
        if !exists(&key)? {
            if exists(&certificate)? {
                return Err(content(&certificate, "is there without its key, `key.pem`"));
            }
            let made = KeyPair::generate().map_err(|error| NetError::Client(error.to_string()))?;
            publish(folder, &key, made.serialize_pem().as_bytes(), None)?;
        }
        if !exists(&certificate)? {
            let pem = String::from_utf8(read_private(&key)?).map_err(|_| content(&key, "is not a text"))?;
            let pair = KeyPair::from_pem(&pem).map_err(|_| content(&key, "has no private key of a certificate"))?;
            let made = self_signed(names, &pair).map_err(|error| NetError::Client(error.to_string()))?;
            publish(folder, &certificate, made.as_bytes(), Some(CERTIFICATE_MODE))?;
        }
        ServerIdentity::read(&certificate, &key)
    }

    /// Returns the fingerprint by which clients pin the certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns how the server's connections are encrypted.
    ///
    /// # Errors
    /// When the library lacks the usual algorithms.
    pub(crate) fn config(&self) -> Result<Arc<ServerConfig>, NetError> {
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| NetError::Client(error.to_string()))?.with_no_client_auth();
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&self.certified))));
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(Arc::new(config))
    }
}

fn content(path: &Path, what: &str) -> NetError {
    NetError::Content { path: path.to_owned(), what: what.to_owned() }
}

/// Returns why the library does not take a certificate and a key.
fn refusal(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => "is the certificate of another key".to_owned(),
        error => format!("is no certificate for the key: {error}"),
    }
}

/// Returns a certificate that is signed by its own key, in PEM form.
///
/// Its dates include every time that a clock shows: a machine that is to be installed often has a wrong one. The
/// certificate is no authority, so it vouches for no other one.
fn self_signed(names: &[String], key: &KeyPair) -> Result<String, rcgen::Error> {
    let mut parameters = CertificateParams::new(names)?;
    parameters.not_before = date_time_ymd(1970, 1, 1);
    // The time that stands for none (RFC 5280, section 4.1.2.5).
    parameters.not_after = date_time_ymd(9999, 12, 31);
    parameters.distinguished_name.push(DnType::CommonName, SUBJECT);
    parameters.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    Ok(parameters.self_signed(key)?.pem())
}

/// Makes a file with this content, which is durable then, unless another process has made it meanwhile. Without a
/// `mode`, only its owner may read it.
fn publish(folder: &Path, path: &Path, bytes: &[u8], mode: Option<u32>) -> Result<(), NetError> {
    let failed = |source| NetError::Make { path: path.to_owned(), source };
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    if let Some(mode) = mode {
        file.as_file().set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
    }
    file.as_file().sync_all().map_err(failed)?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error.error)),
        _ => {}
    }
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    fn names() -> Vec<String> {
        ["localhost".to_owned(), "127.0.0.1".to_owned()].to_vec()
    }

    #[test]
    fn a_made_certificate_is_kept_and_only_its_owner_reads_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let made = ServerIdentity::kept(&state, &names()).unwrap().fingerprint();
        assert_eq!(ServerIdentity::kept(&state, &[]).unwrap().fingerprint(), made);
        let mode = |name: &str| fs::metadata(state.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(KEY_FILE), mode(CERTIFICATE_FILE)), (0o600, 0o644));
        fs::set_permissions(state.join(KEY_FILE), Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(ServerIdentity::kept(&state, &names()), Err(NetError::Open { .. })));
        fs::set_permissions(state.join(KEY_FILE), Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(&state, Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(ServerIdentity::kept(&state, &names()), Err(NetError::Open { .. })));
    }

    #[test]
    fn a_start_that_was_cut_is_continued_and_a_lost_key_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let first = ServerIdentity::kept(folder.path(), &names()).unwrap();
        fs::remove_file(folder.path().join(CERTIFICATE_FILE)).unwrap();
        let second = ServerIdentity::kept(folder.path(), &names()).unwrap();
        assert_eq!(
            first.certified.key.public_key().unwrap().as_ref(),
            second.certified.key.public_key().unwrap().as_ref()
        );
        fs::remove_file(folder.path().join(KEY_FILE)).unwrap();
        let lost = ServerIdentity::kept(folder.path(), &names());
        assert!(matches!(&lost, Err(NetError::Content { what, .. }) if what.contains("without its key")), "{lost:?}");
        assert!(!folder.path().join(KEY_FILE).exists());
    }

    #[test]
    fn servers_that_start_at_once_have_one_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let start = || ServerIdentity::kept(folder.path(), &names()).unwrap().fingerprint();
        let found: Vec<Fingerprint> = thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found.iter().all(|fingerprint| *fingerprint == found[0]), "{found:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no other file is left");
    }

    #[test]
    fn keys_of_other_certificates_and_files_without_any_are_refused() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&one, &two] {
            ServerIdentity::kept(folder.path(), &names()).unwrap();
        }
        let read = |certificate: &Path, key: &Path| match ServerIdentity::read(certificate, key) {
            Err(NetError::Content { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        let (certificate, key) = (one.path().join(CERTIFICATE_FILE), one.path().join(KEY_FILE));
        assert!(read(&certificate, &two.path().join(KEY_FILE)).contains("another key"));
        assert!(read(&key, &key).contains("no certificate"));
        fs::set_permissions(&certificate, Permissions::from_mode(0o600)).unwrap();
        assert!(read(&certificate, &certificate).contains("no private key"));
    }
}
