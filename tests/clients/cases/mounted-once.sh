# A pool is mounted once: the second mount, a check and a new pool on top are refused and say who has it
new_pool 1G
mkdir "$dir/other"
echo kept >"$mnt/kept"
refused 1 "mounted already, at .*$mnt" onefold pool mount "$pool" "$dir/other"
ln -s "$pool" "$dir/by-link"
refused 1 "mounted already" onefold pool mount "$dir/by-link" "$dir/other"
ln "$pool" "$dir/by-hard-link"
refused 1 'hint: ' onefold pool mount "$dir/by-hard-link" "$dir/other"
refused 1 'mounted' onefold pool check "$pool"
refused 1 'mounted' onefold pool create --force "$pool"
is_mounted "$dir/other" && fail "it is mounted twice"

# Four at the same moment: one of them.
unmount_pool
for number in 1 2 3 4; do
    mkdir "$dir/at-$number"
    "$ONEFOLD" pool mount --json "$pool" "$dir/at-$number" >"$dir/mounted-$number" &
done
won=0
for job in $(jobs -p); do
    if wait "$job"; then won=$((won + 1)); fi
done
sed -n 's/.*"process": \([0-9]*\).*/\1/p' "$dir"/mounted-* >"$dir/daemons"
((won == 1)) || fail "$won of four mounts succeeded"
[[ $(cat "$dir"/at-*/kept) == kept ]]
onefold pool umount "$pool"

# Over a loop device, too.
mount_pool
attach_loop "$pool"
refused 1 'hint: ' onefold pool mount "$loop" "$dir/other"
losetup --detach "$loop"
unmount_and_check
