# What QEMU writes past the page cache, asynchronously, is what cat beside it reads from then on
# limit: 120 s
needs qemu-io cat tr cmp
new_pool 1G
truncate -s 2M "$mnt/disk.raw"

readonly rounds=200
readonly bytes=$((640 << 10))
# A reader that keeps the pages in the cache, over and over.
while [[ ! -e $dir/over ]]; do
    cat "$mnt/disk.raw" >/dev/null
done &
reader=$!

stale=0
for engine in io_uring native; do
    for ((round = 0; round < rounds / 2; round++)); do
        pattern=$((round % 255 + 1))
        # Several writes under way at once, as a guest's disk has them.
        commands=()
        for ((at = 0; at < bytes; at += 64 << 10)); do
            commands+=(-c "aio_write -q -P $pattern $at 64k")
        done
        qemu-io -f raw -t none -i "$engine" "${commands[@]}" -c aio_flush "$mnt/disk.raw" >"$dir/qemu-io.log" 2>&1 ||
            fail "qemu-io: $(tail -n 1 "$dir/qemu-io.log")"
        head -c "$bytes" /dev/zero | tr '\0' "\\$(printf %o "$pattern")" >"$dir/expected"
        cmp -s -n "$bytes" "$dir/expected" "$mnt/disk.raw" || stale=$((stale + 1))
    done
done
touch "$dir/over"
wait "$reader"
((stale == 0)) || fail "after $stale of $rounds rounds, old blocks were read"
unmount_and_check --data
