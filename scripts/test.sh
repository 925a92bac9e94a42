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

step "Rust tests; formatting and lints beside them"
cargo test --workspace --locked --no-run
join_beside
# The tests wait for each other and for clocks. Not at once: who builds keeps the folder for build results to himself.
do_beside bash -ec 'sleep 15; scripts/lint.sh; scripts/races.sh --build'
cargo test --workspace --locked --no-fail-fast
join_beside

step "orders of threads"
scripts/races.sh

# The program as the Rust tests have it: optimised nearly as a release, and it notices every overflow.
target=${CARGO_TARGET_DIR:-$PWD/target}
export ONEFOLD=$target/debug/onefold

step "corpus, benchmark and soak tools"
# Whole runs of the smallest size, which mostly wait: those of files beside the others.
do_beside bash -ec 'python3 -m unittest discover -s bench/corpus
    python3 -m unittest discover -s tests/soak
    python3 -m unittest discover -s bench/tests -p "test_[ps]*.py"'
python3 -m unittest discover -s bench/tests -p 'test_[!ps]*.py'
join_beside

step "other people's programs on a real mount"
tests/clients/run.sh

printf '\nall tests passed in %d s\n' "$SECONDS"
