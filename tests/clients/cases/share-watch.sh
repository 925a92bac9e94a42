# `share watch` shares what appears, keeps images that are open here for this host, keeps to its limits, and ends when told
# limit: 120 s
needs mkfs.xfs losetup python3

truncate -s 1G "$dir/xfs.raw"
attach_loop "$dir/xfs.raw"
mkfs.xfs -q "$loop"
mkdir "$dir/xfs"
mount "$loop" "$dir/xfs"
images=$dir/xfs/images
mkdir "$images"

new_image() {
    head -c "$2"M /dev/urandom >"$images/$1"
}

# start_watch LOG [FLAG...]: sets $watch to its process, once a service manager was told that it is ready.
start_watch() {
    local log=$1 notified
    shift
    python3 "$tools/notified.py" "$dir/notify" READY=1 >"$dir/notified" &
    notified=$!
    wait_until 10 test -S "$dir/notify"
    NOTIFY_SOCKET=$dir/notify "$ONEFOLD" share watch --json --interval 200ms "$@" "$images" >"$dir/$log" 2>"$dir/$log.err" &
    watch=$!
    wait "$notified" || { cat "$dir/$log.err"; fail "the watch did not say that it is ready"; }
}

stop_watch() {
    local began=${EPOCHREALTIME/./}
    kill -TERM "$1"
    wait "$1" || { cat "$dir"/*.err; fail "the watch ended with code $?"; }
    (((${EPOCHREALTIME/./} - began) / 1000 < 2500)) || fail "the watch took $(((${EPOCHREALTIME/./} - began) / 1000)) ms to end"
}

# sum LOG MEMBER: a number of all passes that a watch told of.
sum() {
    python3 -c 'import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
print(int(sum(line[sys.argv[2]] for line in lines if line["event"] == "passed")))' "$dir/$1" "$2"
}

has_shared() {
    (($(sum "$1" shared_bytes) >= $2))
}

run_number() {
    onefold share run --json --quiet "$images" | python3 -c "import json, sys; print(json.load(sys.stdin)['scanned']['$1'])"
}

# What appears while it watches is shared, each block once.
start_watch first
new_image a.raw 8
cp --reflink=never "$images/a.raw" "$images/b.raw"
sha256sum "$images"/*.raw >"$dir/sums"
wait_until 20 has_shared first $((8 << 20))

# An image that somebody has open for writing is this host's: any run but that of its watch leaves it alone.
exec 8<>"$images/b.raw"
sleep 0.6
head -c 1M /dev/urandom | dd of="$images/b.raw" conv=notrunc bs=1M status=none
cp --reflink=never "$images/b.raw" "$images/c.raw"
sha256sum "$images"/*.raw >"$dir/sums"
wait_until 20 has_shared first $((16 << 20))
printf x | dd of="$images/b.raw" conv=notrunc bs=1 status=none
printf x | dd of="$images/c.raw" conv=notrunc bs=1 status=none
sha256sum "$images"/*.raw >"$dir/sums"

# A second watch beside it does no harm.
first=$watch
start_watch second
second=$watch
new_image d.raw 4
cp --reflink=never "$images/d.raw" "$images/e.raw"
sha256sum "$images"/*.raw >"$dir/sums"
shared_by_both() { (($(sum first shared_bytes) + $(sum second shared_bytes) >= (20 << 20))); }
wait_until 20 shared_by_both
stop_watch "$second"
# It keeps its lock while it can do nothing itself. If it was stopped in the middle of its work, the run finds the index locked.
is_left() {
    local left
    kill -STOP "$first"
    touch "$images/b.raw"
    left=$(run_number passed_over_files 2>/dev/null) || left=none
    kill -CONT "$first"
    [[ $left == 1 ]]
}
wait_until 20 is_left
exec 8>&-
are_given_back() {
    local lock
    for lock in "$dir"/xfs/.onefold/locks/file.*; do
        flock --nonblock "$lock" true || return 1
    done
}
wait_until 20 are_given_back
stop_watch "$first"
# That the other one works on the index is no failure, only told.
failures=$(grep -h '"event":"failed"' "$dir/first" "$dir/second" | grep -v 'another host works on the index' || true)
[[ -z $failures ]] || fail "a watch failed: $failures"
sha256sum --quiet --check "$dir/sums"
[[ -z $(ls "$dir/xfs/.onefold/watches") ]] || fail "a watch that ended left its file"

# The limit of reads holds over seconds: within 15 percent.
rm -r "$images" "$dir/xfs/.onefold"
mkdir "$images"
new_image a.raw 48
sync -f "$images"
began=${EPOCHREALTIME/./}
onefold share run --quiet --io-limit 8M "$images" >"$dir/out"
took_ms=$(((${EPOCHREALTIME/./} - began) / 1000))
note "48 MiB at 8 MiB/s took $took_ms ms"
((took_ms > 5000 && took_ms < 7200)) || fail "48 MiB at 8 MiB/s took $took_ms ms, not 6000"
# So does that of processor time, of a watch that reads and digests all the time; and SIGTERM is heard in the middle.
rm -r "$dir/xfs/.onefold"
start_watch limited --cpu-limit 2
sleep 3
ticks=$(awk '{ print $14 + $15 }' "/proc/$watch/stat")
# The burst, and a piece that was begun, are on top of 60 ms.
((ticks * 1000 / $(getconf CLK_TCK) < 300)) || fail "$ticks ticks of processor time in three seconds"
stop_watch "$watch"

# Outside its windows it reads nothing.
soon=$(date -d '+2 hours' +%H:%M)
later=$(date -d '+3 hours' +%H:%M)
rm -r "$dir/xfs/.onefold"
start_watch outside --window "$soon-$later"
sleep 1
[[ -z $(ls "$dir/xfs/.onefold/logs") && $(sum outside read_bytes) == 0 ]] || fail "it read outside its window"
stop_watch "$watch"
refused 2 'two times of day' "$ONEFOLD" share watch --window 22-6 "$images"
refused 2 'less than 64K' "$ONEFOLD" share watch --io-limit 1K "$images"
