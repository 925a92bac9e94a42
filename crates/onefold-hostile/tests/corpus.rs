//! Every input that the fuzzers bred and that reaches code of its own, and every one that once broke something: they
//! are kept in `fuzz/corpus`, in a folder for each target.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs;
use std::io::Write;
use std::path::Path;

use onefold_hostile::{TARGETS, allocation};

#[test]
fn inputs_that_fuzzers_bred_break_nothing() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for target in TARGETS {
        let mut tried = 0;
        let inputs = fs::read_dir(corpus.join(target.name)).expect("each target has a corpus");
        for input in inputs.map(|entry| entry.unwrap().path()) {
            // A panic's message comes after this line, which says whose it is.
            println!("{}", input.display());
            (target.run)(&fs::read(&input).unwrap());
            allocation::assert_bounded();
            tried += 1;
        }
        assert!(tried > 0, "the corpus of {} is empty", target.name);
        // Past the capture of the test harness, which would hide it.
        writeln!(std::io::stderr(), "{}: {tried} inputs of its corpus", target.name).unwrap();
    }
}
