# On a full or read-only file system, the verbs that look do so and write nothing, and a run makes room
# limit: 120 s
needs mkfs.xfs mkfs.btrfs losetup getfattr

# Fills what is left of a file system to the last byte, first with large writes, then with small ones.
fill() {
    local size
    for size in 1M 4k 512; do
        dd if=/dev/zero bs="$size" oflag=append conv=notrunc of="$1/filling" 2>/dev/null || true
        sync -f "$1" || true
    done
    local at
    for ((at = 0; at < 4096; at++)); do
        head -c 4096 /dev/urandom >"$1/small.$at" 2>/dev/null || break
    done
    sync -f "$1" || true
}

# looks FOLDER: all verbs that only look give their answers.
looks() {
    onefold share status "$1/images" >"$dir/out"
    head -1 "$dir/out" | grep -q '^Images of .* sharing saves ' || fail "the first line is $(head -1 "$dir/out")"
    onefold share index "$1/images" >/dev/null
    onefold share explain "$1/images/one.raw" | grep -q '8.00 MiB of it shared' || fail "explain of a file"
    onefold share explain "$1/images/one.raw" 1M | grep -q 'it is shared' || fail "explain of a block"
}

for kind in xfs btrfs; do
    truncate -s 512M "$dir/$kind.raw"
    attach_loop "$dir/$kind.raw"
    "mkfs.$kind" -q "$loop" 2>/dev/null
    mkdir "$dir/$kind"
    mount "$loop" "$dir/$kind"
    images=$dir/$kind/images
    mkdir "$images"
    head -c 8M /dev/urandom >"$images/one.raw"
    cp --reflink=never "$images/one.raw" "$images/two.raw"
    sync -f "$images"
    sleep 0.1
    onefold share run --quiet "$images" >/dev/null
    # The attribute has its place already: a full file system may have none for a new one.
    onefold share exclude "$images/two.raw" >/dev/null
    onefold share include "$images/two.raw" >/dev/null

    fill "$dir/$kind"
    looks "$dir/$kind"
    note "$kind: $(df --output=avail -B1 "$dir/$kind" | tail -1) bytes left"
    if onefold share exclude "$images/two.raw" >"$dir/out" 2>&1; then
        [[ $(getfattr --absolute-names --only-values -n user.onefold.share "$images/two.raw") == off ]] || fail "no attribute"
        onefold share include "$images/two.raw" >/dev/null
    else
        grep -q 'No space left' "$dir/out" || fail "exclude failed with $(<"$dir/out")"
    fi

    # Nothing is known of these, and no room is left to note anything.
    rm "$dir/$kind/filling"
    mkdir "$dir/$kind/more"
    head -c 24M /dev/urandom >"$dir/$kind/more/one.raw"
    cp --reflink=never "$dir/$kind/more/one.raw" "$dir/$kind/more/two.raw"
    sync -f "$dir/$kind"
    sums=$(sha256sum "$dir/$kind"/more/* "$images"/*)
    fill "$dir/$kind"
    before=$(df --output=avail -B1 "$dir/$kind" | tail -1)
    if onefold share run --quiet --json "$dir/$kind/more" >"$dir/out" 2>&1; then
        note "$kind: a run at $before free bytes shared $(number without_index.shared_bytes <"$dir/out") bytes first"
        [[ $(number savings.saved_bytes <"$dir/out") -ge 25165824 ]] || fail "it saved too little: $(<"$dir/out")"
    else
        grep -q 'records of a run need about' "$dir/out" || fail "the failure says no need: $(<"$dir/out")"
        note "$kind: a run at $before free bytes failed, and said what it needs"
    fi
    [[ $kind != xfs ]] || (($(df --output=avail -B1 "$dir/$kind" | tail -1) > 16 << 20)) || fail "no room was made"
    [[ $sums == "$(sha256sum "$dir/$kind"/more/* "$images"/*)" ]] || fail "bytes changed"

    mount -o remount,ro "$dir/$kind"
    looks "$dir/$kind"
    fails_with 'Read-only file system' "$ONEFOLD" share exclude "$images/two.raw"
    fails_with 'can only be read' "$ONEFOLD" share run --quiet "$images"
done
