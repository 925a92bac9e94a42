#!/usr/bin/env python3
"""Notes what images hold, and compares them with it: image_sums.py note SUMS FILE... | image_sums.py check SUMS

A sum is that of all parts of a file that are not zero, with their places, and of its length. So it does not depend on
which zeros are holes, which sharing may change, and sparse images are read at the speed of what they hold. Prints each
file that has changed. Exit code 1 if there is one.
"""

import errno
import hashlib
import os
import sys

PART_BYTES = 1 << 16
ZEROS = bytes(PART_BYTES)


def data_parts(file, length):
    """Yields the places of all parts that have data, each once."""
    at = 0
    while at < length:
        try:
            begin = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = os.lseek(file, begin, os.SEEK_HOLE)
        at = max(at, begin // PART_BYTES * PART_BYTES)
        while at < end:
            yield at
            at += PART_BYTES


def sum_of(path):
    file = os.open(path, os.O_RDONLY)
    try:
        length = os.fstat(file).st_size
        digest = hashlib.sha256(str(length).encode())
        for at in data_parts(file, length):
            part = os.pread(file, PART_BYTES, at)
            if part != ZEROS[: len(part)]:
                digest.update(at.to_bytes(8, "little"))
                digest.update(part)
        return digest.hexdigest()
    finally:
        os.close(file)


def main(verb, sums, *files):
    if verb == "note":
        with open(sums, "w", encoding="utf-8") as noted:
            noted.writelines(f"{sum_of(path)}  {path}\n" for path in files)
        return 0
    with open(sums, encoding="utf-8") as noted:
        expected = [line.rstrip("\n").split("  ", 1) for line in noted]
    if not expected:
        sys.exit("nothing was noted")
    changed = [path for digest, path in expected if sum_of(path) != digest]
    for path in changed:
        print(f"{path} has changed")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
