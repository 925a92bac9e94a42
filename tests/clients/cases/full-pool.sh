# A full pool says so, keeps what it has, and works on once something is deleted
new_pool 256M
make_image "$dir/kept" 64 1
cp "$dir/kept" "$mnt/kept"

# noise MIB: what nothing can be saved of.
noise() {
    head -c "${1}M" /dev/urandom
}

noise 320 >"$dir/noise"
fails_with 'No space left on device' dd if="$dir/noise" of="$mnt/big" bs=1M conv=fsync status=none
fails_with 'No space left on device' dd if="$dir/noise" of="$mnt/direct" bs=1M skip=260 oflag=direct status=none
fails_with 'No space left on device' fallocate -l 200M "$mnt/reserved"
# What was accepted is right, and the rest is not there.
stored=$(stat -c %s "$mnt/big")
((stored > 100 << 20)) || fail "only $stored bytes fitted"
cmp --bytes="$stored" "$dir/noise" "$mnt/big"
cmp "$dir/kept" "$mnt/kept"

# A pool without room takes what it has already, and gives up what it is told to.
cp --sparse=always "$mnt/kept" "$mnt/again"
cmp "$dir/kept" "$mnt/again"
rm "$mnt/big" "$mnt/direct" "$mnt/reserved"
# Space of deleted files is waited for rather than refused.
dd if="$dir/noise" of="$mnt/big" bs=1M count=120 conv=fsync status=none
cmp --bytes=$((120 << 20)) "$dir/noise" "$mnt/big"

# Many small files end the same way.
mkdir "$mnt/small"
fails_with 'No space left on device' split --suffix-length=5 --bytes=5000 "$dir/noise" "$mnt/small/"
rm -r "$mnt/small" "$mnt/big"
noise 100 >"$mnt/last"

remount_pool
cmp "$dir/kept" "$mnt/kept"
cmp "$dir/kept" "$mnt/again"
unmount_and_check --data
