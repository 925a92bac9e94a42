//! Every input that the fuzzers bred and that reaches code of its own, and every one that once broke something: they
//! are kept in `fuzz/corpus`, in a folder for each target.

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
        // Past the capture of the test harness, which would hide it.
        writeln!(std::io::stderr(), "{}: {tried} inputs of its corpus", target.name).unwrap();
    }
}
