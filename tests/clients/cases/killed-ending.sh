# A daemon that is killed while it ends under writing mappings leaves nothing that hangs: the next mount and umount work
# limit: 90 s
create_pool 1G

stuck=0

# until_dead PAUSE: SIGTERM, and SIGKILL before the kernel's caches are handed over.
until_dead() {
    local writers=() number
    mount_pool
    echo kept >"$mnt/kept"
    sync "$mnt"
    for number in 1 2; do
        python3 "$tools/dirty.py" forever "$mnt/mapped-$number" 256 2>>"$dir/writers.log" &
        writers+=($!)
    done
    sleep 1
    kill -TERM "$daemon"
    sleep "$1"
    # It may have come to its end before, where the writers had no time to make anything dirty.
    kill -KILL "$daemon" "${writers[@]}" 2>/dev/null || true
    sleep 0.5
    ! kill -0 "$daemon" 2>/dev/null || stuck=$((stuck + 1))
}

# Seen: a thread of the killed daemon waited in the kernel for its own file system. The daemon could not end, kept its
# lock, and all that looked at the mount waited with it.
for pause in 0.05 0.3; do
    until_dead "$pause"
    said=$(timeout 30 "$ONEFOLD" pool mount --json --memory 64M "$pool" "$mnt")
    sed -n 's/.*"process": \([0-9]*\).*/\1/p' <<<"$said" >>"$dir/daemons"
    [[ $(timeout 10 cat "$mnt/kept") == kept ]]
    onefold pool umount "$mnt"
    wait || true
done
until_dead 0.1
! is_mounted "$mnt" || timeout 30 "$ONEFOLD" pool umount "$mnt"
is_mounted "$mnt" && fail "the dead mount is still there"
wait || true
check_pool --data
note "$stuck of 3 killed daemons could not end by themselves"
