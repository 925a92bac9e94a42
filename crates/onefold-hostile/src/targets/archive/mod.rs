//! Archives of images: decoders of their objects, and whole archives.

mod build;
mod records;
mod seal;
mod whole;

pub(super) use records::run as run_records;
pub(super) use whole::run as run_whole;
