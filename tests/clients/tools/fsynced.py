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


class Folder:
    """The folder of FILE, held open: a path would lead into the folder below once the file system is unmounted."""

    def __init__(self, path):
        self.name = os.path.basename(path)
        self.fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)

    def open(self, name, flags):
        return os.open(name, flags, 0o644, dir_fd=self.fd)

    def beside(self, number):
        return f"{self.name}.{number}"


def expect_whole(count):
    if count != RECORD_BYTES:
        raise OSError(f"{count} of {RECORD_BYTES} bytes were written")


def write_record(folder, fd, number):
    if number % 10:
        expect_whole(os.pwrite(fd, record(number), number * RECORD_BYTES))
        os.fsync(fd)
        return
    new = f"{folder.name}.new"
    beside = folder.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    expect_whole(os.write(beside, record(number)))
    os.fsync(beside)
    os.close(beside)
    os.rename(new, folder.beside(number), src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
    os.fsync(folder.fd)


def write(path):
    try:
        folder = Folder(path)
        fd = folder.open(folder.name, os.O_WRONLY | os.O_CREAT)
        for number in range(1_000_000):
            write_record(folder, fd, number)
            print(number, flush=True)
    except OSError as error:
        print(error, file=sys.stderr)
        # Not by way of `exit`: closing the file would fail as well.
        os._exit(3)


def read_record(folder, number):
    if number % 10 == 0:
        with open(folder.open(folder.beside(number), os.O_RDONLY), "rb") as file:
            return file.read()
    with open(folder.open(folder.name, os.O_RDONLY), "rb") as file:
        return os.pread(file.fileno(), RECORD_BYTES, number * RECORD_BYTES)


def verify(path):
    promised = [int(line) for line in sys.stdin]
    folder = Folder(path)
    lost = [number for number in promised if read_record(folder, number) != record(number)]
    print(f"note: {len(promised)} promised, {len(lost)} lost")
    sys.exit(bool(lost) or not promised)


if __name__ == "__main__":
    {"write": write, "verify": verify}[sys.argv[1]](sys.argv[2])
