#!/usr/bin/env python3
"""Writes versions of a file past the page cache by asynchronous I/O of the kernel, beside readers through the cache.

    aio_cycles.py FILE CYCLES READERS     ends with 1 if a reader got a block that is older than a completed write

As xfstests generic/451 does it: each cycle writes the whole file, in one request or in ten at once, and the writer
reads it through the cache right after that. The readers read all the time, every second one through a new opening.
"""

import contextlib
import ctypes
import mmap
import os
import platform
import signal
import struct
import sys

BLOCK = 4096
FILE_BYTES = 640 << 10
REQUESTS_MAX = 10
PWRITE = 1
# Of io_setup, io_submit and io_getevents.
CALLS = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}


class Request(ctypes.Structure):
    """What the kernel calls an iocb."""

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("rest", ctypes.c_uint64 * 2),
    ]


class Event(ctypes.Structure):
    """What the kernel calls an io_event."""

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    ]


class Writer:
    """Has several writes in progress at once."""

    def __init__(self, path):
        self.setup, self.submit, self.events = (ctypes.c_long(number) for number in CALLS[platform.machine()])
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.syscall.restype = ctypes.c_long
        self.descriptor = os.open(path, os.O_WRONLY | os.O_DIRECT)
        self.memory = mmap.mmap(-1, FILE_BYTES)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.context = ctypes.c_ulong(0)
        self.call(self.setup, ctypes.c_long(REQUESTS_MAX), ctypes.byref(self.context))

    def call(self, *arguments):
        result = self.libc.syscall(*arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result

    def write(self, version, count):
        """Writes the whole file by this number of requests; returns when all of them have completed."""
        fill(self.memory, version)
        length = FILE_BYTES // count
        requests = (Request * count)()
        for number, request in enumerate(requests):
            request.opcode, request.descriptor = PWRITE, self.descriptor
            request.buffer, request.bytes, request.offset = self.address + number * length, length, number * length
        pointers = (ctypes.c_void_p * count)(*(ctypes.addressof(request) for request in requests))
        submitted = 0
        while submitted < count:
            rest = ctypes.byref(pointers, submitted * ctypes.sizeof(ctypes.c_void_p))
            submitted += self.call(self.submit, self.context, ctypes.c_long(count - submitted), rest)
        events, wanted = (Event * count)(), ctypes.c_long(count)
        self.call(self.events, self.context, wanted, wanted, ctypes.byref(events), None)
        results = {event.result for event in events}
        if results != {length}:
            sys.exit(f"writes of {length} bytes returned {results}")


def fill(memory, version):
    """Begins each block with a version."""
    for at in range(0, FILE_BYTES, BLOCK):
        memory[at : at + 8] = struct.pack("<Q", version)


def oldest_in(data):
    return min(version for (version,) in struct.iter_unpack(f"<Q{BLOCK - 8}x", data))


def read_all_the_time(path, reopens, complete, stale):
    """Reads until it is killed. Notes in `stale` the newest version that a reader missed."""
    descriptor = os.open(path, os.O_RDONLY)
    while True:
        if reopens:
            os.close(descriptor)
            descriptor = os.open(path, os.O_RDONLY)
        at_least = complete.value
        if oldest_in(os.pread(descriptor, FILE_BYTES, 0)) < at_least:
            stale.value = at_least


@contextlib.contextmanager
def readers(path, count, complete, stale):
    """Has processes read meanwhile. Each of them must be there to the end."""
    processes = []
    try:
        for number in range(count):
            process = os.fork()
            if process == 0:
                with contextlib.suppress(BaseException):
                    read_all_the_time(path, number % 2 == 0, complete, stale)
                os._exit(1)
            processes.append(process)
        yield
        ended = [process for process in processes if os.waitpid(process, os.WNOHANG)[0]]
        if ended:
            sys.exit("a reader has failed")
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def main():
    path, cycles, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with open(path, "wb") as file:
        file.write(bytes(FILE_BYTES))
    shared = mmap.mmap(-1, BLOCK)
    complete, stale = (ctypes.c_uint64.from_buffer(shared, at) for at in (0, 8))
    writer, cached = Writer(path), os.open(path, os.O_RDONLY)
    own = 0
    with readers(path, count, complete, stale):
        for version in range(1, cycles + 1):
            writer.write(version, REQUESTS_MAX if version % 2 else 1)
            complete.value = version
            own += oldest_in(os.pread(cached, FILE_BYTES, 0)) < version
    if own or stale.value:
        sys.exit(f"the writer got old blocks after {own} of {cycles} writes; a reader last after write {stale.value}")


if __name__ == "__main__":
    main()
