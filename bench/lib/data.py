"""Data for files, made fast enough not to be what is measured: blocks that are all different, and mixtures of them.

One random MiB is made once. Each time it is used, every block of 4 KiB in it gets a number of its own, so that no two
blocks of a stream, or of two streams with different seeds, are equal, and none is zero. The same seed gives the same
stream again: that is how duplicates are made.

Everything here has `chunk`, a MiB of the file, and `stamp`, how a block of it begins.
"""

import mmap
import random
from array import array

BLOCK_BYTES = 4096
CHUNK_BYTES = 1 << 20
CHUNK_BLOCKS = CHUNK_BYTES // BLOCK_BYTES
WORD_BYTES = 8

# A stamp is a seed above a block's number in its stream.
BLOCK_NO_BITS = 32
SEED_BITS = 31


class UniqueData:
    """A stream of chunks of 1 MiB, told apart from other streams by its seed."""

    def __init__(self, seed):
        if not 0 <= seed < 1 << SEED_BITS:
            raise ValueError(f"seed {seed} is not within 0..2^{SEED_BITS}")
        self.seed = seed
        # Anonymous memory starts at a page, as O_DIRECT wants it.
        buffer = mmap.mmap(-1, CHUNK_BYTES)
        buffer[:] = random.Random(seed).randbytes(CHUNK_BYTES)
        self._bytes = memoryview(buffer)
        self._stamps = self._bytes.cast("Q")[:: BLOCK_BYTES // WORD_BYTES]

    def chunk(self, index):
        """Returns chunk `index` of the stream. It is valid until the next call: all chunks share one buffer."""
        return self.run(index * CHUNK_BLOCKS, CHUNK_BLOCKS)

    def run(self, first, count):
        """Returns some blocks of the stream, all of one chunk; valid until the next call."""
        start, stamp = first % CHUNK_BLOCKS, self.stamp(first)
        self._stamps[start : start + count] = array("Q", range(stamp, stamp + count))
        return self._bytes[start * BLOCK_BYTES : (start + count) * BLOCK_BYTES]

    def stamp(self, block):
        """Returns the first eight bytes of a block of the stream, as a number."""
        return self.seed << BLOCK_NO_BITS | block


class ShuffledData:
    """Every block of several streams once, in runs whose order is shuffled: a file that shares its blocks with others.

    The streams have equal lengths, in whole runs; a run lies within one chunk of its stream.
    """

    def __init__(self, seeds, stream_blocks, run_blocks, order_seed):
        self._streams = [UniqueData(seed) for seed in seeds]
        self._run_blocks = run_blocks
        self._runs_per_stream = stream_blocks // run_blocks
        self._order = array("L", range(len(self._streams) * self._runs_per_stream))
        random.Random(order_seed).shuffle(self._order)
        self._bytes = memoryview(mmap.mmap(-1, CHUNK_BYTES))

    def chunk(self, index):
        """Returns chunk `index` of the file; valid until the next call."""
        run_bytes = self._run_blocks * BLOCK_BYTES
        for start in range(0, CHUNK_BYTES, run_bytes):
            self._bytes[start : start + run_bytes] = self.run((index * CHUNK_BYTES + start) // run_bytes)
        return self._bytes

    def run(self, place):
        """Returns the run at a place of the file, counted in runs."""
        stream, first = self._find(place)
        return stream.run(first, self._run_blocks)

    def stamp(self, block):
        stream, first = self._find(block // self._run_blocks)
        return stream.stamp(first + block % self._run_blocks)

    def _find(self, place):
        stream, run = divmod(self._order[place], self._runs_per_stream)
        return self._streams[stream], run * self._run_blocks


class OverwrittenData:
    """A stream a tenth of whose blocks, at random places, were replaced by those of another: what a used disk holds."""

    PART = 10

    def __init__(self, seed, overwriting_seed, blocks):
        self._before, self._after = UniqueData(seed), UniqueData(overwriting_seed)
        # In the order in which they are overwritten.
        self.places = random.Random(overwriting_seed).sample(range(blocks), blocks // self.PART)
        self._overwritten = set(self.places)

    def new_block(self, block):
        """Returns what overwrites a block."""
        return self._after.run(block, 1)

    def stamp(self, block):
        return (self._after if block in self._overwritten else self._before).stamp(block)


class ImageData:
    """One of a row of images: of each MiB a quarter is zero, 24 blocks of 64 are its own, 24 are the image's before it,
    in another order. The first image has nobody's before it.
    """

    RUN_BLOCKS = 16
    # Of the sixteen runs of a chunk: zero ones, its own, its forerunner's.
    ZERO, OWN, OLD = 4, 6, 6

    def __init__(self, seed, number, chunks):
        self._own = UniqueData(seed + number)
        # Each stream is as long as the runs that are taken of it, which have to be whole chunks of it.
        old_blocks = chunks * self.OLD * self.RUN_BLOCKS
        self._old = ShuffledData([seed + number - 1], old_blocks, self.RUN_BLOCKS, order_seed=seed + number)
        self._bytes = memoryview(mmap.mmap(-1, CHUNK_BYTES))

    @classmethod
    def distinct_blocks(cls, images, chunks):
        """Returns how many different blocks a row of images holds that are not zero."""
        return (images * cls.OWN + cls.OLD) * cls.RUN_BLOCKS * chunks

    @classmethod
    def stored_blocks(cls, chunks):
        """Returns how many blocks of one image are not zero."""
        return (cls.OWN + cls.OLD) * cls.RUN_BLOCKS * chunks

    def chunk(self, index):
        """Returns chunk `index` of the image; valid until the next call."""
        run_bytes, place = self.RUN_BLOCKS * BLOCK_BYTES, self.ZERO
        for number in range(self.OWN):
            run = self._own.run((index * self.OWN + number) * self.RUN_BLOCKS, self.RUN_BLOCKS)
            self._bytes[place * run_bytes : (place + 1) * run_bytes] = run
            place += 1
        for number in range(self.OLD):
            self._bytes[place * run_bytes : (place + 1) * run_bytes] = self._old.run(index * self.OLD + number)
            place += 1
        return self._bytes
