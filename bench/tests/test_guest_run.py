"""A whole run of the rows about guests at the tiniest size, as root where there are programs to measure with."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import paths

ONEFOLD = os.environ.get("ONEFOLD")
SYNTHETIC = os.environ.get("ONEFOLD_SYNTHETIC") or (ONEFOLD and Path(ONEFOLD).with_name("onefold-synthetic"))
NEEDED = ("fio", "mke2fs", "mkfs.xfs", "xfs_repair", "debugfs")
# Rows whose other program or image may be missing.
MAY_BE_LEFT_OUT = {"virt-ls", "fls", "scan-ext4", "scan-xfs", "map-ntfs", "scan-ntfs", "packages-desktop"}


@unittest.skipUnless(ONEFOLD and os.geteuid() == 0, "needs root, and ONEFOLD to name the program to measure")
@unittest.skipUnless(SYNTHETIC and os.access(SYNTHETIC, os.X_OK), "needs onefold-synthetic beside it")
@unittest.skipUnless(all(map(shutil.which, NEEDED)), f"needs {', '.join(NEEDED)}")
class WholeRun(unittest.TestCase):
    def setUp(self):
        self.folder = paths.disk_folder(self)

    def start(self, *words):
        command = [sys.executable, paths.BENCH / "guest.py", "--tiny", "--dir", self.folder, *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def assert_nothing_is_left(self):
        self.assertFalse((self.folder / "work").exists())
        self.assertNotIn(str(self.folder), Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
        words = ("losetup", "--list", "--noheadings", "--output", "BACK-FILE")
        loops = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
        # One that goes by itself is said to be deleted.
        self.assertNotIn(str(self.folder), "\n".join(line for line in loops.splitlines() if "(deleted)" not in line))

    def test_every_row_can_be_measured(self):
        process = self.start()
        out, err = process.communicate()
        self.assertEqual(process.returncode, 0, err)
        document = json.loads((self.folder / "guest.json").read_text(encoding="utf-8"))
        self.assertTrue(document["complete"])
        left_out = {name for name, row in document["rows"].items() if "lines" not in row}
        self.assertLessEqual(left_out, MAY_BE_LEFT_OUT, err)
        measured = [row for row in document["rows"].values() if "lines" in row]
        for line in (line for row in measured for line in row["lines"].values()):
            self.assertTrue(line["samples"]["onefold"])
        self.assertIn("| at least / aim |", out)
        self.assert_nothing_is_left()

    def test_an_interrupted_run_leaves_nothing_behind(self):
        process = self.start("--only", "first-byte", "--rounds", "1000")
        deadline = time.monotonic() + 60
        while not (self.folder / "work" / "root.device").exists():
            self.assertLess(time.monotonic(), deadline, "the run does not get that far")
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        self.assertEqual(process.returncode, 130, err)
        self.assert_nothing_is_left()


if __name__ == "__main__":
    unittest.main()
