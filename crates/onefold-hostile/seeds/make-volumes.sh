#!/bin/bash
# Makes the seeds of the targets `fat` and `volumes`, as root, with mtools, dosfstools, lvm2 and util-linux.
#
# A seed is a number of four bytes, the length of the image, and then its runs that are not zero: how many zeros come
# before, how many bytes follow, and the bytes.
set -euo pipefail
export LC_ALL=C.UTF-8 MTOOLS_SKIP_CHECK=1 SOURCE_DATE_EPOCH=1700000000
here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# pack IMAGE SEED
pack() {
    python3 - "$1" "$here/$2" <<'END'
import re, struct, sys
image = open(sys.argv[1], "rb").read()
out, at = [struct.pack("<I", len(image))], 0
for run in re.finditer(rb"(?:[^\0]|\0{1,15}(?=[^\0]))+", image):
    out += [struct.pack("<II", run.start() - at, len(run.group())), run.group()]
    at = run.end()
open(sys.argv[2], "wb").write(b"".join(out))
END
}

# fat SEED KIB OPTION...
fat() {
    local seed=$1 size=$2
    shift 2
    rm -f image
    truncate -s "${size}K" image
    mkfs.fat -n SEED -i 12345678 "$@" image >/dev/null 2>&1
    mmd -i image ::folder ::folder/deeper '::a folder with a long name'
    for name in one two three four; do
        mcopy -i image - "::$name" < <(yes "$name" | head -c 3000)
    done
    mdel -i image ::two
    mcopy -i image - '::folder/deeper/a file with a name in three parts.text' < <(yes long | head -c 9000)
    printf '' | mcopy -i image - ::folder/empty
    pack image "$seed"
}

fat fat12.seed 128 -F 12 -s 1 -r 64
fat fat16.seed 2400 -F 16 -s 1 -r 64
fat fat32.seed 34000 -F 32 -s 1

# Two physical volumes in partitions, the second one with two metadata areas.
truncate -s 16M image
sfdisk -q image <<<$'label: dos\nstart=2048, size=10240, type=8e\nsize=8192, type=8e'
one=$(losetup --find --show --offset $((2048 * 512)) --sizelimit 5M image)
two=$(losetup --find --show --offset $((12288 * 512)) --sizelimit 4M image)
trap 'losetup -d "$one" "$two"; rm -rf "$work"' EXIT
filter="[\"a|^$one\$|\", \"a|^$two\$|\", \"r|.*|\"]"
config="devices { use_devicesfile=0 scan_lvs=0 external_device_info_source=\"none\" filter=$filter global_filter=$filter }
    activation { udev_sync=0 udev_rules=0 monitoring=0 } backup { backup=0 archive=0 }
    global { event_activation=0 locking_dir=\"$work\" }"
lvm() { local tool=$1; shift; LVM_SUPPRESS_FD_WARNINGS=1 "$tool" --config "$config" "$@" >/dev/null 2>&1; }
lvm pvcreate --metadatasize 64k --dataalignment 64k "$one"
lvm pvcreate --metadatasize 64k --dataalignment 64k --metadatacopies 2 "$two"
lvm vgcreate -s 64k vg "$one" "$two"
new() { lvm lvcreate -an -Zn -Wn --driverloaded n "$@"; }
new -L 512k -n linear vg "$one"
new -L 512k -i 2 -I 4k -n striped vg
lvm lvextend --driverloaded n -L 768k vg/linear "$two"
new -L 512k -n other vg
sync "$one" "$two"
pack image lvm.seed
ls -l "$here"
