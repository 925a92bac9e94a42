#!/usr/bin/env python3
"""Makes more dirty memory than there is.

    dirty.py map|write FILE MIB SEED      writes a file
    dirty.py verify FILE MIB SEED         ends with 1 unless the file is as one of those has written it
    dirty.py forever FILE MIB             goes on changing a shared mapping until it is killed

`map` changes pages of a shared mapping, all of them twice, and leaves it to the kernel when they are written; `write`
writes through the page cache. Both end with fsync.
"""

import mmap
import os
import random
import sys

MIB = 1 << 20


def piece(seed, number):
    return random.Random(f"{seed}/{number}").randbytes(MIB)


def by_mapping(fd, mib, seed):
    os.ftruncate(fd, mib * MIB)
    with mmap.mmap(fd, mib * MIB) as mapping:
        for number in range(mib):
            mapping[number * MIB : (number + 1) * MIB] = bytes([number % 255 + 1]) * MIB
        for number in range(mib):
            mapping[number * MIB : (number + 1) * MIB] = piece(seed, number)
        mapping.flush()


def for_ever(path, mib):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(fd, mib * MIB)
    with mmap.mmap(fd, mib * MIB) as mapping:
        while True:
            for number in range(mib):
                mapping[number * MIB : (number + 1) * MIB] = os.urandom(MIB)


def by_writes(fd, mib, seed):
    for number in range(mib):
        os.pwrite(fd, piece(seed, number), number * MIB)


def verify(path, mib, seed):
    with open(path, "rb") as file:
        for number in range(mib):
            if file.read(MIB) != piece(seed, number):
                sys.exit(f"{path}: mebibyte {number} is wrong")


def main():
    how, path, mib = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if how == "forever":
        for_ever(path, mib)
    seed = sys.argv[4]
    if how == "verify":
        verify(path, mib, seed)
        return
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    {"map": by_mapping, "write": by_writes}[how](fd, mib, seed)
    os.fsync(fd)


if __name__ == "__main__":
    main()
