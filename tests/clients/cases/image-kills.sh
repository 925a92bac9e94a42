# kill -9 of captures and installations at any moment: acknowledged images stay whole, half a disk never boots
# limit: 150 s
needs mke2fs e2fsck python3
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
archive=$dir/archive
rounds=12
guest_bytes=64M

# noisy IMAGE SEED: a guest with some noise of its own, so that each capture has something to store.
noisy() {
    guest "$1" "$2"
    head -c 12M /dev/urandom >"$dir/own"
    debugfs -w -R "write $dir/own own" "$1" >/dev/null 2>&1
}

# moment ROUND SECONDS: a moment within that time; the moments of all rounds are spread over it.
moment() {
    awk -v round="$1" -v rounds="$rounds" -v seconds="$2" -v random="$RANDOM" \
        'BEGIN { printf "%.3f\n", seconds * (round - 1 + random / 32768) / rounds }'
}

# seconds_of COMMAND...: how long the command takes.
seconds_of() {
    local started=${EPOCHREALTIME/./}
    "$@" >/dev/null 2>&1
    awk -v took="$((${EPOCHREALTIME/./} - started))" 'BEGIN { printf "%.3f\n", took / 1000000 }'
}

noisy "$dir/first.raw" 1
onefold archive create "$archive"
takes=$(seconds_of "$ONEFOLD" image capture --quiet "$archive" "$dir/first.raw" first)
onefold image export --quiet "$archive" first "$dir/first.export"

acknowledged=0
for round in $(seq "$rounds"); do
    noisy "$dir/next.raw" $((round % 3))
    if ended_before "$(moment "$round" "$takes")" "$ONEFOLD" image capture --quiet "$archive" "$dir/next.raw" next; then
        acknowledged=$((acknowledged + 1))
    fi
    onefold archive check --data --quiet "$archive" >"$dir/check" || fail "round $round: $(<"$dir/check")"
    listed=$(onefold image list "$archive" | grep -c '^next@' || true)
    # The entry may have been made, and the process killed before it could say so.
    ((listed >= acknowledged)) || fail "round $round: $listed images of $acknowledged that were acknowledged"
    acknowledged=$listed
done
note "$acknowledged of $rounds killed captures had made their entry"
onefold image export --quiet "$archive" first - | cmp - "$dir/first.export"
# What the killed captures left hinders nobody.
onefold image capture --quiet "$archive" "$dir/next.raw" next
onefold image install --quiet --verify "$archive" next "$dir/next.installed"
e2fsck -fn "$dir/next.installed" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"

size=$(stat --format=%s "$dir/first.raw")
head -c "$size" /dev/urandom >"$dir/noise"
cp "$dir/noise" "$dir/target.raw"
takes=$(seconds_of "$ONEFOLD" image install --quiet --force "$archive" first "$dir/target.raw")
killed=0
for round in $(seq "$rounds"); do
    cp "$dir/noise" "$dir/target.raw"
    ended_before "$(moment "$round" "$takes")" "$ONEFOLD" image install --quiet --force "$archive" first "$dir/target.raw" ||
        killed=$((killed + 1))
    # Untouched noise, nothing but zeros where a disk begins, or all of it.
    if ! cmp -s --bytes=1M "$dir/target.raw" "$dir/noise"; then
        if cmp -s --bytes=4K "$dir/target.raw" /dev/zero; then
            :
        else
            e2fsck -fn "$dir/target.raw" >"$dir/e2fsck" 2>&1 || fail "round $round left half a disk: $(<"$dir/e2fsck")"
        fi
    fi
    onefold image install --quiet --force "$archive" first "$dir/target.raw"
    e2fsck -fn "$dir/target.raw" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"
done
note "$killed of $rounds installations were killed before their end"

# A killed installation to a new file leaves no file of that name.
ended_before 0.02 "$ONEFOLD" image install --quiet "$archive" first "$dir/half.raw" || [[ ! -e $dir/half.raw ]] ||
    fail "half a file has the name"

# Ctrl-C ends a capture and an installation with what to do next.
for verb in "capture $archive $dir/first.raw interrupted" "install --force $archive first $dir/target.raw"; do
    status=0
    # shellcheck disable=SC2086 # Words.
    "$ONEFOLD" image $verb >"$dir/said" 2>&1 &
    command=$!
    sleep 0.05
    kill -INT "$command" 2>/dev/null || true
    wait "$command" || status=$?
    [[ $status == 0 || $status == 130 || $status == 1 && $verb == capture* ]] || fail "it ended with $status"
    ((status == 0)) || grep -q 'hint: ' "$dir/said" || fail "it ended with $status: $(<"$dir/said")"
done
onefold archive check --quiet "$archive"
