#!/usr/bin/env bash
# The whole test suite: what CI runs, and what anybody runs before a change is handed in.
#
# Installs what is missing (and says so), builds, then runs side by side: the Rust tests (unit, model, crash, fault and
# mount tests), other people's programs on a real mount, lints where the toolchain has them, and the tests of scripts and
# benchmarks. What goes on beside the Rust tests is shown when they have ended; all failures are named at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/lib.sh

# What is done beside something else: processes, and the file that each one's output goes to.
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

# do_beside NAME COMMAND...: runs a command beside the next steps, in a session of its own, so that all of it can be
# stopped at once.
do_beside() {
    setsid "${@:2}" >"$heard/$1" 2>&1 &
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

# The outside cases run them.
try 'public POSIX suites' join_beside suites

# Most of what runs beside the Rust tests waits for disks, mounts and clocks, and lints are one long chain of crates. So
# the Rust tests, of which any number can run at once, take what the others leave of the processors.
step "Rust tests and orders of threads; beside them lints, tests of scripts and benchmarks, other people's programs"
do_beside lints bash -ec 'cargo test --workspace --doc --locked --quiet
    scripts/lint.sh'
# Not alone on the machine.
do_beside clients env PATIENCE=4 tests/clients/run.sh
export PYTHONDONTWRITEBYTECODE=1
# Whole runs of all benchmarks, at their tiniest size.
do_beside runs python3 -m unittest discover -s bench/tests -p 'test_*run.py'
# shellcheck disable=SC2016 # The inner shell expands it.
do_beside scripts bash -ec 'for folder in scripts scripts/long bench/corpus tests/soak tests/cluster; do
        python3 -m unittest discover -s "$folder"
    done
    for file in bench/tests/test_*.py; do
        [[ $file == *run.py ]] || python3 -m unittest discover -s bench/tests -p "${file##*/}"
    done'
try 'Rust tests' nice -n 5 scripts/rust_tests.py run
try "other people's programs" join_beside clients
try 'formatting and lints' join_beside lints
try 'tests of scripts and of the parts of benchmarks' join_beside scripts
try 'whole runs of the benchmarks' join_beside runs

if ((${#failed[@]} > 0)); then
    printf '\nfailed: %s\n' "$(printf '%s; ' "${failed[@]}" | sed 's/; $//')" >&2
    exit 1
fi
printf '\nall tests passed in %d s\n' "$SECONDS"
