"""A whole run of the rows about guests at the tiniest size, as root where there are programs to measure with."""

import unittest

import whole
from guest_rows.allocation import SCANS

# Rows whose other program or image may be missing.
MAY_BE_LEFT_OUT = {"virt-ls", "fls", "map-ntfs", "packages-desktop"} | {scan.name for scan in SCANS}


@whole.needs_root_and_onefold
@whole.needs_synthetic
@whole.needs_programs("fio", "mke2fs", "mkfs.xfs", "xfs_repair", "debugfs")
class WholeRun(whole.WholeRunCase):
    program = "guest.py"

    def test_every_row_can_be_measured(self):
        out, err = self.run_to_its_end()
        self.assertLessEqual(self.assert_measured("guest.json"), MAY_BE_LEFT_OUT, err)
        self.assertIn("| at least / aim |", out)
        self.assert_nothing_is_left()

    def test_an_interrupted_run_leaves_nothing_behind(self):
        def has_made_its_disk():
            return (self.folder / "work" / "root.device").exists()

        self.interrupt_once(has_made_its_disk, "--only", "first-byte", "--rounds", "1000")


if __name__ == "__main__":
    unittest.main()
