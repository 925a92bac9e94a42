# What is no pool, a newer, truncated or damaged pool is refused with a reason, a hint and the fitting code
needs mkfs.ext4
mkdir "$mnt"

# refused_everywhere CODE TEXT FILE: by every verb that opens a pool, in the same way.
refused_everywhere() {
    refused "$1" "$2" onefold pool mount "$3" "$mnt"
    refused "$1" "$2" onefold pool stat "$3"
    refused "$1" "$2" onefold pool import "$3" "$dir/image.raw"
    is_mounted "$mnt" && fail "it was mounted all the same"
    return 0
}

truncate -s 1M "$dir/image.raw"
head -c 8M /dev/urandom >"$dir/noise"
: >"$dir/empty"
truncate -s 100M "$dir/zeros"
printf 'short' >"$dir/short"
for file in noise empty zeros short; do
    refused_everywhere 1 'hint: ' "$dir/$file"
done
refused_everywhere 1 'not a Onefold pool' "$dir/noise"
refused_everywhere 1 'No such file' "$dir/absent"
refused 1 'cause: ' onefold pool mount "$dir" "$mnt"
refused 1 'cause: ' onefold pool mount /dev/null "$mnt"
refused 2 'Usage|usage' onefold pool mount
refused 1 'No such file' onefold pool create "$dir/absent/none.pool" --size 1G

# A pool of the next format version.
create_pool 1G
cp --sparse=always "$pool" "$dir/newer"
python3 "$tools/superblock.py" "$dir/newer" version 3
refused_everywhere 1 'newer' "$dir/newer"
cp --sparse=always "$pool" "$dir/feature"
python3 "$tools/superblock.py" "$dir/feature" incompatible 1
refused_everywhere 1 'newer' "$dir/feature"

# One that lost its end.
cp --sparse=always "$pool" "$dir/truncated"
truncate -s 500M "$dir/truncated"
refused_everywhere 1 'truncate|smaller|shorter' "$dir/truncated"
truncate -s 1G "$dir/truncated"
check_pool

# A superblock with a flipped bit: its copy is used. Both gone: damage, not "no pool".
mount_pool
make_image "$dir/a.raw" 8 1
cp "$dir/a.raw" "$mnt/a.raw"
unmount_pool
python3 "$tools/superblock.py" "$pool" flip first
mount_pool
cmp "$dir/a.raw" "$mnt/a.raw"
unmount_pool
python3 "$tools/superblock.py" "$pool" flip copy
refused_everywhere 3 'damaged|checksum' "$pool"

# No existing file is made a pool by mistake.
mkfs.ext4 -q "$dir/zeros"
refused 1 '--force' onefold pool create "$dir/zeros"
