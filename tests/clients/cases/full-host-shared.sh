# A pool file without holes whose blocks a copy shares: nothing is accepted that its full host has no room for
# limit: 120 s
needs mkfs.xfs losetup
truncate -s 1G "$dir/host.raw"
attach_loop "$dir/host.raw"
host=$loop
mkfs.xfs -q -m reflink=1 "$host" || skip "mkfs.xfs knows no reflinks"
mkdir "$dir/host"
mount "$host" "$dir/host"
dense=$dir/host/dense.pool
onefold pool create --quiet --size 300M "$dense" >/dev/null
# Zeros are written, so each block has its place.
dd if="$dense" of="$dir/host/written.pool" bs=1M conv=fsync status=none
mv "$dir/host/written.pool" "$dense"
pool=$dir/host/test.pool
cp --reflink=always "$dense" "$pool"
(($(stat -c %b "$pool") * 512 >= $(stat -c %s "$pool"))) || fail "the copy has holes"

mount_pool
for round in 1 2 3; do
    outcome=$(python3 "$tools/losses.py" "$mnt" "$dir/host" "$round" 1.1)
    printf '%s\n' "$outcome"
    [[ $outcome == refused* ]] || fail "the host was known to be full for a second: $outcome"
done
unmount_pool

# Blocks that are the file's alone need no room, however full the host is.
rm "$dense"
mount_pool
outcome=$(python3 "$tools/losses.py" "$mnt" "$dir/host" 4 1.1)
[[ $outcome == kept* ]] || fail "each block has its place: $outcome"
unmount_and_check
umount "$dir/host"
losetup --detach "$host"
