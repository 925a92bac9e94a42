//! Threads on one pool under a schedule explorer: lookup, free, overwrite, clone, verify and reclaim of the same
//! content at once, in thousands of orders, on the code that real pools run.
//!
//! The pool's locks are the explorer's (feature `explore`): at each of them, and at each call of the device, a seed
//! decides which thread goes on. After every schedule:
//! 1. every file holds what its writers can have left there, and exactly that where only one thread changed it;
//! 2. the checker finds nothing: no block is free, or has a wrong count, that a map names;
//! 3. nothing is stored twice that could be shared, nothing stays busy, pinned or waiting to be freed;
//! 4. no thread waits for ever: the explorer calls that a deadlock.
//!
//! `ONEFOLD_SCHEDULES=n` explores n schedules of each scenario. A failure prints what shows it again:
//! `ONEFOLD_SEED`, or the schedule itself, to be put into a file that `ONEFOLD_SCHEDULE` names.

#![allow(unreachable_pub, reason = "a test crate has no users")]

#[path = "../common/mod.rs"]
mod common;
mod explore;
mod scenarios;
mod script;
mod stage;
