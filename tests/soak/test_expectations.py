"""The judge must be able to say no."""

import copy
import unittest

from contents import BLOCK_UNITS, Torn, distinct_blocks, numbers, parse, render, run, zeros
from expectations import Wrong, apply, judge


def write(path, at, first_block, blocks, do="write"):
    return {"do": do, "path": path, "at": at, "runs": [[first_block, blocks]], "skip": 0}


LOG = [
    ({"do": "create", "path": "a"}, None),
    (write("a", 0, 10, 2), 16),
    ({"do": "create", "path": "b"}, None),
    (write("b", 8, 20, 1), 8),
    ({"do": "rename", "path": "b", "to": "a"}, None),
]


def after(count):
    tree = {}
    for operation, done in LOG[:count]:
        apply(tree, operation, done)
    return copy.deepcopy(tree)


class Contents(unittest.TestCase):
    def test_what_is_rendered_is_parsed(self):
        values = run(7, 3) + zeros(5) + run(0, 1)
        self.assertEqual(parse(render(values)), values)

    def test_a_wrong_bit_is_torn(self):
        data = bytearray(render(run(7, 1)))
        data[600] ^= 1
        self.assertRaises(Torn, parse, bytes(data))
        self.assertRaises(Torn, parse, bytes(data[:100]))

    def test_equal_blocks_and_zeros_are_counted_once_and_not_at_all(self):
        self.assertEqual(distinct_blocks([run(5, 2) + zeros(BLOCK_UNITS), run(6, 2), numbers([48])]), 4)


class Judgement(unittest.TestCase):
    def test_every_state_since_the_promise_is_right(self):
        for count in range(2, len(LOG) + 1):
            self.assertEqual(judge({}, LOG, 2, after(count)), count)

    def test_a_lost_promise_is_wrong(self):
        self.assertRaises(Wrong, judge, {}, LOG, 4, after(3))

    def test_a_change_without_the_one_before_it_is_wrong(self):
        found = after(4)
        del found["a"]
        self.assertRaises(Wrong, judge, {}, LOG, 0, found)

    def test_a_write_of_whole_pages_is_there_or_not(self):
        found = after(1)
        found["a"] = run(10, 1)
        self.assertRaises(Wrong, judge, {}, LOG, 0, found)

    def test_a_mapping_may_be_written_in_part_but_never_with_anything_else(self):
        tree = {"a": run(1, 2)}
        log = [(write("a", 0, 30, 2, do="map"), None)]
        self.assertEqual(judge(dict(tree), log, 0, {"a": run(1, 1) + run(31, 1)}), 0)
        self.assertRaises(Wrong, judge, dict(tree), log, 0, {"a": run(1, 1) + run(40, 1)})
        self.assertRaises(Wrong, judge, dict(tree), log, 1, {"a": run(1, 1) + run(31, 1)})

    def test_a_short_write_has_only_what_it_said(self):
        tree = {}
        for operation, done in [LOG[0], (write("a", 0, 10, 2), 4)]:
            apply(tree, operation, done)
        self.assertEqual(tree["a"], run(10, 1)[:4])


if __name__ == "__main__":
    unittest.main()
