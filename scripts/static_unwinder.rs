//! Build script of the programs: links the unwinder into them.
//!
//! The standard library asks the linker for `libgcc_s`, whose shared form takes a tenth of a millisecond of every
//! start: it is found, mapped and relocated, and asks the processor for its features. A program needs it for a panic
//! only. Here the linker finds a script of that name first, which names the static form of the same library.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The text that the linker reads in place of the shared library.
const SCRIPT: &str = "GROUP ( -lgcc_eh -lgcc )\n";
/// The static form of the library, which is a part of GCC.
const STATIC_LIBRARY: &str = "libgcc_eh.a";

fn main() {
    println!("cargo:rerun-if-changed=../../scripts/static_unwinder.rs");
    let is_gnu = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|environment| environment == "gnu");
    let is_native = env::var("HOST").ok() == env::var("TARGET").ok();
    // Cargo reads lines of UTF-8.
    let Ok(folder) = env::var("OUT_DIR") else { return };
    let script = Path::new(&folder).join("libgcc_s.so");
    if is_gnu && is_native && has_static_library() && fs::write(script, SCRIPT).is_ok() {
        println!("cargo:rustc-link-search=native={folder}");
    }
}

/// Returns whether the compiler that links has the static library. It returns the bare name if not.
fn has_static_library() -> bool {
    let asked = Command::new("cc").arg(format!("-print-file-name={STATIC_LIBRARY}")).output();
    asked.is_ok_and(|told| Path::new(String::from_utf8_lossy(&told.stdout).trim()).is_absolute())
}
