# A mount in a namespace that no process shows: unmount and mount say so in time, and the named daemon can be ended
needs unshare findmnt
[[ -n ${in_namespace-} ]] || run_in_namespace
# A stopped daemon ends a connection that it cannot unmount here by the kernel's control file system.
[[ -d /sys/fs/fuse/connections ]] || skip "this kernel has no /sys/fs/fuse/connections"
mountpoint --quiet /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections
bounded() {
    timeout --kill-after=5 15 "$ONEFOLD" "$@"
}

# took SECONDS COMMAND...: the command must end within so many seconds.
took() {
    local ends=$((${EPOCHREALTIME/./} + $1 * 1000000))
    shift
    "$@"
    ((${EPOCHREALTIME/./} < ends)) || fail "it took too long: $*"
}

# Makes a mount namespace without a process, kept by a file. The kernel refuses some (EINVAL), so this tries again.
keep_namespace() {
    for ((tries = 0; tries < 50; tries++)); do
        if unshare --mount="$dir/kept/namespace" --propagation private true 2>/dev/null; then
            return
        fi
        sleep 0.1
    done
    fail "no namespace can be kept by a file"
}

new_pool 256M
mkdir "$dir/kept"
mount --bind "$dir/kept" "$dir/kept"
# The file of a namespace can be kept on a private mount only.
mount --make-private "$dir/kept"
touch "$dir/kept/namespace"
printf 'committed' >"$mnt/file"
keep_namespace
said="mount namespace that the daemon may not inspect"
took 5 refused 1 "$said" bounded pool umount "$mnt"
is_mounted "$mnt" && fail "the mount point is not free"
# The daemon serves on, and might be about to end. Seen: the mount advised `pool umount` alone, which failed again.
took 15 refused 1 "a daemon serves it .process $daemon., and no mount of it can be seen" \
    bounded pool mount --foreground "${mount_flags[@]}" "$pool" "$mnt"
took 5 refused 1 "kill $daemon" bounded pool umount "$pool"
kill -TERM "$daemon"
timeout 15 tail --pid="$daemon" -f /dev/null
wait "$daemon" || fail "the daemon ended with code $?"
mount_pool
[[ $(<"$mnt/file") == committed ]]

# Or the namespace ends, and the daemon with it.
umount "$dir/kept/namespace"
keep_namespace
refused 1 "$said" bounded pool umount "$mnt"
umount "$dir/kept/namespace"
timeout 15 tail --pid="$daemon" -f /dev/null
wait "$daemon" || fail "the daemon ended with code $?"
check_pool
