#!/usr/bin/env bash
# Runs simulated hosts that share one archive of images, and simulated machines that get an image by multicast, over
# seeds that were not tried before, and adds up what happened.
#
#   ONEFOLD_SIM_SECONDS=n  no round begins after so many seconds (default 1800)
#   ONEFOLD_SIMULATIONS=n  simulations of each test in a round (default 2000)
#   ONEFOLD_FIRST_SEED=n   where the seeds begin (default: at a number drawn now, which is printed)
#
# A failure prints what replays it: ONEFOLD_SEED with `cargo test -p onefold-image --lib simulation::`.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/lib.sh
use_rust_toolchain

readonly seconds=${ONEFOLD_SIM_SECONDS:-1800}
export ONEFOLD_SIMULATIONS=${ONEFOLD_SIMULATIONS:-2000}
first=${ONEFOLD_FIRST_SEED:-$(((RANDOM << 30 | RANDOM << 15 | RANDOM) * 100000))}
# As `make test` builds it: for the package alone, its dependencies would be built anew with other features.
tests=(--locked --workspace --lib)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

add_up() {
    awk 'match($0, /[0-9]+ simulations, [0-9]+ changes, [0-9]+ captures/) {
             split(substr($0, RSTART, RLENGTH), word, " ")
             simulations += word[1]; changes += word[3]; captures += word[5]
         }
         match($0, /[0-9]+ simulations of multicast/) { groups += substr($0, RSTART) }
         END { printf "%d simulations, %d changes, %d captures; %d groups of machines\n",
             simulations, changes, captures, groups }' "$log"
}

cargo test "${tests[@]}" --no-run
say "seeds from $first on"
SECONDS=0
rounds=0
while ((rounds == 0 || SECONDS < seconds)); do
    # Few actors try more orders of calls in a given time than many do.
    ONEFOLD_FIRST_SEED=$((first + rounds * 1000000)) cargo test --quiet "${tests[@]}" -- --nocapture \
        simulation::images_read_as_captured_whatever_a_few_actors_do \
        simulation::a_few_machines_get_a_small_image_whatever_happens \
        simulation::every_machine_gets_the_image_whatever_happens >>"$log" 2>&1 || {
        tail -n 80 "$log" >&2
        die 'a simulation failed' 'see the lines above' \
            'ONEFOLD_SEED=n cargo test -p onefold-image --lib simulation::images_read_as_captured_whatever_a_few replays one,' \
            'and simulation::every_machine or simulation::a_few_machines one of multicast'
    }
    rounds=$((rounds + 1))
    say "round $rounds, $SECONDS s: $(add_up)"
done
printf 'simulated: %s in %d rounds, %d s\n' "$(add_up)" "$rounds" "$SECONDS"
