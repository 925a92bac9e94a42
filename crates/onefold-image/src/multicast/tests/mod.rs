//! Tests of sender and receiver.

mod basic;
mod silence;
mod simulation;
