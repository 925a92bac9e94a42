"""The data is what it claims to be: unique where it says so, the same again for the same seed."""

import unittest

import paths  # noqa: F401
from lib.data import BLOCK_BYTES, CHUNK_BLOCKS, CHUNK_BYTES, ImageData, OverwrittenData, ShuffledData, UniqueData


def blocks(seed, chunks):
    return blocks_of(UniqueData(seed), chunks)


def blocks_of(data, chunks):
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


class Mixtures(unittest.TestCase):
    def test_shuffled_data_holds_every_block_of_its_streams_once_in_whole_runs(self):
        for run_blocks in (1, 16):
            data = ShuffledData([3, 4], 2 * CHUNK_BLOCKS, run_blocks, order_seed=1)
            shuffled, plain = list(blocks_of(data, 4)), [*blocks(3, 2), *blocks(4, 2)]
            self.assertEqual(sorted(shuffled), sorted(plain))
            places = [plain.index(block) for block in shuffled]
            follows = sum(after == before + 1 for before, after in zip(places, places[1:]))
            # Within a run each block follows the one before it; from run to run hardly ever.
            within = len(places) - len(places) // run_blocks
            self.assertTrue(within <= follows <= within + 10, follows)

    def test_stamps_of_mixtures_are_the_beginnings_of_their_blocks(self):
        data = ShuffledData([3, 4], CHUNK_BLOCKS, 16, order_seed=1)
        begins = [int.from_bytes(block[:8], "little") for block in blocks_of(data, 2)]
        self.assertEqual(begins, [data.stamp(number) for number in range(len(begins))])
        data = OverwrittenData(3, 4, 200)
        for place in data.places:
            self.assertEqual(int.from_bytes(data.new_block(place)[:8], "little"), data.stamp(place))
        untouched = set(range(200)) - set(data.places)
        self.assertEqual(len(untouched), 180)
        self.assertTrue(all(data.stamp(place) == UniqueData(3).stamp(place) for place in untouched))

    def test_a_row_of_images_holds_as_many_distinct_blocks_as_it_says(self):
        images = [list(blocks_of(ImageData(50, number, 4), 4)) for number in range(3)]
        zero = bytes(BLOCK_BYTES)
        distinct = {block for image in images for block in image} - {zero}
        self.assertEqual(len(distinct), ImageData.distinct_blocks(3, 4))
        self.assertEqual([image.count(zero) for image in images], [256, 256, 256])
        self.assertEqual(len(images[0]) - images[0].count(zero), ImageData.stored_blocks(4))
        self.assertEqual(len(set(images[0]) & set(images[1]) - {zero}), 6 * 16 * 4)
        self.assertEqual(len(set(images[0]) & set(images[2]) - {zero}), 0)


if __name__ == "__main__":
    unittest.main()
