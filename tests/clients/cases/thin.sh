# A device that does not tell of its room: with --thin no accepted write is lost, by `pool mount` and by mount(8)
# limit: 120 s
needs mkfs.ext4 losetup
truncate -s 200M "$dir/host.raw"
attach_loop "$dir/host.raw"
host=$loop
mkfs.ext4 -q -m 0 -O ^has_journal "$host"
mkdir "$dir/host"
mount "$host" "$dir/host"
# The room of a loop device is that of the file behind it, unless no name leads to this file.
truncate -s 2G "$dir/host/volume"
attach_loop "$dir/host/volume" --direct-io=on
pool=$loop
# Without a name of its file, the clean-up after a case does not find it.
trap 'losetup --detach "$pool" 2>/dev/null || true' EXIT
rm "$dir/host/volume"
onefold pool create --quiet "$pool" >/dev/null

# outcome ROUND: how 15 MiB of writes end, a second after the host was filled.
outcome() {
    python3 "$tools/losses.py" "$mnt" "$dir/host" "$1" 1.1
}

mount_pool
said=$(outcome 1)
[[ $said == lost* ]] || fail "without --thin the pool cannot know: $said"
# From then on it knows.
sleep 1.1
said=$(outcome 2)
[[ $said == refused* ]] || fail "the volume has run out of room before: $said"
refused 1 'accepted writes were lost' onefold pool umount "$mnt"
wait "$daemon" && fail "the daemon ended well"

mount_flags+=(--thin)
mount_pool
said=$(outcome 3)
[[ $said == refused* ]] || fail "with --thin: $said"
unmount_pool

mkdir "$dir/sbin"
ln -s "$ONEFOLD" "$dir/sbin/mount.fuse.onefold"
"$dir/sbin/mount.fuse.onefold" "$pool" "$mnt" -o thin,memory=256M
said=$(outcome 4)
[[ $said == refused* ]] || fail "with -o thin: $said"
onefold pool umount "$mnt" >/dev/null
check_pool --data
losetup --detach "$pool"
trap - EXIT
umount "$dir/host"
losetup --detach "$host"
