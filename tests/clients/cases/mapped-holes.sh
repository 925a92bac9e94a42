# What a process has written to a shared mapping is data for copies that skip holes, no matter which cache has heard of it
needs cp tar cmp qemu-img
mount_flags+=(--st-blocks mapped)
new_pool 1G

for how in cp tar qemu-img; do
    python3 "$tools/mapped.py" "$mnt/$how.raw" "$dir/expected.raw" "$dir/ready" "$dir/over" &
    mapper=$!
    wait_until 20 test -e "$dir/ready"
    case $how in
    cp) cp --sparse=always "$mnt/$how.raw" "$dir/copy.raw" ;;
    tar)
        # It looks for holes first, and says that the file has a new time by then.
        tar -C "$mnt" -c --sparse -f "$dir/copy.tar" "$how.raw" || (($? == 1))
        tar -C "$dir" -x -f "$dir/copy.tar"
        mv "$dir/$how.raw" "$dir/copy.raw"
        ;;
    qemu-img) qemu-img convert -U -f raw -O raw "$mnt/$how.raw" "$dir/copy.raw" ;;
    esac
    cmp "$dir/expected.raw" "$dir/copy.raw" || fail "$how lost what was in the mapping"
    cmp "$dir/expected.raw" "$mnt/$how.raw"
    touch "$dir/over"
    wait "$mapper"
    rm "$dir/ready" "$dir/over" "$dir/copy.raw"
done

# Each look for holes of a file that changes all the time may find new data. It ends all the same.
python3 "$tools/dirty.py" forever "$mnt/busy.raw" 32 2>>"$dir/writer.log" &
writer=$!
wait_until 20 test -s "$mnt/busy.raw"
for round in 1 2 3; do
    timeout $((20 * ${PATIENCE:-1})) cp --sparse=always "$mnt/busy.raw" "$dir/busy.raw" ||
        fail "copy $round of a file that a process changes all the time did not end"
done
kill "$writer"
wait "$writer" || true
unmount_and_check --data
