//! Targets that an image is installed to.

mod file;
mod target;

pub use file::{Content, FileTarget, TargetError};
pub use target::Target;
