//! The limits of `share run` and `share watch`.

use std::num::NonZeroU32;

use onefold_share::pace::Limits;

use crate::cli::share_work::LimitArgs;
use crate::failure::{Failure, Outcome};
use crate::size::ByteSize;

/// Minimum of `--memory`: below it, buffers would take most of it.
const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// Memory of the process besides rows: buffers, maps, the program itself.
const OVERHEAD_BYTES: u64 = 48 << 20;
/// Minimum of `--rate`: below it, a single read would wait for half a minute.
const RATE_MIN: u64 = 64 << 10;

/// Returns the memory for sorting, in bytes.
pub(super) fn check_memory(memory: ByteSize) -> Outcome<usize> {
    if memory.0 < MEMORY_BYTES_MIN {
        return Err(Failure::usage("cannot share blocks").because_of("--memory is less than 64M"));
    }
    Ok(usize::try_from(memory.0 - OVERHEAD_BYTES).unwrap_or(usize::MAX))
}

/// Returns the limits in the arguments.
pub(super) fn limits(arguments: LimitArgs) -> Outcome<Limits> {
    let per_second = arguments.rate.map(|rate| rate.0);
    if per_second.is_some_and(|bytes| bytes.get() < RATE_MIN) {
        return Err(Failure::usage("cannot share blocks").because_of("--rate is less than 64K"));
    }
    Ok(Limits {
        read_bytes_per_second: per_second,
        share_bytes_per_second: per_second,
        cpu_percent: arguments.cpu_limit.and_then(NonZeroU32::new),
        stall_max: Some(arguments.max_stall),
    })
}
