//! A simulated file system that any number of simulated hosts have mounted.
//!
//! One file system in memory, one world of many hosts, one seed that decides all that happens. Each host's work is a
//! coroutine on a stack of its own, so that the code of the engine runs here as it does anywhere: every call of
//! [`Substrate`](onefold_substrate::Substrate) is one step, before which the scheduler may have another host make its
//! call, a writer change an image, or a host crash, be suspended, come back. After every step the invariants are looked
//! at (`checks`).
//!
//! ```
//! use onefold_block::Clock;
//! use onefold_substrate::Substrate;
//! use onefold_testing::simulated::{Host, SimulationOptions, simulate};
//!
//! fn pass<S: Substrate>(substrate: &S, clock: &dyn Clock) -> std::io::Result<()> {
//!     let images = substrate.list("images".as_ref())?;
//!     clock.sleep(std::time::Duration::from_secs(1));
//!     drop(images);
//!     Ok(())
//! }
//! let work = |host: &Host<'_>| drop(pass(&host.substrate, &*host.clock));
//! for seed in onefold_testing::simulated::seeds(1, 3) {
//!     println!("{}", simulate(&SimulationOptions::drawn(seed, 5, 1000), work));
//! }
//! ```
//!
//! What the work does may depend on nothing but what it is given, or a seed does not replay: no other clock, nothing
//! kept from one start to the next, no order of a hash table that decides about calls.
//!
//! Tests that make each call themselves, without a schedule, use [`SimulatedFileSystem`] alone.
//!
//! | part | is about |
//! |---|---|
//! | `scheduler`, `run` | whose step is next; [`Simulation`] and [`simulate`] |
//! | `host`, `clock`, `mount`, `substrate` | what a host is given: a clock, randomness, and the trait with its faults |
//! | `options`, `outcome` | what a simulation is made of, and what became of it |
//! | `world` | the file system, of which the following are parts |
//! | `blocks`, `files`, `sparse`, `data` | blocks of the device and their counts, files, reading and writing |
//! | `names`, `namespace` | folders, and what changes them |
//! | `sharing` | compare and share, clone, map |
//! | `holes` | sharing in two steps, and what a crash leaves between them |
//! | `rights` | users, owners and permission bits |
//! | `facts` | attributes, who has locks, clones of files |
//! | `durability`, `locks` | what a crash takes, and when locks expire |
//! | `writers` | whoever uses the images |
//! | `reference`, `checks` | what all files are to hold, and the invariants |
//!
//! What it does not do: extents that pin more than they show (Btrfs), room for metadata, several file systems under one
//! root. `durability` says where it is harsher than file systems are.

mod blocks;
mod checks;
mod clock;
mod content;
mod data;
mod dice;
mod durability;
mod facts;
mod file_system;
mod files;
mod holes;
mod host;
mod locks;
mod mount;
mod names;
mod namespace;
mod options;
mod outcome;
mod reference;
mod rights;
mod run;
mod scheduler;
mod sharing;
mod sparse;
mod substrate;
mod world;
mod writers;

#[cfg(test)]
mod tests;

pub use clock::SimulatedClock;
pub use file_system::SimulatedFileSystem;
pub use host::{Host, HostNo, SeenKind, SeenWrite};
pub use mount::{Bounds, SimulatedFile, SimulatedSubstrate};
pub use options::{DeclaredRun, DeclaredShare, Faults, Habits, Mistake, SimulationOptions};
pub use outcome::{Census, Counters, Failure, Outcome};
pub use run::{seeds, simulate};
pub use scheduler::Simulation;
