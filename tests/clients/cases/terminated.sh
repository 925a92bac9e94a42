# SIGTERM ends a mount in good order, with a file open and under a writer: what was written is there
new_pool 1G
make_image "$dir/image" 32 1
cp "$dir/image" "$mnt/image"
exec 9>"$mnt/open"
printf 'written, not fsynced' >&9
kill -TERM "$daemon"
wait "$daemon" || fail "the daemon ended with code $?"
is_mounted "$mnt" && fail "it is still mounted"
exec 9>&- || true
check_pool --data

# Writers fail, and the daemon does not wait for them.
for round in 1 2 3; do
    mount_pool
    # Of this round only: what the last writer promised says nothing of whether this one has begun.
    : >"$dir/promised"
    dd if=/dev/zero of="$mnt/zeros" bs=1M count=1M status=none 2>"$dir/writer-1" &
    writers=($!)
    python3 "$tools/fsynced.py" write "$mnt/records-$round" >"$dir/promised" 2>"$dir/writer-2" &
    writers+=($!)
    has_promised() { (($(wc -l <"$dir/promised") > 20)); }
    wait_until 20 has_promised
    kill -TERM "$daemon"
    wait "$daemon" || fail "the daemon ended with code $?"
    for writer in "${writers[@]}"; do
        wait "$writer" 2>/dev/null && fail "a writer saw no error"
    done
done
check_pool --data

mount_pool
cmp "$dir/image" "$mnt/image"
[[ $(<"$mnt/open") == 'written, not fsynced' ]]
python3 "$tools/fsynced.py" verify "$mnt/records-3" <"$dir/promised"
# At rest as well, and by Ctrl-C.
kill -INT "$daemon"
wait "$daemon" || fail "the daemon ended with code $?"
check_pool
