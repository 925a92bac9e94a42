"""A whole run of the rows for large pools at the tiniest size, as root where there are programs to measure with."""

import json
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

import paths

ONEFOLD = os.environ.get("ONEFOLD")
SYNTHETIC = os.environ.get("ONEFOLD_SYNTHETIC") or (ONEFOLD and Path(ONEFOLD).with_name("onefold-synthetic"))


@unittest.skipUnless(ONEFOLD and os.geteuid() == 0, "needs root, and ONEFOLD to name the program to measure")
@unittest.skipUnless(SYNTHETIC and os.access(SYNTHETIC, os.X_OK), "needs onefold-synthetic beside it")
class WholeRun(unittest.TestCase):
    def setUp(self):
        self.folder = paths.disk_folder(self)

    def start(self, *words):
        command = [sys.executable, paths.BENCH / "scale.py", "--tiny", "--dir", self.folder, *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def assert_nothing_is_left(self):
        self.assertFalse((self.folder / "work").exists())
        self.assertNotIn(str(self.folder), mounts())

    def test_every_row_can_be_measured(self):
        process = self.start()
        out, err = process.communicate()
        self.assertEqual(process.returncode, 0, err)
        document = json.loads((self.folder / "scale.json").read_text(encoding="utf-8"))
        self.assertTrue(document["complete"])
        self.assertNotIn("| not measured |", out)
        lines = [line for row in document["rows"].values() for line in row["lines"].values()]
        self.assertTrue(all(line["samples"]["pool"] for line in lines))
        self.assert_nothing_is_left()

    def test_an_interrupted_run_leaves_nothing_behind(self):
        process = self.start("--only", "curve", "--rounds", "100")
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


if __name__ == "__main__":
    unittest.main()
