"""Maps of files (FIEMAP): how many extents they have, and how many bytes share a place with others."""

import fcntl
import os
import struct
from dataclasses import dataclass

from lib.system import BenchError

# FS_IOC_FIEMAP, and its flag to write first what is not on the disk yet.
FIEMAP, SYNC = 0xC020660B, 1
# First byte and length of the range, flags, entries that were filled and that have room, a reserved field.
HEADER = struct.Struct("=QQLLLL")
# First byte in the file and on the disk, length, two reserved fields, flags, three reserved ones.
ENTRY = struct.Struct("=QQQQQLLLL")
ENTRIES = 4096
# Flags of an entry: the last one of a file; its place is unknown, not allocated yet, or among the records.
LAST, UNPLACED = 0x1, 0x2 | 0x4 | 0x200


@dataclass(frozen=True)
class Extent:
    """Consecutive bytes of a file that lie at consecutive places."""

    offset: int
    place: int
    length: int

    def goes_on_with(self, other):
        return (self.offset + self.length, self.place + self.length) == (other.offset, other.place)


@dataclass(frozen=True)
class Layout:
    """What the maps of some files come to."""

    # Extents that do not go on with one another.
    extents: int
    # Bytes that are no holes.
    mapped_bytes: int
    # Of them, each place once.
    distinct_bytes: int

    @property
    def shared_bytes(self):
        """Returns what the files would take in addition if no place was used twice."""
        return self.mapped_bytes - self.distinct_bytes

    @classmethod
    def of(cls, paths):
        extents = [extent for path in paths for extent in extents_of(path)]
        places = sorted((extent.place, extent.place + extent.length) for extent in extents)
        distinct, end = 0, 0
        for start, stop in places:
            distinct += max(0, stop - max(start, end))
            end = max(end, stop)
        return cls(len(extents), sum(extent.length for extent in extents), distinct)


def extents_of(path):
    """Returns the extents of a file, in order; entries that go on with one another are one."""
    found = []
    for extent in entries_of(path):
        if found and found[-1].goes_on_with(extent):
            before = found.pop()
            extent = Extent(before.offset, before.place, before.length + extent.length)
        found.append(extent)
    return found


def entries_of(path):
    """Yields the entries of a file's map, as the file system divides them."""
    file = os.open(path, os.O_RDONLY)
    try:
        # What is set aside behind the end is nobody's data.
        at, end, is_last = 0, os.fstat(file).st_size, False
        while at < end and not is_last:
            buffer = bytearray(HEADER.size + ENTRIES * ENTRY.size)
            HEADER.pack_into(buffer, 0, at, end - at, SYNC, 0, ENTRIES, 0)
            fcntl.ioctl(file, FIEMAP, buffer)
            count = HEADER.unpack_from(buffer)[3]
            # A file without data has no last entry.
            is_last = count == 0
            for number in range(count):
                offset, place, length, _, _, flags, *_ = ENTRY.unpack_from(buffer, HEADER.size + number * ENTRY.size)
                if flags & UNPLACED:
                    raise BenchError(f"{path} has data at {offset} that lies nowhere")
                yield Extent(offset, place, length)
                at, is_last = offset + length, bool(flags & LAST)
    finally:
        os.close(file)
