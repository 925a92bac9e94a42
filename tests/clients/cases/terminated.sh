# SIGTERM ends a mount in good order, also while a file is open: what was written is there
new_pool 1G
make_image "$dir/image" 32 1
cp "$dir/image" "$mnt/image"
exec 9>"$mnt/open"
printf 'written, not fsynced' >&9
kill -TERM "$daemon"
wait "$daemon" || fail "the daemon ended with code $?"
is_mounted "$mnt" && fail "it is still mounted"
exec 9>&- || true
check_pool --data

mount_pool
cmp "$dir/image" "$mnt/image"
[[ $(<"$mnt/open") == 'written, not fsynced' ]]
# At rest as well, and by Ctrl-C.
kill -INT "$daemon"
wait "$daemon" || fail "the daemon ended with code $?"
check_pool
