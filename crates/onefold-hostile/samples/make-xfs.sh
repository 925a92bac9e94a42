#!/bin/bash
# Makes the XFS samples of the hostile tests anew, as root. Needs xfsprogs, python3 and acl.
#
#   make-xfs.sh FOLDER [ROOT]        makes xfs-5.sample and xfs-log.sample, and xfs-parents.sample with ROOT
#   make-xfs.sh --fill FOLDER        fills a mounted file system
#   make-xfs.sh --pack IMAGE SAMPLE  makes a sample of an image
#
# xfs-5.sample        version 5, with every structure that a reader meets: directories, maps and attributes of all forms
# xfs-4.sample        version 4, which kernels of today do not mount: `mkfs.xfs -m crc=0 -b size=1024 -i size=256 -d
#                     agcount=2` made 32 MiB, a QEMU guest with Debian 12's kernel 6.1 filled them with --fill, and
#                     `xfs_repair -L` emptied the log
# xfs-log.sample      the last records of the log of a busy file system, up to its head; its first sector is a header
# xfs-parents.sample  with parent pointers and exchange-range; only with ROOT, a root directory that has xfsprogs 6.10 or
#                     newer (`mmdebstrap --variant=extract --include=xfsprogs trixie ROOT`, then links for a merged /usr)
#
# A sample is the length of the image (8 bytes, little-endian), then for each part that is not zero its offset (4), its
# length (4) and its bytes. Files hold zeros, so that samples are mostly metadata.
set -euo pipefail
# As the tests of XFS itself make small file systems.
export TEST_DIR=. TEST_DEV=image QA_CHECK_FS=1

pack() {
    python3 - "$1" "$2" <<'PYTHON'
import re
import struct
import sys

image = open(sys.argv[1], "rb").read()
with open(sys.argv[2], "wb") as sample:
    sample.write(struct.pack("<Q", len(image)))
    for part in re.finditer(rb"[^\0](?:.{,15}[^\0])*", image, re.DOTALL):
        sample.write(struct.pack("<II", part.start(), len(part.group())) + part.group())
PYTHON
}

fill() {
    python3 - "$1" <<'PYTHON'
import fcntl
import os
import sys

os.chdir(sys.argv[1])


def write(path, *offsets):
    with open(path, "wb") as file:
        for offset in offsets:
            file.seek(offset)
            file.write(bytes(1000))


write("plain", 0)
write("holes", 5000, 1 << 20)
write("list", *range(0, 40_000, 4096))
write("tree", *range(0, 800_000, 4096))
with open("unwritten", "wb") as file:
    os.posix_fallocate(file.fileno(), 0, 100_000)
write("original", *range(0, 30_000, 1000))
with open("original") as source, open("clone", "w") as clone:
    try:
        fcntl.ioctl(clone.fileno(), 0x40049409, source.fileno())
    except OSError:
        os.unlink("clone")  # Version 4 has no shared blocks.
os.symlink("short", "link")
os.symlink("long/" * 200, "long-link")
os.mknod("device", 0o20600, os.makedev(1, 3))
os.mkfifo("fifo")
for name, count in (("few", 3), ("block", 20), ("leaf", 60), ("node", 260)):
    os.mkdir(name)
    for index in range(count):
        # Few inodes, many names.
        os.link("plain", f"{name}/a-rather-long-name-of-a-file-{index}")
os.mkdir("fragments")
for index in range(900):
    os.link("plain", f"fragments/a-rather-long-name-of-a-file-in-a-tree-{index}")
    if index % 8 == 0:
        write(f"between-{index}", 0)
for index in range(0, 900, 16):
    os.unlink(f"between-{index}")
for name, count, length in (("inline", 2, 10), ("one", 8, 60), ("nodes", 40, 200), ("remote", 1, 3000)):
    write(f"attributes-{name}", 0)
    for index in range(count):
        os.setxattr(f"attributes-{name}", f"user.name-{index}", bytes(length))
os.system("setfacl -m u:5:r plain")
PYTHON
}

# Makes so many records that they begin to overwrite the first ones, and takes the last of them while the file system is
# mounted. Each sync is a record.
pack_log() {
    python3 - "$1" "$2" <<'PYTHON'
import os
import shutil
import struct
import sys

mounted, image = sys.argv[1:]
os.chdir(mounted)
root = os.open(".", os.O_RDONLY)
for number in range(3200):
    name = f"file-{number % 20}"
    if os.path.exists(name):
        os.unlink(name)
    open(name, "w").close()
    os.fsync(root)
os.chdir("..")
with open(image, "rb") as file:
    os.fsync(file.fileno())
    bytes_ = file.read()
block_bytes, = struct.unpack_from(">I", bytes_, 4)
start, = struct.unpack_from(">Q", bytes_, 48)
group_blocks, = struct.unpack_from(">I", bytes_, 84)
blocks, = struct.unpack_from(">I", bytes_, 96)
place = ((start >> bytes_[124]) * group_blocks + (start & (1 << bytes_[124]) - 1)) * block_bytes
sectors = [bytes_[at : at + 512] for at in range(place, place + blocks * block_bytes, 512)]
is_header = [sector.startswith(b"\xfe\xed\xba\xbe") for sector in sectors]
cycles = [struct.unpack_from(">I", sector, 4 * header)[0] for sector, header in zip(sectors, is_header, strict=True)]
head = next(at for at, cycle in enumerate(cycles) if cycle < cycles[0])
first = next(at for at in range(head - 48, head) if is_header[at])
with open("tail", "wb") as file:
    file.write(b"".join(sectors[first:head]))
PYTHON
    pack tail "$folder/xfs-log.sample"
}

case $1 in
--fill)
    fill "$2"
    exit
    ;;
--pack)
    pack "$2" "$3"
    exit
    ;;
esac
folder=$(readlink -f "$1")
root=${2:+$(readlink -f "$2")}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

truncate -s 32M image
mkfs.xfs -q -b size=1024 -i size=512,nrext64=1 -d agcount=2 -m rmapbt=1 image
mkdir mounted
unshare --mount --propagation private bash -c 'mount -o loop image mounted; "$@"; umount mounted' script \
    bash -c "$(declare -f fill); fill mounted"
# The log would be most of the sample.
xfs_repair -L image >/dev/null 2>&1
pack image "$folder/xfs-5.sample"

truncate -s 32M busy
mkfs.xfs -q -b size=1024 -i size=512 -d agcount=2 busy
export folder
unshare --mount --propagation private bash -c 'mount -o loop busy mounted; "$@"; umount mounted' script \
    bash -c "$(declare -f pack pack_log); pack_log mounted busy"

[[ -n $root ]] || exit 0
fill_with_parents() {
    cd "$1"
    mkdir folder folder/below many
    for file in one folder/two folder/below/three; do echo "$file" > "$file"; done
    ln one folder/hard-link
    ln -s one link
    for ((file = 0; file < 60; file++)); do ln one "many/a-rather-long-name-of-a-file-$file"; done
    setfattr -n user.note -v kept folder/two
    mv folder/below/three many/three
}
truncate -s 32M "$root/image"
chroot "$root" /usr/sbin/mkfs.xfs -q -b size=1024 -d agcount=2 -n parent=1 -i exchange=1 /image
# The inner shell expands its arguments.
# shellcheck disable=SC2016
unshare --mount --propagation private bash -c 'mount -o loop "$0/image" mounted; "$@"; umount mounted' "$root" \
    bash -c "$(declare -f fill_with_parents); fill_with_parents mounted"
chroot "$root" /usr/sbin/xfs_repair -L /image >/dev/null 2>&1
pack "$root/image" "$folder/xfs-parents.sample"
rm "$root/image"
