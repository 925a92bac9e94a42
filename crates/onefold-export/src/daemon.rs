//! A daemon: one pool, served through any set of doors until the last of them ends.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use onefold_pool::{Pool, PoolError};

use crate::control::{ControlServer, ControlSocket, Ending, Served, ServedMount, SocketError};
use crate::door::Door;
use crate::log::{Log, StderrLog};
use crate::options::Access;
use crate::place::{PoolPlace, RunDirectory};
use crate::stopper::Stopper;

/// Chosen for a daemon, whatever its doors are.
#[derive(Clone)]
pub struct DaemonOptions {
    /// Where the pool lies. The control socket is named after it, so that clients which know the pool's path find the
    /// daemon; without a place it is named after the pool's UUID.
    pub place: Option<PoolPlace>,
    /// Who may connect to the control socket.
    pub access: Access,
    /// Directory of the control socket; `None` is `/run/onefold` for root and `$XDG_RUNTIME_DIR/onefold` for others.
    pub control_directory: Option<PathBuf>,
    /// Receives failures that no caller hears of.
    pub log: Arc<dyn Log>,
}

impl Default for DaemonOptions {
    /// Only root and the daemon's user may connect, to a socket that is named after the UUID.
    fn default() -> DaemonOptions {
        DaemonOptions { place: None, access: Access::Owner, control_directory: None, log: Arc::new(StderrLog) }
    }
}

/// Why a daemon can't be made. The pool is as it was, still open.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The control socket can't be made.
    #[error("cannot make the control socket")]
    Control(#[source] SocketError),
    /// The pool can't tell what it is.
    #[error("the pool failed")]
    Pool(#[source] PoolError),
}

/// What went wrong between the start of a daemon and its end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Clients of a door could not be served to the end. The pool was closed in good order all the same.
    #[error("{door} failed")]
    Door {
        /// Which one, as [`crate::DoorHandle::name`] has it.
        door: String,
        /// What the door reports.
        #[source]
        source: io::Error,
    },
    /// No client of the control socket could be served, and so nobody was. The pool was closed in good order.
    #[error("cannot serve the control socket")]
    Control(#[source] SocketError),
    /// The pool could not be closed in good order: changes since the last commit may be lost.
    #[error("the pool could not be closed in good order")]
    Close(#[source] PoolError),
    /// The pool was closed in good order, but had lost writes that it had accepted.
    #[error("the pool was closed in good order, but not all that was written is in it")]
    Lost(#[source] PoolError),
}

/// A pool, its doors and its control socket. Clients wait until it is served; dropping it takes the doors away.
pub struct Daemon {
    pool: Arc<Pool>,
    socket: ControlSocket,
    doors: Vec<Box<dyn Door>>,
    mount: Option<ServedMount>,
    log: Arc<dyn Log>,
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
        let given = options.control_directory.map(RunDirectory::of_this_user);
        let directory = given.or_else(RunDirectory::own).ok_or(DaemonError::Control(SocketError::NoDirectory))?;
        let socket = ControlSocket::bind(&directory, &name, options.access).map_err(DaemonError::Control)?;
        Ok(Daemon { pool, socket, doors: Vec::new(), mount: None, log: options.log })
    }

    /// Adds a door.
    pub fn add(&mut self, door: Box<dyn Door>) {
        self.doors.push(door);
    }

    /// Adds the door of a mount, which open files of control clients may belong to.
    pub(crate) fn add_mount(&mut self, door: Box<dyn Door>, mount: ServedMount) {
        self.doors.push(door);
        self.mount = Some(mount);
    }

    /// Tells whether one of the doors is a mount.
    pub(crate) fn is_mounted(&self) -> bool {
        self.mount.is_some()
    }

    /// Returns the pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn log(&self) -> &Arc<dyn Log> {
        &self.log
    }

    /// Returns a handle by which another thread (of signals, say) can end the daemon: the doors that it has now.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper::new(self.pool.clone(), self.doors.iter().map(|door| door.handle()).collect())
    }

    /// Returns the path of the control socket.
    #[must_use]
    pub fn control_path(&self) -> &Path {
        self.socket.path()
    }

    /// Serves until the last door has ended, by whomever, and then closes the pool. A door that fails does not end the
    /// others. Everything is on disk when this returns `Ok`; only then are clients told that wait for the end.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn serve(self) -> Result<(), ServeError> {
        let stopper = self.stopper();
        let Daemon { pool, socket, doors, mount, log } = self;
        let ending = Arc::new(Ending::default());
        let served = Served { pool: pool.clone(), mount, stopper, ending: ending.clone() };
        let (control, served) = match ControlServer::start(socket, served) {
            Ok(control) => {
                let served = serve_each(doors, &log);
                // Whoever comes now is to find a pool that nobody serves, and to wait for its lock.
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
                Err(format!("the pool was closed in good order, but not all that was written is in it: {error}"))
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

/// Serves all doors until each has ended, the first one on this thread.
///
/// # Errors
/// Of the first door that failed.
fn serve_each(doors: Vec<Box<dyn Door>>, log: &Arc<dyn Log>) -> Result<(), ServeError> {
    // What the last door reports is returned at once.
    let log = (doors.len() > 1).then_some(log);
    let mut doors = doors.into_iter();
    let first = doors.next();
    // All doors have their threads before the first one is served: its clients may end another one.
    let others: Vec<_> = doors
        .map(|door| {
            let (name, log_of_thread) = (door.handle().name(), log.cloned());
            // Without a thread the door is gone.
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

/// Serves one door until it ends, or panics, which must not keep the daemon from closing the pool. Logs a failure if
/// other doors may go on for long.
///
/// # Errors
/// Why it failed.
fn serve(door: Box<dyn Door>, log: Option<&Arc<dyn Log>>) -> Result<(), ServeError> {
    let name = door.handle().name();
    // What a panic leaves behind belongs to the door, which is gone; the pool guards its own state.
    let served = panic::catch_unwind(AssertUnwindSafe(|| door.serve()));
    let served = served.unwrap_or_else(|_| Err(io::Error::other("a thread of it panicked")));
    served.map_err(|source| failed(name, source, log))
}

/// Returns the failure of the door `name`. Logs it where there is a log.
fn failed(name: String, source: io::Error, log: Option<&Arc<dyn Log>>) -> ServeError {
    if let Some(log) = log {
        log.error(&format!("{name} failed: {source}"));
    }
    ServeError::Door { door: name, source }
}
