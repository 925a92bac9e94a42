#!/usr/bin/env python3
"""Writes pages of a sparse file through a shared mapping, and keeps the mapping.

    mapped.py FILE EXPECTED READY OVER

EXPECTED gets the same by plain writes. READY is made when both are done; the mapping goes when OVER is there. Nothing is
synced: what is in the mapping stays there until the kernel or a copy asks for it.
"""

import mmap
import os
import sys
import time

MIB = 1 << 20
BYTES = 64 * MIB
PLACES = [0, 3 * MIB + 5, 20 * MIB, 20 * MIB + 4096, 33 * MIB + 4095, BYTES - 1]


def new_file(path):
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    os.ftruncate(file, BYTES)
    os.pwrite(file, b"written " * 512, 10 * MIB)
    return file


def main():
    path, expected_path, ready, over = sys.argv[1:]
    expected = new_file(expected_path)
    with mmap.mmap(new_file(path), BYTES) as mapping:
        for number, place in enumerate(PLACES):
            mapping[place] = number + 1
            os.pwrite(expected, bytes([number + 1]), place)
        open(ready, "w").close()
        while not os.path.exists(over):
            time.sleep(0.05)


if __name__ == "__main__":
    main()
