//! The processor time of this process.

use std::time::Duration;

use onefold_substrate::CpuTime;

/// The processor time of this process, including the time that the kernel works for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessCpu;

impl CpuTime for ProcessCpu {
    fn used(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
        Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
    }
}
