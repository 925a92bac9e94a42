# `share watch` whose windows are shorter than a reading of all images goes on where it left off, shares in each, and keeps its logs small
# limit: 240 s
needs mkfs.xfs losetup filefrag dd

truncate -s 512M "$dir/xfs.raw"
attach_loop "$dir/xfs.raw"
mkfs.xfs -q "$loop"
mkdir "$dir/xfs"
mount "$loop" "$dir/xfs"
images=$dir/xfs/images
mkdir "$images"

pairs=6
image_mib=8
night_s=15
# Logs of twelve bytes a block: those of more than two images.
max_logs=$((64 << 10))

# Equal images lie beside each other in the order of their paths.
for ((pair = 0; pair < pairs; pair++)); do
    head -c "${image_mib}M" /dev/urandom >"$images/$pair-a.raw"
    cp --reflink=never "$images/$pair-a.raw" "$images/$pair-b.raw"
done

# Each day something is written to each image, so that none is as it was last night.
write_a_little() {
    local image
    for image in "$images"/*.raw; do
        dd if=/dev/urandom of="$image" bs=4k count=1 seek=$((RANDOM % (image_mib << 8))) conv=notrunc status=none
    done
    sync -f "$images"
}

log_bytes() {
    # Files vanish while it looks.
    { find "$dir/xfs/.onefold/logs" -type f -printf '%s\n' 2>/dev/null || true; } | awk '{ sum += $1 } END { print sum + 0 }'
}

# of_log MEMBER: the sum of a number over all passes of this night.
of_log() {
    python3 -c 'import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
print(int(sum(line[sys.argv[2]] for line in lines if line["event"] == "passed")))' "$dir/night" "$1"
}

is_shared() {
    filefrag -v "$1" | grep -q shared
}

# night: a watch from here to the end of its window. Its clock is so many seconds late that the window ends when the
# night does.
night() {
    local began ends zone from to bytes
    began=$(date +%s)
    ends=$((began + night_s))
    zone=$(printf 'NIGHT0:00:%02d' $((ends % 60)))
    from=$(TZ=$zone date -d "@$began" +%H:%M)
    to=$(TZ=$zone date -d "@$ends" +%H:%M)
    TZ=$zone "$ONEFOLD" share watch --json --interval 200ms --window "$from-$to" --io-limit 8M --max-logs "$max_logs" \
        "$images" >"$dir/night" 2>"$dir/night.err" &
    watch=$!
    while (($(date +%s) <= ends + 1)); do
        bytes=$(log_bytes)
        ((bytes <= most_log_bytes)) || most_log_bytes=$bytes
        sleep 0.1
    done
    kill -TERM "$watch"
    wait "$watch" || { cat "$dir/night.err"; fail "the watch ended with code $?"; }
}

most_log_bytes=0
nights=0
unshared=$((2 * pairs))
while ((unshared > 0)); do
    ((nights < 8)) || fail "after $nights nights $unshared images share nothing"
    nights=$((nights + 1))
    write_a_little
    sha256sum "$images"/*.raw >"$dir/sums"
    sleep 1
    night
    passes=$(grep -c '"event":"passed"' "$dir/night" || true)
    read_bytes=$(of_log read_bytes)
    unshared=0
    for image in "$images"/*.raw; do
        is_shared "$image" || unshared=$((unshared + 1))
    done
    note "night $nights: $passes passes, $((read_bytes >> 20)) MiB read, $unshared images share nothing yet"
    ((passes > 0)) || { cat "$dir/night" "$dir/night.err"; fail "no pass in night $nights"; }
    # Else this case shows nothing.
    ((read_bytes < pairs * 2 * (image_mib << 20))) || fail "a night is long enough for all images"
    sha256sum --quiet --check "$dir/sums"
done
# Up to their limit, and the log that comes to it.
log_max=$(((image_mib << 8) * 12 + 4096))
note "at most $((most_log_bytes >> 10)) KiB of logs"
((most_log_bytes > 0 && most_log_bytes <= max_logs + log_max)) || fail "there were $most_log_bytes bytes of logs"
