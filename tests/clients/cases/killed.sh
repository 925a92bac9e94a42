# kill -9 of the daemon loses nothing that was fsynced; `umount` or simply the next mount clears the dead mount away
new_pool 1G
make_image "$dir/image" 32 1
cp "$dir/image" "$mnt/image"
# Of the directory: that is an fsync. (`sync -f` would be syncfs, of which the kernel does not tell the daemon.)
sync "$mnt"

# try_kill ROUND: kills the daemon under a writer that tells what it has fsynced.
try_kill() {
    python3 "$tools/fsynced.py" write "$mnt/records-$1" >"$dir/promised-$1" 2>"$dir/writer" &
    local writer=$! status=0
    has_promised() { (($(wc -l <"$dir/promised-$1") > 40 * $1)); }
    wait_until 20 has_promised "$1"
    kill -KILL "$daemon"
    wait "$daemon" 2>/dev/null || true
    # One that went into the background is nobody's child.
    has_ended() { ! kill -0 "$daemon" 2>/dev/null; }
    wait_until 20 has_ended
    wait "$writer" 2>/dev/null || status=$?
    ((status == 3)) || fail "the writer saw no error: $(<"$dir/writer")"
    fails_with 'Transport endpoint is not connected' ls "$mnt"
    check_pool --data
    if (($1 % 2)); then
        onefold pool umount "$mnt"
        is_mounted "$mnt" && fail "the dead mount is still there"
        mount_pool
    else
        mount_over_dead
    fi
    python3 "$tools/fsynced.py" verify "$mnt/records-$1" <"$dir/promised-$1"
}

# Seen: the next mount was refused until somebody unmounted the dead one by hand; fstab and service managers don't.
mount_over_dead() {
    local said
    said=$(onefold pool mount --json --memory 256M "$pool" "$mnt")
    daemon=$(sed -n 's/.*"process": \([0-9]*\).*/\1/p' <<<"$said")
    echo "$daemon" >>"$dir/daemons"
    (($(grep -c " $mnt " /proc/self/mounts) == 1)) || fail "the dead mount is still there"
}

for round in 1 2 3; do
    try_kill "$round"
done
cmp "$dir/image" "$mnt/image"
unmount_and_check --data
