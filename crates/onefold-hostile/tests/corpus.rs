//! Runs every input of `fuzz/corpus`, which has a folder for each target. It keeps the fuzzers' inputs that reach code
//! of their own, and those that once broke something.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use onefold_block::Show;
use onefold_hostile::{TARGETS, allocation};

#[test]
fn inputs_that_fuzzers_bred_break_nothing() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for target in TARGETS {
        let folder = fs::read_dir(corpus.join(target.name)).expect("each target has a corpus");
        let inputs: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "the corpus of {} is empty", target.name);
        let tried = inputs.len();
        let left = Mutex::new(inputs);
        let try_all = || {
            loop {
                let Some(input) = left.lock().unwrap().pop() else { break };
                let tried = catch_unwind(AssertUnwindSafe(|| (target.run)(&fs::read(&input).unwrap())));
                assert!(tried.is_ok(), "{}", input.shown());
                allocation::assert_bounded();
            }
        };
        thread::scope(|scope| {
            scope.spawn(try_all);
            try_all();
        });
        // Bypasses the capture of the test harness, which would hide it.
        writeln!(std::io::stderr(), "{}: {tried} inputs of its corpus", target.name).unwrap();
    }
}
