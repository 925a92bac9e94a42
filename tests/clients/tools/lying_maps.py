#!/usr/bin/env python3
"""Makes the maps of files in an image lie: lying_maps.py IMAGE crossed|metadata|one-block <NUMBERS

The image holds ext4 without checksums of metadata, at its beginning. The input has the numbers of inodes. The extents
that are in these inodes lead elsewhere afterwards, and keep their lengths:

    crossed     one block further on, into the blocks of the next file
    metadata    to the table of inodes
    one-block   all to the first block of the first of these files

Prints how many files that are.
"""

import struct
import sys

SUPERBLOCK = 1024
WIDE_GROUPS = 0x80
CHECKSUMS = 0x400
EXTENTS = 0x80000
EXTENT_MAGIC = 0xF30A


class Image:
    """The bytes of an ext4 file system."""

    def __init__(self, data):
        self.data = data
        self.block_bytes = 1024 << self.number(SUPERBLOCK + 24)
        self.groups_at = (self.number(SUPERBLOCK + 20) + 1) * self.block_bytes
        self.in_group = self.number(SUPERBLOCK + 40)
        self.inode_bytes = struct.unpack_from("<H", data, SUPERBLOCK + 88)[0]
        is_wide = self.number(SUPERBLOCK + 96) & WIDE_GROUPS
        self.group_bytes = struct.unpack_from("<H", data, SUPERBLOCK + 254)[0] if is_wide else 32
        assert not self.number(SUPERBLOCK + 100) & CHECKSUMS, "the file system has checksums of its metadata"

    def number(self, at):
        return struct.unpack_from("<I", self.data, at)[0]

    def table(self, group):
        """Returns the first block of a group's table of inodes."""
        return self.number(self.groups_at + group * self.group_bytes + 8)

    def extents(self, number):
        """Returns where the extents of an inode are, if all of them are in it."""
        group, at = divmod(number - 1, self.in_group)
        inode = self.table(group) * self.block_bytes + at * self.inode_bytes
        magic, entries, _, depth = struct.unpack_from("<HHHH", self.data, inode + 40)
        if not self.number(inode + 32) & EXTENTS or magic != EXTENT_MAGIC or depth:
            return []
        return [inode + 52 + 12 * entry for entry in range(entries)]


def main():
    path, kind = sys.argv[1:]
    with open(path, "r+b") as file:
        image = Image(bytearray(file.read()))
        lists = [image.extents(int(number)) for number in sys.stdin.read().split()]
        lists = [extents for extents in lists if extents]
        first = image.number(lists[0][0] + 8)
        for extent in (extent for extents in lists for extent in extents):
            places = {"crossed": image.number(extent + 8) + 1, "metadata": image.table(0), "one-block": first}
            struct.pack_into("<HI", image.data, extent + 6, 0, places[kind])
        file.seek(0)
        file.write(image.data)
    print(len(lists))


main()
