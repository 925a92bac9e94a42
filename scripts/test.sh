#!/usr/bin/env bash
# The whole test suite: what CI runs, and what anybody runs before a change is handed in.
#
# Installs what is missing (and says so), then: lints where the toolchain has them, the Rust tests (unit, model, crash,
# fault and mount tests), and other people's programs on a real mount. The last line counts the outside cases.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/lib.sh

# What is done beside something else, and where it is heard.
beside=
heard=$(mktemp)
trap 'stop_beside; rm -f "$heard"' EXIT

stop_beside() {
    [[ -z $beside ]] || kill -- "-$beside" 2>/dev/null || true
}

# Does something while the next step waits for a disk or has work for one processor only. In a session of its own, so
# that all of it can be stopped at once.
do_beside() {
    setsid nice -n 10 "$@" >"$heard" 2>&1 &
    beside=$!
}

# Waits for it, and shows what it said.
join_beside() {
    local status=0
    wait "$beside" || status=$?
    beside=
    cat "$heard" >&2
    return "$status"
}

step "installing what is missing"
scripts/install-deps.sh build test
use_rust_toolchain
suites=$(scripts/install-deps.sh --list suites | paste -sd' ')
[[ -z $suites ]] || say "building with cargo, beside the Rust tests: $suites"
do_beside scripts/install-deps.sh suites

# What only later builds gain by is not made. Builds with it stay beside these.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

# The program as the Rust tests have it: optimised nearly as a release, and it notices every overflow.
target=${CARGO_TARGET_DIR:-$PWD/target}
export ONEFOLD=$target/debug/onefold

step "building the Rust tests"
cargo test --workspace --locked --no-run
join_beside

step "Rust tests; formatting, lints and the benchmarks' own tests beside them"
# The tests wait for each other and for clocks. Not at once: who builds keeps the folder for build results to himself.
do_beside bash -ec 'sleep 15
    scripts/races.sh --build
    scripts/lint.sh
    python3 -m unittest discover -s scripts/long
    python3 -m unittest discover -s bench/corpus
    python3 -m unittest discover -s tests/soak
    python3 -m unittest discover -s tests/cluster
    python3 -m unittest discover -s bench/tests'
cargo test --workspace --locked --no-fail-fast

step "orders of threads"
scripts/races.sh

step "other people's programs on a real mount"
# Not alone on the machine as long as something goes on beside.
PATIENCE=2 tests/clients/run.sh
join_beside

printf '\nall tests passed in %d s\n' "$SECONDS"
