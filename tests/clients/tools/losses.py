#!/usr/bin/env python3
"""Fills the file system under a sparse pool at once, writes 15 MiB to the pool, and sees who reports what is lost.

    losses.py MOUNT HOST ROUND [SECONDS]

It writes SECONDS after the host is full, at once by default. Prints `refused` where a write failed at once, `kept`
where all was stored, and `lost` where accepted writes were lost and each that must report it did. Any silence is an
error.
"""

import errno
import os
import sys
import time

MIB = 1 << 20


def fsync_fails(descriptor):
    """Tells whether fsync fails for lack of room; a second one must not, once there is room."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return True
    return False


def fill(host):
    """Takes all room of the host, in a moment, and returns the file that has it."""
    filler = os.path.join(host, "filler")
    descriptor = os.open(filler, os.O_CREAT | os.O_WRONLY)
    piece, end = 1 << 40, 0
    while piece >= 4096:
        try:
            os.posix_fallocate(descriptor, end, piece)
            end += piece
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EFBIG):
                raise
            piece //= 2
    os.close(descriptor)
    return filler


def main(mount, host, number, seconds="0"):
    victim_path = os.path.join(mount, "victim" + number)
    folder = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
    other = os.open(os.path.join(mount, "other" + number), os.O_CREAT | os.O_RDWR)
    victim = os.open(victim_path, os.O_CREAT | os.O_RDWR)
    # Past the page cache, which keeps what was written.
    direct = os.open(victim_path, os.O_RDONLY | os.O_DIRECT)
    data = os.urandom(15 * MIB)
    os.pwrite(victim, os.urandom(64 * 1024), 100 * MIB)
    for descriptor in (victim, other, folder):
        os.fsync(descriptor)
    # The room is asked for now, and believed for a second at most.
    first = os.urandom(4096)
    os.pwrite(victim, first, 200 * MIB)
    filler = fill(host)
    time.sleep(float(seconds))
    accepted = 0
    try:
        for at in range(0, len(data), MIB):
            accepted += os.pwrite(victim, data[at:at + MIB], at)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    # What was accepted is in effect, or lost. The first block, too, may still have waited when the room went.
    stored = os.pread(direct, accepted, 0) == data[:accepted] and os.pread(direct, len(first), 200 * MIB) == first
    os.remove(filler)
    reports = [fsync_fails(descriptor) for descriptor in (victim, other, folder)]
    again = [fsync_fails(descriptor) for descriptor in (victim, other, folder)]
    later = os.open(victim_path, os.O_RDONLY)
    reports.append(fsync_fails(later))
    assert not any(again), "a loss is reported once, not by each fsync: %s" % again
    if stored:
        assert not any(reports), "nothing was lost: %s" % reports
        print("kept" if accepted == len(data) else "refused", "after", accepted)
    else:
        assert all(reports), "a loss was not reported by (file, other, folder, later): %s" % reports
        print("lost some of", accepted)


main(*sys.argv[1:])
