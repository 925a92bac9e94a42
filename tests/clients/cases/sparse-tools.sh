# tar -S and du see holes, and cp clones an image that was just copied in; a file or folder can choose
# limit: 120 s
needs tar du getfattr setfattr cmp
new_pool 2G

# What tar stores of a file, in KiB: the archive is compared with the file, too.
tar_kib() {
    tar --sparse -C "$mnt" -cf "$dir/archive.tar" "$1"
    tar -C "$dir" -xOf "$dir/archive.tar" "$1" | cmp - "$mnt/$1"
    echo $(($(stat -c %s "$dir/archive.tar") >> 10))
}
du_kib() {
    du --block-size=1K "$mnt/$1" | cut -f1
}
blocks_accepted() {
    onefold pool stat --json "$mnt" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["pool"]["activity"]["blocks_accepted"])'
}
# clones FILE: cp copies it without a write.
clones() {
    local before
    before=$(blocks_accepted)
    rm -f "$mnt/copy.raw"
    cp "$mnt/$1" "$mnt/copy.raw"
    cmp "$mnt/$1" "$mnt/copy.raw"
    (($(blocks_accepted) == before))
}

# Seen: an empty disk of 2 GB became an archive of 2 GB, and du told of 2 GB.
truncate -s 2G "$mnt/empty.raw"
(($(tar --sparse -C "$mnt" -cf - empty.raw | wc -c) <= 20 << 10)) || fail "tar stores holes"
(($(du_kib empty.raw) < 8)) || fail "du counts holes: $(du_kib empty.raw) KiB"

# Data of 20 MiB in a disk of 300, and a disk full of data but for holes, as it was just copied in.
truncate -s 300M "$dir/small.raw"
dd if=/dev/urandom of="$dir/small.raw" bs=1M count=20 seek=100 conv=notrunc status=none
truncate -s 300M "$dir/image.raw"
dd if=/dev/urandom of="$dir/image.raw" bs=1M count=96 seek=7 conv=notrunc status=none
cp --sparse=always "$dir/small.raw" "$mnt/small.raw"
(($(du_kib small.raw) == 20 << 10)) || fail "du: $(du_kib small.raw) KiB"
(($(tar_kib small.raw) < 21 << 10)) || fail "tar stores holes"
cp --sparse=always "$dir/image.raw" "$mnt/image.raw"
clones image.raw || fail "cp does not clone an image that was just copied in"
(($(du_kib image.raw) == 300 << 10)) || fail "du: $(du_kib image.raw) KiB"

# A file chooses, and takes it back.
setfattr -n user.onefold.st_blocks -v mapped "$mnt/image.raw"
(($(du_kib image.raw) == 96 << 10)) || fail "du: $(du_kib image.raw) KiB"
(($(tar_kib image.raw) < 97 << 10)) || fail "tar stores holes"
setfattr -n user.onefold.st_blocks -v length "$mnt/small.raw"
clones small.raw || fail "cp does not clone a file that shows its length"
setfattr -x user.onefold.st_blocks "$mnt/image.raw"
clones image.raw || fail "the setting is still there"
refused 1 'Invalid argument' setfattr -n user.onefold.st_blocks -v holes "$mnt/image.raw"

# A folder chooses for what is made in it, and for folders below.
mkdir "$mnt/machines"
setfattr -n user.onefold.st_blocks -v mapped "$mnt/machines"
mkdir "$mnt/machines/below"
cp --sparse=always "$dir/image.raw" "$mnt/machines/below/image.raw"
(($(du_kib machines/below/image.raw) == 96 << 10)) || fail "the folder's setting is not inherited"
remount_pool
[[ $(getfattr --only-values -n user.onefold.st_blocks "$mnt/machines/below/image.raw") == mapped ]]
[[ $(getfattr --only-values -n user.onefold.st_blocks "$mnt/image.raw") == mount ]]

# tar takes a file with no blocks for one hole, without a look: what a program has only written to a mapping must not be lost.
truncate -s 64M "$mnt/mapped.raw"
python3 - "$mnt/mapped.raw" "$dir/archive.tar" <<'PYTHON'
import mmap, os, subprocess, sys

path, archive = sys.argv[1:]
with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
    os.stat(path)
    mapping[40 << 20 : (40 << 20) + 5] = b"there"
    made = subprocess.run(["tar", "--sparse", "-C", os.path.dirname(path), "-cf", archive, "mapped.raw"])
    # It looks for holes first, and says that the file has a new time by then.
    assert made.returncode <= 1
PYTHON
tar -C "$dir" -xOf "$dir/archive.tar" mapped.raw | cmp - "$mnt/mapped.raw"
unmount_and_check --data
