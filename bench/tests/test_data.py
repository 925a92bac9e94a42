"""The data is what it claims to be: unique where it says so, the same again for the same seed."""

import unittest

import paths  # noqa: F401
from lib.data import BLOCK_BYTES, CHUNK_BYTES, UniqueData


def blocks(seed, chunks):
    data = UniqueData(seed)
    for index in range(chunks):
        chunk = data.chunk(index)
        for start in range(0, CHUNK_BYTES, BLOCK_BYTES):
            yield bytes(chunk[start : start + BLOCK_BYTES])


class Data(unittest.TestCase):
    def test_all_blocks_of_streams_with_different_seeds_differ(self):
        seen = [block for seed in (0, 1, 2, 1001) for block in blocks(seed, 3)]
        self.assertEqual(len(set(seen)), len(seen))
        self.assertEqual(len(seen), 4 * 3 * CHUNK_BYTES // BLOCK_BYTES)

    def test_no_block_is_zero(self):
        self.assertNotIn(bytes(BLOCK_BYTES), set(blocks(0, 1)))

    def test_the_same_seed_gives_the_same_stream_again_in_any_order(self):
        first, second = UniqueData(7), UniqueData(7)
        later = bytes(first.chunk(5))
        second.chunk(0)
        self.assertEqual(bytes(second.chunk(5)), later)

    def test_a_stamp_is_the_beginning_of_its_block(self):
        data = UniqueData(9)
        begins = [int.from_bytes(block[:8], "little") for block in blocks(9, 2)]
        self.assertEqual(begins, [data.stamp(number) for number in range(len(begins))])

    def test_seeds_that_would_run_into_each_other_are_refused(self):
        for seed in (-1, 1 << 31):
            with self.assertRaises(ValueError):
                UniqueData(seed)


if __name__ == "__main__":
    unittest.main()
