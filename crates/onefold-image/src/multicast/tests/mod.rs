//! Tests of sender and receiver.

mod basic;
mod comparison;
mod silence;
mod simulation;
