# shellcheck shell=bash disable=SC2154
# Another file system inside a pool file. The case names its tools: $make_inner, $check_inner.

new_pool 4G
make_image "$dir/payload" 64 7
mkdir "$dir/inner"

# try_loop NAME [LOSETUP FLAG...]
try_loop() {
    local name=$1 used left
    shift
    truncate -s 1G "$mnt/$name.raw"
    attach_loop "$mnt/$name.raw" "$@"
    "${make_inner[@]}" "$loop"
    mount "$loop" "$dir/inner"
    # Many small files and a large one.
    rsync -a "$repo/crates/" "$dir/crates/"
    rsync -a "$dir/crates/" "$dir/inner/crates/"
    cp "$dir/payload" "$dir/inner/large"
    umount "$dir/inner"
    "${check_inner[@]}" "$loop"
    used=$(pool_number distinct_bytes)

    mount "$loop" "$dir/inner"
    diff -r "$dir/crates" "$dir/inner/crates"
    cmp "$dir/payload" "$dir/inner/large"
    rm "$dir/inner/large"
    # XFS frees in the background; a new mount knows all that is free.
    umount "$dir/inner"
    mount "$loop" "$dir/inner"
    fstrim "$dir/inner"
    umount "$dir/inner"
    losetup --detach "$loop"
    left=$(pool_number distinct_bytes)
    note "$name: $((used >> 20)) MiB stored, $((left >> 20)) MiB after fstrim"
    # A good third of the payload is its alone.
    ((used - left > 15 << 20)) || fail "fstrim gave back too little"
    rm -r "$dir/crates"
}

try_loop buffered
rm "$mnt/buffered.raw"
try_loop direct --direct-io=on
rsync -a "$repo/docs/" "$dir/docs/"

# What is inside survives a remount of the pool.
attach_loop "$mnt/direct.raw"
mount "$loop" "$dir/inner"
cp -r "$dir/docs" "$dir/inner/docs"
umount "$dir/inner"
losetup --detach "$loop"
remount_pool
attach_loop "$mnt/direct.raw"
"${check_inner[@]}" "$loop"
mount -o ro "$loop" "$dir/inner"
diff -r "$dir/docs" "$dir/inner/docs"
umount "$dir/inner"
losetup --detach "$loop"
unmount_and_check --data
