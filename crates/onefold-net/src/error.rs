//! Errors before the first request.

use std::path::PathBuf;

use onefold_block::Show;

/// Why a store or a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The place of an archive makes no sense.
    #[error("`{text}` is not the place of an archive in a bucket: {what}")]
    Place {
        /// The place as it was given.
        text: String,
        /// Its fault.
        what: &'static str,
    },
    /// The address of a server makes no sense.
    #[error("`{text}` is not the address of a server: {what}")]
    Endpoint {
        /// The address as it was given.
        text: String,
        /// Its fault.
        what: &'static str,
    },
    /// A plain connection would send the content of disks over a network.
    #[error("`{text}` is a plain connection to another machine")]
    PlainHttp {
        /// The address.
        text: String,
    },
    /// There are no credentials.
    #[error("there are no credentials for the store")]
    NoCredentials,
    /// Only one of access key and secret is there.
    #[error("{place} has {has}, but no {lacks}")]
    HalfCredentials {
        /// Where they were found.
        place: String,
        /// The part that is there.
        has: &'static str,
        /// The part that is missing.
        lacks: &'static str,
    },
    /// A file of settings, credentials or certificates cannot be read.
    #[error("cannot read `{}`", .path.shown())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file does not contain what it should.
    #[error("`{}` {what}", .path.shown())]
    Content {
        /// The file.
        path: PathBuf,
        /// Its fault.
        what: String,
    },
    /// Other users may read or change a file with a secret, or change a folder in which secrets are kept.
    #[error("`{}` is open to other users", .path.shown())]
    Open {
        /// The file or folder.
        path: PathBuf,
    },
    /// A file with a secret, or a folder in which secrets are kept, belongs to another user.
    #[error("`{}` belongs to another user", .path.shown())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
    },
    /// A file cannot be made.
    #[error("cannot make `{}`", .path.shown())]
    Make {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A server would ask for tokens over plain connections from other machines.
    #[error("tokens would go over a plain connection from another machine")]
    PlainTokens,
    /// A client would send its token over a plain connection.
    #[error("the token would go over a plain connection to `{text}`")]
    PlainToken {
        /// The address.
        text: String,
    },
    /// A server cannot listen.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Packets cannot be sent to a group.
    #[error("cannot send by multicast over the interface {interface}")]
    Multicast {
        /// Name of the interface.
        interface: String,
        /// Why.
        source: std::io::Error,
    },
    /// Chunks cannot be made beforehand.
    #[error("cannot make chunks beforehand")]
    Chunks(#[from] onefold_image::archive::ArchiveError),
    /// The client cannot be made.
    #[error("cannot prepare connections: {0}")]
    Client(String),
}
