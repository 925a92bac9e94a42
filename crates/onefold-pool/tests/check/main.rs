//! Check, repair and scrub from outside: sound pools are clean, damage is found and named, and hostile pools stop
//! nothing.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test that cannot go on fails")]

mod clean;
mod common;
mod damage;
mod domains;
mod history;
mod interrupted;
mod journal;
mod matrix;
mod mutations;
mod names;
mod repair;
mod scrub;
mod scrub_in_use;
#[path = "../common/mod.rs"]
mod shared;
mod structures;
