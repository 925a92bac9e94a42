# Daemon and writers in a memory cgroup smaller than what they dirty: nobody waits for ever, nobody is killed, all is right
# limit: 120 s
readonly limit_mib=128 dirty_mib=128
if [[ -w /sys/fs/cgroup/memory/memory.limit_in_bytes ]]; then
    group=/sys/fs/cgroup/memory/onefold-$$
    limit_file=memory.limit_in_bytes
    kills() { sed -n 's/^oom_kill //p' "$group/memory.oom_control"; }
elif grep -qsw memory /sys/fs/cgroup/cgroup.subtree_control && [[ -w /sys/fs/cgroup/cgroup.procs ]]; then
    group=/sys/fs/cgroup/onefold-$$
    limit_file=memory.max
    kills() { sed -n 's/^oom_kill //p' "$group/memory.events"; }
else
    skip "there is no memory controller for cgroups here"
fi
mkdir "$group" 2>/dev/null || skip "no cgroup can be made here"
create_pool 1G
mkdir "$mnt"

# The processes in the group leave it, or the group can't be removed.
leave() {
    local pid
    while read -r pid; do
        echo "$pid" >"$group/../cgroup.procs" || true
    done <"$group/cgroup.procs"
    rmdir "$group"
}
trap leave EXIT
echo "${limit_mib}M" >"$group/$limit_file"
# With all it starts: the daemon, and the writers.
echo $BASHPID >"$group/cgroup.procs"

for how in '' --writeback-cache; do
    # As the service unit has it, where that is allowed: others than the file system give way.
    # shellcheck disable=SC2086 # No flag is no word.
    "$ONEFOLD" pool mount --foreground --memory 64M $how "$pool" "$mnt" >>"$dir/daemon.log" 2>&1 &
    daemon=$!
    { echo -900 >"/proc/$daemon/oom_score_adj"; } 2>/dev/null || true
    wait_until 20 is_mounted_or_ended "$daemon"
    writers=()
    for job in map write; do
        python3 "$tools/dirty.py" "$job" "$mnt/by-$job" "$dirty_mib" "$job$how" &
        writers+=($!)
    done
    for writer in "${writers[@]}"; do
        wait "$writer" || fail "a writer ended with code $?"
    done
    for job in map write; do
        python3 "$tools/dirty.py" verify "$mnt/by-$job" "$dirty_mib" "$job$how"
    done
    unmount_pool
done
(($(kills) == 0)) || fail "$(kills) processes were killed for want of memory"
note "limit $limit_mib MiB, $((4 * dirty_mib)) MiB made dirty, $(cat "$group/memory.failcnt" 2>/dev/null || echo some) times at the limit"
check_pool --data
