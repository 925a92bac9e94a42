# Copies inside a pool take no space and are independent: cp, copy_file_range, a hundred clones
new_pool 2G
make_image "$dir/base.raw" 128 5
cp --sparse=always "$dir/base.raw" "$mnt/base.raw"
cmp "$dir/base.raw" "$mnt/base.raw"
sync -f "$mnt"
stored=$(pool_number distinct_bytes)

cp --reflink=auto "$mnt/base.raw" "$mnt/by-cp.raw"
python3 - "$mnt/base.raw" "$mnt/by-call.raw" <<'PYTHON'
import os, sys

with open(sys.argv[1], "rb") as source, open(sys.argv[2], "wb") as target:
    # At places and of lengths that are no whole blocks, too.
    lengths = [1, 4095, 4096, 100_000, 1 << 20, 1 << 40]
    for length in lengths:
        while length and (done := os.copy_file_range(source.fileno(), target.fileno(), length)):
            length -= done
PYTHON
started=${EPOCHREALTIME/./}
onefold pool clone --quiet "$mnt" base.raw 'vm-%03d.raw' --count 100
note "100 clones of 128 MiB in $(((${EPOCHREALTIME/./} - started) / 1000)) ms"
for copy in by-cp by-call vm-001 vm-050 vm-100; do
    cmp "$dir/base.raw" "$mnt/$copy.raw"
done
sync -f "$mnt"
now=$(pool_number distinct_bytes)
((now - stored < 2 << 20)) || fail "copies took $((now - stored)) bytes"

# Each write of a clone is its own.
for number in 001 050; do
    printf 'clone %s' "$number" | dd of="$mnt/vm-$number.raw" bs=1 seek=3333333 conv=notrunc status=none
    printf 'clone %s' "$number" | dd of="$dir/base.raw" bs=1 seek=3333333 conv=notrunc status=none
    cmp "$dir/base.raw" "$mnt/vm-$number.raw"
done
make_image "$dir/base.raw" 128 5
cmp "$dir/base.raw" "$mnt/base.raw"
cmp "$dir/base.raw" "$mnt/vm-100.raw"
truncate -s 0 "$mnt/base.raw"
cmp "$dir/base.raw" "$mnt/vm-100.raw"

remount_pool
cmp "$dir/base.raw" "$mnt/vm-100.raw"
rm "$mnt"/*.raw
everything_is_free() {
    (($(pool_number distinct_bytes) == 0)) && (($(pool_number reclaim_pending) == 0))
}
wait_until 20 everything_is_free
unmount_and_check
