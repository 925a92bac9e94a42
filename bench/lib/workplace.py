"""The folder of a run: taken by one run at a time, and left clean whatever happens."""

import fcntl
import os
import shutil
import signal
import time
from contextlib import contextmanager

from . import cgroup, device, system

LOCK = "lock"
WORK = "work"

# How often a folder is looked at until nothing is mounted in it any more, and the time between.
CLEAR_TRIES = 50
CLEAR_PAUSE_S = 0.2


@contextmanager
def taken(folder, needed_bytes):
    """Takes a folder and gives an empty one inside it, after removing what a killed run may have left.

    The one inside is named as the kernel names it in its list of mounts, without links and `..`.
    Raises BenchError where another run has it, where it lies on too small a disk, or where its name has blanks.
    """
    folder = folder.resolve()
    if any(character.isspace() for character in os.fspath(folder)):
        raise system.BenchError(f"the folder's name has blanks: {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise system.BenchError(f"another benchmark is running in {folder}") from None
        work = folder / WORK
        clear_leftovers(work)
        free = shutil.disk_usage(folder).free
        if free < needed_bytes:
            raise system.BenchError(f"{folder} has {free >> 20} MiB free, {needed_bytes >> 20} are needed; try --dir")
        work.mkdir()
        try:
            yield work
        finally:
            with uninterrupted():
                clear_leftovers(work)


def clear_leftovers(work):
    """Removes a work folder with all that is mounted in it.

    Its daemon, if it is another run's, ends by itself when its mount is gone. A mount that had been begun when its run was
    interrupted may come after the look at what is mounted: then all of it is looked at again.
    """
    for tries_left in reversed(range(CLEAR_TRIES)):
        if not work.exists():
            return
        for mountpoint in work.glob("*.mount"):
            if system.is_mounted(mountpoint):
                system.run("umount", "--lazy", mountpoint)
        for path in work.glob("*.device"):
            device.detach_loops(path)
        for path in (*work.glob("*.device"), *work.glob("*.mount")):
            cgroup.clear(cgroup.name_for(path))
        try:
            shutil.rmtree(work)
        except OSError:
            if tries_left == 0:
                raise
            time.sleep(CLEAR_PAUSE_S)


@contextmanager
def uninterrupted():
    """Keeps Ctrl-C away from what must be done to the end."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


@contextmanager
def signals_as_interrupts():
    """Makes SIGTERM and SIGHUP end a run as Ctrl-C does, by an exception that cleans up on its way.

    Ctrl-C too: a shell starts what it puts in the background with SIGINT ignored, and Python leaves it so.
    """

    def interrupt(*_):
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
