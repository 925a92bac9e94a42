//! Tests of sender and receiver.

mod basic;
mod simulation;
