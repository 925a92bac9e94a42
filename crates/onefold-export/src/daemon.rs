//! A daemon: one pool, served through any set of doors until the last of them ends.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use onefold_block::Show;
use onefold_pool::{Pool, PoolError};

use crate::control::{ControlServer, ControlSocket, ServedMount, ServedPool, ServiceEnd, SocketError};
use crate::discarding::{DiscardPolicy, Discarder};
use crate::door::Door;
use crate::log::{FailureLog, StderrLog};
use crate::options::MountAccess;
use crate::place::{PoolPlace, RunDirectory};
use crate::stopper::Stopper;

/// Options of a daemon, independent of its doors.
#[derive(Clone)]
pub struct DaemonOptions {
    /// Place of the pool. The control socket is named after it, so that clients which know the pool's path find the
    /// daemon. Without a place, the socket is named after the pool's UUID.
    pub place: Option<PoolPlace>,
    /// The users who may connect to the control socket.
    pub access: MountAccess,
    /// Directory of the control socket. `None` means `/run/onefold` for root, and for others the first usable one of
    /// `$XDG_RUNTIME_DIR/onefold`, `/run/user/UID/onefold` and `/tmp/onefold-UID`, or a new directory
    /// `/tmp/onefold-UID-RANDOM` if another user has the last one.
    pub control_directory: Option<PathBuf>,
    /// Receives failures that no caller gets.
    pub log: Arc<dyn FailureLog>,
}

impl Default for DaemonOptions {
    /// Only root and the daemon's user may connect, to a socket named after the UUID.
    fn default() -> DaemonOptions {
        DaemonOptions { place: None, access: MountAccess::Owner, control_directory: None, log: Arc::new(StderrLog) }
    }
}

/// Why a daemon cannot be made. The pool is unchanged and still open.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The control socket cannot be made.
    #[error("cannot make the control socket")]
    Control(#[source] SocketError),
    /// The pool cannot report its identity.
    #[error("the pool failed")]
    Pool(#[source] PoolError),
}

/// Failures between the start of a daemon and its end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A door failed before its end. The pool was closed cleanly all the same.
    #[error("{door} failed")]
    Door {
        /// The door, as named by [`crate::DoorHandle::name`].
        door: String,
        /// The door's error.
        #[source]
        source: io::Error,
    },
    /// The control socket could not be served, so no door was served either. The pool was closed cleanly.
    #[error("cannot serve the control socket")]
    Control(#[source] SocketError),
    /// The pool could not be closed cleanly: changes since the last commit may be lost.
    #[error("the pool could not be closed in good order")]
    Close(#[source] PoolError),
    /// The pool was closed cleanly, but had lost accepted writes.
    #[error("the pool was closed in good order, but some accepted writes are lost")]
    Lost(#[source] PoolError),
}

/// A pool, its doors and its control socket. Clients wait until it is served. Dropping it removes the doors.
pub struct Daemon {
    pool: Arc<Pool>,
    socket: ControlSocket,
    doors: Vec<Box<dyn Door>>,
    mount: Option<ServedMount>,
    discarding: Option<DiscardPolicy>,
    log: Arc<dyn FailureLog>,
}

impl Daemon {
    /// Makes a daemon without doors, and its control socket.
    ///
    /// # Errors
    /// See [`DaemonError`].
    pub fn new(pool: Arc<Pool>, options: DaemonOptions) -> Result<Daemon, DaemonError> {
        let name = match options.place {
            Some(place) => place.socket_name(),
            None => pool.stat().map_err(DaemonError::Pool)?.uuid,
        };
        let bound = match options.control_directory {
            Some(given) => ControlSocket::bind(&RunDirectory::of_this_user(given), &name, options.access),
            None => bind_in_own(&name, options.access, &*options.log),
        };
        let socket = bound.map_err(DaemonError::Control)?;
        Ok(Daemon { pool, socket, doors: Vec::new(), mount: None, discarding: None, log: options.log })
    }

    /// Adds a door.
    pub fn add(&mut self, door: Box<dyn Door>) {
        self.doors.push(door);
    }

    /// Adds the door of a mount, to which open files of control clients may belong.
    pub(crate) fn add_mount(&mut self, door: Box<dyn Door>, mount: ServedMount) {
        self.doors.push(door);
        self.mount = Some(mount);
    }

    /// Has the daemon discard freed blocks while it serves.
    pub fn discard(&mut self, discarding: DiscardPolicy) {
        self.discarding = Some(discarding);
    }

    /// Returns whether one of the doors is a mount.
    pub(crate) fn is_mounted(&self) -> bool {
        self.mount.is_some()
    }

    /// Returns the pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn log(&self) -> &Arc<dyn FailureLog> {
        &self.log
    }

    /// Returns a handle by which another thread (for signals, say) can end the daemon's present doors.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper::new(self.pool.clone(), self.doors.iter().map(|door| door.handle()).collect())
    }

    /// Returns the path of the control socket.
    #[must_use]
    pub fn control_path(&self) -> &Path {
        self.socket.path()
    }

    /// Serves until the last door has ended, for whatever reason, and then closes the pool. A door that fails does not
    /// end the others. When this returns `Ok`, everything is on disk; only then do clients that wait for the end get
    /// their answer.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn serve(self) -> Result<(), ServeError> {
        let stopper = self.stopper();
        let Daemon { pool, socket, doors, mount, discarding, log } = self;
        let ending = Arc::new(ServiceEnd::default());
        let served = ServedPool { pool: pool.clone(), mount, stopper, ending: ending.clone() };
        let (control, served) = match ControlServer::start(socket, served) {
            Ok(control) => {
                let discarder = discarding.map(|how| Discarder::start(pool.clone(), how, log.clone()));
                let served = serve_each(doors, &log);
                // A trim that goes on would meet the closed pool.
                drop(discarder);
                // New clients must find a pool without a daemon, and wait for its lock.
                control.retire();
                (Some(control), served)
            }
            Err(error) => {
                drop(doors);
                (None, Err(ServeError::Control(error)))
            }
        };
        let closed = pool.close();
        ending.reach(match (&served, &closed) {
            (_, Err(error @ PoolError::WritesLost { .. })) => {
                Err(format!("the pool was closed in good order, but some accepted writes are lost: {error}"))
            }
            (_, Err(error)) => Err(format!("the pool could not be closed in good order: {error}")),
            (Err(ServeError::Door { door, source }), Ok(())) => Err(format!("{door} failed: {source}")),
            (Err(error), Ok(())) => Err(error.to_string()),
            (Ok(()), Ok(())) => Ok(()),
        });
        if let Some(control) = control {
            control.finish();
        }
        closed.map_err(|error| match error {
            PoolError::WritesLost { .. } => ServeError::Lost(error),
            error => ServeError::Close(error),
        })?;
        served
    }
}

/// Makes the control socket in the first usable run directory of this process's user. If another user has the last one,
/// as any user can who makes it first, makes the socket in a directory of its own.
///
/// # Errors
/// See [`SocketError`].
fn bind_in_own(name: &str, access: MountAccess, log: &dyn FailureLog) -> Result<ControlSocket, SocketError> {
    let directories = RunDirectory::own();
    let last = directories.last().expect("each user has a run directory");
    match ControlSocket::bind_in_first(&directories, name, access) {
        Err(refused @ SocketError::OfAnotherUser { .. }) => match ControlSocket::bind_beside(last, name, access) {
            Ok(socket) => {
                let place = socket.path().shown();
                log.error(&format!("{refused}: the control socket is {place}, which only the mount's path leads to"));
                Ok(socket)
            }
            Err(_) => Err(refused),
        },
        bound => bound,
    }
}

/// Serves all doors until each has ended; the first one on this thread.
///
/// # Errors
/// The error of the first door that failed.
fn serve_each(doors: Vec<Box<dyn Door>>, log: &Arc<dyn FailureLog>) -> Result<(), ServeError> {
    // The error of the only door is returned at once, without a log line.
    let log = (doors.len() > 1).then_some(log);
    let mut doors = doors.into_iter();
    let first = doors.next();
    // All doors have their threads before the first one is served: its clients may end another one.
    let others: Vec<_> = doors
        .map(|door| {
            let (name, log_of_thread) = (door.handle().name(), log.cloned());
            // If no thread can be started, the door is dropped.
            let thread =
                thread::Builder::new().name("door".to_owned()).spawn(move || serve(door, log_of_thread.as_ref()));
            thread.map_err(|source| failed(name, source, log))
        })
        .collect();
    let mut served = first.map_or(Ok(()), |door| serve(door, log));
    for thread in others {
        let panicked = |_| {
            let source = io::Error::other("a thread of it panicked");
            Err(ServeError::Door { door: "a door".to_owned(), source })
        };
        served = served.and(thread.and_then(|thread| thread.join().unwrap_or_else(panicked)));
    }
    served
}

/// Serves one door until it ends or panics; a panic must not keep the daemon from closing the pool. Logs a failure if
/// other doors may continue for long.
///
/// # Errors
/// The failure of the door.
fn serve(door: Box<dyn Door>, log: Option<&Arc<dyn FailureLog>>) -> Result<(), ServeError> {
    let name = door.handle().name();
    // A panic leaves only state of the door, which is gone; the pool guards its own state.
    let served = panic::catch_unwind(AssertUnwindSafe(|| door.serve()));
    let served = served.unwrap_or_else(|_| Err(io::Error::other("a thread of it panicked")));
    served.map_err(|source| failed(name, source, log))
}

/// Returns the failure of the door `name`, and logs it if there is a log.
fn failed(name: String, source: io::Error, log: Option<&Arc<dyn FailureLog>>) -> ServeError {
    if let Some(log) = log {
        log.error(&format!("{name} failed: {source}"));
    }
    ServeError::Door { door: name, source }
}
