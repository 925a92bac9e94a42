//! The control socket of a daemon.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use onefold_block::random::SystemRandom;
use onefold_block::{Random, Show};
use rustix::io::Errno;

use super::connecting::connect_at_once;
use crate::options::MountAccess;
use crate::place::RunDirectory;

/// Mode of root's run directory: all users look for sockets there, and each socket's own mode decides who may connect.
const ROOT_MODE: u32 = 0o755;
/// Mode of another user's run directory.
const USER_MODE: u32 = 0o700;

/// Why a control socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Other users can change the content of the directory, or it is none.
    #[error("{} is not a directory that only its user can change", path.shown())]
    NotTrusted {
        /// The directory.
        path: PathBuf,
    },
    /// The directory belongs to another user, who may have made it to keep this one out.
    #[error("{} belongs to user {user}", path.shown())]
    OfAnotherUser {
        /// The directory.
        path: PathBuf,
        /// Its user.
        user: u32,
    },
    /// The operating system refused.
    #[error("cannot {action} {}", path.shown())]
    Io {
        /// The failed action.
        action: &'static str,
        /// Its path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// A listening socket; dropping it removes its file.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    has_file: AtomicBool,
    /// Whether its directory was made for it alone, and goes with it.
    owns_directory: bool,
}

/// Returns a function that turns an error of the operating system into one of a socket.
fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    move |source| SocketError::Io { action, path, source }
}

/// Makes the directory if it is missing, and ensures that only its user and root can change its content.
///
/// # Errors
/// See [`SocketError`].
fn make_directory(directory: &RunDirectory) -> Result<(), SocketError> {
    let path = &directory.path;
    let mode = if directory.user == 0 { ROOT_MODE } else { USER_MODE };
    // Before the call, as another user may have put a file there; and after it, as a directory may have come meanwhile.
    refuse_another_users(directory)?;
    let made = DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(failed("make the directory", path))?;
    refuse_another_users(directory)?;
    if !directory.is_trusted().map_err(failed("look at", path))? {
        return Err(SocketError::NotTrusted { path: path.clone() });
    }
    // A service's umask removes bits from the mode of new directories; other users could then not reach root's sockets.
    if directory.user == 0 && rustix::process::geteuid().is_root() {
        let found = fs::symlink_metadata(path).map_err(failed("look at", path))?;
        if found.uid() == 0 && found.mode() & ROOT_MODE != ROOT_MODE {
            let opened = Permissions::from_mode(ROOT_MODE);
            fs::set_permissions(path, opened).map_err(failed("set the permissions of", path))?;
        }
    }
    Ok(())
}

/// Refuses what another user put at the place of the directory.
///
/// # Errors
/// [`SocketError::OfAnotherUser`].
fn refuse_another_users(directory: &RunDirectory) -> Result<(), SocketError> {
    match fs::symlink_metadata(&directory.path) {
        Ok(found) if ![0, directory.user].contains(&found.uid()) => {
            Err(SocketError::OfAnotherUser { path: directory.path.clone(), user: found.uid() })
        }
        // Where nothing can be seen, the next call says why.
        _ => Ok(()),
    }
}

impl ControlSocket {
    /// Makes the control socket `name` in the first of `directories` in which that is possible.
    ///
    /// # Errors
    /// That of the last directory; see [`SocketError`].
    pub(crate) fn bind_in_first(
        directories: &[RunDirectory],
        name: &str,
        access: MountAccess,
    ) -> Result<ControlSocket, SocketError> {
        let (last, others) = directories.split_last().expect("each user has a run directory");
        let bound = others.iter().find_map(|directory| ControlSocket::bind(directory, name, access).ok());
        bound.map_or_else(|| ControlSocket::bind(last, name, access), Ok)
    }

    /// Makes the control socket `name` in a new directory beside `directory`, which another user has. No other user can
    /// foresee its name. Clients find this socket by the mount, which names it, and not by the pool.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub(crate) fn bind_beside(
        directory: &RunDirectory,
        name: &str,
        access: MountAccess,
    ) -> Result<ControlSocket, SocketError> {
        let mut number = [0; 8];
        SystemRandom.fill(&mut number).map_err(failed("find a name beside", &directory.path))?;
        let mut path = directory.path.clone().into_os_string();
        path.push(format!("-{:016x}", u64::from_le_bytes(number)));
        let beside = RunDirectory { path: path.into(), user: directory.user };
        // Fails if it exists.
        let made = DirBuilder::new().mode(USER_MODE).create(&beside.path);
        made.map_err(failed("make the directory", &beside.path))?;
        match ControlSocket::bind(&beside, name, access) {
            Ok(mut socket) => {
                socket.owns_directory = true;
                Ok(socket)
            }
            Err(error) => {
                let _ = fs::remove_dir(&beside.path);
                Err(error)
            }
        }
    }

    /// Makes the control socket `name` in `directory`, and the directory if it is missing. If a daemon already listens
    /// at that name, the number of this process is added to the name: two daemons that only read a pool may serve it at
    /// once.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub(crate) fn bind(
        directory: &RunDirectory,
        name: &str,
        access: MountAccess,
    ) -> Result<ControlSocket, SocketError> {
        make_directory(directory)?;
        let mut path = directory.socket(name);
        // A full queue of clients also means that a daemon listens.
        if matches!(connect_at_once(&path), Ok(_) | Err(Errno::AGAIN)) {
            path = directory.socket(&format!("{name}-{}", std::process::id()));
        }
        // Left behind by a killed daemon: a process that listened would have accepted the connection.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove", &path)(error)),
            _ => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed("make the socket", &path))?;
        let socket = ControlSocket { listener, path, has_file: AtomicBool::new(true), owns_directory: false };
        let mode = match access {
            MountAccess::Everyone => 0o666,
            MountAccess::Owner => 0o600,
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

impl ControlSocket {
    /// Removes the socket's file: new clients no longer find it, and the name is free for the pool's next daemon.
    /// Connected clients stay connected. Must be called while the pool is still locked: later the file could belong to
    /// another daemon.
    pub(crate) fn retire(&self) {
        if self.has_file.swap(false, Ordering::Relaxed) {
            // If this fails, the next daemon removes it.
            let _ = fs::remove_file(&self.path);
            if self.owns_directory
                && let Some(directory) = self.path.parent()
            {
                // Left behind, it harms nobody.
                let _ = fs::remove_dir(directory);
            }
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.retire();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn run_directory(directory: &Path) -> RunDirectory {
        RunDirectory { path: directory.join("run"), user: rustix::process::geteuid().as_raw() }
    }

    fn bind(directory: &RunDirectory) -> ControlSocket {
        ControlSocket::bind(directory, "abc", MountAccess::Everyone).unwrap()
    }

    #[test]
    fn a_socket_left_behind_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let run = run_directory(directory.path());
        let path = {
            let socket = bind(&run);
            let path = socket.path().to_owned();
            // As after kill -9: the file stays, but no process listens.
            fs::rename(&path, path.with_extension("kept")).unwrap();
            drop(socket);
            fs::rename(path.with_extension("kept"), &path).unwrap();
            path
        };
        assert!(UnixStream::connect(&path).is_err());
        let socket = bind(&run);
        assert_eq!(socket.path(), path);
        assert!(UnixStream::connect(&path).is_ok());
    }

    #[test]
    fn a_second_daemon_of_one_name_gets_a_socket_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let run = run_directory(directory.path());
        let first = bind(&run);
        let second = bind(&run);
        assert_ne!(first.path(), second.path());
        assert!(UnixStream::connect(first.path()).is_ok());
        assert!(UnixStream::connect(second.path()).is_ok());
    }

    #[test]
    fn the_socket_file_goes_away_and_only_the_owner_reaches_a_private_mount() {
        let directory = tempfile::tempdir().unwrap();
        let socket = ControlSocket::bind(&run_directory(directory.path()), "abc", MountAccess::Owner).unwrap();
        let path = socket.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_that_others_can_change_gets_no_socket() {
        let directory = tempfile::tempdir().unwrap();
        let run = run_directory(directory.path());
        fs::create_dir(&run.path).unwrap();
        fs::set_permissions(&run.path, Permissions::from_mode(0o777)).unwrap();
        let bound = ControlSocket::bind(&run, "abc", MountAccess::Everyone).map(|_| ());
        assert!(matches!(bound, Err(SocketError::NotTrusted { .. })), "{bound:?}");
    }

    /// As after `su`, which leaves the runtime directory of another user in the environment.
    #[test]
    fn the_next_directory_serves_where_one_cannot_be_used() {
        let directory = tempfile::tempdir().unwrap();
        let run = |name: &str| RunDirectory { path: directory.path().join(name), ..run_directory(directory.path()) };
        let directories = [run("others"), run("file/below"), run("own"), run("never")];
        fs::create_dir(&directories[0].path).unwrap();
        fs::set_permissions(&directories[0].path, Permissions::from_mode(0o777)).unwrap();
        fs::write(directory.path().join("file"), "").unwrap();
        let bind = |directories: &[RunDirectory]| {
            ControlSocket::bind_in_first(directories, "abc", MountAccess::Owner).map(|socket| socket.path().to_owned())
        };
        assert_eq!(bind(&directories).unwrap(), directories[2].path.join("abc.sock"));
        assert!(!directories[3].path.exists());
        let refused = bind(&[directories[1].clone(), directories[0].clone()]);
        assert!(
            matches!(&refused, Err(SocketError::NotTrusted { path }) if *path == directories[0].path),
            "{refused:?}"
        );
    }

    #[test]
    fn a_directory_of_another_user_is_named_so_and_a_new_one_beside_it_serves() {
        let directory = tempfile::tempdir().unwrap();
        // As another user sees it: the directory belongs neither to root nor to that user.
        let own = run_directory(directory.path());
        fs::create_dir(&own.path).unwrap();
        let squatter = 54_321;
        if std::os::unix::fs::chown(&own.path, Some(squatter), None).is_err() {
            eprintln!("SKIPPED: giving a directory to another user needs root");
            return;
        }
        let refused = ControlSocket::bind_in_first(std::slice::from_ref(&own), "abc", MountAccess::Owner).map(|_| ());
        assert!(
            matches!(&refused, Err(SocketError::OfAnotherUser { path, user }) if (path, *user) == (&own.path, squatter)),
            "{refused:?}"
        );
        let bind = || ControlSocket::bind_beside(&own, "abc", MountAccess::Owner).unwrap();
        let sockets = [bind(), bind()];
        let directories = sockets.each_ref().map(|socket| socket.path().parent().unwrap().to_owned());
        assert_ne!(directories[0], directories[1]);
        assert!(directories.iter().all(|path| path.parent() == own.path.parent() && mode_of(path) & 0o022 == 0));
        assert!(sockets.iter().all(|socket| UnixStream::connect(socket.path()).is_ok()));
        drop(sockets);
        assert!(directories.iter().all(|path| !path.exists()), "{directories:?}");
        assert!(own.path.exists());
    }

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// A umask applies to the whole process, so the test runs itself again with another one.
    #[test]
    fn a_mask_takes_nothing_from_the_modes() {
        let is_masked = std::env::var_os("ONEFOLD_TEST_IS_MASKED").is_some();
        if !is_masked {
            let name = "control::socket::tests::a_mask_takes_nothing_from_the_modes";
            let output = std::process::Command::new("sh")
                .args(["-c", "umask 0077; exec \"$0\" --exact \"$1\""])
                .arg(std::env::current_exe().unwrap())
                .arg(name)
                .env("ONEFOLD_TEST_IS_MASKED", "1")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let run = run_directory(directory.path());
        let expected = if run.user == 0 { 0o755 } else { 0o700 };
        for _ in 0..2 {
            let socket = bind(&run);
            assert_eq!((mode_of(&run.path), mode_of(socket.path())), (expected, 0o666));
            // As left by a daemon of an older version.
            fs::set_permissions(&run.path, Permissions::from_mode(0o700)).unwrap();
        }
    }

    #[test]
    fn a_socket_that_has_retired_leaves_the_next_one_alone() {
        let directory = tempfile::tempdir().unwrap();
        let run = run_directory(directory.path());
        let first = bind(&run);
        let client = UnixStream::connect(first.path()).unwrap();
        first.retire();
        assert!(!first.path().exists());
        let second = bind(&run);
        assert_eq!(second.path(), first.path());
        drop(first);
        assert!(UnixStream::connect(second.path()).is_ok());
        drop(client);
    }
}
