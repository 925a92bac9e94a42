//! Holds a pool during a repair, as a host holds a pool that it has open: on storage that several hosts reach, no other
//! host may open it meanwhile, or have it open already.

use std::sync::Arc;
use std::thread;

use onefold_block::BlockDevice;

use crate::engine::background::{Wake, give_beats};
use crate::engine::fence::FencedDevice;
use crate::engine::heartbeat::Pulse;
use crate::engine::open::{check_length, read_superblock};
use crate::error::{PoolError, Result};
use crate::format::geometry::HEARTBEAT;
use crate::host::HostId;
use crate::options::Environment;

/// Takes the pool for `host`, runs `work` with the device, and releases the pool. The device refuses every change once
/// another host may have the pool. Without a host identity, no other host reaches the storage.
///
/// # Errors
/// [`PoolError::InUse`] if another host has the pool open, or has taken it meanwhile; the errors of `work`.
pub(super) fn while_held<T>(
    device: &Arc<dyn BlockDevice>,
    host: Option<HostId>,
    environment: &Environment,
    work: impl FnOnce(&Arc<dyn BlockDevice>) -> Result<T>,
) -> Result<T> {
    let Some(host) = host else { return work(device) };
    let superblock = read_superblock(&**device)?;
    check_length(&**device, &superblock)?;
    let pulse = Arc::new(Pulse::acquire(device, &superblock, host, environment, false)?);
    let fenced: Arc<dyn BlockDevice> = Arc::new(FencedDevice::new(Arc::clone(device), Arc::clone(&pulse)));
    let wake = Wake::default();
    let done = thread::scope(|scope| {
        // A repair that only reads for a long time makes no writes that would renew the mark. If the mark was lost, the
        // next write reports it.
        let beat = || give_beats(&pulse, &wake, |_| ());
        thread::Builder::new()
            .name("heartbeat".to_owned())
            .spawn_scoped(scope, beat)
            .map_err(|source| PoolError::Io { action: "start a thread for", block: HEARTBEAT, source })?;
        let _ends = BeatsGuard(&wake);
        work(&fenced)
    });
    let released = pulse.release();
    let done = done?;
    released?;
    Ok(done)
}

/// Ends the beats, however the work ends.
struct BeatsGuard<'w>(&'w Wake);

impl Drop for BeatsGuard<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
