//! Where the control socket lives.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use onefold_block::Show;

use crate::options::{Access, MountOptions};

/// Why a control socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Not root, and `XDG_RUNTIME_DIR` is not set: there is no place that only this user can write to.
    #[error("no directory for the control socket: XDG_RUNTIME_DIR is not set")]
    NoDirectory,
    /// The operating system refused.
    #[error("cannot {action} {}", path.shown())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// The operating system's word.
        #[source]
        source: io::Error,
    },
}

/// A listening socket whose file goes away with it.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ControlSocket {
    /// Makes the control socket of the pool `uuid`. Clients need not guess its name: the mount tells it.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub(crate) fn bind(options: &MountOptions, uuid: &str) -> Result<ControlSocket, SocketError> {
        let is_root = rustix::process::geteuid().is_root();
        let directory = directory(options, is_root)?;
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| SocketError::Io { action, path, source }
        };
        let mode = if is_root { 0o755 } else { 0o700 };
        DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(&directory)
            .map_err(failed("make the directory", &directory))?;
        let mut path = directory.join(format!("{uuid}.sock"));
        if UnixStream::connect(&path).is_ok() {
            // A copy of this pool is mounted too, and bears its number.
            path = directory.join(format!("{uuid}-{}.sock", std::process::id()));
        }
        // Left behind by a daemon that was killed: nobody listens there, or the connection had succeeded.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove", &path)(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed("make the socket", &path))?;
        let socket = ControlSocket { listener, path };
        let mode = match options.access {
            Access::Everyone => 0o666,
            Access::Owner => 0o600,
        };
        fs::set_permissions(&socket.path, Permissions::from_mode(mode))
            .map_err(failed("set the permissions of", &socket.path))?;
        Ok(socket)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Where this fails the next mount removes it.
        let _ = fs::remove_file(&self.path);
    }
}

fn directory(options: &MountOptions, is_root: bool) -> Result<PathBuf, SocketError> {
    if let Some(directory) = &options.control_directory {
        return Ok(directory.clone());
    }
    if is_root {
        return Ok(PathBuf::from("/run/onefold"));
    }
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()).ok_or(SocketError::NoDirectory)?;
    Ok(PathBuf::from(runtime).join("onefold"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(directory: &Path) -> MountOptions {
        MountOptions { control_directory: Some(directory.join("run")), ..MountOptions::new("test.pool") }
    }

    #[test]
    fn a_socket_left_behind_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path());
        let path = {
            let socket = ControlSocket::bind(&options, "abc").unwrap();
            let path = socket.path().to_owned();
            // As after kill -9: the file stays, nobody listens.
            fs::rename(&path, path.with_extension("kept")).unwrap();
            drop(socket);
            fs::rename(path.with_extension("kept"), &path).unwrap();
            path
        };
        assert!(UnixStream::connect(&path).is_err());
        let socket = ControlSocket::bind(&options, "abc").unwrap();
        assert_eq!(socket.path(), path);
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn a_copy_of_a_mounted_pool_gets_a_socket_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path());
        let first = ControlSocket::bind(&options, "abc").unwrap();
        let second = ControlSocket::bind(&options, "abc").unwrap();
        assert_ne!(first.path(), second.path());
        assert!(UnixStream::connect(first.path()).is_ok());
        assert!(UnixStream::connect(second.path()).is_ok());
    }

    #[test]
    fn the_socket_file_goes_away_and_only_the_owner_reaches_a_private_mount() {
        let directory = tempfile::tempdir().unwrap();
        let options = MountOptions { access: Access::Owner, ..options(directory.path()) };
        let socket = ControlSocket::bind(&options, "abc").unwrap();
        let path = socket.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(socket);
        assert!(!path.exists());
    }
}
