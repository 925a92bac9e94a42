//! Tests of sender and receiver.

mod basic;
mod comparison;
mod exclusion;
mod lies;
mod silence;
mod simulation;
