# An old clone that changed its swap file shares new files with its template, wherever the swap file lies
# limit: 120 s
needs mkfs.xfs losetup mke2fs debugfs
# shellcheck source=../guests.sh
source "$repo/tests/clients/guests.sh"

# number FIELD: a figure of tier 5, or how many pairs of images were given up.
number() {
    python3 -c 'import json, sys
value = json.load(sys.stdin)
tier = next(tier for tier in value["tiers"] if tier["tier"] == 5)
print(len(value["given_up"]) if sys.argv[1] == "given_up" else tier[sys.argv[1]])' "$1" <"$dir/run"
}

# swap FILE SEED: 80 MiB whose first, middle and last blocks are zero, as their probes see them.
swap() {
    python3 - "$1" "$2" <<'END'
import random, sys
MIB, size = 1 << 20, 80 << 20
content = bytearray(random.Random(int(sys.argv[2])).randbytes(size))
for at in (0, size // 2 - MIB, size - MIB):
    content[at : at + 2 * MIB] = bytes(min(2 * MIB, size - at))
open(sys.argv[1], "wb").write(content)
END
}

# put IMAGE FILE: writes a file into an image.
put() {
    debugfs -w -R "write $dir/$2 $2" "$1" >/dev/null 2>&1
}

# overwrite IMAGE FILE WITH: overwrites the blocks of a file where they lie, as its guest does.
overwrite() {
    debugfs -R "blocks $2" "$1" 2>/dev/null >"$dir/blocks"
    python3 - "$1" "$3" "$dir/blocks" <<'END'
import sys
content = open(sys.argv[2], "rb").read()
with open(sys.argv[1], "r+b") as image:
    for at, block in enumerate(open(sys.argv[3]).read().split()):
        image.seek(int(block) * 4096)
        image.write(content[at * 4096 : at * 4096 + 4096])
END
}

truncate -s 1G "$dir/xfs.raw"
attach_loop "$dir/xfs.raw"
mkfs.xfs -q "$loop"
mkdir "$dir/xfs"
mount "$loop" "$dir/xfs"
images=$dir/xfs/images
head -c 120M /dev/urandom >"$dir/old"
head -c 20M /dev/urandom >"$dir/new"
swap "$dir/swapfile" 1
swap "$dir/changed" 2

for first in old swapfile; do
    mkdir "$images"
    truncate -s 300M "$images/template.raw"
    mke2fs -q -F -t ext4 -b 4096 "$images/template.raw"
    second=$([[ $first == old ]] && echo swapfile || echo old)
    put "$images/template.raw" "$first"
    put "$images/template.raw" "$second"
    cp --reflink=always "$images/template.raw" "$images/clone.raw"
    overwrite "$images/clone.raw" swapfile "$dir/changed"
    for image in template clone; do
        put "$images/$image.raw" new
    done
    remember

    onefold share files --tiers 5 --json --quiet "$images" >"$dir/run"
    whole
    (($(number differed_bytes) > 64 << 20)) || fail "$first first: only $(number differed_bytes) bytes differ"
    (($(number shared_bytes) == 20 << 20)) || fail "$first first: $(number shared_bytes) bytes of the new file share"
    (($(number before_bytes) >= 120 << 20)) || fail "$first first: $(number before_bytes) bytes of the old file share"
    (($(number given_up) == 0)) || fail "$first first: the clone was given up"
    note "$first first: $(($(number differed_bytes) >> 20)) MiB differ, the new file shares"
    rm -r "$images"
done
