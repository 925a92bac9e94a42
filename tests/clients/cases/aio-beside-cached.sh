# Readers through the page cache get what asynchronous direct writes have completed, as xfstests generic/451 asks
# limit: 120 s
new_pool 1G
python3 "$tools/aio_cycles.py" "$mnt/disk.raw" 500 5
unmount_pool
mount_flags+=(--writeback-cache --threads 1)
mount_pool
python3 "$tools/aio_cycles.py" "$mnt/disk.raw" 150 5
unmount_and_check --data
