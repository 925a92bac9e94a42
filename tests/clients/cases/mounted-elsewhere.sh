# An unmount while the pool is mounted elsewhere too names the place or the process, commits, and never hangs
needs unshare nsenter findmnt sleep
new_pool 256M
mkdir "$dir/bind"
bounded() {
    timeout --kill-after=5 15 "$ONEFOLD" "$@"
}

# Runs a program in a mount namespace of its own, which keeps nothing but what this case has mounted.
elsewhere() {
    export -f leave_others
    # The inner shell expands these.
    # shellcheck disable=SC2016
    repo=$repo exec unshare --mount --propagation private bash -c 'leave_others "$0"; exec "$@"' "$dir" "$@"
}

runs_elsewhere() {
    [[ $(readlink /proc/self/ns/mnt) != "$(readlink "/proc/$1/ns/mnt")" && $(<"/proc/$1/comm") == sleep ]]
}

# A bind mount in the same mount namespace.
printf 'before' >"$mnt/file"
mount --bind "$mnt" "$dir/bind"
refused 1 "also mounted at .*$dir/bind" bounded pool umount "$mnt"
refused 1 "also mounted at .*$dir/bind" bounded pool umount "$pool"
is_mounted "$mnt" || fail "a refused unmount took the mount away"
[[ $(<"$mnt/file") == before ]]
# Data from before the refusal survives the daemon's death.
printf 'committed' >"$mnt/file"
refused 1 "also mounted at .*$dir/bind" bounded pool umount "$mnt"
kill -KILL "$daemon"
wait "$daemon" || true
umount -i "$dir/bind"
umount -i "$mnt"
mount_pool
[[ $(<"$mnt/file") == committed ]] || fail "a refused unmount did not commit"
mount --bind "$mnt" "$dir/bind"
# It is taken away by the same command, and the pool stays mounted.
bounded pool umount "$dir/bind"
is_mounted "$dir/bind" && fail "the bind mount is still there"
is_mounted "$mnt" || fail "unmounting the bind mount unmounted the pool"

# A bind-mounted file: umount(8) calls the helper of its type.
touch "$dir/target"
mount --bind "$mnt/file" "$dir/target"
refused 1 "also mounted at .*$dir/target" bounded pool umount "$mnt"
mkdir "$dir/bin"
ln -s "$ONEFOLD" "$dir/bin/onefold"
PATH=$dir/bin:$PATH timeout 15 sh "$repo/packaging/umount.fuse.onefold" "$dir/target"
is_mounted "$dir/target" && fail "the bind-mounted file is still there"
is_mounted "$mnt" || fail "unmounting the file unmounted the pool"

# A process with a mount namespace of its own; what was written before the refusal survives the daemon's death.
elsewhere sleep 120 &
other=$!
wait_until 10 runs_elsewhere "$other"
printf 'committed' >"$mnt/committed"
refused 1 "process $other .*sleep" bounded pool umount "$mnt"
is_mounted "$mnt" || fail "a refused unmount took the mount away"
kill -KILL "$daemon"
wait "$daemon" || true
kill "$other"
wait "$other" || true
umount -i "$mnt"
mount_pool
[[ $(<"$mnt/committed") == committed ]]

# Taken away by the kernel alone, it lives on in the other namespace: the next mount says where instead of hanging.
elsewhere sleep 120 &
other=$!
wait_until 10 runs_elsewhere "$other"
umount -i "$mnt"
# Its daemon is found by the pool's file, and says the same.
bounded pool stat --json "$pool" >"$dir/stat"
grep -q device_bytes "$dir/stat"
refused 1 "process $other .*sleep" bounded pool umount "$pool"
refused 1 "process $other .*sleep" bounded pool mount --foreground "${mount_flags[@]}" "$pool" "$mnt"
nsenter --target "$other" --mount umount -i "$mnt"
wait "$daemon"
mount_pool
kill "$other"
wait "$other" || true

# A daemon that is told to stop ends, whatever else shows the pool.
mount --bind "$mnt" "$dir/bind"
kill -TERM "$daemon"
timeout 15 tail --pid="$daemon" -f /dev/null
wait "$daemon"
umount -i "$dir/bind"
check_pool
