#!/usr/bin/env python3
"""Changes the superblocks of a pool, as time or a bad disk would.

    superblock.py POOL version NUMBER        both copies say that format version
    superblock.py POOL incompatible NUMBER   both copies ask for those features
    superblock.py POOL flip first|copy       one bit of one copy changes

The first two seal what they changed: only the number is strange. The places are
those of crates/onefold-pool/src/format/superblock.rs.
"""

import struct
import sys

BLOCK_BYTES = 4096
COPIES = {"first": 0, "copy": 4095}
FIELDS = {"version": (24, "<I"), "incompatible": (56, "<Q")}


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def change(pool, number, edit):
    pool.seek(number * BLOCK_BYTES)
    block = bytearray(pool.read(BLOCK_BYTES))
    edit(block)
    pool.seek(number * BLOCK_BYTES)
    pool.write(block)


def flip(block):
    block[100] ^= 0x10


def main():
    path, what, argument = sys.argv[1:]
    with open(path, "r+b") as pool:
        if what == "flip":
            change(pool, COPIES[argument], flip)
            return
        offset, form = FIELDS[what]

        def put(block):
            assert block[0:4] == struct.pack("<I", crc32c(block[4:])), "no superblock where one should be"
            struct.pack_into(form, block, offset, int(argument))
            block[0:4] = struct.pack("<I", crc32c(block[4:]))

        for number in COPIES.values():
            change(pool, number, put)


if __name__ == "__main__":
    main()
