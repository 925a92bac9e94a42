"""The judge of images can say no."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest"))
from contents import TORN, parse, render, runs, unfold
from images import IMAGE_BLOCKS, Memory


class Contents(unittest.TestCase):
    def test_blocks_are_told_by_their_numbers(self):
        self.assertEqual(parse(render([0, 7, 1 << 57])), [0, 7, 1 << 57])

    def test_parts_of_two_blocks_are_no_block(self):
        one, two = render([7]), render([8])
        self.assertEqual(parse(one[:2048] + two[2048:]), [TORN])

    def test_runs_fold_and_unfold(self):
        numbers = [0, 0, 5, 6, 7, 9, TORN, 0]
        self.assertEqual(list(unfold(runs(numbers))), numbers)
        self.assertEqual(runs([0, 0, 5, 6]), [[0, 2], [5, 2]])


class Judge(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "memory")
        self.memory = Memory(self.path)
        self.found = list(range(100, 100 + IMAGE_BLOCKS))
        self.memory.note({"image": 0, "at": 0, "runs": [[100, IMAGE_BLOCKS]]})
        self.memory.note({"image": 0})

    def tearDown(self):
        self.folder.cleanup()

    def wrong(self, block, number):
        found = list(self.found)
        found[block] = number
        # As a host knows it after a restart.
        return Memory(self.path).wrong(0, found)

    def test_what_was_synced_must_be_there(self):
        self.assertEqual(Memory(self.path).wrong(0, self.found), [])
        self.assertEqual(self.wrong(3, 0), [(3, 0, [103])])
        self.assertEqual(self.wrong(3, 104), [(3, 104, [103])])

    def test_what_was_written_since_may_be_there(self):
        self.memory.note({"image": 0, "at": 3, "runs": [[900, 2]]})
        self.memory.note({"image": 0, "at": 4, "runs": [[0, 1]]})
        for block, number, is_allowed in [(3, 900, True), (3, 103, True), (3, 0, False), (4, 901, True), (4, 0, True), (4, 900, False)]:
            self.assertEqual(self.wrong(block, number) == [], is_allowed, (block, number))

    def test_what_was_there_before_a_sync_must_not_come_back(self):
        self.memory.note({"image": 0, "at": 3, "runs": [[900, 1]]})
        self.memory.note({"image": 0})
        self.assertEqual(self.wrong(3, 103), [(3, 103, [900])])
        self.assertEqual(self.wrong(3, 900), [])

    def test_what_a_power_cut_left_counts_from_then_on(self):
        self.memory.note({"image": 0, "at": 3, "runs": [[900, 1]]})
        self.memory.settle(0, self.found)
        self.assertEqual(self.wrong(3, 900), [(3, 900, [103])])
        self.assertEqual(self.wrong(3, 103), [])

    def test_a_line_that_was_cut_off_was_not_begun(self):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write('{"image": 0, "at"')
        self.assertEqual(Memory(self.path).wrong(0, self.found), [])

    def test_an_image_that_was_cut_off_is_wrong(self):
        self.assertNotEqual(Memory(self.path).wrong(0, self.found[:-1]), [])


if __name__ == "__main__":
    unittest.main()
