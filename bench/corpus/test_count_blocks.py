"""Tests of the naive counter: python3 -m unittest discover bench/corpus"""

import importlib.util
import os
import tempfile
import unittest
from pathlib import Path

spec = importlib.util.spec_from_file_location("count_blocks", Path(__file__).with_name("count-blocks.py"))
count_blocks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(count_blocks)

BLOCK = 4096


class CountBlocks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def image(self, name, contents, length=None):
        """Makes an image of the given blocks, each a filling byte or None for a hole."""
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            for index, filling in enumerate(contents):
                if filling is not None:
                    file.seek(index * BLOCK)
                    file.write(bytes([filling]) * BLOCK)
            file.truncate(length or len(contents) * BLOCK)
        return path

    def count(self, *paths):
        return count_blocks.count(paths, BLOCK)

    def test_written_zeros_and_holes_are_both_zero_blocks(self):
        images, _ = self.count(self.image("a", [0, None, 7, None, 0]))
        self.assertEqual(images[0]["blocks"], 5)
        self.assertEqual(images[0]["zero"], 4)
        self.assertEqual(images[0]["distinct"], 1)

    def test_equal_blocks_count_once_within_and_across_images(self):
        images, total = self.count(self.image("a", [1, 2, 1, 1]), self.image("b", [2, 3, 3]))
        self.assertEqual([image["distinct"] for image in images], [2, 2])
        self.assertEqual([image["new"] for image in images], [2, 1])
        self.assertEqual(total["distinct"], 3)

    def test_the_new_contents_add_up_to_the_total(self):
        images, total = self.count(*(self.image(str(n), [n, n + 1, n + 2, 0]) for n in range(1, 9)))
        self.assertEqual(sum(image["new"] for image in images), total["distinct"])

    def test_an_image_of_nothing_but_a_hole_is_all_zero(self):
        images, total = self.count(self.image("a", [], length=1000 * BLOCK))
        self.assertEqual(images[0]["zero"], 1000)
        self.assertEqual(total["distinct"], 0)

    def test_a_last_block_cut_short_counts_as_padded_with_zeros(self):
        short = self.image("a", [5])
        os.truncate(short, 100)
        padded = os.path.join(self.folder, "b")
        Path(padded).write_bytes(bytes([5]) * 100 + bytes(BLOCK - 100))
        _, total = self.count(short, padded)
        self.assertEqual((total["blocks"], total["distinct"]), (2, 1))

    def test_blocks_beyond_one_read_are_found(self):
        blocks = count_blocks.READ_BYTES // BLOCK + 3
        images, _ = self.count(self.image("a", [1 + index % 200 for index in range(blocks)]))
        self.assertEqual(images[0]["zero"], 0)
        self.assertEqual(images[0]["distinct"], 200)


if __name__ == "__main__":
    unittest.main()
