//! Options of `image serve`, and those by which clients reach such a server.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use onefold_net::Fingerprint;

use super::place::ArchiveArg;
use crate::size::ByteSize;

/// Heading of the options of a server that bound its readers, and of those of its certificate.
const ACCESS: &str = "Access";
const CERTIFICATES: &str = "Certificates";
/// Heading of the options of clients.
const SERVERS: &str = "Servers of images";

/// Arguments of `serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
    /// Serve without TLS: each machine that reaches the address may read all images, and the network what is sent
    #[arg(long)]
    pub(crate) plain: bool,
    /// Address and port to listen at; without it and --interface only this machine is served, at port 7443
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Take connections over this network interface only, such as `eth1`
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
    /// Upper limit of buffers, at least 64M
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub(crate) memory: ByteSize,
    /// A file of tokens; clients then need one of them. Each line has a pattern of names, such as `lab/*`, and a token
    /// that gives the right to read these images
    #[arg(long, help_heading = ACCESS, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) certificate: CertificateOptions,
}

/// The certificate of a server. Without any of these, the server makes one at its first start.
#[derive(Args, Debug)]
pub(crate) struct CertificateOptions {
    /// The server's certificate in PEM form; those of authorities between it and the root may follow. Without it, the
    /// server makes a certificate at its first start
    #[arg(long, help_heading = CERTIFICATES, value_name = "FILE", requires = "key", conflicts_with = "plain")]
    pub(crate) certificate: Option<PathBuf>,
    /// The key of the certificate in PEM form, without a password; other users must not be able to read the file
    #[arg(long, help_heading = CERTIFICATES, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// Folder that keeps the certificate that the server makes; by default `/var/lib/onefold/serve` for root, and
    /// `onefold/serve` in the state folder of another user
    #[arg(long, help_heading = CERTIFICATES, value_name = "DIRECTORY", conflicts_with_all = ["certificate", "plain"])]
    pub(crate) state: Option<PathBuf>,
}

/// How a client reaches a server of images.
#[derive(Args, Clone, Debug)]
pub(crate) struct ImageServerOptions {
    /// Accept the certificate with this fingerprint and no other, whatever its authority, names and dates: 64
    /// hexadecimal digits, which `image serve` prints when it starts
    #[arg(long, help_heading = SERVERS, value_name = "FINGERPRINT", conflicts_with = "ca")]
    pub(crate) pin: Option<Fingerprint>,
    /// A file with a token of the server, which other users must not be able to read
    #[arg(long, help_heading = SERVERS, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

impl ImageServerOptions {
    /// Returns whether no option is given.
    pub(crate) fn are_absent(&self) -> bool {
        self.pin.is_none() && self.token_file.is_none()
    }
}
