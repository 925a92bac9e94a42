# kill -9 of the daemon loses nothing that was fsynced, and `umount` clears the dead mount away
new_pool 1G
make_image "$dir/image" 32 1
cp "$dir/image" "$mnt/image"
sync -f "$mnt"

# try_kill ROUND: kills the daemon under a writer that tells what it has fsynced.
try_kill() {
    python3 "$tools/fsynced.py" write "$mnt/records-$1" >"$dir/promised-$1" 2>"$dir/writer" &
    local writer=$! status=0
    has_promised() { (($(wc -l <"$dir/promised-$1") > 40 * $1)); }
    wait_until 20 has_promised "$1"
    kill -KILL "$daemon"
    wait "$daemon" 2>/dev/null || true
    wait "$writer" 2>/dev/null || status=$?
    ((status == 3)) || fail "the writer saw no error: $(<"$dir/writer")"
    fails_with 'Transport endpoint is not connected' ls "$mnt"
    onefold pool umount "$mnt"
    is_mounted "$mnt" && fail "the dead mount is still there"
    check_pool --data
    mount_pool
    python3 "$tools/fsynced.py" verify "$mnt/records-$1" <"$dir/promised-$1"
}

for round in 1 2 3; do
    try_kill "$round"
done
cmp "$dir/image" "$mnt/image"
unmount_and_check --data
