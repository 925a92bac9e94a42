//! The status of a server, for its operator.

use onefold_image::archive::ArchiveError;
use onefold_image::format::FormatError;

use super::transport::{RemoteOptions, RemoteTransport};
use crate::NetError;
use crate::report::{STATUS_PATH, ServerStatus};

/// Maximum length of a status in bytes.
const STATUS_BYTES_MAX: u64 = 16 << 20;

/// Reads the status of one server.
#[derive(Debug)]
pub struct StatusClient(RemoteTransport);

impl StatusClient {
    /// Prepares to read the status of a server. `address` is `http://HOST:PORT` or `https://HOST:PORT`.
    ///
    /// # Errors
    /// When the address is invalid, or a plain connection to another machine that is not allowed.
    pub fn new(address: &str, options: RemoteOptions) -> Result<StatusClient, NetError> {
        Ok(StatusClient(RemoteTransport::new(address, options)?))
    }

    /// Returns the status as it is now.
    ///
    /// # Errors
    /// When the server does not answer, or refuses, or sends no status.
    pub fn read(&self) -> Result<ServerStatus, ArchiveError> {
        let status = self.0.get(STATUS_PATH, STATUS_BYTES_MAX)?;
        let invalid = FormatError::Value { structure: "status of a server", what: "it is no status" };
        serde_json::from_slice(&status).map_err(|_| ArchiveError::refused("status of a server".to_owned(), invalid))
    }
}
