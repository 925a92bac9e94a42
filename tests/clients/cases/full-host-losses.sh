# Accepted writes that a host has no room for: each open file and folder, later openings, and the unmount say so
# limit: 120 s
needs mkfs.ext4 losetup fallocate
truncate -s 3G "$dir/host.raw"
attach_loop "$dir/host.raw"
host=$loop
# The room of the host itself must not be what counts.
mkfs.ext4 -q -m 0 -O ^has_journal "$host"
mkdir "$dir/host"
mount "$host" "$dir/host"
pool=$dir/host/test.pool
new_pool 8G

rounds_lost=0
for round in 1 2 3 4 5; do
    # Nothing is accepted for a second after a loss.
    sleep 1.1
    outcome=$(python3 "$tools/losses.py" "$mnt" "$dir/host" "$round")
    printf '%s\n' "$outcome"
    [[ $outcome != lost* ]] || rounds_lost=$((rounds_lost + 1))
done
note "$rounds_lost of 5 rounds lost accepted writes, and all that had to say so did"

if ((rounds_lost > 0)); then
    refused 1 'accepted writes were lost' onefold pool umount "$mnt"
    status=0
    wait "$daemon" || status=$?
    ((status == 1)) || fail "the daemon ended with code $status"
    grep -q 'accepted writes were lost' "$dir/daemon.log" || fail "the log does not tell of it"
else
    unmount_pool
fi
check_pool --data
mount_pool
unmount_and_check
umount "$dir/host"
losetup --detach "$host"
