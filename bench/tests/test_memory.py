"""The page cache: filling free memory with it, and forgetting single files."""

import os
import unittest
from unittest import mock

import paths  # it makes the next imports possible
from lib import caches, memory  # noqa: I001

MIB = 1 << 20


class PageCache(unittest.TestCase):
    def setUp(self):
        self.path = paths.disk_folder(self) / "file"

    def is_cached(self, at):
        """Tells whether a page of the file can be read without waiting for the disk; skips where nothing tells."""
        with open(self.path, "rb") as file:
            try:
                return os.preadv(file.fileno(), [bytearray(4096)], at, os.RWF_NOWAIT) > 0
            except BlockingIOError:
                return False
            except OSError as error:
                self.skipTest(f"this file system does not tell what is cached: {error}")


class Filling(PageCache):
    def fill(self, *free):
        """Fills memory of which so much is found free, look by look."""
        with mock.patch.object(memory, "free_bytes", side_effect=free):
            return memory.Ballast(self.path).fill()

    def test_as_much_as_is_free_is_cached_and_takes_no_disk(self):
        with mock.patch.object(memory, "FREE_PART", 0):
            self.assertEqual(self.fill(9 * MIB + 4096, 0), 9 * MIB + 4096)
        self.assertEqual(self.path.stat().st_size, 9 * MIB + 4096)
        self.assertLess(self.path.stat().st_blocks * 512, MIB)
        self.assertTrue(all(self.is_cached(at) for at in range(0, 9 * MIB, MIB)))

    def test_the_next_filling_reads_what_was_never_read(self):
        with mock.patch.object(memory, "FREE_PART", 0):
            self.fill(2 * MIB, 0)
            self.fill(3 * MIB, 0)
        self.assertEqual(self.path.stat().st_size, 5 * MIB)

    def test_no_more_is_read_than_is_let(self):
        with mock.patch.object(memory, "FREE_PART", 0), mock.patch.object(memory, "free_bytes", side_effect=[9 * MIB, 0]):
            self.assertEqual(memory.Ballast(self.path, bytes_max=2 * MIB).fill(), 2 * MIB)

    def test_full_memory_is_left_alone(self):
        self.assertEqual(self.fill(int(memory.total_bytes() * memory.FREE_PART) - 1), 0)
        self.assertFalse(self.path.exists())

    def test_memory_that_does_not_get_full_ends_the_filling_all_the_same(self):
        with mock.patch.object(memory, "FREE_PART", 0):
            self.assertEqual(self.fill(*[MIB] * 100), memory.PASSES_MAX * MIB)

    def test_a_file_that_gets_too_long_begins_anew(self):
        with mock.patch.object(memory, "FREE_PART", 0), mock.patch.object(memory, "LENGTH_MAX", MIB):
            self.fill(2 * MIB, 0)
            self.fill(3 * MIB, 0)
        self.assertEqual(self.path.stat().st_size, 3 * MIB)


class Forgetting(PageCache):
    def test_a_file_is_written_back_and_forgotten_and_others_are_not(self):
        other = self.path.with_name("other")
        for path in (self.path, other):
            path.write_bytes(os.urandom(4 * MIB))
        self.assertTrue(self.is_cached(MIB))
        caches.forget(self.path)
        self.assertFalse(self.is_cached(MIB))
        self.path = other
        self.assertTrue(self.is_cached(MIB))

    def test_all_files_below_a_folder_are_forgotten(self):
        (self.path.parent / "below").mkdir()
        self.path = self.path.parent / "below" / "file"
        self.path.write_bytes(os.urandom(MIB))
        os.symlink("file", self.path.with_name("link"))
        caches.forget_all(self.path.parent.parent)
        self.assertFalse(self.is_cached(0))


if __name__ == "__main__":
    unittest.main()
