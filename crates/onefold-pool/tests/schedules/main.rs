//! Threads on one pool under a schedule explorer: lookup, free, overwrite, clone, verify and reclaim of the same
//! content at once, in thousands of orders, with the code of real pools.
//!
//! The pool's locks are the explorer's (feature `explore`): at each of them, and at each call of the device, a seed
//! decides which thread continues. After every schedule:
//! 1. every file holds what its writers may have left there, and exactly that if only one thread changed it;
//! 2. the checker finds no problem: no block that a map names is free or has a wrong count;
//! 3. nothing is stored twice that could be shared, and no block stays busy, pinned or waiting to be freed;
//! 4. no thread waits forever: the explorer calls that a deadlock.
//!
//! `ONEFOLD_SCHEDULES=n` explores n schedules of each scenario. A failure prints how to repeat it: `ONEFOLD_SEED`, or
//! the schedule itself, to be put into a file named by `ONEFOLD_SCHEDULE`.

#![allow(unreachable_pub, reason = "a test crate has no users")]

#[path = "../common/mod.rs"]
mod common;
mod explore;
mod scenarios;
mod script;
mod stage;
