//! Out-of-band sharing: finds equal blocks of plain files and has their file system share them (DeDe). [`run()`] is the
//! entry point.
//!
//! Hosts have only a mounted file system in common: no server, no messages. All their knowledge of each other is in one
//! folder of that file system. None of it is needed to keep data right: blocks are only ever shared by
//! [`Sharing::share`](onefold_substrate::Sharing::share), which compares them first. docs/decisions/0011-sharing.md and
//! the records that it names describe the design.

pub mod block_state;
pub mod clone;
mod digest;
pub mod domain;
pub mod explain;
mod extents;
pub mod files;
pub mod format;
mod kept_map;
pub mod mend;
pub mod monitor;
mod noted_stamps;
pub mod opt_out;
pub mod pace;
pub mod pass;
mod places;
pub mod policy;
mod ranges;
pub mod references;
mod room;
pub mod run;
pub mod scan;
pub mod selection;
mod slices;
pub mod state;
pub mod status;
pub mod watch;
pub mod without_index;

pub use run::{RunOptions, RunReport, RunStep, Seams, run};
