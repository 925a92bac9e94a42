"""A whole run of the rows about archives at the tiniest size, as root where there are programs to measure with."""

import unittest

import whole

# One of each class but the index's, which needs a program of its own; made-up images stand for all sets.
ROWS = ("derived", "metadata", "store", "install", "versions", "check", "savings-aligned", "paper-fbs")
# Of a program that cannot collect, of a machine without Ceph, and of one whose processes cannot be sampled.
MAY_LACK = {"collection", "s3", "stages"}


@whole.needs_root_and_onefold
@whole.needs_synthetic
@whole.needs_programs("mke2fs", "debugfs", "zstd", "fio")
class WholeRun(whole.WholeRunCase):
    program = "images.py"

    def test_a_row_of_each_class_can_be_measured(self):
        self.run_to_its_end(*(word for row in (*ROWS, *MAY_LACK) for word in ("--only", row)))
        self.assertEqual(self.assert_measured("images.json") - MAY_LACK, set())
        self.assert_nothing_is_left()

    def test_an_interrupted_run_leaves_nothing_behind(self):
        self.interrupt_once(self.is_mounted, "--only", "versions", "--rounds", "100")


if __name__ == "__main__":
    unittest.main()
