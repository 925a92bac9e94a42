"""A whole run of the paper's experiments at the tiniest size, as root where there is a program to measure."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

import paths

ONEFOLD = os.environ.get("ONEFOLD")


@unittest.skipUnless(ONEFOLD and os.geteuid() == 0, "needs root, and ONEFOLD to name the program to measure")
class WholeRun(unittest.TestCase):
    def setUp(self):
        self.folder = paths.disk_folder(self)

    def run_paper(self, *words):
        command = [sys.executable, paths.BENCH / "paper.py", "--tiny", "--dir", self.folder, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def assert_nothing_is_left(self):
        self.assertFalse((self.folder / "work").exists())
        self.assertNotIn(str(self.folder), Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
        loops = subprocess.run(["losetup", "--list"], capture_output=True, text=True, check=True).stdout
        self.assertNotIn(str(self.folder), loops)

    def test_every_experiment_can_be_repeated_with_every_variant(self):
        finished = self.run_paper("--charts", self.folder / "charts")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        document = json.loads((self.folder / "paper.json").read_text(encoding="utf-8"))
        self.assertTrue(document["complete"])
        everybody = {"J", "S", "SJ", "all", "defaults", "ext4"}
        for series in ("write", "read", "duplicate", "insert", "insert-2", "fetch-1", "fetch-2"):
            self.assertEqual(set(document["values"][series]), everybody, series)
        self.assertEqual(set(document["values"]["recovery"]), everybody - {"S"})
        self.assertEqual(len(list((self.folder / "charts").glob("*.svg"))), 6)
        self.assert_nothing_is_left()

    def test_a_side_that_fails_is_named_and_the_others_are_measured(self):
        # A filter that no pool can have: only the paper's variants are given one.
        words = ("--only", "streams", "--variant", "SJ", "--variant", "ext4", "--filter-index-bits", "99")
        finished = self.run_paper(*words)
        self.assertEqual(finished.returncode, 1, finished.stderr)
        self.assertIn("- failed: streams, LiveDFS-SJ, round 1", finished.stdout)
        document = json.loads((self.folder / "paper.json").read_text(encoding="utf-8"))
        self.assertEqual(set(document["values"]["write"]), {"ext4"})
        self.assert_nothing_is_left()


if __name__ == "__main__":
    unittest.main()
