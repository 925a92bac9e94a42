#!/usr/bin/env bash
# Explores orders of threads on a pool whose locks are a schedule explorer's, and adds up how many.
#
# ONEFOLD_SCHEDULES=n explores n orders of each scenario, ONEFOLD_SEED=n other ones. With --build it only compiles.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh
use_rust_toolchain

# As `make test` builds it: for the package alone, what it depends on would be built anew with other features.
tests=(--locked --workspace --features onefold-pool/explore --test schedules)
if [[ ${1-} == --build ]]; then
    exec cargo test "${tests[@]}" --no-run
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cargo test "${tests[@]}" -- --quiet 2>&1 | tee "$log"
awk 'match($0, /[0-9]+ schedules in/) { sum += substr($0, RSTART) }
     END { print "schedules: " sum + 0 " in all" }' "$log"
