"""A whole run of the rows about sharing at the tiniest size, as root where there are programs to measure with."""

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
NEEDED = ("fio", "mkfs.xfs", "mkfs.btrfs", "duperemove")


@unittest.skipUnless(ONEFOLD and os.geteuid() == 0, "needs root, and ONEFOLD to name the program to measure")
@unittest.skipUnless(SYNTHETIC and os.access(SYNTHETIC, os.X_OK), "needs onefold-synthetic beside it")
@unittest.skipUnless(all(map(shutil.which, NEEDED)), f"needs {', '.join(NEEDED)}")
class WholeRun(unittest.TestCase):
    def setUp(self):
        self.folder = paths.disk_folder(self)

    def start(self, *words):
        command = [sys.executable, paths.BENCH / "share.py", "--tiny", "--dir", self.folder, *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def assert_nothing_is_left(self):
        self.assertFalse((self.folder / "work").exists())
        self.assertNotIn(str(self.folder), mounts())
        self.assertNotIn(str(self.folder), loop_devices())

    def test_every_row_can_be_measured(self):
        process = self.start()
        out, err = process.communicate()
        self.assertEqual(process.returncode, 0, err)
        for part in ("speed", "costs"):
            document = json.loads((self.folder / f"share-{part}.json").read_text(encoding="utf-8"))
            self.assertTrue(document["complete"])
            lines = [line for row in document["rows"].values() for line in row["lines"].values()]
            self.assertTrue(all(line["samples"]["onefold"] for line in lines))
        self.assertNotIn("| not measured |", out)
        self.assert_nothing_is_left()

    def test_an_interrupted_run_leaves_nothing_behind(self):
        process = self.start("--only", "read-xfs", "--rounds", "100")
        deadline = time.monotonic() + 60
        while str(self.folder) not in mounts():
            self.assertLess(time.monotonic(), deadline, "the run does not get that far")
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        self.assertEqual(process.returncode, 130, err)
        self.assert_nothing_is_left()


def mounts():
    return Path("/proc/self/mountinfo").read_text(encoding="utf-8")


def loop_devices():
    words = ("losetup", "--list", "--noheadings", "--output", "BACK-FILE")
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    unittest.main()
