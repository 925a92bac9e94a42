//! The archive of disk images: captures the content of disks, keeps each unit of it once, and installs it again.
//!
//! An archive is a set of objects in a [`store`], which never change. Only the ledger grows ([`format::ledger`]).
//! Decision 26 has the reasons. The crate is synchronous, knows neither sockets nor the command line, and parses no
//! guest: `onefold-guest` provides allocation maps and the owners of blocks. Bytes of an archive are hostile input:
//! every decoder returns an error with the object's name, and every unit is verified by its name before it is used.
//!
//! Modules from the bottom up: `name`, `run`, `signature` and `trust`, `format` (every object), `store`, then `archive`
//! with ledger and index,
//! `capture` and `install`.

#![forbid(unsafe_code)]

pub mod archive;
pub mod capture;
mod claims;
pub mod compress;
mod disk;
pub mod format;
mod gaps;
mod image_source;
mod in_use;
pub mod install;
pub mod multicast;
mod name;
mod placed;
mod rate;
mod recent;
pub mod remote;
mod run;
mod seed;
pub mod served;
pub mod signature;
mod stages;
pub mod store;
#[cfg(test)]
mod test_images;
#[cfg(test)]
mod testing;
pub mod trust;

pub use disk::ArchivedDisk;
pub use image_source::{Arrivals, ChunkReader, ImageSource, LackingPart, OnUnit, WantedUnits};
pub use in_use::{FileUser, device_above, writer_of};
pub use name::{ArchiveId, ImageName, ImageNameError, ImageVersion, ObjectId, UnitKey, UnitName, WriterId};
pub use placed::HeaderError;
pub use rate::{Rate, RatedDisk, RatedTarget};
pub use run::{SECTOR_BYTES, SectorRun};
pub use seed::SeededImages;
pub use stages::{MeteredSource, MeteredTarget, Stage, StageFigure, StageFigures, StageMeter};
