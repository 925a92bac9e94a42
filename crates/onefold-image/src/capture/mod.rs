//! Capture: from a disk to an image in an archive.

mod batch;
mod chunks;
mod pipeline;
mod plan;
mod policy;
mod rows;

pub use plan::PlanError;
pub use policy::Scope;
