#!/bin/bash
# Makes the seeds of the target `ext`: small images with every structure of ext2, ext3 and ext4. Run it as root:
#
#   make-ext.sh            writes ext-*.seed beside this script
#
# A seed is the length of the image (4 bytes, little-endian), then for each run that is not zero how many zero bytes
# precede it, its length (4 bytes each) and its bytes.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir mounted

# Fills the file system that is mounted.
fill() (
    cd mounted
    mkdir -p folder/empty few
    for number in $(seq 60); do echo "$number" >"folder/a long name in an indexed directory $number"; done
    python3 -c '
import os
with open("pieces", "wb") as file:
    for piece in range(12):
        os.pwrite(file.fileno(), b"p" * 600, piece * 2048)
with open("big", "wb") as file:
    file.write(b"b" * 20000)
'
    printf 'inline' >small
    printf '%080d' 5 >longer
    ln -s small fast
    ln -s "$(printf 't%.0s' $(seq 100))" slow
    ln small few/hard
    mknod few/device c 5 1
    mkfifo few/fifo
    setfattr -n user.a -v b small
    setfattr -n user.long -v "$(printf 'w%.0s' $(seq 500))" big
    setfacl -m u:7:r big
    fallocate -l 9000 reserved 2>/dev/null || :
    truncate -s 1T sparse 2>/dev/null || :
)

# make NAME OPTION...
# shellcheck disable=SC2154 # Its callers set the size.
make() {
    truncate -s "$size" "$1"
    mke2fs -q -F -b 1024 -N 128 "${@:2}" "$1"
    mount -o loop "$1" mounted
    fill
    umount mounted
}

# A file system with a journal that is to be applied: journal NAME FEATURE OPEN.
journal() {
    rm -rf source
    mkdir source
    for number in 1 2 3; do head -c 3000 /dev/zero | tr '\0' "$number" >"source/$number"; done
    truncate -s 4M "$1"
    mke2fs -q -F -t ext4 -b 1024 -N 64 -O "$2,64bit,^resize_inode" -J size=1 -d source "$1"
    read -r first second third _ <<<"$(debugfs -R 'blocks /1' "$1" 2>/dev/null)"
    table=$(dumpe2fs "$1" 2>/dev/null | sed -n 's/.*Inode table at \([0-9]*\).*/\1/p' | head -1)
    for _ in 1 2 3 4; do printf '\xc0\x3b\x39\x98'; head -c 1020 /dev/zero | tr '\0' y; done >escaped
    dd if="$1" bs=1024 skip=$((table + 1)) count=2 of=inodes status=none
    dd if="$1" bs=1024 skip=1 count=1 of=super status=none
    cat >commands <<END
$3
jw -b $first,$second escaped
jw -b $((table + 1)),$((table + 2)) inodes
jw -b $third escaped
jw -b 1 super
jw -r $third
jc
END
    debugfs -w -f commands "$1" >/dev/null 2>&1
}

size=8M make ext-4 -t ext4 -O inline_data,metadata_csum,64bit,ea_inode,orphan_file -J size=1 -I 256 -E lazy_itable_init=0
size=1M make ext-groups -t ext4 -O ^metadata_csum,uninit_bg,^has_journal,^resize_inode,64bit,^flex_bg -g 256
size=1M make ext-2 -t ext2 -I 128 -O ^resize_inode
journal ext-journal ^metadata_csum 'jo'
journal ext-sums metadata_csum 'jo -c -v 3'

for image in ext-*; do
    python3 - "$image" "$here/$image.seed" <<'END'
import struct, sys
image = open(sys.argv[1], "rb").read()
seed, end, at, step = bytearray(struct.pack("<I", len(image))), 0, 0, 16
while at < len(image):
    start = at
    while any(image[at:at + step]):
        at += step
    if at > start:
        seed += struct.pack("<II", start - end, at - start) + image[start:at]
        end = at
    at += step
open(sys.argv[2], "wb").write(seed)
END
done
