"""The files that stand for disks: fully allocated, equal on both sides."""

import errno
import os
import time

from . import cgroup, system
from .data import CHUNK_BYTES, UniqueData

# Data of the benchmarks never has this seed, so nothing is a duplicate of what the disk held before.
FILLING_SEED = 0

# A mount namespace that was made while a disk was mounted has it mounted, too, until that namespace goes.
ELSEWHERE_SECONDS_MAX = 120
ELSEWHERE_POLL_SECONDS = 0.02


def allocate(path, size_bytes):
    """Makes a file of `size_bytes`, written in full past the page cache.

    Written, not only reserved: the first write to a reserved extent costs the file system below a change of its
    metadata, and a disk below that may hold nothing at all for zeros.

    Raises BenchError where the file system has no O_DIRECT or no room.
    """
    data = UniqueData(FILLING_SEED)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600)
    except OSError as error:
        raise system.BenchError(f"cannot make {path} with O_DIRECT: {error.strerror}; try another --dir") from error
    try:
        os.posix_fallocate(file, 0, size_bytes)
        for index in range(size_bytes // CHUNK_BYTES):
            os.write(file, data.chunk(index))
        os.fsync(file)
    except OSError as error:
        raise system.BenchError(f"cannot fill {path} with {size_bytes >> 20} MiB: {error.strerror}") from error
    finally:
        os.close(file)


def is_allocated(path):
    """Tells whether the file still has all its blocks; a discard from above would have taken some."""
    status = os.stat(path)
    return status.st_blocks * 512 >= status.st_size


def attach_loop(path):
    """Puts a loop device on a file and returns its name. It reads and writes the file with O_DIRECT."""
    return system.run("losetup", "--direct-io=on", "--show", "--find", path).text.strip()


def wait_until_unused(loop):
    """Waits until no file system is mounted from a loop device, in whatever mount namespace.

    One that is still there somewhere goes on writing, and below a new file system on the same file that destroys it.

    Raises BenchError where it stays mounted for ELSEWHERE_SECONDS_MAX.
    """
    started = time.monotonic()
    while True:
        try:
            # A mount holds its device exclusively, and so does a process that opens it with O_EXCL.
            return os.close(os.open(loop, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise system.BenchError(f"cannot open {loop}: {error.strerror}") from error
        if time.monotonic() - started > ELSEWHERE_SECONDS_MAX:
            raise system.BenchError(f"{loop} is still mounted elsewhere: look into /proc/*/mountinfo")
        time.sleep(ELSEWHERE_POLL_SECONDS)


def detach_loops(path):
    """Takes away every loop device on a file, once nothing is mounted from it.

    Raises BenchError as `wait_until_unused` does.
    """
    for line in loops_of(path):
        wait_until_unused(line)
        cgroup.full_speed(line)
        try:
            system.run("losetup", "--detach", line)
        except system.BenchError:
            # One that `mount` has made goes by itself, some time after it was unmounted.
            if line in loops_of(path):
                raise


def loops_of(path):
    """Returns the loop devices on a file."""
    return system.run("losetup", "--noheadings", "--output", "NAME", "--associated", path).text.split()
