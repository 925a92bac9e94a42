# Plain images on XFS and Btrfs share their equal blocks; killed at any moment, beside a writer, every byte stays as it was
# limit: 120 s
needs mkfs.xfs mkfs.btrfs losetup fio

# Makes a file system with images that have the same blocks at different places.
new_file_system() {
    local kind=$1
    truncate -s 1G "$dir/$kind.raw"
    attach_loop "$dir/$kind.raw"
    "mkfs.$kind" -q "$loop" 2>/dev/null
    mkdir "$dir/$kind"
    mount "$loop" "$dir/$kind"
    images=$dir/$kind/images
    mkdir "$images"
    for seed in 1 2 3; do
        make_image "$images/$seed.raw" 24 "$seed"
        head -c "$seed"M /dev/urandom >"$images/shifted-$seed.raw"
        cat "$images/$seed.raw" >>"$images/shifted-$seed.raw"
    done
    sync -f "$images"
    (cd "$images" && sha256sum ./*.raw) >"$dir/sums"
}

free_kib() {
    sync -f "$1"
    df --output=avail "$1" | tail -1
}

whole() {
    (cd "$images" && sha256sum --quiet --check "$dir/sums")
}

for kind in xfs btrfs; do
    new_file_system "$kind"
    before=$(free_kib "$images")
    predicted=$(onefold analyze --json --quiet "$images" | number total.saved_bytes)

    # Killed again and again: whatever it had done stays done, and nothing that it left stands in the way.
    killed=0
    for pause in 0.05 0.2; do
        "$ONEFOLD" share run --quiet "$images" >"$dir/out" 2>"$dir/err" &
        sharer=$!
        sleep "$pause"
        if kill -KILL "$sharer" 2>/dev/null; then
            killed=$((killed + 1))
        fi
        wait "$sharer" 2>/dev/null || true
        whole
    done
    onefold share run --json --quiet "$images" >"$dir/run"
    whole
    # All that `analyze` has foretold is shared, as a run finds that knows of nothing; and blocks of zeros that were written.
    rm -r "$dir/$kind/.onefold"
    onefold share run --json --quiet "$images" >"$dir/run"
    whole
    shared=$(($(number shared.now_bytes <"$dir/run") + $(number shared.before_bytes <"$dir/run")))
    gained=$((($(free_kib "$images") - before) * 1024))
    note "$kind: killed $killed times; predicted $((predicted >> 10)) KiB, free since $((gained >> 10)) KiB"
    ((shared >= predicted)) || fail "$shared bytes are shared of $predicted"
    # Btrfs frees extents as a whole only.
    [[ $kind == btrfs ]] || ((gained > predicted * 9 / 10)) || fail "$gained bytes came free of $predicted"

    # A second run reads nothing.
    (($(onefold share run --json --quiet "$images" | number scanned.read_bytes) == 0)) || fail "it read again"

    # Beside a machine that writes and verifies, with blocks that are often equal.
    fio --name=guest --filename="$images/guest.raw" --size=16m --rw=randwrite --bs=4k --direct=1 --ioengine=libaio \
        --iodepth=4 --dedupe_percentage=70 --verify=crc32c --verify_backlog=512 --verify_state_save=0 --time_based --runtime=2 \
        --output="$dir/fio" &
    guest=$!
    runs=0
    while kill -0 "$guest" 2>/dev/null; do
        onefold share run --quiet "$images" >"$dir/out"
        runs=$((runs + 1))
    done
    wait "$guest" || { cat "$dir/fio"; fail "the guest read something else than it wrote"; }
    note "$kind: $runs runs beside a guest"
    whole
done

# Where blocks cannot be shared, it says so and touches nothing.
fails_with 'cannot share blocks' "$ONEFOLD" share run /proc/self
fails_with 'move the files to XFS, Btrfs or OCFS2' "$ONEFOLD" share run /proc/self
fails_with 'different file systems' "$ONEFOLD" share run "$dir/xfs" "$dir/btrfs"
