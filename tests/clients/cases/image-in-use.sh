# Disks in use are neither captured nor overwritten, except a clone of one where the file system can clone
# limit: 150 s
needs mke2fs mkfs.xfs losetup e2fsck qemu-io swapoff mkswap
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
archive=$dir/archive
guest "$dir/web.raw" 1
onefold archive create "$archive"
onefold image capture --quiet "$archive" "$dir/web.raw" web

# Targets: mounted, below another device, too small, no disk at all, open in QEMU.
truncate -s 64M "$dir/target.raw"
attach_loop "$dir/target.raw"
mkfs.ext4 -q "$loop"
mkdir "$dir/mounted"
mount "$loop" "$dir/mounted"
refused 1 'it is mounted at' onefold image install --force "$archive" web "$loop"
refused 1 'lies on it' onefold image install --force "$archive" web "$dir/target.raw"
mkfs_sum=$(sha256sum <"$dir/target.raw")
umount "$dir/mounted"
# The same file by a hard link, and by another mount of its folder.
ln "$dir/target.raw" "$dir/link.raw"
refused 1 'lies on it' onefold image install --force "$archive" web "$dir/link.raw"
mkdir "$dir/bound" "$dir/again"
mount --bind "$dir/bound" "$dir/again"
mv "$dir/link.raw" "$dir/bound"
refused 1 'lies on it' onefold image install --force "$archive" web "$dir/again/link.raw"
umount "$dir/again"
rm -r "$dir/bound" "$dir/again"
# A loop device over a device neither claims that nor is among its holders.
upper=$(losetup --find --show "$loop")
mount "$upper" "$dir/mounted"
refused 1 "$upper. lies on it" onefold image install --force "$archive" web "$loop"
refused 1 'it is mounted at' onefold image capture "$archive" "$loop" web
umount "$dir/mounted"
losetup --detach "$upper"
detach_loop
e2fsck -fn "$dir/target.raw" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"
[[ -n $mkfs_sum ]] && refused 1 'not blank' onefold image install "$archive" web "$dir/target.raw"
truncate -s 1M "$dir/small.raw"
refused 1 "at least $(stat --format=%s "$dir/web.raw") bytes" onefold image install "$archive" web "$dir/small.raw"
refused 2 'neither a file nor a block device' onefold image install "$archive" web /dev/null
refused 2 'neither a file nor a block device' onefold image install "$archive" web "$dir"

# open_in_qemu FILE: has QEMU hold a file open for writing, until the descriptor 7 is closed.
open_in_qemu() {
    mkfifo "$dir/qemu"
    qemu-io -f raw "$1" <"$dir/qemu" >/dev/null 2>&1 &
    exec 7>"$dir/qemu"
    is_open() { grep -q " $(stat --format=%i "$1") " <(sed 's/:/ /g;s/$/ /' /proc/locks); }
    wait_until 20 is_open "$1"
}

truncate -s 64M "$dir/machine.raw"
open_in_qemu "$dir/machine.raw"
refused 1 'a virtual machine has' onefold image install "$archive" web "$dir/machine.raw"
exec 7>&-
wait
rm "$dir/qemu"
# A file that another installation, a pool or anybody else has locked.
cp "$dir/machine.raw" "$dir/contended.raw"
flock --exclusive "$dir/contended.raw" sleep 30 &
holder=$!
is_flocked() { ! flock --nonblock "$dir/contended.raw" true; }
wait_until 20 is_flocked
refused 1 'another program has locked it' onefold image install --force "$archive" web "$dir/contended.raw"
kill "$holder"
wait "$holder" 2>/dev/null || true
# So of a device, which can be opened exclusively all the same.
attach_loop "$dir/contended.raw"
flock --exclusive "$loop" sleep 30 &
holder=$!
is_flocked() { ! flock --nonblock "$loop" true; }
wait_until 20 is_flocked
refused 1 'another program has locked it' onefold image install --force "$archive" web "$loop"
kill "$holder"
wait "$holder" 2>/dev/null || true
detach_loop

# A dry run checks the folder of a new file, and leaves nothing.
refused 1 'No such file' onefold image install --dry-run "$archive" web "$dir/none/new.raw"
onefold image install --dry-run "$archive" web "$dir/new.raw"
[[ ! -e $dir/new.raw ]] || fail "a dry run has made a file"

# Sources on a file system that cannot clone: here ext4.
truncate -s 200M "$dir/ext4.raw"
attach_loop "$dir/ext4.raw"
mkfs.ext4 -q "$loop"
mkdir "$dir/ext4"
mount "$loop" "$dir/ext4"
cp --sparse=always "$dir/web.raw" "$dir/ext4/web.raw"
open_in_qemu "$dir/ext4/web.raw"
refused 1 'a virtual machine has it open for writing' onefold image capture "$archive" "$dir/ext4/web.raw"
refused 1 'hint: stop the machine.*clones' onefold image capture "$archive" "$dir/ext4/web.raw"
exec 7>&-
wait
rm "$dir/qemu"
(while sleep 0.01; do printf x | dd of="$dir/ext4/web.raw" bs=1 seek=20M conv=notrunc status=none; done) &
writer=$!
refused 1 'has changed while it was captured' onefold image capture --quiet --rate 16M "$archive" "$dir/ext4/web.raw" changed
refused 1 'hint: stop the machine.*clones' onefold image capture --quiet --rate 16M "$archive" "$dir/ext4/web.raw" changed
kill "$writer"
wait "$writer" 2>/dev/null || true
onefold image list "$archive" | grep changed && fail "an image of two moments was added"
host=$loop
attach_loop "$dir/ext4/web.raw"
mount "$loop" "$dir/mounted"
refused 1 'it is mounted at' onefold image capture "$archive" "$loop" web
refused 1 'it is mounted at' onefold image capture "$archive" "$dir/ext4/web.raw" web
umount "$dir/mounted"
onefold image capture --quiet "$archive" "$loop" web
detach_loop
# A read-only mount does not hide a device that lies on the same one.
truncate -s 64M "$dir/lower.raw"
attach_loop "$dir/lower.raw"
mke2fs -q "$loop"
mount -o ro "$loop" "$dir/mounted"
upper=$(losetup --find --show "$loop")
refused 1 "$upper. lies on it" onefold image capture "$archive" "$loop" lower
losetup --detach "$upper"
onefold image capture --quiet "$archive" "$loop" lower
umount "$dir/mounted"
detach_loop
# The number of a mounted Btrfs is that of no device.
if grep -q btrfs /proc/filesystems && type mkfs.btrfs >/dev/null 2>&1; then
    truncate -s 128M "$dir/ext4/btrfs.raw"
    attach_loop "$dir/ext4/btrfs.raw"
    mkfs.btrfs --quiet "$loop"
    mount "$loop" "$dir/mounted"
    refused 1 'it is mounted at' onefold image capture "$archive" "$dir/ext4/btrfs.raw" btrfs
    umount "$dir/mounted"
    detach_loop
fi
umount "$dir/ext4"
losetup --detach "$host"

# On XFS a clone is captured, while QEMU writes.
new_host xfs
cp --sparse=always "$dir/web.raw" "$images/web.raw"
open_in_qemu "$images/web.raw"
onefold image capture --json --quiet "$archive" "$images/web.raw" web >"$dir/captured"
[[ $(member images.0.cloned <"$dir/captured") == true ]] || fail "$(<"$dir/captured")"
exec 7>&-
wait
[[ $(ls -A "$images") == web.raw ]] || fail "a clone is left: $(ls -A "$images")"
onefold image export --quiet "$archive" web "$dir/export.raw"
e2fsck -fn "$dir/export.raw" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"
umount "$mount"
onefold archive check --quiet "$archive"

# All images of a folder: one that cannot be captured does not stop the others.
mkdir -p "$dir/all/sub"
cp "$dir/web.raw" "$dir/all/a.raw"
cp "$dir/web.raw" "$dir/all/sub/b.raw"
head -c 2M /dev/urandom >"$dir/all/odd name.raw"
refused 1 'odd name' onefold image capture --quiet "$archive" --each "$dir/all"
onefold image list "$archive" >"$dir/list"
grep -q '^a@1 ' "$dir/list" && grep -q '^sub/b@1 ' "$dir/list" || fail "$(<"$dir/list")"

# In a pool a copy is a clone, too. Objects of an archive in the folder are no images.
new_pool 1G
cp --sparse=always "$dir/web.raw" "$mnt/web.raw"
onefold archive create "$mnt/archive"
onefold image capture --json --quiet "$mnt/archive" --each "$mnt" >"$dir/captured"
onefold image capture --json --quiet "$mnt/archive" --each "$mnt" >"$dir/again"
(($(number images <"$dir/captured") == 1 && $(number images <"$dir/again") == 1)) || fail "$(<"$dir/again")"
[[ $(member images.0.cloned <"$dir/captured") == true ]] || fail "$(<"$dir/captured")"
onefold image export --quiet "$mnt/archive" web - | cmp - "$dir/export.raw"

# It is one of one moment, however long the image is. A writer counts at both ends, durably: the first number is that
# of the last, or the next one.
truncate -s 2200M "$mnt/long.raw"
stamp() { printf '%08d' "$2" | dd of="$mnt/long.raw" bs=8 count=1 seek="$1" oflag=seek_bytes conv=notrunc,fsync status=none; }
last=$((2200 * 1024 * 1024 - 8))
stamp 0 0
stamp "$last" 0
(for ((count = 1; ; count++)); do stamp 0 "$count" && stamp "$last" "$count"; done) &
writer=$!
for ((version = 1; version <= 5; version++)); do
    sleep 0.3
    onefold image capture --json --quiet "$mnt/archive" "$mnt/long.raw" long >"$dir/captured"
    [[ $(member images.0.cloned <"$dir/captured") == true ]] || fail "$(<"$dir/captured")"
done
kill "$writer"
wait "$writer" 2>/dev/null || true
for ((version = 1; version <= 5; version++)); do
    onefold image export --quiet "$mnt/archive" "long@$version" "$dir/long.raw"
    first=$((10#$(head -c 8 "$dir/long.raw"))) second=$((10#$(tail -c 8 "$dir/long.raw")))
    note "version $version has the stamps $first and $second"
    ((first > 0)) || fail "the writer wrote nothing"
    ((first == second || first == second + 1)) || fail "version $version has two moments: $first and $second"
    rm "$dir/long.raw"
done
unmount_and_check
