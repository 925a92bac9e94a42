#!/usr/bin/env python3
"""Memory that costs nothing to use: free memory is filled with clean page cache before a measured turn.

A host takes back memory that its virtual machine does not use. The first touch of such a page then waits for the host,
about 3 us for 4 KiB, whatever the program does. Pages of a clean cache still belong to the machine, and the kernel
hands them out instead.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The kernel always keeps some memory free: this part of all memory counts as nothing.
FREE_PART = 1 / 64
# While memory is filled the kernel makes some free again, so the rest is filled once more.
PASSES_MAX = 3
# What each thread reads at once, and in one call.
PIECE_BYTES = 8 << 20
CALL_BYTES = 1 << 20
# The file grows with each filling; file systems end at 16 TiB.
LENGTH_MAX = 8 << 40


class Ballast:
    """A sparse file whose holes are read into the page cache. It takes no room on the disk.

    At most `bytes_max` are read at once, so that a run which measures nothing does not wait for all of the memory.
    """

    def __init__(self, path, bytes_max=None):
        self._path = path
        self._bytes_max = bytes_max

    def fill(self):
        """Fills free memory; returns how many bytes were read for that, 0 where memory was full already."""
        done = 0
        for _ in range(PASSES_MAX):
            free = free_bytes()
            if free <= total_bytes() * FREE_PART:
                break
            length = min(free, self._bytes_max or free)
            self._read_new(length)
            done += length
        return done

    def _read_new(self, length):
        """Reads so much of the file that was never read, so that it takes memory which nothing else has."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            start = os.fstat(file).st_size
            if start > LENGTH_MAX:
                os.ftruncate(file, 0)
                start = 0
            end = start + length
            os.ftruncate(file, end)
            pieces = range(start, end, PIECE_BYTES)
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                list(threads.map(lambda at: read_through(file, at, min(at + PIECE_BYTES, end)), pieces))
        finally:
            os.close(file)

    def drop(self):
        """Gives the memory back and removes the file."""
        self._path.unlink(missing_ok=True)


def read_through(file, start, end):
    buffer = bytearray(CALL_BYTES)
    for at in range(start, end, CALL_BYTES):
        os.preadv(file, [buffer], at)


def free_bytes():
    """Returns how much memory nothing uses, not even a cache."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemFree:"))


def total_bytes():
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    # For scripts: memory stays full until the named file is removed.
    Ballast(Path(sys.argv[1])).fill()
