#!/usr/bin/env bash
# Prints how long files and functions are, tests and all: a row for each crate, then each long file and function.
#
# `half` is what half of a crate's functions do not exceed. The test behind it fails for a long function of the product.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh
use_rust_toolchain

cargo test --quiet --locked -p onefold --test structure -- --nocapture no_function_of_the_product
