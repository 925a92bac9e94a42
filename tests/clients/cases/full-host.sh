# A sparse pool on a full host file system: writes fail with ENOSPC, the pool lives and goes on once there is room
needs mkfs.ext4 losetup
truncate -s 300M "$dir/host.raw"
attach_loop "$dir/host.raw"
host=$loop
mkfs.ext4 -q -m 0 "$host"
mkdir "$dir/host"
mount "$host" "$dir/host"
pool=$dir/host/test.pool
new_pool 4G

make_image "$dir/kept" 32 1
cp "$dir/kept" "$mnt/kept"
head -c 600M /dev/urandom >"$dir/noise"
fails_with 'No space left on device' dd if="$dir/noise" of="$mnt/big" bs=1M conv=fsync status=none
cmp "$dir/kept" "$mnt/kept"

# Still alive: it deletes, gives the space back to the host, and has room again.
rm "$mnt/big"
is_reclaimed() { (($(pool_number reclaim_pending) == 0)); }
wait_until 20 is_reclaimed
onefold pool trim --quiet "$mnt"
dd if="$dir/noise" of="$mnt/again" bs=1M count=50 conv=fsync status=none
cmp --bytes=$((50 << 20)) "$dir/noise" "$mnt/again"

unmount_pool
mount_pool
cmp "$dir/kept" "$mnt/kept"
cmp --bytes=$((50 << 20)) "$dir/noise" "$mnt/again"
unmount_and_check
umount "$dir/host"
losetup --detach "$host"
