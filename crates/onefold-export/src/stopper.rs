//! Ending a daemon: politely while nobody uses its doors, firmly when it must go.

use std::sync::Arc;
use std::time::Duration;

use onefold_pool::{Pool, PoolError};

use crate::door::{DoorHandle, EndError};

/// How long a polite end waits for clients that are about to go: for other mount namespaces, above all, for processes
/// that run for a moment have one, too.
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
        /// Which one, as [`DoorHandle::name`] has it.
        door: String,
        /// Why.
        #[source]
        source: EndError,
    },
    /// All doors are ended, but not everything is durable.
    #[error("cannot make the pool durable")]
    Sync(#[source] PoolError),
}

impl Stopper {
    pub(crate) fn new(pool: Arc<Pool>, doors: Vec<Arc<dyn DoorHandle>>) -> Stopper {
        Stopper { pool, doors: doors.into() }
    }

    /// Ends one door after the other, each if nobody uses it; the daemon ends with the last one. A kernel hands over
    /// all it has cached before it lets go of a mount, so this needs the doors to be served. Does nothing if all have
    /// ended. For each door it takes no longer than four seconds, beside the time that clients take to hand over.
    ///
    /// # Errors
    /// Of the first door that does not end. Those before it have ended, those after it have not. [`EndError::Busy`]
    /// and [`EndError::Clients`] if somebody uses it; [`EndError::Held`] if a mount is shown elsewhere too, and
    /// [`EndError::StillHeld`] if that shows only afterwards.
    pub fn try_end(&self) -> Result<(), EndError> {
        self.doors.iter().try_for_each(|door| door.try_end(USERS_WAIT_MAX))
    }

    /// Makes everything durable that was written so far, as far as clients hand over in time what they have cached:
    /// for an end that was refused.
    ///
    /// # Errors
    /// What the pool reports.
    pub(crate) fn commit(&self) -> Result<(), PoolError> {
        self.doors.iter().for_each(|door| door.hand_over());
        self.sync()
    }

    /// Makes everything durable that the pool has; nothing where it is read-only.
    fn sync(&self) -> Result<(), PoolError> {
        if self.pool.is_read_only() { Ok(()) } else { self.pool.sync() }
    }

    /// Ends all doors in any case, for a daemon that was told to stop:
    ///
    /// 1. Doors that nobody uses are ended.
    /// 2. What clients of the others have cached is handed over, as far as that is done in a bounded time, and
    /// 3. made durable: whoever is cut off loses nothing that was written before.
    /// 4. The others are ended; whoever uses them gets errors.
    ///
    /// # Errors
    /// When not even that works, of the first door that does not end; or when the pool can't make everything durable
    /// (the doors end all the same).
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
