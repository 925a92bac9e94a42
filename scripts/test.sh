#!/usr/bin/env bash
# The whole test suite: what CI runs, and what anybody runs before a change is handed in.
#
# Installs what is missing (and says so), then: lints where the toolchain has them, the Rust tests (unit, model, crash,
# fault and mount tests), and other people's programs on a real mount. The last line counts the outside cases.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/lib.sh

started=$SECONDS

step "installing what is missing"
scripts/install-deps.sh build test
use_rust_toolchain

step "formatting and lints"
scripts/lint.sh

step "Rust tests"
cargo test --workspace --locked --no-fail-fast

step "orders of threads"
scripts/races.sh

# The program as the Rust tests have it: optimised nearly as a release, and it notices every overflow.
target=${CARGO_TARGET_DIR:-$PWD/target}
export ONEFOLD=$target/debug/onefold

step "corpus, benchmark and soak tools"
python3 -m unittest discover -s bench/corpus
python3 -m unittest discover -s tests/soak
python3 -m unittest discover -s bench/tests

step "other people's programs on a real mount"
tests/clients/run.sh

printf '\nall tests passed in %d s\n' $((SECONDS - started))
