#!/usr/bin/env python3
"""Writes records, each with fsync, and says which are promised; or looks whether they are there.

    fsynced.py write FILE     prints the number of each record once it is fsynced; ends with 3 at the first error
    fsynced.py verify FILE    reads those numbers; ends with 1 if a promised record is not there

Every tenth record goes into a file of its own beside FILE, renamed to its place:
those names are promised by an fsync of the directory.
"""

import os
import random
import sys

RECORD_BYTES = 10_000


def record(number):
    return random.Random(number).randbytes(RECORD_BYTES)


def beside(path, number):
    return f"{path}.{number}"


def write_record(path, fd, number):
    if number % 10:
        os.pwrite(fd, record(number), number * RECORD_BYTES)
        os.fsync(fd)
        return
    with open(path + ".new", "wb") as file:
        file.write(record(number))
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", beside(path, number))
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def write(path):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    for number in range(1_000_000):
        try:
            write_record(path, fd, number)
        except OSError as error:
            print(error, file=sys.stderr)
            # Not by way of `exit`: closing the file would fail as well.
            os._exit(3)
        print(number, flush=True)


def read_record(path, number):
    if number % 10 == 0:
        with open(beside(path, number), "rb") as file:
            return file.read()
    with open(path, "rb") as file:
        return os.pread(file.fileno(), RECORD_BYTES, number * RECORD_BYTES)


def verify(path):
    promised = [int(line) for line in sys.stdin]
    lost = [number for number in promised if read_record(path, number) != record(number)]
    print(f"note: {len(promised)} promised, {len(lost)} lost")
    sys.exit(bool(lost) or not promised)


if __name__ == "__main__":
    {"write": write, "verify": verify}[sys.argv[1]](sys.argv[2])
