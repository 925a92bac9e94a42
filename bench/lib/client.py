"""The client of the benchmarks: one job on one file or folder, the same program on both sides.

It runs as a process of its own, prints one JSON object (`seconds`, `cpu_seconds` and what else the job has to say) and
leaves everything around the job (preparing, dropping caches, repeating) to its caller. The clock runs from the first
system call that moves data to the return of the last; opening is not part of it, `fsync` is.
"""

import argparse
import ctypes
import errno
import json
import mmap
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from data import BLOCK_BYTES, CHUNK_BLOCKS, CHUNK_BYTES, ImageData, OverwrittenData, ShuffledData, UniqueData


# Streams of one job differ in their seeds by as much as no number of rounds reaches.
SEEDS_BETWEEN_STREAMS = 100
# From the kernel's falloc.h: punch a hole, and leave the length as it is.
PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01


class Stopwatch:
    """Wall and processor time of a stretch of this process."""

    def __enter__(self):
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_):
        self.seconds = time.perf_counter() - self._wall
        self.cpu_seconds = time.process_time() - self._cpu

    def result(self, **more):
        return {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds, **more}


def write(arguments):
    """Writes a new file and syncs it."""
    data = data_of(arguments)
    file = open_new(arguments.path, arguments)
    with Stopwatch() as watch:
        fill(file, data, arguments.bytes)
    os.close(file)
    return watch.result()


def write_streams(arguments):
    """Writes several new files at once, each with a thread of its own, and syncs each; `--bytes` is of each."""
    datas = [UniqueData(arguments.seed + SEEDS_BETWEEN_STREAMS * number) for number in range(arguments.count)]
    files = [open_new(f"{arguments.path}-{number}", arguments) for number in range(arguments.count)]
    with Stopwatch() as watch:
        in_threads(fill, [(file, data, arguments.bytes) for file, data in zip(files, datas)])
    for file in files:
        os.close(file)
    return watch.result()


def data_of(arguments):
    """Returns the data that the arguments describe."""
    if arguments.data == "shuffled":
        seeds = range(arguments.seed, arguments.seed + arguments.count)
        blocks = arguments.bytes // BLOCK_BYTES // arguments.count
        return ShuffledData(seeds, blocks, arguments.run_bytes // BLOCK_BYTES, order_seed=arguments.seed)
    if arguments.data == "overwritten":
        return OverwrittenData(arguments.seed, arguments.overwriting_seed, arguments.bytes // BLOCK_BYTES)
    if arguments.data == "image":
        return ImageData(arguments.seed, arguments.count, arguments.bytes // CHUNK_BYTES)
    return UniqueData(arguments.seed)


def open_new(path, arguments):
    return os.open(path, open_flags(os.O_WRONLY | os.O_CREAT | os.O_TRUNC, arguments), 0o644)


def open_flags(flags, arguments):
    return flags | (os.O_DIRECT if arguments.direct else 0)


def fill(file, data, length):
    for index in range(length // CHUNK_BYTES):
        write_all(file, data.chunk(index))
    os.fsync(file)


def in_threads(job, calls):
    """Runs a job for each tuple of arguments, all at once; the first failure ends the program."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(job, *call) for call in calls]:
            done.result()


def write_all(file, chunk):
    while chunk:
        chunk = chunk[os.write(file, chunk) :]


def churn(arguments):
    """Writes new files one after the other, each in place of the one before the last, until it is killed."""
    data, chunks = UniqueData(arguments.seed), arguments.bytes // CHUNK_BYTES
    for number in range(1 << 31):
        path = f"{arguments.path}-{number % 2}"
        if number >= 2:
            os.unlink(path)
        file = open_new(path, arguments)
        for index in range(chunks):
            write_all(file, data.chunk(number * chunks + index))
        os.close(file)


def read(arguments):
    """Reads a file that holds what the arguments describe; fails where a chunk begins with something else."""
    data = data_of(arguments)
    buffer = mmap.mmap(-1, CHUNK_BYTES)
    stamps = memoryview(buffer).cast("Q")
    file = os.open(arguments.path, open_flags(os.O_RDONLY, arguments))
    with Stopwatch() as watch:
        for index in range(arguments.bytes // CHUNK_BYTES):
            got = os.readv(file, [buffer])
            if got != CHUNK_BYTES or stamps[0] != data.stamp(index * CHUNK_BLOCKS):
                sys.exit(f"chunk {index} of {arguments.path} is not what was written: {got} bytes, {stamps[0]:#x}")
    os.close(file)
    return watch.result()


def sync(arguments):
    """Syncs a file that another program wrote."""
    file = os.open(arguments.path, os.O_RDONLY)
    with Stopwatch() as watch:
        os.fsync(file)
    os.close(file)
    return watch.result()


def poke(arguments):
    """Writes one block into the middle of a file, and then syncs it: two times."""
    block = UniqueData(arguments.seed).chunk(0)[:BLOCK_BYTES]
    file = os.open(arguments.path, os.O_WRONLY)
    offset = os.fstat(file).st_size // 2 // BLOCK_BYTES * BLOCK_BYTES
    with Stopwatch() as watch:
        os.pwrite(file, block, offset)
    with Stopwatch() as syncing:
        os.fsync(file)
    os.close(file)
    return watch.result(sync_seconds=syncing.seconds)


def overwrite(arguments):
    """Overwrites a tenth of a file's blocks, one by one at random places, then syncs it."""
    data = OverwrittenData(arguments.seed, arguments.overwriting_seed, arguments.bytes // BLOCK_BYTES)
    file = os.open(arguments.path, os.O_WRONLY)
    with Stopwatch() as watch:
        for block in data.places:
            os.pwrite(file, data.new_block(block), block * BLOCK_BYTES)
        os.fsync(file)
    os.close(file)
    return watch.result()


def fill_up(arguments):
    """Writes a new file until there is no space, then syncs it; tells how long it has become."""
    data, file, length = UniqueData(arguments.seed), open_new(arguments.path, arguments), 0
    with Stopwatch() as watch:
        # In whole chunks, and what is left then in blocks.
        for piece_bytes in (CHUNK_BYTES, BLOCK_BYTES):
            while True:
                start = length % CHUNK_BYTES
                piece = data.chunk(length // CHUNK_BYTES)[start : min(start + piece_bytes, CHUNK_BYTES)]
                try:
                    done = os.pwrite(file, piece, length)
                    # Accepted is not yet stored.
                    os.fdatasync(file)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    break
                length += done
        os.ftruncate(file, length)
        os.fsync(file)
    os.close(file)
    return watch.result(bytes=length)


def punch_every_second(arguments):
    """Punches every second block out of a file, then syncs it."""
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate64
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    file = os.open(arguments.path, os.O_WRONLY)
    with Stopwatch() as watch:
        for offset in range(0, arguments.bytes, 2 * BLOCK_BYTES):
            if fallocate(file, PUNCH_HOLE_KEEP_SIZE, offset, BLOCK_BYTES) != 0:
                sys.exit(f"cannot punch at {offset}: {os.strerror(ctypes.get_errno())}")
        os.fsync(file)
    os.close(file)
    return watch.result()


def replay_reads(arguments):
    """Reads from several files at once what a record lists, in each file one request after the other."""
    requests = recorded(arguments, "reads")
    files = [os.open(f"{arguments.path}-{number}", open_flags(os.O_RDONLY, arguments)) for number in guests(arguments)]
    longest = max(length for _, length in requests)
    buffers = [memoryview(mmap.mmap(-1, longest)) for _ in files]
    with Stopwatch() as watch:
        in_threads(read_requests, [(file, requests, buffer) for file, buffer in zip(files, buffers)])
    for file in files:
        os.close(file)
    return watch.result(bytes=len(files) * sum(length for _, length in requests))


def read_requests(file, requests, buffer):
    for offset, length in requests:
        if os.preadv(file, [buffer[:length]], offset) != length:
            sys.exit(f"a file is too short for the {length} bytes at {offset} of the record")


def replay_writes(arguments):
    """Writes to several files at once where a record says so, data that no other file has; then syncs each."""
    requests = recorded(arguments, "writes")
    files = [os.open(f"{arguments.path}-{number}", open_flags(os.O_WRONLY, arguments)) for number in guests(arguments)]
    datas = [UniqueData(arguments.seed + SEEDS_BETWEEN_STREAMS * number) for number in guests(arguments)]
    with Stopwatch() as watch:
        in_threads(write_requests, [(file, requests, data) for file, data in zip(files, datas)])
    for file in files:
        os.close(file)
    return watch.result(bytes=len(files) * sum(length for _, length in requests))


def write_requests(file, requests, data):
    index = 0
    for offset, length in requests:
        for start in range(0, length, CHUNK_BYTES):
            piece = data.chunk(index)[: min(CHUNK_BYTES, length - start)]
            if os.pwrite(file, piece, offset + start) != len(piece):
                sys.exit(f"a write at {offset + start} was cut short")
            index += 1
    os.fsync(file)


def recorded(arguments, what):
    """Returns the requests of a record of this kind: pairs of offset and length, in whole blocks."""
    with open(arguments.record, encoding="ascii") as file:
        return json.load(file)[what]


def guests(arguments):
    return range(1, arguments.count + 1)


def create_files(arguments):
    """Makes files of one block each in one folder, then syncs the folder."""
    data = UniqueData(arguments.seed)
    with Stopwatch() as watch:
        for number in range(arguments.count):
            if number % CHUNK_BLOCKS == 0:
                chunk = data.chunk(number // CHUNK_BLOCKS)
            start = number % CHUNK_BLOCKS * BLOCK_BYTES
            file = os.open(small_file(arguments, number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(file, chunk[start : start + BLOCK_BYTES])
            os.close(file)
        sync_folder(arguments.path)
    return watch.result()


def stat_files(arguments):
    """Asks for the attributes of each file that `create-files` made."""
    with Stopwatch() as watch:
        for number in range(arguments.count):
            if os.stat(small_file(arguments, number)).st_size != BLOCK_BYTES:
                sys.exit(f"{small_file(arguments, number)} has lost its length")
    return watch.result()


def unlink_files(arguments):
    """Removes each file that `create-files` made, then syncs the folder."""
    with Stopwatch() as watch:
        for number in range(arguments.count):
            os.unlink(small_file(arguments, number))
        sync_folder(arguments.path)
    return watch.result()


def small_file(arguments, number):
    return f"{arguments.path}/small-{number:06}"


def sync_folder(path):
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)


JOBS = {
    job.__name__.replace("_", "-"): job
    for job in (
        *(write, write_streams, churn, overwrite, fill_up, punch_every_second, poke, sync, read),
        *(replay_reads, replay_writes, create_files, stat_files, unlink_files),
    )
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("path")
    parser.add_argument("--bytes", type=int, default=0, help="length of the file, whole MiB where it is written")
    parser.add_argument("--count", type=int, default=0, help="number of files or streams, or an image's number")
    parser.add_argument("--seed", type=int, default=1, help="which stream of data")
    parser.add_argument("--data", choices=("unique", "shuffled", "overwritten", "image"), default="unique")
    parser.add_argument("--run-bytes", type=int, default=BLOCK_BYTES, help="what stays together in shuffled data")
    parser.add_argument("--overwriting-seed", type=int, default=2, help="which stream overwrites")
    parser.add_argument("--record", help="a recorded boot: see boot.py")
    parser.add_argument("--direct", action="store_true", help="open with O_DIRECT")
    arguments = parser.parse_args()
    if arguments.bytes % (BLOCK_BYTES if arguments.job == "punch-every-second" else CHUNK_BYTES):
        parser.error(f"--bytes must be whole chunks of {CHUNK_BYTES}")
    print(json.dumps(JOBS[arguments.job](arguments)))


if __name__ == "__main__":
    main()
