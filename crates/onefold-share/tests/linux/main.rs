//! The Linux substrate on real file systems: XFS and Btrfs on loop devices, made for each test.
//!
//! They take root (mounts) and the programs that make file systems; where those are missing, each test says on stderr
//! that it was skipped and why. OCFS2 wants a cluster and is not tried here.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![expect(clippy::cast_possible_truncation, reason = "offsets of small files are indices into their content")]

mod asking;
mod clones;
mod cut;
mod damage;
mod domains;
mod facts;
mod finders;
mod ground;
mod guest_files;
mod leases;
mod machine;
mod maps;
mod monitor;
mod names;
mod once;
mod opt_out;
mod others;
mod pass;
mod probe;
mod races;
mod refusals;
mod rereading;
mod share;
mod space;
mod stat;
mod states;
#[path = "../common/states/mod.rs"]
mod states_walk;
mod trust;
mod two_steps;
mod watch;
