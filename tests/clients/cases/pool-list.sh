# `pool list` asks daemons side by side: two that hang cost one wait and hide no other pool, and Ctrl-C ends the wait
daemons=()
for number in 1 2 3; do
    mkdir "$dir/mnt-$number"
    onefold pool create --quiet --size 64M --label "label-$number" "$dir/$number.pool"
    daemons+=("$("$ONEFOLD" pool mount --json "$dir/$number.pool" "$dir/mnt-$number" |
        sed -n 's/.*"process": \([0-9]*\).*/\1/p')")
done
release() {
    kill -CONT "${daemons[@]}" 2>/dev/null || true
    for number in 1 2 3; do
        "$ONEFOLD" pool umount "$dir/mnt-$number" 2>/dev/null || true
    done
}
trap release EXIT

onefold pool list >"$dir/listed"
for number in 1 2 3; do
    grep -q "/$number.pool *label-$number " "$dir/listed" || fail "pool $number is not listed"
done

kill -STOP "${daemons[@]:0:2}"
started=$SECONDS
status=0
onefold pool list >"$dir/listed" 2>"$dir/said" || status=$?
took=$((SECONDS - started))
((status == 1)) || fail "it ended with $status"
# One daemon of this user that hangs took 60 s.
((took < 40)) || fail "the list took $took s"
note "with two daemons that hang, the list took $took s"
grep -q "/3.pool *label-3 " "$dir/listed" || fail "the pool whose daemon answers is not listed"
for number in 1 2; do
    grep -q "/$number.pool *? " "$dir/listed" || fail "pool $number, whose daemon hangs, is not listed"
    grep -q "mounted at .*mnt-$number" "$dir/said" || fail "nothing is said of pool $number"
done

"$ONEFOLD" pool list >"$dir/listed" 2>"$dir/said" &
listing=$!
sleep 2
kill -INT "$listing"
status=0
wait "$listing" || status=$?
((status == 130)) || fail "interrupted, it ended with $status"
grep -q 'interrupted while asking the pools' "$dir/said" || fail "it says nothing of the interrupt"
