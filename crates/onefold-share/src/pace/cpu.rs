//! The seam to the time that processors have spent on this process.

use std::time::Duration;

/// Tells how much processor time was used.
pub trait CpuTime {
    /// Returns the time that all threads have used together since the process began. Never falls.
    fn used(&self) -> Duration;
}

/// The processor time of this process, the kernel's work for it included.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessCpu;

impl CpuTime for ProcessCpu {
    fn used(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
        Duration::new(seconds.unwrap_or(0), nanoseconds.unwrap_or(0))
    }
}
