# What a pool stored without deduplication is shared afterwards; killed at any moment, every byte stays as it was
# limit: 120 s
mount_flags+=(--dedup off)
new_pool 1G
make_image "$dir/one.raw" 40 1
head -c 3M /dev/urandom >"$dir/shifted.raw"
cat "$dir/one.raw" >>"$dir/shifted.raw"
mkdir "$mnt/images"
cp "$dir/one.raw" "$dir/shifted.raw" "$mnt/images"
cp "$dir/one.raw" "$mnt/other.raw"
fails_with 'umount' "$ONEFOLD" pool dedup "$mnt"
# What a user has by the name of the records stays.
mkdir -p "$mnt/.onefold"
echo precious >"$mnt/.onefold/notes"
unmount_pool
fails_with 'rename' "$ONEFOLD" pool dedup "$pool"
mount_pool
[[ $(<"$mnt/.onefold/notes") == precious ]] || fail "a user's file is gone"
rm -r "$mnt/.onefold"
unmount_pool

offline_number() {
    onefold pool stat --json "$pool" | python3 -c "import json, sys; print(json.load(sys.stdin)['pool'][sys.argv[1]])" "$1"
}

before=$(offline_number distinct_bytes)
killed=0
for pause in 0.1 0.2 0.4 0.8; do
    "$ONEFOLD" pool dedup --quiet "$pool" >"$dir/out" 2>"$dir/err" &
    worker=$!
    sleep "$pause"
    if kill -KILL "$worker" 2>/dev/null; then
        killed=$((killed + 1))
    fi
    wait "$worker" 2>/dev/null || true
    check_pool
done
onefold pool dedup --quiet --json "$pool" >"$dir/run"
after=$(offline_number distinct_bytes)
note "killed $killed times; $((before >> 10)) KiB were stored, $((after >> 10)) KiB are"
check_pool --data

# As much as by writes that find everything.
pool=$dir/inline.pool
create_pool 1G
onefold pool import --quiet "$pool" "$dir/one.raw" "$dir/shifted.raw" >/dev/null
((after == $(offline_number distinct_bytes))) || fail "writes that find everything store $(offline_number distinct_bytes)"
pool=$dir/test.pool

# A second run finds nothing more, and leaves nothing behind.
onefold pool dedup --quiet "$pool"
((after == $(offline_number distinct_bytes))) || fail "a second run changed what is stored"
mount_pool
for copy in images/one images/shifted other; do
    cmp "$mnt/$copy.raw" "$dir/$(basename "$copy" | sed s/other/one/).raw"
done
[[ ! -e $mnt/.onefold ]] || fail "records were left in the pool"
unmount_and_check
