//! The fuzzer: libFuzzer around the target that `ONEFOLD_TARGET` names. What the targets do and what must hold is in
//! `onefold-hostile`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use onefold_hostile::{TARGETS, Target, allocation};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("ONEFOLD_TARGET").unwrap_or_default();
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| {
        let names = TARGETS.map(|target| target.name).join(" ");
        eprintln!("error: ONEFOLD_TARGET is `{name}`, the targets are: {names}");
        std::process::exit(2)
    })
});

fuzz_target!(|bytes: &[u8]| {
    (TARGET.run)(bytes);
    allocation::assert_bounded();
});
