# shellcheck shell=bash
# What the demo shows of its pool and a test repeats, to be sourced after `lib.sh`.
#
# The caller sets `onefold`, the program, and `MNT`, where the pool is mounted.
# shellcheck disable=SC2154 # see above

# pool_number FILTER: one number from the pool's own account.
pool_number() {
    "$onefold" --json pool stat "$MNT" | jq "$1"
}

# Deletes the folder `clones` of the pool, waits until its space is free, and says what is left.
delete_clones() {
    local before after waited
    before=$(pool_number .pool.apparent_bytes)
    rm -r "$MNT/clones"
    # Reclaim runs in the background, and lengths count until it is done.
    for ((waited = 0; waited < 600; waited++)); do
        (($(pool_number .pool.reclaim_pending) > 0)) || break
        sleep 0.1
    done
    after=$(pool_number .pool.apparent_bytes)
    say "    the clones are gone: $(human_bytes "$before") of images before, $(human_bytes "$after") now"
}
