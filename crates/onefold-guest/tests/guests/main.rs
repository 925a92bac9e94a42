//! The readers of guests against real file systems, made by these file systems' own tools, and their programs as
//! oracles.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bitmaps;
mod boot;
mod budget;
mod doubt;
mod ext;
mod fixtures;
mod machines;
mod newer;
mod noise;
mod ntfs;
mod packages;
mod second;
mod unreadable;
mod volumes;
mod whole;
mod xfs;
