"""Data whose blocks are all different, made fast enough not to be what is measured.

One random MiB is made once. Each time it is used, every block of 4 KiB in it gets a number of its own, so that no two
blocks of a stream, or of two streams with different seeds, are equal, and none is zero. The same seed gives the same
stream again: that is how duplicates are made.
"""

import mmap
import random
from array import array

BLOCK_BYTES = 4096
CHUNK_BYTES = 1 << 20
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
        first = self.stamp(index * (CHUNK_BYTES // BLOCK_BYTES))
        self._stamps[:] = array("Q", range(first, first + CHUNK_BYTES // BLOCK_BYTES))
        return self._bytes

    def stamp(self, block):
        """Returns the first eight bytes of a block of the stream, as a number."""
        return self.seed << BLOCK_NO_BITS | block
