"""A whole run of the rows about sharing at the tiniest size, as root where there are programs to measure with."""

import unittest

import whole


@whole.needs_root_and_onefold
@whole.needs_synthetic
@whole.needs_programs("fio", "mkfs.xfs", "mkfs.btrfs", "duperemove")
class WholeRun(whole.WholeRunCase):
    program = "share.py"

    def test_every_row_can_be_measured(self):
        out, _ = self.run_to_its_end()
        for part in ("speed", "costs"):
            self.assertEqual(self.assert_measured(f"share-{part}.json"), set())
        self.assertNotIn("| not measured |", out)
        self.assert_nothing_is_left()

    def test_an_interrupted_run_leaves_nothing_behind(self):
        self.interrupt_once(self.is_mounted, "--only", "read-xfs", "--rounds", "100")


if __name__ == "__main__":
    unittest.main()
