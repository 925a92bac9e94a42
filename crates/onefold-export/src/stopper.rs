//! Ends a daemon: politely while no client uses its doors, or forcibly when it must stop.

use std::sync::Arc;
use std::time::Duration;

use onefold_pool::{Pool, PoolError};

use crate::door::{DoorHandle, EndError};

/// How long a polite end waits for users that are about to leave, mainly for other mount namespaces: even short-lived
/// processes may have one.
const USERS_WAIT_MAX: Duration = Duration::from_secs(2);

/// Ends a daemon from another thread. Cheap to clone.
#[derive(Clone)]
pub struct Stopper {
    pool: Arc<Pool>,
    doors: Arc<[Arc<dyn DoorHandle>]>,
}

/// Why a stop was not clean.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// A door could not be ended.
    #[error("cannot end {door}")]
    Door {
        /// The door, as named by [`DoorHandle::name`].
        door: String,
        /// The cause.
        #[source]
        source: EndError,
    },
    /// All doors have ended, but not everything is durable.
    #[error("cannot make the pool durable")]
    Sync(#[source] PoolError),
}

impl Stopper {
    pub(crate) fn new(pool: Arc<Pool>, doors: Vec<Arc<dyn DoorHandle>>) -> Stopper {
        Stopper { pool, doors: doors.into() }
    }

    /// Ends the doors one after another, each if no client uses it; the daemon ends with the last one. The kernel hands
    /// over all cached changes before it releases a mount, so the doors must be served meanwhile. Does nothing if all
    /// have ended. Each door takes at most four seconds, in addition to the time that clients take to hand over.
    ///
    /// # Errors
    /// The error of the first door that does not end. The doors before it have ended; those after it have not.
    /// [`EndError::Busy`] and [`EndError::Clients`] if the door is in use; [`EndError::Held`] if its file system is
    /// also mounted elsewhere, and [`EndError::StillHeld`] if that shows only afterwards.
    pub fn try_end(&self) -> Result<(), EndError> {
        self.doors.iter().try_for_each(|door| door.try_end(USERS_WAIT_MAX))
    }

    /// Makes all earlier writes durable, including the cached changes that clients hand over in time. Used after an end
    /// was refused.
    ///
    /// # Errors
    /// The pool's error.
    pub(crate) fn commit(&self) -> Result<(), PoolError> {
        self.doors.iter().for_each(|door| door.hand_over());
        self.sync()
    }

    /// Makes the pool's changes durable; does nothing if it is read-only.
    fn sync(&self) -> Result<(), PoolError> {
        if self.pool.is_read_only() { Ok(()) } else { self.pool.sync() }
    }

    /// Ends all doors in any case, for a daemon that must stop:
    ///
    /// 1. Doors without users are ended.
    /// 2. Clients of the others hand over their cached changes, as far as a bounded time allows.
    /// 3. These are made durable, so that a disconnected client loses no earlier write.
    /// 4. The other doors are ended; their clients get errors.
    ///
    /// # Errors
    /// When even that fails, the error of the first door that does not end; or the error of a pool that cannot make
    /// everything durable (the doors end all the same).
    pub fn stop(&self) -> Result<(), StopError> {
        let (mut in_use, mut ended) = (Vec::new(), Ok(()));
        for door in &*self.doors {
            match door.try_end(Duration::ZERO) {
                Ok(()) => {}
                Err(EndError::Busy | EndError::Clients { .. } | EndError::Held(_) | EndError::StillHeld(_)) => {
                    in_use.push(door);
                }
                Err(source @ EndError::Refused { .. }) => {
                    ended = ended.and(Err(StopError::Door { door: door.name(), source }));
                }
            }
        }
        if in_use.is_empty() {
            return ended;
        }
        in_use.iter().for_each(|door| door.hand_over());
        let synced = self.sync();
        for door in in_use {
            ended = ended.and(door.end().map_err(|source| StopError::Door { door: door.name(), source }));
        }
        ended.and(synced.map_err(StopError::Sync))
    }
}
