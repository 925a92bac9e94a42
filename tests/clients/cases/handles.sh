# Handles, as NFS servers keep them, lead to their files after the daemon was ended, killed and started anew
new_pool 512M
python3 "$tools/handles.py" take "$mnt" "$dir/handles"
remount_pool
python3 "$tools/handles.py" open "$mnt" "$dir/handles"

mkdir "$mnt/again"
python3 "$tools/handles.py" take "$mnt/again" "$dir/handles"
# The kernel does not tell of `sync -f`; an fsync makes all of the pool durable.
sync "$mnt/again"
kill -KILL "$daemon"
wait "$daemon" 2>/dev/null || true
onefold pool umount "$mnt"
mount_pool
python3 "$tools/handles.py" open "$mnt/again" "$dir/handles"
unmount_and_check
