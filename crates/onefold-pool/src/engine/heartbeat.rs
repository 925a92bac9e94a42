//! Keeping a second host out of a pool on shared storage.
//!
//! On one host the lock on the device or file keeps a second daemon out. On storage that several hosts reach, such locks
//! may be local: there the heartbeat does. An opening that finds the pool held by another host watches for longer than
//! two beats; a beat that moves means that the other one lives, and the pool is refused. A host that finds its own mark
//! has crashed with the pool open: its lock is free, so it goes on at once. A host that finds another's mark where its
//! own should be was thought dead and replaced: it stops before it writes anything more.

use std::sync::Arc;
use std::time::Duration;

use onefold_block::{AlignedBuffer, BlockDevice, Random};

use crate::error::{PoolError, Result};
use crate::format::geometry::HEARTBEAT;
use crate::format::heartbeat::{Heartbeat, HostId};
use crate::options::Environment;
use crate::sync::Mutex;

/// Time between two beats.
pub(crate) const BEAT_INTERVAL: Duration = Duration::from_secs(4);
/// How long another host's mark is watched before it is believed dead.
const WATCH: Duration = Duration::from_secs(10);

/// The mark of this opening.
pub(crate) struct Pulse {
    device: Arc<dyn BlockDevice>,
    pool_tag: u32,
    mark: Mutex<Heartbeat>,
}

fn read(device: &dyn BlockDevice, pool_tag: u32) -> Result<Option<Heartbeat>> {
    let mut buffer = AlignedBuffer::zeroed(1);
    device.read(HEARTBEAT, &mut buffer).map_err(|source| PoolError::Io { action: "read", block: HEARTBEAT, source })?;
    Ok(Heartbeat::decode(buffer.block(0).expect("one block was read"), pool_tag))
}

impl Pulse {
    /// Takes the pool for this host.
    ///
    /// # Errors
    /// [`PoolError::InUse`] if another host has it open; device errors.
    pub(crate) fn acquire(
        device: &Arc<dyn BlockDevice>,
        pool_tag: u32,
        host: HostId,
        environment: &Environment,
    ) -> Result<Pulse> {
        if let Some(found) = read(&**device, pool_tag)?.filter(|found| found.held && found.host != host) {
            environment.clock.sleep(WATCH);
            if read(&**device, pool_tag)?.is_some_and(|later| later.held && later != found) {
                let name: String = found.host.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
                return Err(PoolError::InUse(format!("another host ({name}) has it open and is alive")));
            }
        }
        let run = random_number(&*environment.random)?;
        let pulse = Pulse {
            device: Arc::clone(device),
            pool_tag,
            mark: Mutex::new(Heartbeat { host, run, beat: 0, held: true }),
        };
        pulse.write(&pulse.mark.lock())?;
        Ok(pulse)
    }

    fn write(&self, mark: &Heartbeat) -> Result<()> {
        let bytes = AlignedBuffer::copy_of(&mark.encode(self.pool_tag));
        self.device.write(HEARTBEAT, &bytes).map_err(|source| PoolError::Io {
            action: "write",
            block: HEARTBEAT,
            source,
        })
    }

    /// Gives one beat.
    ///
    /// # Errors
    /// [`PoolError::InUse`] if another opening has taken the pool; device errors.
    pub(crate) fn beat(&self) -> Result<()> {
        let mut mark = self.mark.lock();
        match read(&*self.device, self.pool_tag)? {
            Some(found) if found.run == mark.run && found.host == mark.host => {}
            _ => return Err(PoolError::InUse("another host took it over while this one did not answer".to_owned())),
        }
        mark.beat += 1;
        self.write(&mark)
    }

    /// Gives the pool free.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn release(&self) -> Result<()> {
        let mut mark = self.mark.lock();
        mark.held = false;
        self.write(&mark)
    }
}

fn random_number(random: &dyn Random) -> Result<u64> {
    let mut bytes = [0; 8];
    random.fill(&mut bytes).map_err(|source| PoolError::Io {
        action: "find randomness for",
        block: HEARTBEAT,
        source,
    })?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_block::clock::ManualClock;
    use onefold_block::device::MemoryDevice;
    use onefold_block::random::SeededRandom;
    use onefold_block::{Clock, Timestamp};

    const TAG: u32 = 7;

    fn environment(clock: Arc<dyn Clock>, seed: u64) -> Environment {
        Environment { clock, random: Arc::new(SeededRandom::new(seed)) }
    }

    /// A clock during whose sleep the other host goes on beating.
    struct OtherBeats(Mutex<Option<Pulse>>);

    impl Clock for OtherBeats {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }

        fn sleep(&self, _time: Duration) {
            if let Some(other) = &*self.0.lock() {
                other.beat().unwrap();
            }
        }
    }

    #[test]
    fn a_living_host_keeps_others_out_and_a_dead_one_does_not() {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(4096));
        let still = || environment(Arc::new(ManualClock::default()), 1);
        let first = Pulse::acquire(&device, TAG, [1; 16], &still()).unwrap();
        let watching = environment(Arc::new(OtherBeats(Mutex::new(Some(first)))), 2);
        assert!(matches!(Pulse::acquire(&device, TAG, [2; 16], &watching), Err(PoolError::InUse(_))));
        let second = Pulse::acquire(&device, TAG, [2; 16], &still()).expect("the first one no longer beats");
        second.beat().unwrap();
    }

    #[test]
    fn a_host_that_was_replaced_finds_out_before_it_goes_on() {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(4096));
        let first = Pulse::acquire(&device, TAG, [1; 16], &environment(Arc::new(ManualClock::default()), 1)).unwrap();
        let _second = Pulse::acquire(&device, TAG, [2; 16], &environment(Arc::new(ManualClock::default()), 2)).unwrap();
        assert!(matches!(first.beat(), Err(PoolError::InUse(_))));
    }

    #[test]
    fn a_host_reopens_its_own_pool_after_a_crash_without_waiting() {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(4096));
        let clock = Arc::new(ManualClock::default());
        let _crashed = Pulse::acquire(&device, TAG, [1; 16], &environment(clock.clone(), 1)).unwrap();
        let before = clock.now().seconds;
        Pulse::acquire(&device, TAG, [1; 16], &environment(clock.clone(), 2)).unwrap();
        assert_eq!(clock.now().seconds, before);
    }
}
