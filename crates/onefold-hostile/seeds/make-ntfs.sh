#!/bin/bash
# Makes the seeds of the target `ntfs`, as root, with NTFS-3G and Python: small NTFS images without their zeros, their log
# and their table of upper case. make-ntfs.sh [FOLDER]
#
# A seed is a list of pieces: zeros to skip (u32), bytes that follow (u32), and these bytes. Numbers are little-endian. The
# first piece is the length of the image, with no bytes.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
folder=$(readlink -f "${1:-$here}")
work=$(mktemp -d)
trap 'umount --lazy "$work/mounted" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
mkdir mounted

fill() {
    python3 - <<'END'
import os, struct
def reparse(name, tag, data):
    os.setxattr(name, "system.ntfs_reparse_data", struct.pack("<IHH", tag, len(data), 0) + data)
def file(name, content):
    with open(name, "wb") as file: file.write(content)
def link(name, target, flags):
    target = target.encode("utf-16-le")
    head = struct.pack("<HHHHI", 0, len(target), len(target), 0, flags)
    file(name, b"")
    reparse(name, 0xA000000C, head + target)
os.makedirs("folder/below")
for number in range(40): file(f"folder/a name that is long {number}", b"%d" % number)
file("folder/below/large", bytes(range(1, 251)) * 20)
os.link("folder/below/large", "large")
with open("pieces", "wb") as pieces:
    for piece in range(60):
        pieces.seek(piece * 9000)
        pieces.write(b"piece")
link("link", "folder\\below", 1)
link("absolute", "\\??\\C:\\folder\\below", 0)
file("overlay", b"x" * 3000)
os.setxattr("overlay", "user.WofCompressedData", b"y" * 2000)
reparse("overlay", 0x80000017, struct.pack("<IIII", 1, 2, 1, 0))
file("A long name.txt", b"dos\n")
os.setxattr("A long name.txt", "system.ntfs_dos_name", b"ALONGN~1.TXT")
os.setxattr("A long name.txt", "user.stream", b"streams")
os.mkdir("compressed")
os.setxattr("compressed", "system.ntfs_attrib", struct.pack("<I", 0x800))
file("compressed/file", b"z" * 70000)
file("hiberfil.sys", b"wake" + bytes(5000))
END
}

# make NAME SIZE OPTIONS...
make() {
    local name=$1 size=$2
    shift 2
    rm -f image
    truncate -s "$size" image
    mkntfs -q -F -Q -L seed "$@" image >log 2>&1
    ntfs-3g -o compression image mounted
    (cd mounted && fill)
    umount mounted
    python3 - "$folder/$name" <<'END'
import re, struct, subprocess, sys
image = bytearray(open("image", "rb").read())
for stream in (2, 10):
    content = subprocess.run(["ntfscat", "-f", "-i", str(stream), "image"], capture_output=True, check=True).stdout
    at = image.index(content[:131072])
    image[at:at + len(content)] = bytes(len(content))
with open(sys.argv[1], "wb") as seed:
    seed.write(struct.pack("<II", len(image), 0))
    last = 0
    for piece in re.finditer(rb"(?s)[^\0](?:(?!\0{9}).)*[^\0]|[^\0]", bytes(image)):
        seed.write(struct.pack("<II", piece.start() - last, len(piece.group())) + piece.group())
        last = piece.end()
END
    ls -l "$folder/$name"
}

make ntfs-512.seed 4M -c 512
make ntfs-4096.seed 6M -c 4096 -s 4096
