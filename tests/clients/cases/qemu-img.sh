# qemu-img converts, compares, resizes and snapshots on a pool, through the page cache and past it
needs qemu-img qemu-io
new_pool 2G
make_image "$dir/a.raw" 96 1

for cache in none writeback; do
    qemu-img convert -f raw -O raw -t "$cache" "$dir/a.raw" "$mnt/$cache.raw"
    qemu-img compare -T "$cache" -f raw -F raw "$dir/a.raw" "$mnt/$cache.raw"
    qemu-img convert -f raw -O qcow2 -t "$cache" -T "$cache" "$mnt/$cache.raw" "$mnt/$cache.qcow2"
    qemu-img check -f qcow2 "$mnt/$cache.qcow2"
    qemu-img compare -T "$cache" -f qcow2 -F raw "$mnt/$cache.qcow2" "$dir/a.raw"
    # Out of the pool again.
    qemu-img convert -f qcow2 -O raw -T "$cache" "$mnt/$cache.qcow2" "$dir/$cache.out"
    cmp "$dir/a.raw" "$dir/$cache.out"
done

# Snapshots and discards move clusters about inside a qcow2.
image=$mnt/none.qcow2
qemu-img snapshot -c before "$image"
qemu-io -f qcow2 -t none -c 'write -P 0xab 4M 3M' -c 'discard 20M 8M' -c flush "$image"
qemu-io -f qcow2 -c 'read -P 0xab 4M 3M' -c 'read -P 0 20M 8M' "$image"
qemu-img check "$image"
qemu-img snapshot -a before "$image"
qemu-img compare -f qcow2 -F raw "$image" "$dir/a.raw"
qemu-img snapshot -d before "$image"
qemu-img check "$image"

qemu-img resize -f raw "$mnt/none.raw" 5G
[[ $(stat -c %s "$mnt/none.raw") == $((5 << 30)) ]]
qemu-img resize -f raw --shrink "$mnt/none.raw" 96M
cmp "$dir/a.raw" "$mnt/none.raw"

# An overlay, committed twice into its base.
qemu-img create -q -f qcow2 -b writeback.qcow2 -F qcow2 "$mnt/top.qcow2"
for pattern in 0x11 0x22; do
    qemu-io -f qcow2 -t none -c "write -P $pattern 1M 2M" "$mnt/top.qcow2"
    qemu-img commit -t none "$mnt/top.qcow2"
    qemu-io -f qcow2 -c "read -P $pattern 1M 2M" "$mnt/writeback.qcow2"
done
qemu-img check "$mnt/writeback.qcow2"

remount_pool
cmp "$dir/a.raw" "$mnt/none.raw"
qemu-io -f qcow2 -c 'read -P 0x22 1M 2M' "$mnt/writeback.qcow2"
unmount_and_check --data
