# stress-ng: its file-system stressors, all at once and with their own verification, find nothing wrong
# limit: 180 s
needs stress-ng
new_pool 4G
mkdir "$mnt/stress"
# Not among them: what mounts, needs special files or works in /proc (bind-mount, binderfs, procfs), needs fs-verity
# (verity), asks for a call that FUSE has not (fiemap), works on all mounts of the machine (io, fanotify), or on none
# (eventfd, dnotify, ioprio).
stressors=(access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dup fallocate fcntl file-ioctl filename
    flock fpunch fsize fstat getdent handle hdd inode-flags inotify iomix lease link locka lockf lockofd mknod open
    rename seek sendfile symlink sync-file touch utime xattr readahead revio mmap aio)
flags=()
for stressor in "${stressors[@]}"; do
    flags+=("--$stressor" 1)
done
# Small files: the aim is many calls, not much data. copy-file takes no less than 128 MiB.
stress-ng --temp-path "$mnt/stress" --verify ${POSIX_SEED:+--seed "$POSIX_SEED"} --timeout "${STRESS_SECONDS:-5}" "${flags[@]}" \
    --hdd-bytes 32M --iomix-bytes 32M --fallocate-bytes 32M --copy-file-bytes 128M --seek-size 16M \
    --readahead-bytes 16M --revio-bytes 16M --mmap-bytes 8M --mmap-file --sync-file-bytes 16M 2>&1 | tee "$dir/said"
if grep -E 'stress-ng: (fail|error)' "$dir/said"; then
    fail "stress-ng found something wrong"
fi
note "stress-ng: ${#stressors[@]} stressors for ${STRESS_SECONDS:-5} s"
unmount_and_check --data
