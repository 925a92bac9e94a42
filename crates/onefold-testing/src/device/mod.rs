//! Block devices for tests: they keep their blocks in memory, record calls, fail, wait, run out of room, or are slow.

mod crash;
mod faulty;
mod gated;
mod image;
mod memory;
mod recording;
mod thin;
mod throttled;

pub use crash::{CrashImage, CrashImages, CrashPlan, Sample};
pub use faulty::{Call, FailingCalls, Fault, FaultyDevice};
pub use gated::GatedDevice;
pub use image::{MemoryImage, SharedBlock};
pub use memory::MemoryDevice;
pub use recording::{Event, Recording, RecordingDevice};
pub use thin::ThinDevice;
pub use throttled::ThrottledDevice;
