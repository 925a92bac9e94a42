"""Programs that are timed as a whole, from their start to their end."""

import os
import select
import subprocess
import tempfile
import time
from dataclasses import dataclass

from lib import caches, system
from lib.measure import Cost, Sample
from lib.system import BenchError

MIB = 1 << 20


@dataclass(frozen=True)
class Timed:
    """What one program took."""

    seconds: float
    cpu_seconds: float
    # The highest resident memory that it ever had, or that this program had when it was started from it.
    memory_bytes: int
    # What its calls read, from disks or from memory.
    read_bytes: int

    def sample(self, scale=1.0, **more):
        """Returns its time as a sample, in seconds or, with a scale of 1000, in milliseconds."""
        more = {"memory_bytes": self.memory_bytes, "read_bytes": self.read_bytes, **more}
        return Sample(self.seconds * scale, Cost(self.cpu_seconds), more=more)


def timed(*command):
    """Runs a program to its end, without anybody reading what it prints; returns what it took.

    Raises BenchError, with the program's own words, where it fails, is missing or does not end.
    """
    command = [os.fspath(part) for part in command]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as err:
        started = time.perf_counter()
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
        except OSError as error:
            raise BenchError(f"cannot run {command[0]}: {error.strerror}") from error
        try:
            wait(process)
            seconds = time.perf_counter() - started
            read_bytes = system.read_by(process.pid)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        except BaseException:
            system.end(process)
            raise
        if process.returncode != 0:
            err.seek(0)
            raise BenchError(f"`{' '.join(command)}` failed with {process.returncode}: {err.read().strip()}")
    return Timed(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, read_bytes)


def wait(process):
    """Waits for the end of a program, which stays a zombie of which the kernel still tells what it read.

    Raises BenchError where it does not end within COMMAND_SECONDS_MAX.
    """
    watched = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        if not poll.poll(1000 * system.COMMAND_SECONDS_MAX):
            raise BenchError(f"`{process.args[0]}` did not end within {system.COMMAND_SECONDS_MAX} s")
    finally:
        os.close(watched)


def median(count, measure):
    """Measures several times; returns the run whose time is the median."""
    runs = sorted((measure() for _ in range(count)), key=lambda run: run.seconds)
    return runs[(len(runs) - 1) // 2]


def forget(path):
    """Drops all that the page cache holds of an image."""
    caches.forget(path)


def warm(path):
    """Has a file in the page cache, its holes left out."""
    with open(path, "rb") as file:
        for start, end in data_ranges(file):
            file.seek(start)
            while file.tell() < end and file.read(min(MIB, end - file.tell())):
                pass


def data_ranges(file):
    """Yields the ranges of a file that are no holes."""
    at, length = 0, os.fstat(file.fileno()).st_size
    while at < length:
        try:
            start = os.lseek(file.fileno(), at, os.SEEK_DATA)
        except OSError:
            # Only a hole follows.
            return
        at = os.lseek(file.fileno(), start, os.SEEK_HOLE)
        yield start, at
