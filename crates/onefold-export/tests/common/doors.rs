//! Test doors that serve no clients.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onefold_block::BlockDevice;
use onefold_export::{Door, DoorHandle, EndError};
use onefold_pool::{MEMORY_BYTES_MIN, OpenOptions, Pool};
use parking_lot::{Condvar, Mutex};

use super::environment;

pub const LONG: Duration = Duration::from_secs(20);

/// State of a test door, which the test reads and controls.
#[derive(Default)]
pub struct DoorControl {
    pub state: Mutex<State>,
    pub changed: Condvar,
    /// Number of requests to clients to hand over cached changes.
    pub hand_overs: AtomicUsize,
}

#[derive(Default)]
pub struct State {
    pub clients: usize,
    pub is_serving: bool,
    pub has_ended: bool,
    pub failure: Option<&'static str>,
    pub panics: bool,
}

impl DoorControl {
    pub fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    #[track_caller]
    pub fn wait_until(&self, is_so: impl Fn(&State) -> bool) {
        let mut state = self.state.lock();
        let timeout = self.changed.wait_while_for(&mut state, |state| !is_so(state), LONG);
        assert!(!timeout.timed_out(), "it does not come");
    }
}

/// A door without clients that serves until it is ended.
pub struct TestDoor(pub Arc<DoorControl>);

pub struct TestHandle(Arc<DoorControl>);

impl Door for TestDoor {
    fn handle(&self) -> Arc<dyn DoorHandle> {
        Arc::new(TestHandle(self.0.clone()))
    }

    fn serve(self: Box<Self>) -> io::Result<()> {
        self.0.set(|state| state.is_serving = true);
        let mut state = self.0.state.lock();
        self.0.changed.wait_while(&mut state, |state| !state.has_ended && state.failure.is_none() && !state.panics);
        assert!(!state.panics, "the door of the test panics");
        state.failure.map_or(Ok(()), |failure| Err(io::Error::other(failure)))
    }
}

impl Drop for TestDoor {
    fn drop(&mut self) {
        self.0.set(|state| state.has_ended = true);
    }
}

impl DoorHandle for TestHandle {
    fn name(&self) -> String {
        "the test's door".to_owned()
    }

    fn try_end(&self, _patience: Duration) -> Result<(), EndError> {
        let is_used = {
            let state = self.0.state.lock();
            state.clients > 0 && !state.has_ended
        };
        if is_used { Err(EndError::Clients { door: self.name() }) } else { self.end() }
    }

    fn hand_over(&self) {
        self.0.hand_overs.fetch_add(1, Ordering::SeqCst);
    }

    fn end(&self) -> Result<(), EndError> {
        self.0.set(|state| state.has_ended = true);
        Ok(())
    }
}

pub fn open_pool(device: Arc<dyn BlockDevice>) -> Arc<Pool> {
    let options =
        OpenOptions { memory_bytes: MEMORY_BYTES_MIN, commit_interval_ms: u32::MAX, ..OpenOptions::default() };
    Arc::new(Pool::open(device, options, environment()).unwrap())
}
