# Partitions are captured and installed by themselves, disks fit larger targets, and bytes that nothing reads become zeros
# limit: 120 s
needs mke2fs e2fsck debugfs losetup sfdisk python3
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"
archive=$dir/archive
onefold archive create "$archive"

# A disk with a GPT and a guest as its second partition.
guest "$dir/guest.raw" 1
bytes=$(stat --format=%s "$dir/guest.raw")
sectors=$((bytes / 512))
start=10240
truncate -s $((start * 512 + bytes + (1 << 20))) "$dir/disk.raw"
printf 'label: gpt\nstart=2048,size=8192,type=U\nstart=%d,size=%d,type=L\n' "$start" "$sectors" |
    sfdisk --quiet "$dir/disk.raw"
dd if="$dir/guest.raw" of="$dir/disk.raw" bs=512 seek="$start" conv=notrunc,sparse status=none

# One partition: an image that begins with it, and equals that of its own bytes.
onefold image capture --quiet --partition 2 "$archive" "$dir/disk.raw" part
onefold image capture --quiet --json "$archive" "$dir/guest.raw" alone >"$dir/alone"
(($(number images.0.new_bytes <"$dir/alone") == 0)) || fail "a partition has other units: $(<"$dir/alone")"
onefold image export --quiet "$archive" part "$dir/part.raw"
onefold image export --quiet "$archive" alone - | cmp - "$dir/part.raw"
e2fsck -fn "$dir/part.raw" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"
refused 1 'partitions 1, 2' onefold image capture "$archive" "$dir/disk.raw" none --partition 7
refused 1 'no partition table' onefold image capture "$archive" "$dir/guest.raw" none --partition 1

# At a place in a target: the same disk, and nothing else is touched.
head -c $((start * 512 + bytes + (1 << 20))) /dev/urandom >"$dir/target.raw"
cp "$dir/target.raw" "$dir/noise.raw"
refused 1 'not blank' onefold image install --offset $((start * 512)) "$archive" part "$dir/target.raw"
refused 2 'multiple' onefold image install --offset 100 "$archive" part "$dir/target.raw"
refused 1 'needs' onefold image install --offset $(((start + 4096) * 512)) --force "$archive" part "$dir/target.raw"
onefold image install --quiet --force --verify --free zero --offset $((start * 512)) \
    "$archive" part "$dir/target.raw"
cmp <(tail -c +$((start * 512 + 1)) "$dir/target.raw" | head -c "$bytes") "$dir/part.raw"
cmp -n $((start * 512)) "$dir/target.raw" "$dir/noise.raw"
cmp <(tail -c $((1 << 20)) "$dir/target.raw") <(tail -c $((1 << 20)) "$dir/noise.raw")
onefold image install --quiet --offset 1M "$archive" part "$dir/new.raw"
cmp <(tail -c +$(((1 << 20) + 1)) "$dir/new.raw") "$dir/part.raw"

# A larger disk takes the table: other people's tool finds it whole, with the same partitions and more room.
onefold image capture --quiet "$archive" "$dir/disk.raw" disk
truncate -s $((start * 512 + bytes + (64 << 20))) "$dir/larger.raw"
onefold image install --quiet --fit --verify "$archive" disk "$dir/larger.raw"
sfdisk --verify "$dir/larger.raw" >"$dir/verified" 2>&1 || fail "$(<"$dir/verified")"
grep -qi 'backup\|corrupt\|mismatch' "$dir/verified" && fail "$(<"$dir/verified")"
cmp <(sfdisk --dump "$dir/disk.raw" | grep '^[^l].*start=' | sed 's/^[^:]*//') \
    <(sfdisk --dump "$dir/larger.raw" | grep '^[^l].*start=' | sed 's/^[^:]*//')
free=$(sfdisk --list-free --bytes "$dir/larger.raw" 2>/dev/null | sed -n 's/.*, \([0-9]*\) bytes, .*/\1/p' | head -n 1)
((free > 62 << 20)) || fail "only ${free:-no} bytes are free: $(sfdisk --list-free "$dir/larger.raw" 2>&1)"
# The main table is lost: the backup at the end of the larger disk is taken.
dd if=/dev/zero of="$dir/larger.raw" bs=512 seek=1 count=1 conv=notrunc status=none
sfdisk --dump "$dir/larger.raw" 2>/dev/null | grep -q "start= *$start" || fail "there is no backup"
refused 1 'no GPT' onefold image install --fit --force "$archive" part "$dir/larger.raw"
sfdisk --dump "$dir/larger.raw" 2>/dev/null | grep -q "start= *$start" || fail "a refused target was written"

# Volumes of FAT and NTFS at another sector say in both boot sectors how many sectors lie before them.
hidden_at() {
    python3 - "$@" <<'PYTHON'
import sys

with open(sys.argv[1], "rb") as disk:
    disk.seek(int(sys.argv[2]) + 28)
    print(int.from_bytes(disk.read(4), "little"))
PYTHON
}
place=$((4096 * 512))
if [[ -x $(command -v mkfs.vfat) && -x $(command -v fsck.vfat) ]]; then
    truncate -s 40M "$dir/fat.raw"
    mkfs.vfat -F 32 "$dir/fat.raw" >/dev/null
    onefold image capture --quiet "$archive" "$dir/fat.raw" fat
    onefold image install --quiet --verify --offset "$place" "$archive" fat "$dir/fat.disk"
    [[ $(hidden_at "$dir/fat.disk" "$place") == 4096 ]] || fail "$(hidden_at "$dir/fat.disk" "$place") hidden sectors"
    tail -c +$((place + 1)) "$dir/fat.disk" >"$dir/fat.volume"
    fsck.vfat -n "$dir/fat.volume" >"$dir/fsck" || fail "$(<"$dir/fsck")"
    # On a partition, the kernel says where it begins.
    truncate -s 64M "$dir/fat.parts"
    printf 'label: dos\nstart=8192,size=81920,type=c\n' | sfdisk --quiet "$dir/fat.parts"
    attach_loop "$dir/fat.parts" --partscan
    if [[ -b ${loop}p1 ]]; then
        onefold image install --quiet "$archive" fat "${loop}p1"
        [[ $(hidden_at "${loop}p1" 0) == 8192 ]] || fail "$(hidden_at "${loop}p1" 0) hidden sectors"
        fsck.vfat -n "${loop}p1" >"$dir/fsck" || fail "$(<"$dir/fsck")"
    fi
    detach_loop
fi
if [[ -x $(command -v mkntfs) ]]; then
    truncate -s 16M "$dir/ntfs.raw"
    mkntfs --force --fast --quiet --sector-size 512 "$dir/ntfs.raw" >/dev/null 2>&1
    onefold image capture --quiet "$archive" "$dir/ntfs.raw" ntfs
    onefold image install --quiet --offset "$place" "$archive" ntfs "$dir/ntfs.disk"
    copy=$((place + (16 << 20) - 512))
    [[ $(hidden_at "$dir/ntfs.disk" "$place") == 4096 && $(hidden_at "$dir/ntfs.disk" "$copy") == 4096 ]] ||
        fail "$(hidden_at "$dir/ntfs.disk" "$place") and $(hidden_at "$dir/ntfs.disk" "$copy") hidden sectors"
fi

# Noise in a clean journal, which nothing reads, is zero in the image, and the kernel mounts and writes the result.
python3 - "$dir/guest.raw" <<'PYTHON'
import os, re, subprocess, sys

image = sys.argv[1]
said = subprocess.run(["debugfs", "-R", "blocks <8>", image], capture_output=True, text=True).stdout
blocks = [int(block) for block in said.split()]
assert len(blocks) >= 1024, said
with open(image, "r+b") as disk:
    for block in blocks[1:1024]:
        disk.seek(block * 4096)
        disk.write(os.urandom(4096))
PYTHON
onefold image capture --quiet --json "$archive" "$dir/guest.raw" noisy >"$dir/noisy"
onefold image capture --quiet --json --exact "$archive" "$dir/guest.raw" exact >"$dir/exact"
saved=$(($(number images.0.data_bytes <"$dir/exact") - $(number images.0.data_bytes <"$dir/noisy")))
note "a journal of noise: $saved bytes fewer"
((saved >= 1000 * 4096)) || fail "the journal was taken: $(<"$dir/noisy")"
(($(number images.0.free_bytes <"$dir/exact") == $(number images.0.free_bytes <"$dir/noisy"))) ||
    fail "the journal is free: $(<"$dir/noisy")"
onefold image show "$archive" noisy | grep -q 'nothing reads' || fail "$(onefold image show "$archive" noisy)"
head -c "$bytes" /dev/urandom >"$dir/installed.raw"
onefold image install --quiet --force --verify "$archive" noisy "$dir/installed.raw"
e2fsck -fn "$dir/installed.raw" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"
mkdir "$dir/guest"
attach_loop "$dir/installed.raw"
mount "$loop" "$dir/guest"
for number in {1..300}; do
    printf '%s\n' "$number" >"$dir/guest/new$number"
done
sync -f "$dir/guest"
# The disk as a power cut leaves it now, with a journal to replay in the log that was zero.
cp "$dir/installed.raw" "$dir/cut.raw"
umount "$dir/guest"
detach_loop
e2fsck -fn "$dir/installed.raw" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"
attach_loop "$dir/cut.raw"
mount "$loop" "$dir/guest"
(($(cat "$dir/guest"/new* | wc -l) == 300)) || fail "files are lost after a power cut"
umount "$dir/guest"
detach_loop
e2fsck -fn "$dir/cut.raw" >"$dir/e2fsck" 2>&1 || fail "$(<"$dir/e2fsck")"

# A limit of the rate holds.
began=${EPOCHREALTIME/./}
onefold image capture --quiet --rate 8M "$archive" "$dir/guest.raw" slow
took=$(((${EPOCHREALTIME/./} - began) / 1000))
data=$(number images.0.data_bytes <"$dir/noisy")
least=$((data * 1000 / (8 << 20) - 300))
((took >= least)) || fail "$data bytes at 8 MiB/s took $took ms"
refused 2 '64' onefold image capture "$archive" "$dir/guest.raw" none --memory 10M
refused 2 '64' onefold image install "$archive" noisy "$dir/none.raw" --memory 63M
onefold archive check --quiet "$archive"
