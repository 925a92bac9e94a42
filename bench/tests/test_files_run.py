"""A whole run of the rows about guest files at the tiniest size, as root where there are programs to measure with."""

import unittest

import whole

# One of each class: the others differ in the file system or in the images.
ROWS = ("machines", "set-fbs", "calls-xfs", "common", "waits-btrfs", "many")


@whole.needs_root_and_onefold
@whole.needs_synthetic
@whole.needs_programs("fio", "mkfs.xfs", "mkfs.btrfs", "mke2fs", "debugfs")
class WholeRun(whole.WholeRunCase):
    program = "files.py"

    def test_a_row_of_each_class_can_be_measured(self):
        out, _ = self.run_to_its_end(*(word for row in ROWS for word in ("--only", row)))
        self.assertEqual(self.assert_measured("files.json"), set())
        self.assertNotIn("| not measured |", out)
        self.assert_nothing_is_left()

    def test_an_interrupted_run_leaves_nothing_behind(self):
        self.interrupt_once(self.is_mounted, "--only", "waits-xfs", "--rounds", "100")


if __name__ == "__main__":
    unittest.main()
