//! Tests of sender and receiver.

mod basic;
mod comparison;
mod exclusion;
mod silence;
mod simulation;
