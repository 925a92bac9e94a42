#!/usr/bin/env bash
# The whole test suite: what CI runs, and what anybody runs before a change is handed in.
#
# Installs what is missing (and says so), then: lints where the toolchain has them, the Rust tests (unit, model, crash,
# fault and mount tests), and other people's programs on a real mount. The last line counts the outside cases.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/lib.sh

# What is done beside something else: processes, and where each is heard.
declare -A beside
heard=$(mktemp --directory)
trap 'stop_beside; rm -rf "$heard"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

stop_beside() {
    local process
    for process in "${beside[@]}"; do
        kill -- "-$process" 2>/dev/null || true
    done
}

# do_beside NAME COMMAND...: does something while the next steps wait for a disk or have work for one processor only. In a
# session of its own, so that all of it can be stopped at once.
do_beside() {
    setsid nice -n 10 "${@:2}" >"$heard/$1" 2>&1 &
    beside[$1]=$!
}

# join_beside NAME: waits for it, and shows what it said.
join_beside() {
    local status=0
    wait "${beside[$1]}" || status=$?
    unset "beside[$1]"
    cat "$heard/$1" >&2
    return "$status"
}

# What has failed. The steps after it are done all the same: one run tells of everything that is wrong.
failed=()

# try NAME COMMAND...: does something, and notes its name where that fails.
try() {
    "${@:2}" || failed+=("$1")
}

step "installing what is missing"
scripts/install-deps.sh build test
use_rust_toolchain
suites=$(scripts/install-deps.sh --list suites | paste -sd' ')
[[ -z $suites ]] || say "building with cargo, beside the Rust tests: $suites"
do_beside suites scripts/install-deps.sh suites

# What only later builds gain by is not made. Builds with it stay beside these.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

# The program as the Rust tests have it: optimised nearly as a release, and it notices every overflow.
target=${CARGO_TARGET_DIR:-$PWD/target}
export ONEFOLD=$target/debug/onefold

step "building the Rust tests"
scripts/rust_tests.py build

step "Rust tests and orders of threads; formatting, lints and the tests of scripts and benchmarks beside them"
do_beside lints bash -ec 'cargo test --workspace --doc --locked --quiet
    scripts/lint.sh'
# shellcheck disable=SC2016 # The inner shell expands it.
do_beside scripts bash -ec 'export PYTHONDONTWRITEBYTECODE=1
    for folder in scripts scripts/long bench/corpus tests/soak tests/cluster tests/guest-files tests/images tests/serve bench/tests; do
        python3 -m unittest discover -s "$folder"
    done'
try 'Rust tests' scripts/rust_tests.py run
try 'public POSIX suites' join_beside suites

step "other people's programs on a real mount"
# Not alone on the machine as long as something goes on beside.
PATIENCE=2 try "other people's programs" tests/clients/run.sh
try 'formatting and lints' join_beside lints
try 'tests of scripts and benchmarks' join_beside scripts

if ((${#failed[@]} > 0)); then
    printf '\nfailed: %s\n' "$(printf '%s; ' "${failed[@]}" | sed 's/; $//')" >&2
    exit 1
fi
printf '\nall tests passed in %d s\n' "$SECONDS"
