"""What a file's readers and writers pay for its having been shared, with `--min-run` as the dial."""

import mmap
import os
import random
import statistics
import time

from lib.data import BLOCK_BYTES, CHUNK_BYTES, ShuffledData, UniqueData
from lib.measure import Sample
from lib.rows.beside import ONEFOLD, OTHER, BesideLine, lower
from lib.rows.row import MB, seed_of

from . import fio
from .ground import NAMES
from .row import ShareRow

KIB, MIB = 1 << 10, 1 << 20
SOURCE, TARGET = "a-source", "b-target"
# A third of the file lies in runs of each length.
RUN_BLOCKS = (1, 16, 256)
# From the one that leaves most alone to the one that shares all.
DIAL = ("1M", "64K", "4K")
OVERWRITES = 200


class RunsData:
    """Streams one after the other, each in runs of its own length that are shuffled."""

    def __init__(self, seeds, stream_blocks):
        each = zip(seeds, RUN_BLOCKS, strict=True)
        self._parts = [ShuffledData([seed], stream_blocks, blocks, order_seed=seed) for seed, blocks in each]
        self._chunks = stream_blocks * BLOCK_BYTES // CHUNK_BYTES

    def chunk(self, index):
        """Returns chunk `index` of the file; valid until the next call."""
        return self._parts[index // self._chunks].chunk(index % self._chunks)


class StreamsData:
    """The same streams as they are."""

    def __init__(self, seeds, stream_blocks):
        self._streams = [UniqueData(seed) for seed in seeds]
        self._chunks = stream_blocks * BLOCK_BYTES // CHUNK_BYTES

    def chunk(self, index):
        """Returns chunk `index` of the file; valid until the next call."""
        return self._streams[index // self._chunks].chunk(index % self._chunks)


class ReadRow(ShareRow):
    """A file whose blocks are all in another one too: a third of it in runs of 1 MiB, of 64 KiB, and single blocks."""

    base = "read"

    def make_lines(self, settings):
        before = "before it was shared"
        for least in DIAL:
            shared = {"1M": "a third of it shared", "64K": "two thirds of it shared", "4K": "all of it shared"}[least]
            title = f"cold sequential read on {NAMES[self.kind]}, {shared} with `--min-run {least}`"
            yield BesideLine(f"{self.name}-{least}", title, "MB/s", goal="report", beside=before)
            yield BesideLine(f"{self.name}-{least}-freed", "more free then, by df", "MiB", goal="report")
        title = f"O_DIRECT 4 KiB random read on {NAMES[self.kind]}, depth 1, all of it shared"
        yield BesideLine(f"{self.name}-random", title, "op/s", goal="report", beside=before)
        title = f"first 4 KiB O_DIRECT write into a shared block on {NAMES[self.kind]}"
        yield lower(f"{self.name}-overwrite", title, "ms", goal="report", beside="the second", paper="about 10 ms")

    def measure(self, ground, settings, round_no):
        ground.open()
        length = settings.read_bytes
        stream_blocks = length // len(RUN_BLOCKS) // BLOCK_BYTES
        seeds = [seed_of(round_no, use=use) for use in (34, 35, 36)]
        ground.write(SOURCE, StreamsData(seeds, stream_blocks), length)
        ground.write(TARGET, RunsData(seeds, stream_blocks), length)
        free, before = ground.free_bytes(), cold_read(ground, TARGET)
        yield f"{self.name}-random", OTHER, self._random_reads(ground, settings)
        for least in DIAL:
            # What a pass with a longer least run has left alone is known, and not looked at again.
            ground.forget()
            done = ground.share("--min-run", least)
            gained = ground.free_bytes() - free
            yield f"{self.name}-{least}", ONEFOLD, Sample(cold_read(ground, TARGET), more=done.told)
            yield f"{self.name}-{least}", OTHER, Sample(before)
            yield f"{self.name}-{least}-freed", ONEFOLD, Sample(gained / MIB)
        ground.shared_or_raise(done.told, length, self.name)
        yield f"{self.name}-random", ONEFOLD, self._random_reads(ground, settings)
        first, second = overwrites(ground.path(TARGET), stream_blocks, round_no)
        yield f"{self.name}-overwrite", ONEFOLD, Sample(first * 1000)
        yield f"{self.name}-overwrite", OTHER, Sample(second * 1000)
        ground.close()

    def _random_reads(self, ground, settings):
        ground.make_cold()
        path, seconds = ground.path(TARGET), settings.fio_seconds
        job = fio.for_seconds(path, settings.read_bytes, 1, seconds, ground.place.user, rw="randread")
        return Sample(job["read"]["iops"])


def cold_read(ground, name):
    """Returns at how many MB/s a file is read in sequence that is not in the page cache."""
    ground.make_cold()
    started, length = time.perf_counter(), 0
    buffer = bytearray(CHUNK_BYTES)
    with open(ground.path(name), "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            length += count
    return length / MB / (time.perf_counter() - started)


def overwrites(path, blocks, seed):
    """Writes to some of the first blocks of a file, twice; returns the medians of both times, in seconds."""
    block = mmap.mmap(-1, BLOCK_BYTES)
    places = random.Random(seed).sample(range(blocks), min(OVERWRITES, blocks))
    file = os.open(path, os.O_WRONLY | os.O_DIRECT)
    try:
        return [statistics.median(timed_write(file, block, place) for place in places) for _ in range(2)]
    finally:
        os.close(file)


def timed_write(file, block, place):
    block[:8] = time.monotonic_ns().to_bytes(8, "little")
    started = time.perf_counter()
    os.pwrite(file, block, place * BLOCK_BYTES)
    return time.perf_counter() - started
