"""Makes an ext4 of 2 GiB whose bitmaps call every second block free: 458,752 runs."""

import struct
import subprocess
import sys

path = sys.argv[1]
with open(path, "wb") as image:
    image.truncate(2 << 30)
features = "^metadata_csum,^uninit_bg,^has_journal,^resize_inode,^64bit"
subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-N", "1000", "-O", features, path], check=True)
with open(path, "r+b") as image:
    for group in range(2, 16):
        image.seek(4096 + 32 * group)
        (bitmap,) = struct.unpack("<I", image.read(4))
        image.seek(bitmap * 4096)
        image.write(b"\x55" * 4096)
        # The descriptor counts the free blocks, too.
        image.seek(4096 + 32 * group + 12)
        image.write(struct.pack("<H", 4 * 4096))
